//! `epoll` sets with sockets of librspreload. The kernel cannot have such sockets in a set, so they
//! are kept here. A wait calls librspreload's `poll` for these sockets and for the kernel's set
//! together.
//!
//! Edge-triggered events are reported as level-triggered: a program that asks for edges gets more
//! events than necessary.

mod sets;

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{epoll_event, pollfd, sigset_t, timespec};

use crate::next::{errno, failed, next, replaced, set_errno};
use crate::theirs::{Marks, is_theirs};
use crate::wait::{Limit, limit, masked, poll};
use sets::Sets;

static SETS: Mutex<Sets> = Mutex::new(Sets::new());
/// The kernel's sets that have sockets here. All other sets need no lock.
pub(crate) static MIXED: Marks = Marks::new();
/// The address of this byte is the event data of wakers. No program has this address.
static WAKE: u8 = 0;

/// Descriptors that were closed since the last look at the sets.
static CLOSED: Marks = Marks::new();
static ANY_CLOSED: AtomicBool = AtomicBool::new(false);
/// The wakers of sets. The program does not know these descriptors and must not close them.
pub(crate) static WAKERS: Marks = Marks::new();

/// The sets, without descriptors that were closed.
fn sets() -> MutexGuard<'static, Sets> {
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    if ANY_CLOSED.swap(false, Ordering::AcqRel) {
        for fd in CLOSED.take() {
            sets.forget(fd);
            end(&mut sets, fd);
        }
    }
    sets
}

fn end(sets: &mut Sets, set: c_int) {
    let Some(waker) = sets.end(set) else { return };
    if WAKERS.has(waker) {
        WAKERS.clear(waker);
        // SAFETY: the set owned this descriptor.
        unsafe { libc::syscall(libc::SYS_close, waker) };
    }
}

fn wake_data() -> u64 {
    (&raw const WAKE).addr() as u64
}

/// Notes that a descriptor is closed, which may be a set or a member of sets. Takes no lock,
/// because a signal handler may close a descriptor. The next look at the sets removes the
/// descriptor.
pub(crate) fn closed(fd: c_int) {
    if is_theirs(fd) || MIXED.has(fd) {
        MIXED.clear(fd);
        CLOSED.set(fd);
        ANY_CLOSED.store(true, Ordering::Release);
    }
}

