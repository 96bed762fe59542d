//! `select` and `pselect`. A call sleeps by `ppoll`, and asks by `select`.

use core::ffi::c_int;

use libc::{fd_set, pollfd, sigset_t, timespec, timeval};

use super::hooks::driving;
use super::program::is_readable;
use super::{Limit, MOST, NO_POLLS, Polls, SECOND, Waiting, called, now, readable_time, with_time};
use crate::real::{call, errno, reals};
use adverb_hooks::waits::Hooks;

reals! {
    SELECT = c"select";
    PSELECT = c"pselect";
}

/// Bits and bytes of a word of a set.
const BITS: usize = u64::BITS as usize;
const BYTES: usize = size_of::<u64>();
/// The words of an `fd_set`.
const WORDS: usize = libc::FD_SETSIZE / BITS;

/// The events of `poll` for each of the three sets.
const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];

/// The three sets of a call, and copies of their first words: the kernel overwrites the sets.
struct Sets {
    at: [*mut u64; 3],
    words: usize,
    copies: [[u64; WORDS]; 3],
}

impl Sets {
    /// `None` for a call that does not drive, because it is too large or the kernel refuses it.
    fn read(n: c_int, sets: [*mut fd_set; 3]) -> Option<Sets> {
        let words = usize::try_from(n).ok()?.div_ceil(BITS);
        let at = sets.map(|set| set.cast::<u64>());
        let is_known = |set: &*mut u64| set.is_null() || is_readable(set.cast(), words * BYTES);
        if words == 0 || words > WORDS || !at.iter().all(is_known) {
            return None;
        }
        let mut copies = [[0; WORDS]; 3];
        for (set, copy) in at.iter().zip(&mut copies).filter(|(set, _)| !set.is_null()) {
            for (word, copy) in copy.iter_mut().enumerate().take(words) {
                // SAFETY: the program's words, which can be read.
                *copy = unsafe { set.add(word).read_unaligned() };
            }
        }
        Some(Sets { at, words, copies })
    }

    /// Gives the program its sets as they were.
    fn restore(&self) {
        for (set, copy) in self.at.iter().zip(&self.copies).filter(|(set, _)| !set.is_null()) {
            for (word, copy) in copy.iter().enumerate().take(self.words) {
                // SAFETY: the program's words, which the kernel would write to.
                unsafe { set.add(word).write_unaligned(*copy) };
            }
        }
    }

    /// The descriptors below `n` as entries of `poll`. `None` if there are too many.
    fn polls(&self, n: c_int) -> Option<(Polls, usize)> {
        let (mut polls, mut count) = (NO_POLLS, 0);
        for fd in 0..n {
            let (word, bit) = (fd as usize / BITS, 1 << (fd as usize % BITS));
            let mut events = 0;
            for (copy, event) in self.copies.iter().zip(EVENTS) {
                if copy.get(word).is_some_and(|word| word & bit != 0) {
                    events |= event;
                }
            }
            if events != 0 {
                *polls.get_mut(..MOST)?.get_mut(count)? = pollfd { fd, events, revents: 0 };
                count += 1;
            }
        }
        Some((polls, count))
    }
}

/// A call that drives.
struct Driven {
    hooks: &'static Hooks,
    kinds: c_int,
    sets: Sets,
    polls: Polls,
    count: usize,
}

impl Driven {
    /// `None` if no descriptor is a channel's.
    fn of(hooks: &'static Hooks, n: c_int, sets: [*mut fd_set; 3]) -> Option<Driven> {
        let sets = Sets::read(n, sets)?;
        let (polls, count) = sets.polls(n)?;
        // SAFETY: the first entries of the array.
        let kinds = unsafe { (hooks.kinds)(polls.as_ptr(), count as u64) };
        (kinds != 0).then_some(Driven { hooks, kinds, sets, polls, count })
    }

