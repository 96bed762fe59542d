//! The policy of driving the device: by the program's polls, a wait of the program, or the
//! background thread.
//!
//! A waiting thread drives the device. Threads that wait are known ([`Drivers`]), as are polls,
//! arms, and an event after which the program has not polled. Only a program that waits outside of
//! the calls that drive is guessed ([`Outside`]). A wrong guess costs time and nothing else. The
//! background thread publishes whether it sleeps, and until when ([`Thread`]). So a thread that
//! leaves work for the background thread knows whether a wake-up is necessary. The actions after a
//! wake-up depend on both states and on the history ([`Pace`]). No function here reads a clock,
//! makes a system call or takes a lock.
use self::outside::Outside;
use self::yields::Yields;
use super::costs::Costs;
use super::drivers::Drivers;
use adverb_engine::Time;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

pub(crate) mod naps;
mod outside;
pub(crate) mod yields;

#[cfg(all(test, not(loom)))]
mod tests;

/// After an event, the program has the sockets to itself for this time, until it polls. The program
/// may have lost the processor. A promise of `docs/design/notification.md`.
const GIVEN: Duration = Duration::from_millis(10);
/// The same time, counted from the first poll, in wake-ups.
const WORKS: u32 = 8;

/// A program with this many polls during one stay of the thread away from the sockets spins.
const SPINS: u64 = 32;
/// A program that polled so often since the last wake-up of the thread, and armed no queue, did not
/// sleep meanwhile.
const AWAKE: u64 = 8;
/// After so many of these wake-ups in a row the program does not sleep by itself any more.
const MOST_AWAKE: u32 = 64;
/// The thread comes too late when the program made no poll during a stay, and packets waited. Then
/// the thread stays at the sockets for so many wake-ups.
const NEEDED: u32 = 4;
/// The same, if the thread comes too late again and again.
const MOST_NEEDED: u32 = 64;
/// First stay away from the sockets, in wake-ups.
const FIRST_AWAY: u32 = 2;
/// Longest stay away: a promise. A program that stops polling waits at most so long for the thread.
pub(super) const LONGEST_AWAY: Duration = Duration::from_millis(1);
/// Largest number of wake-ups without a spin after a spin in vain.
const MOST_SKIPPED: u32 = 256;

/// What the program does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    /// The program sleeps, and no thread of it drives. Only the background thread drives.
    sleeps: bool,
    /// Until then the program has the sockets to itself. If the thread added a completion between
    /// the arm and the poll, the poll would take the completion, and its event would be left over.
    /// Such an event is legal (CQN-8), but rare on hardware, and some programs take it for an
    /// error.
    until: Time,
}

impl Program {
    /// Does the program have the sockets to itself?
    pub(super) fn has_sockets(self, now: Time) -> bool {
        !self.sleeps && now < self.until
    }
}

/// In [`Policy::until`]: the program was given an event and has not polled since.
const GIVEN_EVENT: u64 = 1;

/// The state of the background thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    /// The thread will still see values that are set now.
    Awake,
    /// The thread sleeps on the sockets, or is about to, and looks at the timers at `until` by
    /// itself.
    Asleep { until: u64 },
    /// The thread sleeps, or is about to, for at most [`LONGEST_AWAY`]. It leaves the sockets and
    /// the timers to the polling program.
    Away,
}

impl Thread {
    const FOREVER: u64 = u64::MAX >> 1;

    fn word(self) -> u64 {
        match self {
            Thread::Awake => 0,
            // Never 0: the thread does not sleep until time 0.
            Thread::Asleep { until } => until.clamp(1, Self::FOREVER) << 1,
            // Never later than any deadline.
            Thread::Away => 1,
        }
    }
}

