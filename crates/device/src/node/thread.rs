//! The background thread: it takes over while the program does not look.
//!
//! It sleeps in `epoll` on the sockets and the next deadline. When it wakes and finds that the program's own polling
//! had already taken what woke it, it stays away from the sockets for a while, longer each time (up to
//! `LONGEST_AWAY`), so that a polling program keeps its core; as soon as it finds work of its own it comes back. For a program that arms its queues and sleeps on their descriptors
//! by itself it never stays away.
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
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// First stay away from the sockets.
const FIRST_AWAY: Duration = Duration::from_micros(50);
/// Longest stay away; a program that stops polling waits at most this long for the thread.
const LONGEST_AWAY: Duration = Duration::from_millis(1);
/// Wake-ups without lingering after the processor was found to be wanted by others.
const CROWDED: u32 = 256;
/// How long the thread goes on looking after work of its own.
const LINGER: Duration = Duration::from_micros(30);
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
    // Wake-ups to go straight back to sleep from.
    let mut skip = 0;
    loop {
        let Some(node) = node.upgrade() else { return };
        node.thread_away.store(!away.is_zero(), Ordering::Relaxed);
        sleep(&node, away, shift);
        node.thread_away.store(false, Ordering::Relaxed);
        let polls = node.polls.load(Ordering::Relaxed);
        let pumped = node.pump_dirty();
        if node.program_runs() && !node.sleeps_by_itself() {
            node.run_timers();
            away = away.max(FIRST_AWAY);
            continue;
        }
        // What peers on this host write the program takes by itself as long as it polls: in a busy ring there is always something,
        // two that take in turns get in each other's way, and a third thread that wants a processor costs one of the two.
        let theirs = !away.is_zero() && polls != node.last_polls.load(Ordering::Relaxed);
        let worked = node.receive_all(RxFrom::Every, false, !theirs);
        node.look_for_ends();
        if worked && away.is_zero() {
            skip = match skip {
                0 if !linger(&node) => CROWDED,
                n => n.saturating_sub(1),
            };
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

/// After work of its own the thread looks a little longer: more is likely to come, and a wake-up costs more than this
/// whole stay. It yields all the while; if somebody else takes the processor for longer than that it answers `false` at
/// once: then a wake-up, which goes ahead of a program that spins, is the quicker way.
fn linger(node: &Node) -> bool {
    let mut now = node.now();
    let mut until = now + LINGER;
    let polls = node.polls.load(Ordering::Relaxed);
    while now < until {
        std::thread::yield_now();
        let then = std::mem::replace(&mut now, node.now());
        if now.since(then) > LINGER {
            return false;
        }
        if node.polls.load(Ordering::Relaxed) != polls {
            // The program looks by itself.
            return true;
        }
        if node.receive(RxFrom::All, false) {
            now = node.now();
            until = now + LINGER;
        }
    }
    true
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
        limit = Some(limit.map_or(away, |l| l.min(away)));
    }
    if node.any_dirty.load(Ordering::Acquire) || node.any_stashed.load(Ordering::Acquire) {
        // A queue pair waits for another process to take its packets, or packets wait for a receive.
        limit = Some(limit.map_or(RETRY, |l| l.min(RETRY)));
    }
    if node.link.maintenance_due() {
        limit = Some(limit.map_or(UPKEEP, |l| l.min(UPKEEP)));
    }
    node.thread_sleeps_until.store(limit.map_or(u64::MAX, |l| now + l.as_nanos() as u64), Ordering::SeqCst);
    if node.timers.next() < next {
        return;
    }
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
