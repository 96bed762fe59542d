//! The examination of a process that fails or hangs: when, and by which thread.
//!
//! - A thread `adverb-check` waits for questions: the parent writes a number to the file that
//!   [`ASK`] names. The thread examines the process, writes its reports, and says that it is done.
//!   A question wakes no thread of the program, so a hang stays as it is.
//! - A signal that ends the process wakes the same thread. The signal's handler waits for the
//!   reports, for a limited time, and then lets the signal end the process ([`super::fatal`]).
//! - With [`STUCK`], the thread itself finds out that all threads of the program sleep for ever,
//!   and SIGQUIT asks for an examination.
//! - At an end with another status than 0, the ending thread examines the process itself.
use super::fatal;
use super::report::place;
use super::scene::scene;
use super::still::StuckWatch;
use super::{Check, Known};
use adverb_check::Occasion;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The file whose existence asks the process to examine itself.
pub const ASK: &str = "ADVERB_CHECK_ASK";
/// Seconds after which a process without a waking thread is examined.
pub const STUCK: &str = "ADVERB_CHECK_STUCK";
/// The time between two looks for a question or a signal.
const PACE: Duration = Duration::from_millis(10);
/// A queue that is polled within this time counts as polled all the time.
const LOOK: Duration = Duration::from_millis(20);
/// Looks at the ledger, a millisecond apart, while its lock may belong to a thread that does not go
/// on.
pub(super) const LOOKS: u32 = 200;

/// Starts a thread of the check, without signals: the program's signal handlers must run on the
/// program's own threads.
pub(super) fn start_thread(run: impl FnOnce() + Send + 'static) -> bool {
    let mut old = SigSet::empty();
    let blocked = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut old));
    let started = blocked.is_ok()
        && std::thread::Builder::new().name("adverb-check".into()).spawn(run).is_ok();
    let _ = blocked.and_then(|()| pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&old), None));
    started
}

impl Check {
    /// Makes sure that this process has a thread for questions. The child of a fork gets its own
    /// thread at its first call.
    pub(super) fn see_to_examiner(&'static self) {
        let here = std::process::id().cast_signed();
        if self.examiner.swap(here, Ordering::SeqCst) == here {
            return;
        }
        if start_thread(|| self.wait_for_questions()) {
            fatal::watch(self.stuck_after.is_some());
        }
    }

    fn wait_for_questions(&'static self) {
        fatal::examines();
        self.say(&format!("examiner {}", std::process::id()));
        let mut answered = 0;
        let mut stillness = self.stuck_after.map(StuckWatch::new);
        loop {
            std::thread::sleep(PACE);
            match fatal::raised() {
                Some(fatal::QUIT) => {
                    self.examine(Occasion::Stuck);
                    fatal::answered();
                }
                Some(signal) => {
                    self.examine(Occasion::Signal(signal));
                    fatal::examined();
                    return;
                }
                None => {}
            }
            if stillness.as_mut().is_some_and(StuckWatch::begins) {
                self.examine(Occasion::Stuck);
            }
            let Some(ask) = &self.ask else { continue };
            let asked = std::fs::read_to_string(ask).ok().and_then(|text| text.trim().parse().ok());
            if let Some(number) = asked.filter(|number: &u64| *number > answered) {
                answered = number;
                self.examine(Occasion::Stuck);
                self.say(&format!("examined {} {number}", std::process::id()));
            }
        }
    }

    /// Examines the process, and makes the reports.
    pub(super) fn examine(&self, occasion: Occasion) {
        let interrupted = crate::errno::last() == libc::EINTR;
        // A thread at its end, or with a fault, may have interrupted itself in the ledger.
        let ends = matches!(occasion, Occasion::Status(_));
        let goes_on = !ends && fatal::is_outside();
        let looks = if goes_on { u32::MAX } else { LOOKS };
        let polls = || self.within(looks, |known| Some(known.ledger.as_ref()?.polls()));
        let mut polling = Vec::new();
        if goes_on && let Some(Some(before)) = polls() {
            std::thread::sleep(LOOK);
            let now = polls().flatten().unwrap_or_default();
            let polled = now.iter().filter(|(number, count)| before.get(number) != Some(count));
            polling.extend(polled.map(|(number, _)| *number));
            polling.sort_unstable();
        }
        let mut scene = scene(occasion, polling);
        if let Some(inside) = self.inside.try_lock() {
            for thread in &mut scene.threads {
                thread.place = inside.get(&thread.id).copied().unwrap_or(thread.place);
            }
        }
        // Outside of a hunt an exit status is no failure: many programs say something with it.
        let end = match ends {
            true if self.ask.is_some() => place(),
            true => 0,
            false => fatal::place(),
        };
        scene.interrupted = ends && interrupted;
        let reports =
            self.within(looks, |known| known.reports(|ledger| ledger.examine(&scene, end)).1);
        let Some(reports) = reports else { return };
        self.report_all(&reports);
        self.tell_picture();
    }

    /// Calls `f` with what the check knows, unless this many looks find the lock taken.
    pub(super) fn within<R>(&self, looks: u32, f: impl FnOnce(&mut Known) -> R) -> Option<R> {
        for _ in 0..looks {
            if let Some(mut known) = self.known.try_lock() {
                return Some(f(&mut known));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Adds a line to the file of reports.
    pub(super) fn say(&self, line: &str) {
        let Some(file) = &self.reports else { return };
        // The file is not created: the process that asked for it removes it when no process reads
        // it any more.
        let added = OpenOptions::new().append(true).open(file);
        if let Err(e) = added.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
            log::debug!("check: a line cannot be added to {}: {e}", file.display());
        }
    }
}
