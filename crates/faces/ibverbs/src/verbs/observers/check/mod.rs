//! `adverb run --check`: tells the program's calls to a ledger ([`adverb_check`]), and logs the
//! resulting reports.
mod answers;
mod calls;
mod edge;
mod end;
mod examiner;
mod extended;
mod fatal;
mod fork;
mod objects;
mod picture;
mod report;
mod scene;
mod stacks;
mod still;
mod sums;
mod threads;

use super::call::{Call, CallOutcome, Event, Taken, What};
use super::observer::{Observer, When};
use super::uninterrupted::{Uninterrupted, turn_on};
use crate::verbs::failure;
use adverb_check::{Ledger, Report, Suppressions};
use adverb_device::Qp;
use adverb_sync::{Mutex, MutexGuard};
use calls::Kept;
use fork::Forks;
use report::{Stack, Ways, stack};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

/// Asks for the check, if set and neither empty nor 0.
pub const VARIABLE: &str = "ADVERB_CHECK";
/// The file of suppressions.
pub const SUPPRESS: &str = "ADVERB_CHECK_SUPPRESS";
/// The exit status of a program with reports that would have ended with 0.
pub const EXIT: &str = "ADVERB_CHECK_EXIT";

/// The file to which reports are also appended, one line each ([`adverb_check::Told`]).
pub const REPORTS: &str = "ADVERB_CHECK_REPORTS";

/// Locks for posting to a queue pair, so that the ledger sees requests in order.
const LOCKS: usize = 64;

/// The check's knowledge of the process.
struct Known {
    /// `None` until the first call seen by the check.
    ledger: Option<Ledger>,
    forks: Forks,
    ways: Ways,
}

impl Known {
    /// The initial state in the child of a fork, written without an allocation.
    const NOTHING: Known = Known { ledger: None, forks: Forks::NONE, ways: Ways::NONE };

    /// Calls `f`, and answers the resulting reports, after reports of earlier forks. A report of a
    /// fork has the stack of the fork.
    fn reports<R>(
        &mut self,
        f: impl FnOnce(&mut Ledger) -> R,
    ) -> (R, Vec<(Report, Option<Stack>)>) {
        let ledger = self.ledger.get_or_insert_default();
        let mut all = self.forks.take(ledger);
        let result = f(ledger);
        all.extend(ledger.reports().into_iter().map(|report| (report, None)));
        (result, all)
    }
}

/// The state of a checked process.
pub struct Check {
    known: Mutex<Known>,
    posting: [Mutex<()>; LOCKS],
    /// Queue pairs without retransmission, with sends whose bytes are still to be compared.
    datagrams: Mutex<BTreeMap<u32, Weak<Qp>>>,
    /// The places of calls that may wait, by the number of the calling thread.
    inside: Mutex<BTreeMap<i32, usize>>,
    suppressions: Suppressions,
    reports: Option<PathBuf>,
    /// The file that asks for an examination.
    ask: Option<PathBuf>,
    /// The process is examined after all threads have slept for this time, and at SIGQUIT.
    stuck_after: Option<Duration>,
    exit: Option<i32>,
    /// Number of reports so far, without those about a program that has not failed.
    told: AtomicU64,
    /// Number of failed completions with filled undefined fields.
    filled: AtomicU64,
    /// Is a thread watching events that were left?
    watches: AtomicBool,
    /// The process with a thread for questions.
    examiner: AtomicI32,
    /// The checked process. Its children begin anew.
    process: AtomicI32,
}

/// The check, as an entry of the list.
pub struct Checking;

impl Observer for Checking {
    type Kept = Kept;

    fn begin(&self, when: When) {
        if when == When::Use {
            init();
        }
    }

    fn is_on(&self) -> bool {
        check().is_some()
    }

    fn before(&self, call: &Call<'_>) -> Result<Kept, CallOutcome> {
        let Some(check) = check() else { return Ok(Kept::Nothing) };
        let _part = Uninterrupted::begin();
        // SAFETY: the program's arguments, valid during the call.
        unsafe { check.before(call) }
    }

    fn after(&self, call: &Call<'_>, outcome: &mut CallOutcome, kept: Kept) {
        if let Some(check) = check() {
            let _part = Uninterrupted::begin();
            // SAFETY: as above; the call has returned.
            unsafe { check.after(call, outcome, kept) }
        }
    }

    fn told(&self, event: &mut Event<'_>) {
        if let Some(check) = check() {
            let _part = Uninterrupted::begin();
            check.told_of(event);
        }
    }
}

static CHECK: OnceLock<Option<Box<Check>>> = OnceLock::new();

/// The check of this process, if there is a check.
#[inline]
fn check() -> Option<&'static Check> {
    CHECK.get()?.as_deref()
}

/// Checks once whether the process asks for the check.
fn init() {
    CHECK.get_or_init(|| {
        let on = adverb_os::chosen(VARIABLE).is_some_and(|v| !v.is_empty() && v != "0");
        on.then(|| Box::new(Check::asked()))
    });
    if check().is_some() {
        turn_on();
        failure::keep();
    }
}

impl Check {
    fn asked() -> Check {
        let file = adverb_os::chosen(SUPPRESS).filter(|v| !v.is_empty());
        let suppressions = file.map_or_else(Suppressions::default, |file| {
            let read = std::fs::read_to_string(&file).map_err(|e| e.to_string());
            read.and_then(|text| text.parse().map_err(|e: adverb_check::Bad| e.to_string()))
                .unwrap_or_else(|why| {
                    log::error!("{SUPPRESS}: {}: {why}", file.display());
                    Suppressions::default()
                })
        });
        Check {
            known: Mutex::new(Known::NOTHING),
            posting: [const { Mutex::new(()) }; LOCKS],
            datagrams: Mutex::new(BTreeMap::new()),
            inside: Mutex::new(BTreeMap::new()),
            suppressions,
            reports: adverb_os::chosen(REPORTS).filter(|v| !v.is_empty()).map(PathBuf::from),
            ask: adverb_os::chosen(examiner::ASK).filter(|v| !v.is_empty()).map(PathBuf::from),
            stuck_after: adverb_os::chosen(examiner::STUCK)
                .and_then(|v| v.to_str()?.trim().parse().ok())
                .map(Duration::from_secs),
            exit: adverb_os::chosen(EXIT).and_then(|v| v.to_str()?.trim().parse().ok()),
            told: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            watches: AtomicBool::new(false),
            examiner: AtomicI32::new(0),
            process: AtomicI32::new(std::process::id() as i32),
        }
    }

    /// Excludes other posts to a queue pair.
    fn alone(&self, number: u32) -> MutexGuard<'_, ()> {
        self.posting[number as usize % LOCKS].lock()
    }

    /// As [`Self::alone`], unless a thread posts now.
    fn try_alone(&self, number: u32) -> Option<MutexGuard<'_, ()>> {
        self.posting[number as usize % LOCKS].try_lock()
    }

    /// Calls the ledger, and logs the resulting reports.
    fn tell<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> R {
        let (result, reports) = self.known.lock().reports(f);
        self.report_all(&reports);
        result
    }

    fn report_all(&self, reports: &[(Report, Option<Stack>)]) {
        for (report, of) in reports {
            self.report(report, &of.unwrap_or_else(stack));
        }
    }
}
