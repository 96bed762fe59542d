//! The end of a checked process.
use super::Check;
use core::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The wait for a thread that holds the ledger when the process ends.
const LEDGER_WAIT: Duration = Duration::from_millis(200);

impl Check {
    /// The process ends: makes the last reports, once. Answers the status for the end.
    pub(super) fn end(&self, status: c_int) -> c_int {
        static DONE: AtomicBool = AtomicBool::new(false);
        // SAFETY: only reads a number. A child made by vfork runs in its parent's memory.
        let here = unsafe { libc::getpid() };
        if self.process.load(Ordering::Relaxed) != here {
            return status;
        }
        if !DONE.swap(true, Ordering::Relaxed) {
            self.last_reports(status);
        }
        let told = self.told.load(Ordering::Relaxed);
        self.exit.filter(|_| status == 0 && told > 0).unwrap_or(status)
    }

    fn last_reports(&self, status: c_int) {
        let end = Instant::now() + LEDGER_WAIT;
        let reports = loop {
            if let Some(mut known) = self.known.try_lock() {
                let filled = self.filled.load(Ordering::Relaxed);
                break known.reports(|ledger| ledger.at_exit(status, filled)).1;
            }
            if Instant::now() > end {
                break Vec::new();
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        self.report_all(&reports);
        let (told, filled) =
            (self.told.load(Ordering::Relaxed), self.filled.load(Ordering::Relaxed));
        log::info!(
            "check: {told} report{}; of {filled} failed completion{} the undefined fields (opcode, byte_len, imm_data and \
             others) were filled with random values",
            if told == 1 { "" } else { "s" },
            if filled == 1 { "" } else { "s" }
        );
    }
}