    fn wait(
        mut self,
        n: c_int,
        limit: Limit,
        mask: *const sigset_t,
        real: impl Fn(Limit) -> c_int,
    ) -> c_int {
        let (sets, at) = (&self.sets, self.sets.at.map(|set| set.cast::<fd_set>()));
        // The kernel has not written to the sets before the first call.
        let mut first = true;
        let ask = || {
            if !core::mem::replace(&mut first, false) {
                sets.restore();
            }
            let mut zero = timeval { tv_sec: 0, tv_usec: 0 };
            real_select(n, at, &raw mut zero)
        };
        let alone = |limit| {
            sets.restore();
            real(limit)
        };
        let (hooks, kinds) = (self.hooks, self.kinds);
        let call = called(libc::SYS_pselect6, -1, limit);
        let found =
            Waiting { hooks, kinds, call, mask, ask, alone }.run(&mut self.polls, self.count);
        if found < 0 && errno() != libc::EFAULT {
            self.sets.restore();
        }
        found
    }
}

/// The C library's `select`.
fn real_select(n: c_int, [read, write, except]: [*mut fd_set; 3], time: *mut timeval) -> c_int {
    call!(SELECT: fn(
        n => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set,
        time => *mut timeval) -> c_int)
}

fn to_timeval(nanos: u64) -> timeval {
    timeval {
        tv_sec: (nanos / SECOND) as libc::time_t,
        tv_usec: (nanos % SECOND / 1000) as libc::suseconds_t,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    if !time.is_null() && !is_readable(time.cast(), size_of::<timeval>()) {
        return real_select(n, sets, time);
    }
    // SAFETY: the caller's pointer, which can be read.
    let limit = match unsafe { time.as_ref() } {
        None => Some(None),
        Some(time) => match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
            (Ok(seconds), Ok(micros)) => Some(Some(
                seconds.saturating_mul(SECOND).saturating_add(micros.saturating_mul(1000)),
            )),
            _ => None,
        },
    };
    if let Some(limit) = limit
        && let Some(hooks) = driving()
        // SAFETY: the caller's arguments.
        && let Some(found) = unsafe { select_driven(hooks, n, sets, time, limit) }
    {
        return found;
    }
    real_select(n, sets, time)
}

/// `select` of a call that drives. `None` if none of the descriptors is a channel's. A function of
/// its own, because a call that does not drive may have little room on its stack.
///
/// # Safety
/// As for the C library's function; `time` is null or can be read.
#[inline(never)]
unsafe fn select_driven(
    hooks: &'static Hooks,
    n: c_int,
    sets: [*mut fd_set; 3],
    time: *mut timeval,
    limit: Limit,
) -> Option<c_int> {
    let driven = Driven::of(hooks, n, sets)?;
    let until = limit.map(|limit| now().saturating_add(limit));
    let alone = |limit: Limit| {
        let mut left = limit.map(to_timeval);
        real_select(n, sets, left.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut))
    };
    let found = driven.wait(n, limit, core::ptr::null(), alone);
    if let Some(until) = until {
        // SAFETY: the caller's time, which Linux overwrites with the time that is left.
        unsafe { *time = to_timeval(until.saturating_sub(now())) };
    }
    Some(found)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let real = |time: *const timespec| {
        call!(PSELECT: fn(
            n => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set,
            time => *const timespec, mask => *const sigset_t) -> c_int)
    };
    if let Some(hooks) = driving()
        && let Some(limit) = readable_time(time)
        && let Some(found) = pselect_driven(hooks, n, [read, write, except], limit, mask, real)
    {
        return found;
    }
    real(time)
}

/// As [`select_driven`].
#[inline(never)]
fn pselect_driven(
    hooks: &'static Hooks,
    n: c_int,
    sets: [*mut fd_set; 3],
    limit: Limit,
    mask: *const sigset_t,
    real: impl Fn(*const timespec) -> c_int,
) -> Option<c_int> {
    let driven = Driven::of(hooks, n, sets)?;
    Some(driven.wait(n, limit, mask, |limit| with_time(limit, &real)))
}