/// Shared by the program's threads and the background thread. The values are not exact if several
/// threads of the program behave differently, and need not be.
#[derive(Debug)]
pub(crate) struct Policy {
    /// Threads of the program that wait and drive.
    pub(crate) drivers: Drivers,
    /// Calls of the program that drove progress. The background thread watches the number change.
    looks: AtomicU64,
    /// Decides whether a poll in vain yields the processor.
    pub(crate) yields: Yields,
    /// Set once, when the background thread has started.
    costs: OnceLock<Costs>,
    /// The guess about waits that do not drive.
    pub(crate) outside: Outside,
    /// One-sided requests until the background thread is told of the posting thread. 0: the
    /// background thread watches a poster.
    posts: AtomicU32,
    /// The posting thread of the program. 0: no thread was named since the background thread
    /// looked.
    poster: AtomicI32,
    /// [`Program::until`] times two, and [`GIVEN_EVENT`].
    until: AtomicU64,
    /// A [`Thread`]. SeqCst: a thread that leaves work stores the work and then reads this word.
    /// The background thread stores this word and then reads the work. So neither misses the other.
    thread: AtomicU64,
}

impl Policy {
    /// `tick`: time between two ticks of the scheduler. Zero if the program shares no processor.
    pub(super) fn new(tick: Duration) -> Self {
        Policy {
            drivers: Drivers::default(),
            looks: AtomicU64::new(0),
            yields: Yields::new(tick),
            costs: OnceLock::new(),
            outside: Outside::default(),
            posts: AtomicU32::new(u32::from(!tick.is_zero())),
            poster: AtomicI32::new(0),
            until: AtomicU64::new(0),
            thread: AtomicU64::new(Thread::Awake.word()),
        }
    }

    /// The machine's costs were measured.
    pub(super) fn set_costs(&self, costs: Costs) {
        let _ = self.costs.set(costs);
    }

    pub(crate) fn costs(&self) -> Costs {
        self.costs.get().copied().unwrap_or_default()
    }

    /// What the program does.
    pub(super) fn program(&self) -> Program {
        let sleeps = self.drivers.are_missing() || self.outside.sleeps();
        Program { sleeps, until: Time(self.until.load(Ordering::Relaxed) >> 1) }
    }

    /// A call of the program drives progress. Returns the number of earlier calls.
    #[inline]
    pub(super) fn drives(&self) -> u64 {
        let looks = self.looks.load(Ordering::Relaxed);
        self.looks.store(looks.wrapping_add(1), Ordering::Relaxed);
        looks
    }

    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// What the program has done so far.
    pub(super) fn shown(&self) -> Shown {
        let armed = self.outside.armed();
        let (turns, left) = (self.yields.turns(), self.drivers.left());
        Shown { looks: self.looks(), turns, left, armed }
    }

    /// The program polls a queue.
    #[inline]
    pub(crate) fn looks_at_queue(&self, now: impl Fn() -> Time) {
        if self.until.load(Ordering::Relaxed) & GIVEN_EVENT != 0 {
            self.until.store((now() + self.costs().turn() * WORKS).0 << 1, Ordering::Relaxed);
        }
    }

    /// The program was given an event.
    pub(crate) fn given(&self, now: Time) {
        // A program that counts as asleep comes back by no poll.
        if !self.program().sleeps {
            self.until.store((now + GIVEN).0 << 1 | GIVEN_EVENT, Ordering::Relaxed);
        }
    }

    /// Does the background thread stay away from the sockets, and look again within
    /// [`LONGEST_AWAY`] by itself? Then the program polls.
    #[inline]
    pub(crate) fn thread_is_away(&self) -> bool {
        self.thread.load(Ordering::Relaxed) & 1 == 1
    }

    /// Is the background thread asleep, or about to be? If not, the thread will still see
    /// everything the caller has set before.
    pub(super) fn thread_sleeps(&self) -> bool {
        fence(Ordering::SeqCst);
        self.thread.load(Ordering::SeqCst) != 0
    }

    /// Does the background thread sleep beyond `at`?
    pub(super) fn thread_sleeps_past(&self, at: Time) -> bool {
        at.0 < self.thread.load(Ordering::SeqCst) >> 1
    }

