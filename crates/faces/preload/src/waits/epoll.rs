//! `epoll_wait` and its variants, and `epoll_ctl`.

use core::ffi::{c_int, c_long};

use libc::{epoll_event, pollfd, sigset_t, timespec};

use super::hooks::{driving, hooks};
use super::program::is_readable;
use super::{Limit, NO_POLLS, Waiting, absent, called, of_millis, of_time, to_millis, to_time};
use crate::real::{real, reals};
use adverb_hooks::waits::Hooks;

reals! {
    EPOLL_WAIT = c"epoll_wait";
    EPOLL_PWAIT = c"epoll_pwait";
    EPOLL_PWAIT2 = c"epoll_pwait2";
    EPOLL_CTL = c"epoll_ctl";
}

/// The system call of `epoll_wait`.
#[cfg(target_arch = "x86_64")]
const EPOLL_WAIT_CALL: c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const EPOLL_WAIT_CALL: c_long = libc::SYS_epoll_pwait;

/// The hooks and the kinds of events, if the set watches a channel.
fn watched(set: c_int) -> Option<(&'static Hooks, c_int)> {
    let hooks = driving()?;
    let poll = pollfd { fd: set, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    let kinds = unsafe { (hooks.kinds)(&raw const poll, 1) };
    (kinds != 0).then_some((hooks, kinds))
}

/// Waits and drives.
fn wait(
    call: c_long,
    set: c_int,
    (hooks, kinds): (&'static Hooks, c_int),
    to: *mut epoll_event,
    most: c_int,
    limit: Limit,
    mask: *const sigset_t,
    alone: impl Fn(Limit) -> c_int,
) -> c_int {
    let mut polls = NO_POLLS;
    if let Some(first) = polls.first_mut() {
        *first = pollfd { fd: set, events: libc::POLLIN, revents: 0 };
    }
    let ask = || match real!(EPOLL_WAIT: fn(c_int, *mut epoll_event, c_int, c_int) -> c_int) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(set, to, most, 0) },
        None => absent(),
    };
    let call = called(call, set, limit);
    Waiting { hooks, kinds, call, mask, ask, alone }.run(&mut polls, 1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_epoll_wait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    millis: c_int,
) -> c_int {
    let Some(real) = real!(EPOLL_WAIT: fn(c_int, *mut epoll_event, c_int, c_int) -> c_int) else {
        return absent();
    };
    // SAFETY: the caller's arguments.
    let alone = |limit: Limit| unsafe { real(set, to, most, to_millis(limit)) };
    match watched(set) {
        None => alone(of_millis(millis)),
        Some(of) => {
            wait(EPOLL_WAIT_CALL, set, of, to, most, of_millis(millis), core::ptr::null(), alone)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_epoll_pwait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    millis: c_int,
    mask: *const sigset_t,
) -> c_int {
    let Some(real) = real!(EPOLL_PWAIT: fn(
        c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int)
    else {
        return absent();
    };
    // SAFETY: the caller's arguments.
    let alone = |limit: Limit| unsafe { real(set, to, most, to_millis(limit), mask) };
    match watched(set) {
        None => alone(of_millis(millis)),
        Some(of) => wait(libc::SYS_epoll_pwait, set, of, to, most, of_millis(millis), mask, alone),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_epoll_pwait2(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let Some(real) = real!(EPOLL_PWAIT2: fn(
        c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int)
    else {
        return absent();
    };
    let alone = |limit: Limit| {
        let left = limit.map(to_time);
        let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: the caller's arguments, and a time that lives through the call.
        unsafe { real(set, to, most, left, mask) }
    };
    if let Some(of) = watched(set)
        && (time.is_null() || is_readable(time.cast(), size_of::<timespec>()))
    {
        // SAFETY: the caller's pointer, which can be read.
        if let Ok(limit) = unsafe { of_time(time) } {
            return wait(libc::SYS_epoll_pwait2, set, of, to, most, limit, mask, alone);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real(set, to, most, time, mask) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_epoll_ctl(
    set: c_int,
    how: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some(real) = real!(EPOLL_CTL: fn(c_int, c_int, c_int, *mut epoll_event) -> c_int) else {
        return absent();
    };
    // SAFETY: the caller's arguments.
    let done = unsafe { real(set, how, fd, event) };
    if done == 0
        && let Some(hooks) = hooks()
    {
        (hooks.controlled)(set, how, fd);
    }
    done
}
