//! The background thread: it takes over while the program does not look.
//!
//! It sleeps in `epoll` on the sockets and the next deadline. When it wakes and finds that the program's own polling
//! had already taken what woke it, it stays away from the sockets for a while, longer each time (up to
//! `LONGEST_AWAY`), so that a polling program keeps its core; as soon as it finds work of its own it comes back. For a program that
//! arms its queues and sleeps on their descriptors by itself it never stays away.
use crate::error::Error;
use crate::node::Node;
use adverb_link::RxFrom;
use adverb_memory::{OwnThread, Shadow, Working};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd;
use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// First stay away from the sockets.
const FIRST_AWAY: Duration = Duration::from_micros(50);
/// Longest stay away; a program that stops polling waits at most this long for the thread.
const LONGEST_AWAY: Duration = Duration::from_millis(1);
/// A program that polls so often while the thread is away spins.
const SPINS: u64 = 32;
/// How long the thread goes on looking after work of its own.
const LINGER: Duration = Duration::from_micros(30);
/// Wake-ups without lingering after it was in vain, at most.
const MOST_SKIPPED: u32 = 256;
/// Slices of a processor's time in which it runs: when it wakes, somebody waits, and two programs that spin may have every processor.
const SLICE: Duration = Duration::from_micros(100);
/// Pace of trying again what another process had no room for.
const RETRY: Duration = Duration::from_micros(100);
/// Pace of link upkeep while packets go astray.
const UPKEEP: Duration = Duration::from_millis(100);

/// Starts the thread with every signal blocked, so that the program's handlers run on its own threads.
pub(super) fn spawn(node: &Arc<Node>) -> Result<(), Error> {
    let mut old = SigSet::empty();
    nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut old))?;
    let weak = Arc::downgrade(node);
    let (up, is_up) = mpsc::channel();
    let shadow = node.lanes.as_ref().map(|lanes| lanes.shadow);
    let spawned = std::thread::Builder::new().name("adverb".into()).spawn(move || {
        // Pages that it may write to, its heap's among them, move while it sleeps.
        let own = shadow.map(Shadow::own_thread);
        let mut shift = Shift::begin(own.as_ref());
        if let Err(e) = adverb_link::short_slices(SLICE.as_nanos() as u64) {
            log::debug!("the background thread runs in slices of the usual length: {e}");
        }
        let _ = up.send(());
        run(&weak, &mut shift);
    });
    nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&old), None)?;
    match spawned {
        Ok(_) => {
            let _ = is_up.recv();
            Ok(())
        }
        Err(e) => Err(Error::new(
            e.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
            format!("cannot start the background thread: {e} (a limit on processes or memory?)"),
        )),
    }
}

/// The thread at work; while it sleeps it touches nothing but its own stack.
struct Shift<'a> {
    own: Option<&'a OwnThread>,
    at_work: Option<Working<'a>>,
}

impl<'a> Shift<'a> {
    fn begin(own: Option<&'a OwnThread>) -> Self {
        Shift { own, at_work: own.map(OwnThread::work) }
    }
    /// `call` is a system call and nothing else.
    fn pause<T>(&mut self, call: impl FnOnce() -> T) -> T {
        self.at_work = None;
        let result = call();
        self.at_work = self.own.map(OwnThread::work);
        result
    }
}