/// Adds the waker to the kernel's set (`EPOLL_CTL_ADD`), or checks that the set contains the waker
/// (`EPOLL_CTL_MOD`). No other set contains this waker.
fn with_waker(set: c_int, how: c_int, waker: c_int) -> Result<(), c_int> {
    let event = epoll_event { events: libc::EPOLLIN as u32, u64: wake_data() };
    // SAFETY: plain numbers, and an event that lives during the call.
    match unsafe { libc::syscall(libc::SYS_epoll_ctl, set, how, waker, &raw const event) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Whether this set has sockets here. The number may belong to another set by now, if the old set
/// was closed without a call of these functions.
fn is_mixed(set: c_int) -> bool {
    if !MIXED.has(set) {
        return false;
    }
    let before = errno();
    let mut sets = sets();
    let same =
        sets.waker(set).is_some_and(|waker| with_waker(set, libc::EPOLL_CTL_MOD, waker).is_ok());
    if !same {
        MIXED.clear(set);
        end(&mut sets, set);
    }
    set_errno(before);
    same
}

/// Makes the waker of a set, when the first socket comes. The waker is a counter in the kernel's
/// set, and ends the kernel's waits for this set.
fn waker(set: c_int) -> Result<c_int, c_int> {
    // SAFETY: plain numbers, and this function owns `fd`. The calls go directly to the kernel,
    // because no other preloaded function may see this descriptor.
    unsafe {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let fd = libc::syscall(libc::SYS_eventfd2, 0, flags) as c_int;
        if fd < 0 {
            return Err(errno());
        }
        if let Err(error) = with_waker(set, libc::EPOLL_CTL_ADD, fd) {
            libc::syscall(libc::SYS_close, fd);
            return Err(error);
        }
        WAKERS.set(fd);
        Ok(fd)
    }
}

fn wake(fd: c_int) {
    let one = 1_u64;
    // SAFETY: the call writes eight bytes of `one` to the counter.
    unsafe { libc::syscall(libc::SYS_write, fd, &raw const one, 8_usize) };
}

fn change(set: c_int, how: c_int, fd: c_int, event: Option<epoll_event>) -> Result<(), c_int> {
    let before = errno();
    is_mixed(set);
    let mut sets = sets();
    if how == libc::EPOLL_CTL_ADD && !sets.has(set) {
        sets.begin(set, waker(set)?);
        MIXED.set(set);
    }
    let asked = || event.map(|e| (e.events, e.u64)).ok_or(libc::EFAULT);
    match how {
        libc::EPOLL_CTL_ADD => asked().and_then(|(events, data)| sets.add(set, fd, events, data)),
        libc::EPOLL_CTL_MOD => {
            asked().and_then(|(events, data)| sets.modify(set, fd, events, data))
        }
        libc::EPOLL_CTL_DEL => sets.remove(set, fd),
        _ => Err(libc::EINVAL),
    }?;
    if let Some(fd) = sets.waker(set) {
        wake(fd);
    }
    set_errno(before);
    Ok(())
}

replaced! {
    c"epoll_ctl" adverb_sockets_epoll_ctl(
        set: c_int, how: c_int, fd: c_int, event: *mut epoll_event) -> c_int,
    if is_theirs(fd) => {
        // SAFETY: the pointer is null or the caller's event.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        change(set, how, fd, event).map_or_else(failed, |()| 0)
    };
    c"epoll_pwait2" adverb_sockets_epoll_pwait2(
        set: c_int, to: *mut epoll_event, most: c_int, time: *const timespec,
        mask: *const sigset_t) -> c_int,
    if MIXED.has(set) => {
        // SAFETY: the caller's arguments are valid.
        unsafe {
            limit(time).map_or_else(failed, |limit| wait(set, to, most, limit, mask))
        }
    };
}

/// Takes the kernel's events of a set, except for the event of the waker.
///
/// # Safety
/// `to` has room for `room` events, and `mask` is null or points to a signal set.
unsafe fn of_the_kernel(
    set: c_int,
    to: *mut epoll_event,
    room: usize,
    millis: c_int,
    mask: *const sigset_t,
) -> c_int {
    let room = c_int::try_from(room).unwrap_or(c_int::MAX);
    let n = next!(new c"epoll_pwait": fn(
        set => c_int, to => *mut epoll_event, room => c_int, millis => c_int, mask => *const sigset_t) -> c_int);
    if n <= 0 || !MIXED.has(set) {
        return n;
    }
    let mut kept = 0;
    for at in 0..n as usize {
        // SAFETY: the kernel wrote `n` events, and `kept` never exceeds `at`.
        unsafe {
            let event = to.add(at).read_unaligned();
            if event.u64 == wake_data() {
                let mut count = 0_u64;
                if let Some(fd) = sets().waker(set) {
                    libc::syscall(libc::SYS_read, fd, &raw mut count, 8_usize);
                }
            } else {
                to.add(kept as usize).write_unaligned(event);
                kept += 1;
            }
        }
    }
    kept
}

/// Waits for events of the kernel's set and of the sockets here.
///
/// # Safety
/// As [`of_the_kernel`].
unsafe fn wait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    limit: Limit,
    mask: *const sigset_t,
) -> c_int {
    let Some(most) = usize::try_from(most).ok().filter(|n| *n > 0) else {
        return failed(libc::EINVAL);
    };
    loop {
        let mut polls = if is_mixed(set) { sets().polls(set) } else { Vec::new() };
        if polls.is_empty() {
            // SAFETY: the caller's arguments are valid.
            let n = unsafe { of_the_kernel(set, to, most, limit.millis(), mask) };
            if n != 0 || limit.is_over() {
                return n;
            }
            continue;
        }
        polls.push(pollfd { fd: set, events: libc::POLLIN, revents: 0 });
        // SAFETY: the caller's mask is valid.
        let n = unsafe { masked(mask, || poll(&mut polls, limit)) };
        if n < 0 {
            return n;
        }
        let kernels = polls.pop().is_some_and(|poll| poll.revents != 0);
        // Events of the kernel get half of the room, so neither kind keeps the other out.
        let room = if kernels { most.div_ceil(2) } else { most };
        let found = sets().take(set, &polls, room);
        for (at, (events, data)) in found.iter().enumerate() {
            // SAFETY: `found` has at most `room` events, which is not more than `most`.
            unsafe { to.add(at).write_unaligned(epoll_event { events: *events, u64: *data }) };
        }
        let mut count = found.len() as c_int;
        if kernels && most > found.len() {
            let null = core::ptr::null();
            // SAFETY: the rest of the caller's room.
            let more =
                unsafe { of_the_kernel(set, to.add(found.len()), most - found.len(), 0, null) };
            if more < 0 && count == 0 {
                return more;
            }
            count += more.max(0);
        }
        if count > 0 || limit.is_over() {
            return count;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_epoll_wait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    millis: c_int,
) -> c_int {
    // SAFETY: the caller's arguments are valid.
    unsafe { wait(set, to, most, Limit::of_millis(millis), core::ptr::null()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_epoll_pwait(
    set: c_int,
    to: *mut epoll_event,
    most: c_int,
    millis: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments are valid.
    unsafe { wait(set, to, most, Limit::of_millis(millis), mask) }
}
