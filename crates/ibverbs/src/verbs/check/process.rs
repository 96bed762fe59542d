//! Forks and the end of a process that is checked.
use super::{Check, check};
use crate::verbs::check::report::place;
use adverb_check::Ledger;
use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

/// The program cares for what its children share.
static FORK_SAFE: AtomicBool = AtomicBool::new(false);
/// A thread that holds the ledger when the process ends is waited for so long.
const LEDGER_WAIT: Duration = Duration::from_millis(200);

unsafe extern "C" {
    fn on_exit(f: extern "C" fn(c_int, *mut c_void), arg: *mut c_void) -> c_int;
}

type AtExit = extern "C" fn(c_int) -> c_int;
type Ask = unsafe extern "C" fn(AtExit);

/// The program asked for protection of its memory at forks.
pub fn asked_for_fork() {
    FORK_SAFE.store(true, Ordering::Relaxed);
}

/// Sees to it that forks and the end of the process are noticed.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of a library that is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child));
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
            if let Some(mut ledger) = self.ledger.try_lock() {
                ledger.at_exit(status, self.filled.load(Ordering::Relaxed));
                break ledger.reports();
            }
            if Instant::now() > end {
                break Vec::new();
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        reports.iter().for_each(|report| self.report(report));
        let (told, filled) = (self.told.load(Ordering::Relaxed), self.filled.load(Ordering::Relaxed));
        log::info!(
            "check: {told} report{}; of {filled} failed completion{} the undefined fields (opcode, byte_len, imm_data and \
             others) were filled with random values",
            if told == 1 { "" } else { "s" },
            if filled == 1 { "" } else { "s" }
        );
    }
}

unsafe extern "C" fn before_fork() {
    let Some(check) = check() else { return };
    if !FORK_SAFE.load(Ordering::Relaxed) {
        let maps = Maps::read();
        let place = place();
        check.tell(|ledger| ledger.forking(|at, len| maps.are_shared(at, len), place));
    }
    check.posting.iter().for_each(|lock| core::mem::forget(lock.lock()));
    core::mem::forget(check.ledger.lock());
}

unsafe extern "C" fn after_fork_parent() {
    if let Some(check) = check() {
        // SAFETY: locked before the fork, by this thread.
        unsafe { check.unlock() };
    }
}

unsafe extern "C" fn after_fork_child() {
    if let Some(check) = check() {
        // SAFETY: locked before the fork, by this thread, which is the only one.
        unsafe {
            // What the parent has is not the child's; its destructors may need locks of the
            // parent's other threads.
            check.ledger.data_ptr().write(Ledger::default());
            check.unlock();
        }
        check.told.store(0, Ordering::Relaxed);
        // Only this thread is in the child.
        check.watches.store(false, Ordering::Relaxed);
        // SAFETY: asks.
        check.process.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    }
}

impl Check {
    /// # Safety
    /// All are locked, by this thread.
    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.ledger.force_unlock();
            self.posting.iter().for_each(|lock| lock.force_unlock());
        }
    }
}

/// The mappings that a child gets copies of, on write.
struct Maps(Vec<(u64, u64)>);

impl Maps {
    fn read() -> Maps {
        let mut all = Vec::new();
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut range = None;
        for line in text.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:") {
                // Neither shared nor kept from children.
                let copied = !flags.split_whitespace().any(|flag| flag == "sh" || flag == "dc");
                all.extend(range.take().filter(|_| copied));
            } else if let Some(found) = Self::range(line) {
                range = Some(found);
            }
        }
        Maps(all)
    }

    fn range(line: &str) -> Option<(u64, u64)> {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    }

    /// Does a child share any of this?
    fn are_shared(&self, at: u64, len: u64) -> bool {
        self.0.iter().any(|(start, end)| *start < at + len && at < *end)
    }
}
