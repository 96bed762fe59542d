//! Waits: `epoll_wait`, `poll`, `select` and their variants, which drive the device.
use core::ffi::{c_int, c_long};
use libc::{pollfd, sigset_t};

/// A thread that drives, for the device's functions alone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Driver {
    /// The place of the thread among the drivers.
    pub place: c_int,
    /// The cancellation state of the thread outside of the wait.
    pub state: c_int,
}

/// The system call of the program.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Called {
    /// The number of the call.
    pub number: c_long,
    /// Its `epoll` set, or -1.
    pub set: c_int,
    /// How long it may wait, in nanoseconds; `u64::MAX` without a limit.
    pub limit: u64,
}

/// See [`Hooks::sleep`].
pub type Sleep = unsafe extern "C" fn(
    driver: Driver,
    kinds: c_int,
    polls: *mut pollfd,
    n: u64,
    until: u64,
    mask: *const sigset_t,
    call: &Called,
) -> c_int;

/// What the preloaded library calls in the program's waits.
#[repr(C)]
pub struct Hooks {
    /// Version of this structure.
    pub version: u32,
    /// The kinds of events of the device that `n` descriptors give. 0: none.
    pub kinds: unsafe extern "C" fn(polls: *const pollfd, n: u64) -> c_int,
    /// Drives the device once. 1: it is worth asking for the descriptors again.
    pub look: extern "C" fn(kinds: c_int) -> c_int,
    /// The thread is about to wait. 0: there is nothing to drive.
    ///
    /// 1: it drives. `driver` is for the other functions. Until `end`, the thread can be cancelled
    /// in `sleep` alone.
    ///
    /// 2: another thread drives. `end_alone` follows.
    pub begin: extern "C" fn(kinds: c_int, driver: &mut Driver) -> c_int,
    /// Sleeps on `n` descriptors, of which the last is the device's to fill in, until the time
    /// `until`. Returns 1 if it is worth asking, 0 when the time is over, or a negative errno. A
    /// cancellation point.
    pub sleep: Sleep,
    /// The wait is over.
    pub end: extern "C" fn(driver: Driver),
    /// The wait of a thread that did not drive is over.
    pub end_alone: extern "C" fn(),
    /// The thread is about to wait, and may not drive. Safe in the handler of a signal.
    pub does_not_drive: extern "C" fn(),
    /// The program has closed a descriptor.
    pub closed: extern "C" fn(fd: c_int),
    /// The program has duplicated a descriptor.
    pub copied: extern "C" fn(from: c_int, to: c_int),
    /// The program has changed an `epoll` set.
    pub controlled: extern "C" fn(set: c_int, how: c_int, fd: c_int),
}

/// The time and the limit of a call without a limit.
pub const FOREVER: u64 = u64::MAX;

/// The time of a wait is over.
pub const OVER: c_int = 0;

/// Version of [`Hooks`].
pub const VERSION: u32 = 3;
