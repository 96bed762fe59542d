//! `epoll_wait` and its variants, and `epoll_ctl`.

use core::ffi::{c_int, c_long};

use libc::{epoll_event, pollfd, sigset_t, timespec};

use super::hooks::{driving, hooks};
use super::{Limit, NO_POLLS, Waiting, called, of_millis, readable_time, to_millis, with_time};
use crate::real::{call, reals};
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
    let ask = || {
        call!(EPOLL_WAIT: fn(
            set => c_int, to => *mut epoll_event, most => c_int, 0 => c_int) -> c_int)
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
    let alone = |limit: Limit| {
        call!(EPOLL_WAIT: fn(
            set => c_int, to => *mut epoll_event, most => c_int, to_millis(limit) => c_int) -> c_int)
    };
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
    let alone = |limit: Limit| {
        call!(EPOLL_PWAIT: fn(
            set => c_int, to => *mut epoll_event, most => c_int, to_millis(limit) => c_int,
            mask => *const sigset_t) -> c_int)
    };
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
    let real = |time: *const timespec| {
        call!(EPOLL_PWAIT2: fn(
            set => c_int, to => *mut epoll_event, most => c_int, time => *const timespec,
            mask => *const sigset_t) -> c_int)
    };
    // Older C libraries do not have the function.
    if EPOLL_PWAIT2.get().is_some()
        && let Some(of) = watched(set)
        && let Some(limit) = readable_time(time)
    {
        let alone = |limit| with_time(limit, real);
        return wait(libc::SYS_epoll_pwait2, set, of, to, most, limit, mask, alone);
    }
    real(time)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_epoll_ctl(
    set: c_int,
    how: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let done = call!(EPOLL_CTL: fn(
        set => c_int, how => c_int, fd => c_int, event => *mut epoll_event) -> c_int);
    if done == 0
        && let Some(hooks) = hooks()
    {
        (hooks.controlled)(set, how, fd);
    }
    done
}
