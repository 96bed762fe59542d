//! `epoll_wait`, `poll`, `select` and their variants, which drive the device while they wait.
//!
//! The device registers [`Hooks`] when it is opened. A call whose descriptors give no event of the
//! device goes straight to the C library. For any other call:
//!
//! 1. `Waiting::run` asks the C library's function with a time-out of zero. A call that finds
//!    something, or that may not wait, returns.
//! 2. All signals are blocked, so that each signal arrives in the sleep and ends it with EINTR, as
//!    in the kernel's call.
//! 3. `Hooks::sleep` receives packets, and sleeps on the program's descriptors and the device's.
//! 4. The C library's function is asked again, and so on.
//!
//! A wait in a signal handler goes straight to the C library, too (`handler`).
//!
//! So each result is the kernel's own, and no memory of the program is read that the kernel would
//! refuse (`program`).

mod epoll;
mod handler;
mod hooks;
mod poll;
mod program;
mod select;

use core::ffi::{c_int, c_long, c_void};
use core::mem::MaybeUninit;

use adverb_hooks::waits::{Called, Driver, FOREVER, Hooks, OVER};
pub use epoll::{adverb_preload_epoll_ctl, adverb_preload_epoll_pwait, adverb_preload_epoll_wait};
pub use hooks::{closed, copied};
use libc::{pollfd, sigset_t, timespec};
pub use poll::{adverb_preload_poll, adverb_preload_ppoll};

use crate::real::{self, errno, set_errno};

/// Most descriptors of a call that drives.
const MOST: usize = 128;
/// A call that was told so often that it is worth asking, in vain, does not drive.
const VAIN: u32 = 4;

/// Answers of `Hooks::begin`.
const DRIVES: c_int = 1;
const ALONE: c_int = 2;

const SECOND: u64 = 1_000_000_000;

/// Room for the descriptors of a call, and for the device's.
type Polls = [pollfd; MOST + 1];

const NO_POLLS: Polls = [pollfd { fd: -1, events: 0, revents: 0 }; MOST + 1];

/// How long a call may wait, in nanoseconds. `None`: for ever.
type Limit = Option<u64>;

fn of_millis(millis: c_int) -> Limit {
    u64::try_from(millis).ok().map(|millis| millis * 1_000_000)
}

/// Rounded up, so that no wait is too short.
fn to_millis(limit: Limit) -> c_int {
    limit.map_or(-1, |nanos| c_int::try_from(nanos.div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// The limit of a `timespec`, null for none. `Err`: the kernel refuses the value.
///
/// # Safety
/// `time` is null or the caller's.
unsafe fn of_time(time: *const timespec) -> Result<Limit, ()> {
    // SAFETY: the caller's promise.
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    match (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos)) if nanos < SECOND => {
            Ok(Some(seconds.saturating_mul(SECOND).saturating_add(nanos)))
        }
        _ => Err(()),
    }
}

/// As [`of_time`], for a pointer of the program. `None`: the call does not drive, because the
/// kernel refuses the value or the pointer.
fn readable_time(time: *const timespec) -> Option<Limit> {
    let is_readable = time.is_null() || program::is_readable(time.cast(), size_of::<timespec>());
    // SAFETY: the pointer is null or can be read.
    if is_readable { unsafe { of_time(time) }.ok() } else { None }
}

/// Calls `with` with the limit as a `timespec`; null for none.
fn with_time(limit: Limit, with: impl FnOnce(*const timespec) -> c_int) -> c_int {
    let time = limit.map(|nanos| timespec {
        tv_sec: (nanos / SECOND) as libc::time_t,
        tv_nsec: (nanos % SECOND) as libc::c_long,
    });
    with(time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref))
}

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    let mut time = MaybeUninit::<timespec>::zeroed();
    // SAFETY: the C library fills the structure; all zeroes is a value too.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    (time.tv_sec as u64).saturating_mul(SECOND).saturating_add(time.tv_nsec as u64)
}

/// The signals that are blocked while a call is not asleep: all but those that a thread causes
/// itself, and those of the C library.
const BLOCKED: u64 = {
    let own = [
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGSYS,
        32,
        33,
    ];
    let (mut all, mut at) = (u64::MAX, 0);
    while at < own.len() {
        all &= !(1 << (own[at] - 1));
        at += 1;
    }
    all
};

