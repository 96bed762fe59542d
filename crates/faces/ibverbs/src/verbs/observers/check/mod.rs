//! `adverb run --check`: what the program calls goes to a ledger ([`adverb_check`]), and what
//! follows from it to the log.
mod calls;
mod edge;
mod end;
mod extended;
mod fork;
mod objects;
mod report;
mod sums;

use super::call::{Call, Event, Outcome, Taken, What};
use super::observer::{Observer, When};
use crate::verbs::failure;
use adverb_check::{Ledger, Report, Suppressions};
use adverb_sync::{Mutex, MutexGuard};
use calls::Kept;
use fork::Forks;
use report::{Stack, stack};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};

/// Asks for the check, if it is set and neither empty nor 0.
pub const VARIABLE: &str = "ADVERB_CHECK";
/// The file of suppressions.
pub const SUPPRESS: &str = "ADVERB_CHECK_SUPPRESS";
/// The exit status of a program that was reported on, and would have ended with 0.
pub const EXIT: &str = "ADVERB_CHECK_EXIT";

/// The file to which reports are added, too, a line each ([`adverb_check::Told`]).
pub const REPORTS: &str = "ADVERB_CHECK_REPORTS";

/// Locks under which a queue pair is posted to, so that the ledger has requests in their order.
const LOCKS: usize = 64;

/// What the check knows of the process.
struct Known {
    /// None until the first call that the check sees.
    ledger: Option<Ledger>,
    forks: Forks,
}

impl Known {
    /// The child of a fork begins with this, which is written without an allocation.
    const NOTHING: Known = Known { ledger: None, forks: Forks::NONE };

    /// Calls `f`, and answers the reports that follow, those of earlier forks first. A fork's
    /// report has the stack of the fork.
    fn reports<R>(&mut self, f: impl FnOnce(&mut Ledger) -> R) -> (R, Vec<(Report, Option<Stack>)>) {
        let ledger = self.ledger.get_or_insert_default();
        let mut all = self.forks.take(ledger);
        let result = f(ledger);
        all.extend(ledger.reports().into_iter().map(|report| (report, None)));
        (result, all)
    }
}

/// What a process that is checked has.
pub struct Check {
    known: Mutex<Known>,
    posting: [Mutex<()>; LOCKS],
    suppressions: Suppressions,
    reports: Option<PathBuf>,
    exit: Option<i32>,
    /// Reports so far.
    told: AtomicU64,
    /// Failed completions whose undefined fields were filled.
    filled: AtomicU64,
    /// A thread looks after events that were left.
    watches: AtomicBool,
    /// The process that is checked; its children begin anew.
    process: AtomicI32,
}

/// The check, as an entry of the list.
pub struct Checking;

impl Observer for Checking {
    type Kept = Kept;

    fn name(&self) -> &'static str {
        "check"
    }

    fn begin(&self, when: When) {
        if when == When::Use {
            init();
        }
    }

    fn is_on(&self) -> bool {
        check().is_some()
    }

    fn before(&self, call: &Call<'_>) -> Result<Kept, Outcome> {
        let Some(check) = check() else { return Ok(Kept::Nothing) };
        // SAFETY: what the program passes, valid during the call.
        unsafe { check.before(call) }
    }

    fn after(&self, call: &Call<'_>, outcome: &mut Outcome, kept: Kept) {
        if let Some(check) = check() {
            // SAFETY: as above; the call has returned.
            unsafe { check.after(call, outcome, kept) }
        }
    }

    fn told(&self, event: &mut Event<'_>) {
        if let Some(check) = check() {
            check.told_of(event);
        }
    }
}

static CHECK: OnceLock<Option<Box<Check>>> = OnceLock::new();

/// The check of this process, if it is checked.
#[inline]
fn check() -> Option<&'static Check> {
    CHECK.get()?.as_deref()
}

/// Looks whether the process is to be checked, once.
fn init() {
    CHECK.get_or_init(|| {
        let on = adverb_os::chosen(VARIABLE).is_some_and(|v| !v.is_empty() && v != "0");
        on.then(|| Box::new(Check::asked()))
    });
    if check().is_some() {
        failure::keep();
    }
}

impl Check {
    fn asked() -> Check {
        let file = adverb_os::chosen(SUPPRESS).filter(|v| !v.is_empty());
        let suppressions = file.map_or_else(Suppressions::default, |file| {
            let read = std::fs::read_to_string(&file).map_err(|e| e.to_string());
            read.and_then(|text| text.parse().map_err(|e: adverb_check::Bad| e.to_string())).unwrap_or_else(
                |why| {
                    log::error!("{SUPPRESS}: {}: {why}", file.display());
                    Suppressions::default()
                },
            )
        });
        Check {
            known: Mutex::new(Known::NOTHING),
            posting: [const { Mutex::new(()) }; LOCKS],
            suppressions,
            reports: adverb_os::chosen(REPORTS).filter(|v| !v.is_empty()).map(PathBuf::from),
            exit: adverb_os::chosen(EXIT).and_then(|v| v.to_str()?.trim().parse().ok()),
            told: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            watches: AtomicBool::new(false),
            process: AtomicI32::new(std::process::id() as i32),
        }
    }

    /// Keeps other posts to a queue pair away.
    fn alone(&self, number: u32) -> MutexGuard<'_, ()> {
        self.posting[number as usize % LOCKS].lock()
    }

    /// Tells the ledger something, and the log what follows.
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