    /// The program posts a one-sided request. `true`: the background thread has to be told by
    /// [`Policy::set_poster`].
    #[inline]
    pub(super) fn posts(&self) -> bool {
        let left = self.posts.load(Ordering::Relaxed);
        left != 0 && {
            self.posts.store(left - 1, Ordering::Relaxed);
            left == 1
        }
    }

    /// The thread of the program with this number posts one-sided requests.
    pub(super) fn set_poster(&self, thread: i32) {
        self.poster.store(thread, Ordering::Relaxed);
    }

    /// The thread named by [`Policy::set_poster`], once.
    pub(super) fn take_poster(&self) -> Option<i32> {
        let named = self.poster.load(Ordering::Relaxed) != 0;
        named.then(|| self.poster.swap(0, Ordering::Relaxed)).filter(|thread| *thread != 0)
    }

    /// The background thread watches no poster any more. After this many requests it is told of a
    /// poster.
    pub(super) fn tell_after(&self, posts: u32) {
        self.posts.store(posts, Ordering::Relaxed);
    }

    /// Sets the new state of the background thread.
    pub(super) fn set_thread(&self, thread: Thread) {
        self.thread.store(thread.word(), Ordering::SeqCst);
    }
}

/// The program's calls so far, as the background thread sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// [`Policy::looks`].
    pub(super) looks: u64,
    /// How often the program's polling threads let another thread run.
    pub(super) turns: u64,
    /// How often a thread that waited and drove has left its wait.
    pub(super) left: u64,
    /// Arms of queues, and waits of tasks.
    pub(super) armed: u64,
}

/// The actions of the thread after a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The program spins and does all the work, except for timers, which it may serve late. If the
    /// thread lost the processor in the middle of the same work, the program would wait for a whole
    /// time slice.
    Aside,
    /// The program works on an event: the thread serves the timers only.
    Timers,
    /// The thread receives. A polling program takes the records of peers on this host by itself.
    /// Two threads that take records in turns hinder each other. A third thread that wants a
    /// processor costs one of the two its processor.
    Receive { rings: bool },
}

/// The memory of the thread from one wake-up to the next.
#[derive(Debug, Default)]
pub(super) struct Pace {
    costs: Costs,
    /// Length of the stay away from the sockets. Zero: the thread sleeps on the sockets.
    away: Duration,
    /// The last value of [`Policy::shown`].
    seen: Shown,
    /// The last wake-up.
    woke: Time,
    /// Wake-ups in a row with polls of the program and without an arm.
    awake: u32,
    /// Did the program make no poll during the whole last stay?
    silent: bool,
    /// Wake-ups during which the thread stays at the sockets, although the program spins.
    needed: u32,
    /// The next time that the thread comes too late, it stays for [`NEEDED`] wake-ups and so many
    /// more.
    more: u32,
    /// Wake-ups still to be followed by sleep at once, without a spin, and their last number.
    skip: u32,
    skipped: u32,
}

impl Pace {
    pub(super) fn new(costs: Costs) -> Self {
        Pace { costs, ..Pace::default() }
    }

    fn first_away(&self) -> Duration {
        self.costs.turn() * FIRST_AWAY
    }

    /// How long the thread stays away from the sockets.
    pub(super) fn away(&self) -> Duration {
        self.away
    }

    /// The thread has woken, and the program counts as asleep. Does the program poll by now? A
    /// program that sleeps on the descriptors arms a queue before each sleep. The caller asks this
    /// before [`Pace::wakes`].
    pub(super) fn sees_polls(&mut self, shown: Shown, program: Program) -> bool {
        let polled = shown.looks.wrapping_sub(self.seen.looks) >= AWAKE;
        let awake = program.sleeps && polled && shown.armed == self.seen.armed;
        self.awake = if awake { self.awake + 1 } else { 0 };
        let enough = self.awake >= MOST_AWAKE;
        if enough {
            self.awake = 0;
        }
        enough
    }

