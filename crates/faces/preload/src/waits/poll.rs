//! `poll` and `ppoll`.

use core::ffi::{c_int, c_long};

use libc::{nfds_t, pollfd, sigset_t, timespec};

use super::hooks::driving;
use super::program::is_readable;
use super::{
    Limit, MOST, NO_POLLS, Waiting, called, of_millis, readable_time, to_millis, with_time,
};
use crate::real::{call, reals, replaced};
use adverb_hooks::waits::Hooks;

reals! {
    POLL = c"poll";
    PPOLL = c"ppoll";
    POLL_CHK = c"__poll_chk";
    PPOLL_CHK = c"__ppoll_chk";
}

/// The system call of `poll`.
#[cfg(target_arch = "x86_64")]
const POLL_CALL: c_long = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
const POLL_CALL: c_long = libc::SYS_ppoll;

/// The hooks and the kinds of events, if a descriptor is a channel's.
fn watched(polls: *const pollfd, n: nfds_t) -> Option<(&'static Hooks, c_int)> {
    let hooks = driving()?;
    let len = (n as usize).checked_mul(size_of::<pollfd>())?;
    if n == 0 || n as usize > MOST || !is_readable(polls.cast(), len) {
        return None;
    }
    // SAFETY: the program's entries, which can be read.
    let kinds = unsafe { (hooks.kinds)(polls, n) };
    (kinds != 0).then_some((hooks, kinds))
}

/// Waits and drives. `polls` has `n` entries, at most [`MOST`].
fn wait(
    call: c_long,
    (hooks, kinds): (&'static Hooks, c_int),
    polls: *mut pollfd,
    n: nfds_t,
    limit: Limit,
    mask: *const sigset_t,
    alone: impl Fn(Limit) -> c_int,
) -> c_int {
    let mut own = NO_POLLS;
    for (at, own) in own.iter_mut().enumerate().take(n as usize) {
        // SAFETY: the program's entries, which can be read.
        *own = unsafe { polls.add(at).read() };
    }
    let ask = || call!(POLL: fn(polls => *mut pollfd, n => nfds_t, 0 => c_int) -> c_int);
    let call = called(call, -1, limit);
    Waiting { hooks, kinds, call, mask, ask, alone }.run(&mut own, n as usize)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_poll(
    polls: *mut pollfd,
    n: nfds_t,
    millis: c_int,
) -> c_int {
    let alone = |limit: Limit| call!(POLL: fn(polls => *mut pollfd, n => nfds_t, to_millis(limit) => c_int) -> c_int);
    match watched(polls, n) {
        None => alone(of_millis(millis)),
        Some(of) => wait(POLL_CALL, of, polls, n, of_millis(millis), core::ptr::null(), alone),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_ppoll(
    polls: *mut pollfd,
    n: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let real = |time: *const timespec| {
        call!(PPOLL: fn(
            polls => *mut pollfd, n => nfds_t, time => *const timespec, mask => *const sigset_t) -> c_int)
    };
    if let Some(of) = watched(polls, n)
        && let Some(limit) = readable_time(time)
    {
        let alone = |limit| with_time(limit, real);
        return wait(libc::SYS_ppoll, of, polls, n, limit, mask, alone);
    }
    real(time)
}

// The C library's functions end the program.
replaced! {
    /// The variant of `poll` for `_FORTIFY_SOURCE`.
    "C" adverb_preload___poll_chk = POLL_CHK(
        polls: *mut pollfd, n: nfds_t, millis: c_int, room: usize) -> c_int,
    (room / size_of::<pollfd>() >= n as usize)
        // SAFETY: the caller's arguments.
        .then(|| unsafe { adverb_preload_poll(polls, n, millis) });
    /// The variant of `ppoll` for `_FORTIFY_SOURCE`.
    "C" adverb_preload___ppoll_chk = PPOLL_CHK(
        polls: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t,
        room: usize) -> c_int,
    (room / size_of::<pollfd>() >= n as usize)
        // SAFETY: the caller's arguments.
        .then(|| unsafe { adverb_preload_ppoll(polls, n, time, mask) });
}
