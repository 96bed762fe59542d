//! Who drives the device: the program by its polls, a get-event call, or the background thread.
//!
//! Whoever waits drives. The program shows what it does by its calls alone, so its state
//! ([`Program`]) is a guess, and being wrong costs time and nothing else. The thread shows whether
//! it sleeps and until when ([`Thread`]), so that whoever leaves work for it knows whether to wake
//! it. What the thread does when it wakes follows from both and from what it remembers ([`Pace`]).
//! Nothing here reads a clock, makes a system call or takes a lock.
//!
//! ```text
//!            an event is given            it looks                  time is over
//!   Runs ───────────────────────▶ Given ───────────▶ Works ───────────────────────▶ Runs
//!     │                                                                               ▲
//!     │ arms again and again without a get-event call, or a task waits                │
//!     ▼                                                                               │
//!   Sleeps (on the descriptors, without us) ──────────────────────────────────────────┘
//!                                             sleeps in a get-event call
//! ```
use adverb_engine::Time;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

#[cfg(all(test, not(loom)))]
mod tests;

/// So many arms without a sleep in a get-event call in between tell a program that sleeps on the
/// descriptors by itself.
const ARMS: u8 = 8;
/// How long a program that was given an event has the sockets to itself until it looks: it may
/// have lost the processor.
const GIVEN: Duration = Duration::from_millis(10);
/// The same from its first look on.
const WORKS: Duration = Duration::from_micros(200);

/// A program that looks so often while the thread is away spins.
const SPINS: u64 = 32;
/// First stay away from the sockets.
const FIRST_AWAY: Duration = Duration::from_micros(50);
/// Longest stay away; a program that stops polling waits at most this long for the thread.
pub(super) const LONGEST_AWAY: Duration = Duration::from_millis(1);
/// Wake-ups without a spin after a spin was in vain, at most.
const MOST_SKIPPED: u32 = 256;

/// What the program does, as far as it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// It polls, or does something else. So many arms since it last slept in a get-event call.
    Runs { arms: u8 },
    /// It was given an event and has not looked since. What the thread added between its arm and
    /// its look would leave an event behind for a queue that is empty by the time it is read: legal
    /// (CQN-8), but rare on hardware, and some programs take it for an error.
    Given { arms: u8, until: Time },
    /// It looks after an event.
    Works { arms: u8, until: Time },
    /// It arms and sleeps on the descriptors by itself (`epoll`, or a task): only the thread
    /// drives.
    Sleeps,
}

/// [`Program::Given`] in a word.
const GIVEN_STATE: u64 = 1;

impl Program {
    const NEW: Program = Program::Runs { arms: 0 };

    fn arms(self) -> u8 {
        match self {
            Program::Runs { arms } | Program::Given { arms, .. } | Program::Works { arms, .. } => arms,
            Program::Sleeps => ARMS,
        }
    }

    /// It arms a queue.
    fn arms_once(self) -> Program {
        let more = self.arms() + 1;
        match self {
            _ if more > ARMS => Program::Sleeps,
            Program::Runs { .. } | Program::Sleeps => Program::Runs { arms: more },
            Program::Given { until, .. } => Program::Given { arms: more, until },
            Program::Works { until, .. } => Program::Works { arms: more, until },
        }
    }

    /// It was given an event.
    fn given(self, now: Time) -> Program {
        match self {
            Program::Sleeps => self,
            _ => Program::Given { arms: self.arms(), until: now + GIVEN },
        }
    }

    /// It looks into a queue.
    fn looks(self, now: Time) -> Program {
        match self {
            Program::Given { arms, .. } => Program::Works { arms, until: now + WORKS },
            _ => self,
        }
    }

    /// It sleeps in a get-event call, which drives the device itself.
    fn waits(self) -> Program {
        match self {
            Program::Given { until, .. } => Program::Given { arms: 0, until },
            Program::Works { until, .. } => Program::Works { arms: 0, until },
            Program::Runs { .. } | Program::Sleeps => Program::NEW,
        }
    }