fn run(node: &Weak<Node>, shift: &mut Shift<'_>) {
    let mut away = Duration::ZERO;
    let mut patience = Patience::default();
    loop {
        let Some(node) = node.upgrade() else { return };
        node.thread_away.store(!away.is_zero(), Ordering::Relaxed);
        sleep(&node, away, shift);
        node.thread_away.store(false, Ordering::Relaxed);
        let polls = node.polls.load(Ordering::Relaxed);
        let polled = polls.wrapping_sub(node.last_polls.load(Ordering::Relaxed));
        if !away.is_zero() && polled >= SPINS && !node.sleeps_by_itself() {
            // Whoever spins does all there is to do, but for a timer that it comes to late. A thread that loses the processor in the
            // middle of the same would hold it up for a whole slice.
            node.look_for_ends();
            node.run_timers();
            node.maintain();
            node.last_polls.store(polls, Ordering::Relaxed);
            away = (away * 2).min(LONGEST_AWAY);
            continue;
        }
        let pumped = node.pump_dirty();
        if node.leaves_it_to_the_program() {
            node.run_timers();
            away = away.max(FIRST_AWAY);
            continue;
        }
        // What peers on this host write the program takes by itself as long as it polls: in a busy ring there is always something,
        // two that take in turns get in each other's way, and a third thread that wants a processor costs one of the two.
        let theirs = !away.is_zero() && polled > 0;
        let worked = node.receive_all(RxFrom::Every, false, !theirs);
        node.look_for_ends();
        if worked && away.is_zero() && patience.has() {
            linger(&node).inspect(|found| patience.learn(*found));
        }
        let timed = node.run_timers();
        node.maintain();
        away = if worked || timed || pumped {
            // Work of our own. If the program polls too it merely lost a race: come back gradually.
            away / 4
        } else if away.is_zero() || polls != node.last_polls.swap(polls, Ordering::Relaxed) {
            (away * 2).clamp(FIRST_AWAY, LONGEST_AWAY)
        } else {
            // Nobody polls: watch the sockets.
            Duration::ZERO
        };
        if away < FIRST_AWAY || node.sleeps_by_itself() {
            away = Duration::ZERO;
        }
        node.last_polls.store(node.polls.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Whether to linger: where it was in vain, less and less often. A program that waits for its memory to change needs the processor
/// that a thread in vain looks from.
#[derive(Default)]
struct Patience {
    /// Wake-ups to go straight back to sleep from.
    skip: u32,
    /// How many those were the last time.
    skipped: u32,
}

impl Patience {
    fn has(&mut self) -> bool {
        self.skip = self.skip.saturating_sub(1);
        self.skip == 0
    }
    fn learn(&mut self, found: bool) {
        self.skipped = if found { 0 } else { (2 * self.skipped + 1).min(MOST_SKIPPED) };
        self.skip = self.skipped + 1;
    }
}

/// After work of its own the thread looks a little longer: more is likely to come, and a wake-up costs more than this
/// whole stay. Answers whether something came, unless the program looks by itself meanwhile. It does not yield: the scheduler takes
/// a yield for a wish to run later than others, and the next wake-up would then wait for a whole slice of a program that spins.
fn linger(node: &Node) -> Option<bool> {
    let mut until = node.now() + LINGER;
    let polls = node.polls.load(Ordering::Relaxed);
    let mut found = false;
    while node.now() < until {
        if node.polls.load(Ordering::Relaxed) != polls || node.leaves_it_to_the_program() {
            return None;
        }
        if node.receive(RxFrom::All, false) {
            found = true;
            until = node.now() + LINGER;
        }
    }
    Some(found)
}

/// How soon the thread looks again for the sake of what waits for the next poll.
fn waits(node: &Node) -> Option<Duration> {
    if node.any_dirty.load(Ordering::Acquire) || node.any_stashed.load(Ordering::Acquire) {
        // A queue pair waits for another process to take its packets, or packets wait for a receive.
        return Some(RETRY);
    }
    node.any_held.load(Ordering::Acquire).then_some(LONGEST_AWAY)
}

fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

/// Sleeps until the next deadline, a wake-up, or (unless `away`) a packet.
fn sleep(node: &Node, away: Duration, shift: &mut Shift<'_>) {
    // Announce first, then look at the deadlines: whoever adds one in between sees the announcement and wakes us.
    node.thread_sleeps_until.store(0, Ordering::SeqCst);
    let now = node.now().0;
    let next = node.timers.next();
    let mut limit =
        if next == u64::MAX { None } else { Some(Duration::from_nanos(next.saturating_sub(now))) };
    if !away.is_zero() {
        limit = sooner(limit, Some(away));
    }
    limit = sooner(limit, waits(node));
    if node.link.maintenance_due() {
        limit = sooner(limit, Some(UPKEEP));
    }
    node.thread_sleeps_until.store(limit.map_or(u64::MAX, |l| now + l.as_nanos() as u64), Ordering::SeqCst);
    if node.timers.next() < next {
        return;
    }
    // The same with what is left for the next poll: its setter looks at the announcement after this, or is seen here.
    fence(Ordering::SeqCst);
    limit = sooner(limit, waits(node));
    let asleep = away.is_zero().then(|| node.sleeps());
    if asleep.as_ref().is_some_and(|a| a.needless) {
        return;
    }
    let mut fds = [
        PollFd::new(node.wake.as_fd(), PollFlags::POLLIN),
        PollFd::new(node.epoll.0.as_fd(), PollFlags::POLLIN),
    ];
    let watched = if away.is_zero() { &mut fds[..] } else { &mut fds[..1] };
    let limit = limit.map(TimeSpec::from_duration);
    let result = shift.pause(|| ppoll(watched, limit, None));
    drop(asleep);
    node.thread_sleeps_until.store(0, Ordering::SeqCst);
    if matches!(result, Ok(n) if n > 0) {
        let _ = node.wake.read();
    }
    if matches!(result, Err(e) if e != Errno::EINTR) {
        // Out of kernel memory: try again, without spinning.
        shift.pause(|| std::thread::sleep(LONGEST_AWAY));
    }
}
