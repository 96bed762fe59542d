//! The end of a checked process.
use super::Check;
use super::examiner::LOOKS;
use adverb_check::Occasion;
use core::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

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
        if status != 0 {
            self.examine(Occasion::Status(status));
        }
        let filled = self.filled.load(Ordering::Relaxed);
        let reports =
            self.within(LOOKS, |known| known.reports(|ledger| ledger.at_exit(status, filled)).1);
        self.report_all(&reports.unwrap_or_default());
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
