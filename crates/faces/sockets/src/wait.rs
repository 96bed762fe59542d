//! `ppoll`, `select` and `pselect` by librspreload's `poll`. librspreload's own `select` looks for
//! an rsocket by the rsocket's number, which may be the number of another descriptor of the
//! program.

use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use std::time::Instant;

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::next::{errno, failed, next, replaced, set_errno};
use crate::theirs::is_theirs;

/// The deadline of a wait; `None` waits forever.
#[derive(Clone, Copy)]
pub(crate) struct Limit(Option<Instant>);

impl Limit {
    pub(crate) fn of(time: Option<Duration>) -> Self {
        // A deadline beyond the range of the clock means no deadline.
        Self(time.and_then(|time| Instant::now().checked_add(time)))
    }

    pub(crate) fn of_millis(millis: c_int) -> Self {
        Self::of(u64::try_from(millis).ok().map(Duration::from_millis))
    }

    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// The time that is left, in milliseconds for `poll`. Rounded up, so a wait is never too short.
    pub(crate) fn millis(self) -> c_int {
        let whole = |left: Duration| left.as_nanos().div_ceil(1_000_000);
        self.left().map_or(-1, |left| c_int::try_from(whole(left)).unwrap_or(c_int::MAX))
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

/// A duration, or `None` if the numbers are not a valid time.
pub(crate) fn duration(seconds: i64, nanos: i64) -> Option<Duration> {
    let nanos = u32::try_from(nanos).ok().filter(|n| *n < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, nanos))
}

/// The deadline after the time of a `timespec`. Null means no deadline. EINVAL if the time is
/// invalid.
///
/// # Safety
/// `time` is null or points to a `timespec`.
pub(crate) unsafe fn limit(time: *const timespec) -> Result<Limit, c_int> {
    if time.is_null() {
        return Ok(Limit::of(None));
    }
    // SAFETY: the caller guarantees that a non-null pointer is valid.
    let time = unsafe { *time };
    duration(time.tv_sec, time.tv_nsec).map(|time| Limit::of(Some(time))).ok_or(libc::EINVAL)
}

/// librspreload's `poll`. A call must not time out: after an `rpoll` that timed out, the next
/// `rpoll` of librdmacm 44 never sleeps.
fn theirs(polls: &mut [pollfd], millis: c_int) -> c_int {
    next!(new c"poll": fn(
        polls.as_mut_ptr() => *mut pollfd, polls.len() as nfds_t => nfds_t, millis => c_int) -> c_int)
}

/// A timer descriptor of the kernel, readable when the time has passed. Closed on drop.
struct Timer(c_int);

impl Timer {
    fn after(time: Duration) -> Result<Self, c_int> {
        let zero = timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
        let value = timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
        let times = libc::itimerspec { it_interval: zero, it_value: value };
        let null = ptr::null_mut::<libc::itimerspec>();
        // SAFETY: plain numbers, and a `times` that lives during the call. The calls go directly to
        // the kernel, because no other preloaded function may see this descriptor.
        unsafe {
            let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC);
            let fd = libc::syscall(libc::SYS_timerfd_create, clock, flags);
            if fd < 0 {
                return Err(errno());
            }
            let timer = Self(fd as c_int);
            match libc::syscall(libc::SYS_timerfd_settime, timer.0, 0, &raw const times, null) {
                0 => Ok(timer),
                _ => Err(errno()),
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let before = errno();
        // SAFETY: this value owns the descriptor.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
        set_errno(before);
    }
}

/// `poll` over descriptors of librspreload. The timeout is one more descriptor.
pub(crate) fn poll(polls: &mut [pollfd], limit: Limit) -> c_int {
    if limit.left().is_none() {
        return theirs(polls, -1);
    }
    let found = theirs(polls, 0);
    let Some(left) = limit.left().filter(|left| found == 0 && !left.is_zero()) else {
        return found;
    };
    let timer = match Timer::after(left) {
        Ok(timer) => timer,
        Err(error) => return failed(error),
    };
    let mut with_timer = polls.to_vec();
    with_timer.push(pollfd { fd: timer.0, events: libc::POLLIN, revents: 0 });
    let found = theirs(&mut with_timer, -1);
    polls.iter_mut().zip(&with_timer).for_each(|(poll, seen)| poll.revents = seen.revents);
    let ended = with_timer.last().is_some_and(|timer| timer.revents != 0);
    if found > 0 && ended { found - 1 } else { found }
}

/// Waits with another signal mask.
///
/// # Safety
/// `mask` is null or points to a signal set.
pub(crate) unsafe fn masked(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    let mut before = core::mem::MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the caller's mask is valid, and `before` has room for the old mask, which is
    // restored.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
        let said = wait();
        let error = errno();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        set_errno(error);
        said
    }
}

/// # Safety
/// `polls` is null or has `n` entries.
unsafe fn has_theirs(polls: *const pollfd, n: nfds_t) -> bool {
    // SAFETY: the caller's array has `n` entries.
    !polls.is_null() && (0..n as usize).any(|at| is_theirs(unsafe { (*polls.add(at)).fd }))
}

replaced! {
    c"poll" adverb_sockets_poll(polls: *mut pollfd, n: nfds_t, millis: c_int) -> c_int,
    // SAFETY: the caller's array.
    if unsafe { has_theirs(polls, n) } => {
        // SAFETY: as above.
        let polls = unsafe { core::slice::from_raw_parts_mut(polls, n as usize) };
        poll(polls, Limit::of_millis(millis))
    };
    c"ppoll" adverb_sockets_ppoll(
        polls: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int,
    // SAFETY: the caller's array.
    if unsafe { has_theirs(polls, n) } => {
        // SAFETY: the caller's arguments.
        unsafe {
            let polls = || core::slice::from_raw_parts_mut(polls, n as usize);
            limit(time).map_or_else(failed, |limit| masked(mask, || poll(polls(), limit)))
        }
    };
    /// The variant of `ppoll` for `_FORTIFY_SOURCE`.
    c"__ppoll_chk" adverb_sockets___ppoll_chk(
        polls: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t,
        room: usize) -> c_int,
    if room / size_of::<pollfd>() >= n as usize =>
        // SAFETY: the caller's arguments.
        unsafe { adverb_sockets_ppoll(polls, n, time, mask) };
    /// The variant of `poll` for `_FORTIFY_SOURCE`.
    c"__poll_chk" adverb_sockets___poll_chk(
        polls: *mut pollfd, n: nfds_t, millis: c_int, room: usize) -> c_int,
    if room / size_of::<pollfd>() >= n as usize =>
        // SAFETY: the caller's arguments.
        unsafe { adverb_sockets_poll(polls, n, millis) };
}

/// For each set of `select`: the events to poll for, and the events that make a descriptor ready.
const KINDS: [(i16, i16); 3] = [
    (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// Bits of a word of a set.
const WORD: usize = u64::BITS as usize;

/// The word and the bit of a descriptor. A program's own sets may be longer than `fd_set`.
fn place(fd: c_int, set: *mut fd_set) -> (*mut u64, u64) {
    let fd = fd as usize;
    (set.cast::<u64>().wrapping_add(fd / WORD), 1 << (fd % WORD))
}

/// How many descriptors of a set are read. As in the kernel, no more than the process can have.
fn reach(n: c_int) -> c_int {
    let standard = libc::FD_SETSIZE as c_int;
    if n <= standard {
        return n;
    }
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `most` has room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut most) };
    n.min(c_int::try_from(most.rlim_cur).unwrap_or(c_int::MAX).max(standard))
}

/// The entries for `poll` that correspond to three sets of `select`.
///
/// # Safety
/// Each pointer is null or points to a set with room for `n` descriptors.
unsafe fn asked(n: c_int, sets: [*mut fd_set; 3]) -> Vec<pollfd> {
    let has = |fd: c_int, set: *mut fd_set| {
        let (word, bit) = place(fd, set);
        // SAFETY: the caller's set has room for `fd`.
        !set.is_null() && unsafe { word.read_unaligned() } & bit != 0
    };
    let wants = |fd: c_int| {
        let kinds = sets.iter().zip(KINDS);
        kinds.fold(0, |events, (&set, (ask, _))| if has(fd, set) { events | ask } else { events })
    };
    let polls = (0..reach(n)).map(|fd| pollfd { fd, events: wants(fd), revents: 0 });
    polls.filter(|poll| poll.events != 0).collect()
}

/// Writes the result of `poll` into the sets, and returns the number of ready descriptors.
///
/// # Safety
/// As [`asked`].
unsafe fn answer(polls: &[pollfd], sets: [*mut fd_set; 3]) -> c_int {
    let mut count = 0;
    for (set, (ask, counts)) in sets.into_iter().zip(KINDS).filter(|(set, _)| !set.is_null()) {
        for poll in polls.iter().filter(|poll| poll.events & ask != 0) {
            if poll.revents & counts != 0 {
                count += 1;
                continue;
            }
            let (word, bit) = place(poll.fd, set);
            // SAFETY: the caller's set, which contained this descriptor.
            unsafe { word.write_unaligned(word.read_unaligned() & !bit) };
        }
    }
    count
}

/// `select` over sockets of librspreload.
///
/// # Safety
/// As [`asked`].
unsafe fn select_by_poll(mut polls: Vec<pollfd>, sets: [*mut fd_set; 3], limit: Limit) -> c_int {
    let found = poll(&mut polls, limit);
    if found < 0 {
        return found;
    }
    if polls.iter().any(|poll| poll.revents & libc::POLLNVAL != 0) {
        return failed(libc::EBADF);
    }
    // SAFETY: the caller's sets are valid.
    unsafe { answer(&polls, sets) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's sets are valid.
    let polls = unsafe { asked(n, sets) };
    if !polls.iter().any(|poll| is_theirs(poll.fd)) {
        return next!(last c"select": fn(
            n => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set,
            time => *mut timeval) -> c_int);
    }
    // SAFETY: the caller's arguments.
    unsafe {
        let limit = match time.is_null() {
            true => Limit::of(None),
            false => match duration((*time).tv_sec, (*time).tv_usec.saturating_mul(1000)) {
                Some(time) => Limit::of(Some(time)),
                None => return failed(libc::EINVAL),
            },
        };
        let found = select_by_poll(polls, sets, limit);
        // Writes the remaining time, as Linux does.
        if let Some(left) = limit.left().filter(|_| !time.is_null()) {
            (*time).tv_sec = left.as_secs() as libc::time_t;
            (*time).tv_usec = libc::suseconds_t::from(left.subsec_micros());
        }
        found
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's sets are valid.
    let polls = unsafe { asked(n, sets) };
    if !polls.iter().any(|poll| is_theirs(poll.fd)) {
        return next!(last c"pselect": fn(
            n => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set,
            time => *const timespec, mask => *const sigset_t) -> c_int);
    }
    // SAFETY: the caller's arguments.
    unsafe {
        let wait = |limit| masked(mask, || select_by_poll(polls, sets, limit));
        limit(time).map_or_else(failed, wait)
    }
}

#[cfg(test)]
mod tests;