    /// Has it the sockets to itself?
    pub(super) fn has_sockets(self, now: Time) -> bool {
        match self {
            Program::Given { until, .. } | Program::Works { until, .. } => now < until,
            Program::Runs { .. } | Program::Sleeps => false,
        }
    }

    /// As a word: two bits for the state, four for the arms, the rest for the time.
    fn word(self) -> u64 {
        let (state, arms, until) = match self {
            Program::Runs { arms } => (0, arms, 0),
            Program::Given { arms, until } => (GIVEN_STATE, arms, until.0),
            Program::Works { arms, until } => (2, arms, until.0),
            Program::Sleeps => (3, ARMS, 0),
        };
        state | u64::from(arms) << 2 | until << 6
    }

    #[inline]
    fn of(word: u64) -> Program {
        let (arms, until) = ((word >> 2 & 0xf) as u8, Time(word >> 6));
        match word & 3 {
            0 => Program::Runs { arms },
            GIVEN_STATE => Program::Given { arms, until },
            2 => Program::Works { arms, until },
            _ => Program::Sleeps,
        }
    }
}

/// What the background thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    /// It will still see what is set now.
    Awake,
    /// It sleeps, or is about to, and looks at the timers at `until` by itself. `away`: not at the
    /// sockets, which it leaves to the program.
    Asleep { until: u64, away: bool },
}

impl Thread {
    const FOREVER: u64 = u64::MAX >> 1;

    fn word(self) -> u64 {
        match self {
            Thread::Awake => 0,
            // Never 0: it does not sleep until time 0.
            Thread::Asleep { until, away } => until.clamp(1, Self::FOREVER) << 1 | u64::from(away),
        }
    }
}

/// Shared by the program's threads and the background thread. Not exact where several threads of
/// the program do different things, nor need it be.
#[derive(Debug)]
pub(crate) struct Policy {
    /// Calls of the program that drove progress; the thread watches the number move.
    looks: AtomicU64,
    /// A [`Program`].
    program: AtomicU64,
    /// A [`Thread`]. SeqCst: whoever leaves work for the thread stores that and then reads this,
    /// the thread does the reverse, and neither may miss the other.
    thread: AtomicU64,
}

impl Policy {
    pub(super) fn new() -> Self {
        Policy {
            looks: AtomicU64::new(0),
            program: AtomicU64::new(Program::NEW.word()),
            thread: AtomicU64::new(Thread::Awake.word()),
        }
    }

    #[inline]
    pub(super) fn program(&self) -> Program {
        Program::of(self.program.load(Ordering::Relaxed))
    }

    fn change(&self, change: impl Fn(Program) -> Program) -> Program {
        let of = |word| change(Program::of(word));
        let change = |word| Some(of(word).word());
        match self.program.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change) {
            Ok(word) | Err(word) => of(word),
        }
    }

    /// A call of the program drives progress. Answers how many did so before.
    #[inline]
    pub(super) fn drives(&self) -> u64 {
        let looks = self.looks.load(Ordering::Relaxed);
        self.looks.store(looks.wrapping_add(1), Ordering::Relaxed);
        looks
    }

    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The program looks into a queue.
    #[inline]
    pub(crate) fn looks_at_queue(&self, now: impl Fn() -> Time) {
        if self.program.load(Ordering::Relaxed) & 3 == GIVEN_STATE {
            self.change(|program| program.looks(now()));
        }
    }

    /// The program armed a queue. `true` if only the thread drives from now on, and must know.
    pub(super) fn arms(&self) -> bool {
        self.change(Program::arms_once) == Program::Sleeps && self.thread_is_away()
    }

    /// A task waits without a thread of its own. `true` as of [`Policy::arms`].
    pub(super) fn task_waits(&self) -> bool {
        self.change(|_| Program::Sleeps);
        self.thread_is_away()
    }

    /// A thread of the program sleeps in a get-event call.
    pub(crate) fn waits(&self) {
        self.change(Program::waits);
    }

    /// The program was given an event.
    pub(crate) fn given(&self, now: Time) {
        self.change(|program| program.given(now));
    }

    /// Does the thread stay away from the sockets, and look again within [`LONGEST_AWAY`] by
    /// itself? Then the program polls.
    #[inline]
    pub(crate) fn thread_is_away(&self) -> bool {
        self.thread.load(Ordering::Relaxed) & 1 == 1
    }

    /// Is the thread asleep, or about to be? If not, it will still see what the caller has set
    /// before.
    pub(super) fn thread_sleeps(&self) -> bool {
        fence(Ordering::SeqCst);
        self.thread.load(Ordering::SeqCst) != 0
    }

    /// Does the thread sleep beyond `at`?
    pub(super) fn thread_sleeps_past(&self, at: Time) -> bool {
        at.0 < self.thread.load(Ordering::SeqCst) >> 1
    }

    /// What the thread does from now on.
    pub(super) fn set_thread(&self, thread: Thread) {
        self.thread.store(thread.word(), Ordering::SeqCst);
    }
}