/// Changes the thread's blocked signals, and returns those of before.
fn block(how: c_int, set: u64) -> u64 {
    let mut before = 0_u64;
    let size = size_of::<u64>();
    // SAFETY: the kernel reads and writes eight bytes each.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut before, size);
    }
    before
}

/// A system call of the program.
fn called(number: c_long, set: c_int, limit: Limit) -> Called {
    Called { number, set, limit: limit.unwrap_or(FOREVER) }
}

/// A call that waits for an event of the device.
struct Waiting<A, B> {
    hooks: &'static Hooks,
    /// The kinds of events, as [`Hooks::kinds`] told.
    kinds: c_int,
    call: Called,
    /// The program's mask for the wait, or null.
    mask: *const sigset_t,
    /// The C library's function with a time-out of zero.
    ask: A,
    /// The C library's function, for a wait that does not drive.
    alone: B,
}

impl<A: FnMut() -> c_int, B: Fn(Limit) -> c_int> Waiting<A, B> {
    /// `polls`: `n` descriptors of the program, and one free place.
    fn run(&mut self, polls: &mut Polls, n: usize) -> c_int {
        let before = errno();
        let found = (self.ask)();
        if found != 0 {
            return found;
        }
        // No handler runs before the sleep. It could leave by `longjmp`, with a lock held.
        let outside = block(libc::SIG_BLOCK, BLOCKED);
        let limit = Some(self.call.limit).filter(|limit| *limit != FOREVER);
        if limit == Some(0) {
            let worth = (self.hooks.look)(self.kinds) != 0;
            block(libc::SIG_SETMASK, outside);
            set_errno(before);
            // The program's mask may open a signal that waits.
            return if worth || !self.mask.is_null() { (self.alone)(Some(0)) } else { 0 };
        }
        let mut driver = Driver { place: -1, state: 0 };
        let how = (self.hooks.begin)(self.kinds, &mut driver);
        if how != DRIVES {
            block(libc::SIG_SETMASK, outside);
            set_errno(before);
            let found = (self.alone)(limit);
            if how == ALONE {
                let error = errno();
                (self.hooks.end_alone)();
                set_errno(error);
            }
            return found;
        }
        let until = limit.map_or(FOREVER, |limit| now().saturating_add(limit));
        let result = self.sleep(polls, n, driver, until, outside);
        let error = errno();
        (self.hooks.end)(driver);
        block(libc::SIG_SETMASK, outside);
        set_errno(if matches!(result, Some(-1)) { error } else { before });
        match result {
            Some(result) => result,
            None if until == FOREVER => (self.alone)(None),
            None => (self.alone)(Some(until.saturating_sub(now()))),
        }
    }

    /// `None`: the call goes on without driving.
    fn sleep(
        &mut self,
        polls: &mut Polls,
        n: usize,
        driver: Driver,
        until: u64,
        outside: u64,
    ) -> Option<c_int> {
        let mut own = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: the kernel's set is the beginning of the C library's.
        unsafe { own.as_mut_ptr().cast::<u64>().write(outside) };
        let mask = if self.mask.is_null() { own.as_ptr() } else { self.mask };
        let n = n.min(MOST) as u64 + 1;
        for _ in 0..VAIN {
            let (polls, sleep) = (polls.as_mut_ptr(), self.hooks.sleep);
            // SAFETY: `polls` has `n` entries, and the mask is a set or the program's address.
            let woken = unsafe { sleep(driver, self.kinds, polls, n, until, mask, &self.call) };
            if woken < 0 {
                set_errno(-woken);
                return Some(-1);
            }
            let found = (self.ask)();
            if found != 0 || woken == OVER {
                return Some(found);
            }
        }
        None
    }
}

/// Registers hooks, once. Returns the C library's `ppoll`, or null if the version differs.
///
/// # Safety
/// The structure and its functions stay valid as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_adverb_wait_hooks(hooks: *const Hooks) -> *mut c_void {
    let Some(ppoll) = poll::PPOLL.get() else { return core::ptr::null_mut() };
    // SAFETY: the caller's promise.
    handler::learn();
    // SAFETY: the caller's promise.
    let known = unsafe { hooks::register(hooks) };
    if known { ppoll } else { core::ptr::null_mut() }
}

/// Looks up the C library's functions.
pub fn look_up() {
    [epoll::REALS, poll::REALS, select::REALS].into_iter().for_each(real::look_up);
}
