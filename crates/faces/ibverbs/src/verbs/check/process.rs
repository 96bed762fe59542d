//! The end of a process that is checked.
use super::fork;
use super::{Check, check};
use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

/// A thread that holds the ledger when the process ends is waited for so long.
const LEDGER_WAIT: Duration = Duration::from_millis(200);

unsafe extern "C" {
    fn on_exit(f: extern "C" fn(c_int, *mut c_void), arg: *mut c_void) -> c_int;
}

type AtExit = extern "C" fn(c_int) -> c_int;
type Ask = unsafe extern "C" fn(AtExit);

/// Sees to it that forks and the end of the process are noticed.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of a library that is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(fork::before), Some(fork::after_in_parent), Some(fork::after_in_child));
            on_exit(exits, core::ptr::null_mut());
        }
        // `_exit` calls nobody: the preloaded library tells of it.
        // SAFETY: a string; the call only looks.
        let ask = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"adverb_exit_hook".as_ptr()) };
        if !ask.is_null() {
            // SAFETY: only the preloaded library has the name, with this signature.
            let ask: Ask = unsafe { core::mem::transmute(ask) };
            // SAFETY: a function of a library that is never unloaded.
            unsafe { ask(finish) };
        }
    });
}

extern "C" fn exits(status: c_int, _: *mut c_void) {
    let wanted = finish(status);
    if wanted != status {
        // SAFETY: the rest of what is to be called at the end is called, and then this status is
        // that of the process (glibc).
        unsafe { libc::exit(wanted) };
    }
}

/// What else is to be done at the end.
static AT_END: OnceLock<fn()> = OnceLock::new();

/// Has it called when the process ends by `exit`, `_exit` or `abort`; and when a child of `vfork`
/// does, in the memory of its parent, which the function has to tell apart.
pub fn at_end(f: fn()) {
    if AT_END.set(f).is_ok() {
        watch();
    }
}

/// The process ends: the last reports, once; answers the status that it is to end with.
pub extern "C" fn finish(status: c_int) -> c_int {
    if let Some(f) = AT_END.get() {
        f();
    }
    static DONE: AtomicBool = AtomicBool::new(false);
    // SAFETY: asks. A child made by vfork runs in the memory of its parent.
    let here = unsafe { libc::getpid() };
    let Some(check) = check().filter(|check| check.process.load(Ordering::Relaxed) == here) else {
        return status;
    };
    if !DONE.swap(true, Ordering::Relaxed) {
        check.last_reports(status);
    }
    let told = check.told.load(Ordering::Relaxed);
    check.exit.filter(|_| status == 0 && told > 0).unwrap_or(status)
}

impl Check {
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
        let (told, filled) = (self.told.load(Ordering::Relaxed), self.filled.load(Ordering::Relaxed));
        log::info!(
            "check: {told} report{}; of {filled} failed completion{} the undefined fields (opcode, byte_len, imm_data and \
             others) were filled with random values",
            if told == 1 { "" } else { "s" },
            if filled == 1 { "" } else { "s" }
        );
    }
}