    /// The thread has woken. `receives`: a thread of the program receives at this moment. While
    /// much arrives, such a program makes few calls, but polls all the same. `waits`: a thread of
    /// the program waits and drives.
    pub(super) fn wakes(
        &mut self,
        shown: Shown,
        [receives, waits]: [bool; 2],
        program: Program,
        now: impl Fn() -> Time,
    ) -> Turn {
        let polled = shown.looks.wrapping_sub(self.seen.looks);
        let now = now();
        let since = now.since(std::mem::replace(&mut self.woke, now));
        // At the sockets the thread sleeps for any time, and an event loop polls now and then. So
        // the polls count as a spin only if the last wake-up is recent.
        let spun = polled >= SPINS && (!self.away.is_zero() || since < LONGEST_AWAY);
        // A program that yields in turns with other threads polls slowly. This thread takes the
        // processor from the program whenever a packet comes, and would leave no packet for the
        // program's own polls.
        let left = shown.left != self.seen.left;
        let spins = spun || shown.turns != self.seen.turns || receives;
        self.silent = !self.away.is_zero() && polled == 0 && !left && !waits;
        if !program.sleeps && (waits || left) {
            // A driver that waited all the time wakes this thread when it leaves. A driver that has
            // left is likely to come back.
            self.seen = shown;
            self.away = if left { LONGEST_AWAY } else { Duration::ZERO };
            return Turn::Aside;
        }
        if spins && !program.sleeps && self.needed > 0 && !receives {
            self.needed -= 1;
            self.away = Duration::ZERO;
        } else if spins && !program.sleeps {
            if !self.away.is_zero() {
                self.more /= 2;
            }
            self.seen = shown;
            self.away = (self.away * 2).clamp(self.first_away(), LONGEST_AWAY);
            return Turn::Aside;
        }
        if program.has_sockets(now) {
            self.away = self.away.max(self.first_away());
            return Turn::Timers;
        }
        Turn::Receive { rings: self.away.is_zero() || polled == 0 }
    }

    /// The thread has received. `worked`: there was something to do. `shown`: the value at the
    /// wake-up, and the present value.
    pub(super) fn received(&mut self, worked: bool, shown: [Shown; 2], program: Program) {
        let [woke, now] = shown;
        if self.silent && worked {
            // The program waits for its memory to change, and polls only between such waits.
            self.needed = NEEDED + self.more;
            self.more = (2 * self.needed).min(MOST_NEEDED) - NEEDED;
        }
        self.away = if worked && now.looks.wrapping_sub(woke.looks) >= SPINS {
            // The program polled in vain all the while: the thread took the work from the program.
            self.away.max(self.first_away())
        } else if worked {
            // The thread found work of its own. A polling program has merely lost a race here, so
            // the thread comes back to the sockets gradually.
            self.away / 4
        } else if self.away.is_zero() || woke.looks != self.seen.looks {
            (self.away * 2).clamp(self.first_away(), LONGEST_AWAY)
        } else {
            // No thread of the program polls, so the thread watches the sockets.
            Duration::ZERO
        };
        if self.away < self.first_away() || program.sleeps {
            self.away = Duration::ZERO;
        }
        self.seen = now;
    }

    /// Does the thread spin for more, after receiving something? After spins in vain the thread
    /// spins less and less often, because a program that waits for its memory to change needs the
    /// processor.
    pub(super) fn spins(&mut self) -> bool {
        self.away.is_zero() && {
            self.skip = self.skip.saturating_sub(1);
            self.skip == 0
        }
    }

    /// The result of a spin.
    pub(super) fn spun(&mut self, found: bool) {
        self.skipped = if found { 0 } else { (2 * self.skipped + 1).min(MOST_SKIPPED) };
        self.skip = self.skipped + 1;
    }
}
