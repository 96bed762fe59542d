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
//!             sleeps in a get-event call, or arms a queue that is still armed while it polls
//! ```
use self::yields::Yields;
use adverb_engine::Time;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

pub(crate) mod naps;
pub(crate) mod yields;

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
    /// Whether a poll in vain yields the processor.
    pub(crate) yields: Yields,
    /// Arms in a row of queues that were armed already, up to [`ARMS`], and how often the thread
    /// that armed had slept at the first of them.
    idle_arms: AtomicU8,
    sleeps: AtomicU64,
    /// One-sided requests to be posted before the thread is told of one; 0: it watches who posts.
    posts: AtomicU32,
    /// The thread of the program that posted the one that it was told of; 0: none since it looked.
    poster: AtomicI32,
    /// A thread is in the middle of copying long payloads.
    copies: AtomicBool,
    /// A [`Program`].
    program: AtomicU64,
    /// A [`Thread`]. SeqCst: whoever leaves work for the thread stores that and then reads this,
    /// the thread does the reverse, and neither may miss the other.
    thread: AtomicU64,
}

impl Policy {
    /// `tick`: of the scheduler; zero if the program shares no processor with others.
    pub(super) fn new(tick: Duration) -> Self {
        Policy {
            looks: AtomicU64::new(0),
            yields: Yields::new(tick),
            idle_arms: AtomicU8::new(0),
            sleeps: AtomicU64::new(0),
            posts: AtomicU32::new(u32::from(!tick.is_zero())),
            poster: AtomicI32::new(0),
            copies: AtomicBool::new(false),
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

    /// The thread that receives begins to copy long payloads, or has done so.
    pub(super) fn set_copies(&self, copies: bool) {
        self.copies.store(copies, Ordering::Relaxed);
    }

    /// Is a thread in the middle of copying long payloads?
    pub(super) fn copies(&self) -> bool {
        self.copies.load(Ordering::Relaxed)
    }

    /// What the program has done so far.
    pub(super) fn shown(&self) -> Shown {
        Shown { looks: self.looks(), turns: self.yields.turns() }
    }

    /// The program looks into a queue.
    #[inline]
    pub(crate) fn looks_at_queue(&self, now: impl Fn() -> Time) {
        if self.program.load(Ordering::Relaxed) & 3 == GIVEN_STATE {
            self.change(|program| program.looks(now()));
        }
    }

    /// The program armed a queue. `idly`: the queue was armed already, so no event has come since
    /// its last arm. `sleeps`: how often the calling thread has slept so far. `true` if only the
    /// background thread drives from now on, and must know.
    ///
    /// A program that sleeps on the descriptors does so after an arm. A thread that arms idly time
    /// after time, and has not slept meanwhile, looks at the descriptors in a loop: it spins.
    pub(super) fn arms(&self, idly: bool, sleeps: impl Fn() -> u64) -> bool {
        if idly {
            if self.program().arms() == 0 {
                // It counts as one that runs already.
                return false;
            }
            let row = self.idle_arms.load(Ordering::Relaxed);
            if row != 0 && row < ARMS {
                self.idle_arms.store(row + 1, Ordering::Relaxed);
                return false;
            }
            let (before, now) = (self.sleeps.load(Ordering::Relaxed), sleeps());
            if row == ARMS && now == before {
                self.change(Program::waits);
            }
            self.idle_arms.store(1, Ordering::Relaxed);
            self.sleeps.store(now, Ordering::Relaxed);
            return false;
        }
        self.idle_arms.store(0, Ordering::Relaxed);
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

    /// The program posts a one-sided request. `true`: the thread is to be told by
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

    /// The thread that [`Policy::set_poster`] named, once.
    pub(super) fn take_poster(&self) -> Option<i32> {
        let named = self.poster.load(Ordering::Relaxed) != 0;
        named.then(|| self.poster.swap(0, Ordering::Relaxed)).filter(|thread| *thread != 0)
    }

    /// The thread watches no poster any more, and is told of one after so many requests.
    pub(super) fn tell_after(&self, posts: u32) {
        self.posts.store(posts, Ordering::Relaxed);
    }

    /// What the thread does from now on.
    pub(super) fn set_thread(&self, thread: Thread) {
        self.thread.store(thread.word(), Ordering::SeqCst);
    }
}

/// What the program has done so far, as the background thread sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// [`Policy::looks`].
    pub(super) looks: u64,
    /// How often it let another thread have its processor.
    pub(super) turns: u64,
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
    /// [`Policy::shown`] as it was last.
    seen: Shown,
    /// Wake-ups to go straight back to sleep from, without a spin, and how many those were last.
    skip: u32,
    skipped: u32,
}

impl Pace {
    /// How long the thread is to stay away from the sockets.
    pub(super) fn away(&self) -> Duration {
        self.away
    }

    /// The thread has woken. `copies`: a thread of the program is in the middle of copying long
    /// payloads. Such a program makes few calls, and polls all the same.
    pub(super) fn wakes(
        &mut self,
        shown: Shown,
        copies: bool,
        program: Program,
        now: impl Fn() -> Time,
    ) -> Turn {
        let polled = shown.looks.wrapping_sub(self.seen.looks);
        // A program that polls and yields in turns with others polls slowly, and this thread, which
        // takes the processor from it whenever something comes, would leave it nothing to take.
        let spins = !self.away.is_zero() && polled >= SPINS || shown.turns != self.seen.turns || copies;
        if spins && program != Program::Sleeps {
            self.seen = shown;
            self.away = (self.away * 2).clamp(FIRST_AWAY, LONGEST_AWAY);
            return Turn::Aside;
        }
        if program.has_sockets(now()) {
            self.away = self.away.max(FIRST_AWAY);
            return Turn::Timers;
        }
        Turn::Receive { rings: self.away.is_zero() || polled == 0 }
    }

    /// The thread has received. `worked`: there was something to do. `shown` as it was when the
    /// thread woke, and as it is.
    pub(super) fn received(&mut self, worked: bool, shown: [Shown; 2], program: Program) {
        let [woke, now] = shown;
        self.away = if worked && now.looks.wrapping_sub(woke.looks) >= SPINS {
            // The program polled in vain all the while: the thread took the work from it.
            self.away.max(FIRST_AWAY)
        } else if worked {
            // Work of its own. If the program polls too it merely lost a race: it comes back
            // gradually.
            self.away / 4
        } else if self.away.is_zero() || woke.looks != self.seen.looks {
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