/// What the thread does when it has woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The program spins and does all there is to do, but for a timer that it comes to late. A
    /// thread that lost the processor in the middle of the same would hold it up for a whole slice.
    Aside,
    /// The program is at work on an event: the timers only.
    Timers,
    /// The thread receives. What peers on this host write the program takes by itself as long as it
    /// polls: two that take in turns get in each other's way, and a third thread that wants a
    /// processor costs one of the two.
    Receive { rings: bool },
}

/// What the thread remembers from one wake-up to the next.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How long it stays away from the sockets; zero: it sleeps on them.
    away: Duration,
    /// [`Policy::looks`] as it was last.
    seen: u64,
    /// Wake-ups to go straight back to sleep from, without a spin, and how many those were last.
    skip: u32,
    skipped: u32,
}

impl Pace {
    /// How long the thread is to stay away from the sockets.
    pub(super) fn away(&self) -> Duration {
        self.away
    }

    /// The thread has woken. `looks` as of [`Policy::looks`].
    pub(super) fn wakes(&mut self, looks: u64, program: Program, now: impl Fn() -> Time) -> Turn {
        let polled = looks.wrapping_sub(self.seen);
        if !self.away.is_zero() && polled >= SPINS && program != Program::Sleeps {
            self.seen = looks;
            self.away = (self.away * 2).min(LONGEST_AWAY);
            return Turn::Aside;
        }
        if program.has_sockets(now()) {
            self.away = self.away.max(FIRST_AWAY);
            return Turn::Timers;
        }
        Turn::Receive { rings: self.away.is_zero() || polled == 0 }
    }

    /// The thread has received. `worked`: there was something to do. `looks` as it was when the
    /// thread woke, and as it is.
    pub(super) fn received(&mut self, worked: bool, looks: [u64; 2], program: Program) {
        let [woke, now] = looks;
        self.away = if worked {
            // Work of its own. If the program polls too it merely lost a race: it comes back
            // gradually.
            self.away / 4
        } else if self.away.is_zero() || woke != self.seen {
            (self.away * 2).clamp(FIRST_AWAY, LONGEST_AWAY)
        } else {
            // Nobody polls: it watches the sockets.
            Duration::ZERO
        };
        if self.away < FIRST_AWAY || program == Program::Sleeps {
            self.away = Duration::ZERO;
        }
        self.seen = now;
    }

    /// Is the thread, which has received something, to spin for more? Where that was in vain, less
    /// and less often: a program that waits for its memory to change needs the processor.
    pub(super) fn spins(&mut self) -> bool {
        self.away.is_zero() && {
            self.skip = self.skip.saturating_sub(1);
            self.skip == 0
        }
    }

    /// What came of a spin.
    pub(super) fn spun(&mut self, found: bool) {
        self.skipped = if found { 0 } else { (2 * self.skipped + 1).min(MOST_SKIPPED) };
        self.skip = self.skipped + 1;
    }
}
