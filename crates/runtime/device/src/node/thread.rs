//! The background thread, which drives the device while the program does not.
//!
//! The thread sleeps in `epoll` on the sockets and the next deadline. If the program's own polls
//! have already taken the packets that woke the thread, the thread stays away from the sockets.
//! Each stay is longer than the last, up to `LONGEST_AWAY`, so that a polling program keeps its
//! core. When the thread finds work of its own, it comes back. If a program arms its queues and
//! sleeps on their descriptors by itself, the thread never stays away.
use super::core::Node;
use crate::error::Error;
use crate::node::batch::{Ask, DelayedAcks};
use crate::node::carriers::{Relay, Rings, Udp};
use crate::node::costs::Costs;
use crate::node::policy::{LONGEST_AWAY, Pace, Thread, Turn};
use crate::node::poster::PosterWatch;
use crate::node::sleep::Asleep;
use adverb_engine::Time;
use adverb_link::RxFrom;
use adverb_os::{InterfaceNews, wait_apart};
use nix::errno::Errno;
use nix::libc::{POLLIN, pollfd};
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{Pid, SysconfVar, sysconf};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Longest spin, a promise. Timers and ends of peers wait meanwhile, and a peer may write records
/// without end.
const LONGEST_SPIN: Duration = Duration::from_millis(1);
/// Time slices of the thread on a processor: the kernel's shortest. When the thread wakes, another
/// thread waits for its work, and two spinning programs may occupy every processor.
const SLICE: Duration = Duration::from_micros(100);
/// Interval of attempts while another process has no room for packets, in wake-ups.
const RETRY: u32 = 4;
/// The starting thread waits so long for an answer of the new thread.
const ANSWER: Duration = Duration::from_millis(1);
/// Number of these waits.
const ANSWERS: u32 = 20;
/// Interval of the thread's turns after the program has closed the descriptors of an open device.
const LOST: Duration = Duration::from_millis(10);
/// Interval of link upkeep while packets go astray.
const UPKEEP: Duration = Duration::from_millis(100);
/// Interval of looks at the threads that drive. A thread may leave its wait without a word, by
/// `longjmp`.
const UNHEARD: Duration = Duration::from_secs(1);

/// Starts the thread with every signal blocked, so that the program's handlers run on the program's
/// own threads.
pub(super) fn spawn(node: &Arc<Node>) -> Result<(), Error> {
    let old = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let weak = Arc::downgrade(node);
    let (up, is_up) = mpsc::channel();
    let (starter, starts_on) = (std::thread::current(), sched_getcpu());
    let spawned = std::thread::Builder::new().name("adverb".into()).spawn(move || {
        let _ours = adverb_memory::OwnThread::this();
        // So that naps of microseconds end in time.
        if let Err(e) = nix::sys::prctl::set_timerslack(1) {
            log::debug!("timers of the background thread are as late as others: {e}");
        }
        if let Err(e) = adverb_os::short_slices(SLICE.as_nanos() as u64) {
            log::debug!("the background thread runs in slices of the usual length: {e}");
        }
        apart_from(starts_on, || answer(&weak, &up, &starter));
        run(&weak);
    });
    old.thread_set_mask()?;
    match spawned {
        Ok(_) => {
            if let (Ok(thread), Some(host)) = (is_up.recv(), &node.host) {
                host.published.set_thread(thread.as_raw().unsigned_abs());
            }
            let costs = Costs::measure(|| _ = node.wake.take(), || exchange(node, &is_up));
            let all = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten().unwrap_or(1);
            let costs = if has_one_processor() { costs.on_one_of(all as usize) } else { costs };
            log::debug!("a wake-up takes {:?}, a system call {:?}", costs.wake_up, costs.call);
            node.policy.set_costs(costs);
            drop(is_up);
            node.wake_thread();
            Ok(())
        }
        Err(e) => Err(Error::new(
            e.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
            format!("cannot start the background thread: {e} (a limit on processes or memory?)"),
        )),
    }
}

/// The starting thread wakes the background thread, and sleeps until [`answer`] wakes it.
fn exchange(node: &Node, answers: &mpsc::Receiver<Pid>) -> bool {
    node.wake_thread();
    (0..ANSWERS).any(|_| {
        let come = answers.try_recv().is_ok();
        if !come {
            std::thread::park_timeout(ANSWER);
        }
        come
    })
}

fn has_one_processor() -> bool {
    sched_getaffinity(Pid::from_raw(0)).is_ok_and(|all| {
        (0..CpuSet::count()).filter(|n| all.is_set(*n).unwrap_or(false)).nth(1).is_none()
    })
}

/// Runs `work` on another processor than this one, where the calling thread may. A wake-up on the
/// waking thread's own processor says nothing of the others, which may have to leave an idle state.
fn apart_from(processor: nix::Result<usize>, work: impl FnOnce()) {
    let own = Pid::from_raw(0);
    let before = sched_getaffinity(own).ok();
    let apart = before.zip(processor.ok()).map(|(mut all, processor)| {
        let _ = all.unset(processor);
        all
    });
    // Fails without another processor.
    let moved = apart.is_some_and(|apart| sched_setaffinity(own, &apart).is_ok());
    work();
    if let Some(before) = before.filter(|_| moved) {
        let _ = sched_setaffinity(own, &before);
    }
}

/// The background thread answers each wake-up by a wake-up of the starting thread, until the
/// starting thread has measured enough.
fn answer(node: &Weak<Node>, answers: &mpsc::Sender<Pid>, starter: &std::thread::Thread) {
    while answers.send(nix::unistd::gettid()).is_ok() {
        starter.unpark();
        let Some(node) = node.upgrade() else { return };
        let Some(wake) = node.wake.fd() else { return };
        let _ = wait_apart(&mut [readable(Some(wake))], None);
        node.wake.take();
    }
}

/// An entry that waits for input. Without a descriptor, the kernel passes over it.
fn readable(fd: Option<BorrowedFd<'_>>) -> pollfd {
    pollfd { fd: fd.map_or(-1, |fd| fd.as_raw_fd()), events: POLLIN, revents: 0 }
}

fn run(node: &Weak<Node>) {
    let mut pace = None;
    let mut watch = None;
    loop {
        let Some(node) = node.upgrade() else { return };
        let watch = watch.get_or_insert_with(|| PosterWatch::new(&node));
        let pace = pace.get_or_insert_with(|| Pace::new(node.policy.costs()));
        let news = match Sleep::begin(&node, pace.away()) {
            Some(sleep) => {
                let at_sockets = sleep.asleep.is_some();
                sleep.block(&node, watch).map(|news| (news, at_sockets))
            }
            None => Some((false, true)),
        };
        let Some((news, at_sockets)) = news else { return };
        turn(&node, pace, news, at_sockets);
    }
}

/// The work of the thread between two sleeps. `news`: interfaces have changed. `at_sockets`: the
/// thread slept on the sockets.
pub(super) fn turn(node: &Node, pace: &mut Pace, news: bool, at_sockets: bool) {
    if news || node.ports.any.load(Ordering::SeqCst) {
        hear_of_interfaces(node);
    }
    node.mads.run(node);
    node.answer_questions();
    Relay(node).send_leaving();
    node.run_watches();
    let woke = node.policy.shown();
    if pace.sees_polls(woke, node.policy.program()) {
        node.policy.outside.ends();
    }
    let turn = pace.wakes(
        woke,
        [node.receiver.is_locked(), node.policy.drivers.any()],
        node.policy.program(),
        || node.now(),
    );
    if at_sockets && !matches!(turn, Turn::Receive { .. }) {
        // The thread may have taken a doorbell that was rung for another sleeping thread.
        node.receive_for_certain();
    }
    if turn == Turn::Aside && node.policy.drivers.any() {
        // A driver that sleeps sees packets, and not the room that another process makes.
        node.pump_pending();
        if node.relay.is_waiting() {
            node.receive_for_certain();
        }
    }
    if turn == Turn::Aside {
        look_for_ends(node);
        node.run_timers();
        Udp(node).maintain();
        return;
    }
    let pumped = node.pump_pending();
    let Turn::Receive { rings } = turn else {
        node.run_timers();
        return;
    };
    let received = node.receive_as(Ask { from: RxFrom::Every, hold: DelayedAcks::Answered, rings });
    node.mads.run(node);
    look_for_ends(node);
    if received && pace.spins() {
        spin(node).inspect(|found| pace.spun(*found));
    }
    let timed = node.run_timers();
    Udp(node).maintain();
    let policy = &node.policy;
    pace.received(received || timed || pumped, [woke, policy.shown()], policy.program());
}

/// Tells contexts and the connection manager of changed interfaces.
fn hear_of_interfaces(node: &Node) {
    if let Some(news) = &node.news
        && let Err(e) = node.ports.hear(news)
    {
        log::info!("the network interfaces cannot be listed: {e}");
    }
    node.link.own_addresses_changed();
    node.ports.tell();
    node.mads.open_new_addresses(node);
    node.mads.with_handler(node, |handler, now| handler.interfaces_changed(now));
}

/// Leaves ended peers.
fn look_for_ends(node: &Node) {
    if let Some(rings) = Rings::with_peers(node) {
        rings.look_for_ends();
    }
}

/// Spins for a while after work: more packets are likely to come, and a wake-up costs more than the
/// whole spin. Returns whether something arrived. `None`: the program polls meanwhile. The thread
/// does not yield. The scheduler takes a yield for a wish to run later than other threads, and the
/// next wake-up would wait for a whole time slice of a spinning program.
fn spin(node: &Node) -> Option<bool> {
    let looks = node.policy.looks();
    spin_by(
        node.policy.costs(),
        || node.now(),
        || {
            let policy = &node.policy;
            let others = policy.looks() != looks
                || policy.drivers.any()
                || policy.program().has_sockets(node.now());
            let ask = Ask { from: RxFrom::All, hold: DelayedAcks::Answered, rings: true };
            (!others).then(|| node.receive_as(ask) | node.mads.run(node))
        },
    )
}

/// Looks until nothing has come for the time of a wake-up, and not longer than [`LONGEST_SPIN`].
/// Returns `None` as soon as `look` returns `None`.
fn spin_by(
    costs: Costs,
    now: impl Fn() -> Time,
    mut look: impl FnMut() -> Option<bool>,
) -> Option<bool> {
    let begun = now();
    let (mut until, end) = (begun + costs.wake_up, begun + LONGEST_SPIN);
    let mut found = false;
    while now() < until {
        if look()? {
            found = true;
            until = (now() + costs.wake_up).min(end);
        }
    }
    Some(found)
}

/// Time of the thread's next look at work that waits for a poll of the program.
fn waits(node: &Node) -> Option<Duration> {
    if node.mads.wait() {
        return Some(Duration::ZERO);
    }
    if node.any_pending.load(Ordering::Acquire) || node.relay.is_waiting() {
        // A queue pair, or the rest of an ended queue pair, waits for another process to take
        // packets. Or packets wait for a receive.
        return Some(node.policy.costs().turn() * RETRY);
    }
    node.any_delayed.load(Ordering::Acquire).then_some(LONGEST_AWAY)
}

fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

/// An announced sleep of the thread. It lasts until the next deadline, a wake-up, news of
/// interfaces, or a packet. A packet does not end the sleep if the thread stays away from the
/// sockets.
pub(super) struct Sleep<'a> {
    /// Duration of the sleep from now on.
    pub(super) limit: Option<Duration>,
    /// The announcement to peers on this host. `None` if the thread stays away from the sockets.
    pub(super) asleep: Option<Asleep<'a>>,
}

impl<'a> Sleep<'a> {
    /// Announces the sleep. `None`: there is work, and the thread stays awake.
    pub(super) fn begin(node: &'a Node, away: Duration) -> Option<Self> {
        // Announce first, then read the deadlines. A thread that adds a deadline in between sees
        // the announcement and wakes this thread.
        node.policy.set_thread(Thread::Awake);
        let relieved = away.is_zero() && node.policy.drivers.relieve();
        let now = node.now().0;
        // A polling program serves the deadlines. If it has stopped, they are late by one stay.
        let next = if away.is_zero() { node.next_deadline() } else { now + away.as_nanos() as u64 };
        let mut limit = (next != u64::MAX).then(|| Duration::from_nanos(next.saturating_sub(now)));
        limit = sooner(limit, waits(node));
        if node.link.maintenance_due() {
            limit = sooner(limit, Some(UPKEEP));
        }
        if relieved {
            limit = sooner(limit, Some(UNHEARD));
        }
        let until = limit.map_or(u64::MAX, |l| now + l.as_nanos() as u64);
        node.policy.set_thread(match away.is_zero() {
            true => Thread::Asleep { until },
            false => Thread::Away,
        });
        if away.is_zero() && node.next_deadline() < next {
            node.policy.set_thread(Thread::Awake);
            return None;
        }
        // The same order for work left for the next poll. Either the other thread reads the
        // announcement after this fence, or this thread sees the work here.
        fence(Ordering::SeqCst);
        limit = sooner(limit, waits(node));
        let asleep = (away.is_zero() && !relieved).then(|| Asleep::begin(node));
        if asleep.as_ref().is_some_and(|a| a.needless) {
            node.policy.set_thread(Thread::Awake);
            return None;
        }
        Some(Sleep { limit, asleep })
    }

    /// Sleeps. `true`: interfaces have changed. `None` if the node is lost: its descriptors may not
    /// be read any more.
    fn block(self, node: &Node, watch: &mut PosterWatch) -> Option<bool> {
        let news = node.news.as_ref().and_then(InterfaceNews::fd);
        let Some(wake) = node.wake.fd() else {
            // The program has closed the descriptors of an open device, so there is nothing to wait
            // on.
            drop(self.asleep);
            std::thread::sleep(LOST);
            node.policy.set_thread(Thread::Awake);
            return (!node.is_lost()).then_some(false);
        };
        let mut fds = [readable(Some(wake)), readable(news), readable(Some(node.epoll.0.as_fd()))];
        let watched = if self.asleep.is_some() { &mut fds[..] } else { &mut fds[..2] };
        watch.look(node);
        let until = self.limit.map(|limit| node.now() + limit);
        let result = loop {
            let now = node.now();
            let (left, nap) = (until.map(|until| until.since(now)), watch.naps.length(now));
            let result = wait_apart(watched, sooner(left, nap));
            let napped = matches!(result, Ok(0))
                && nap.is_some_and(|nap| left.is_none_or(|left| nap < left));
            if !napped || node.is_lost() {
                break result;
            }
            watch.napped(node);
        };
        let told = matches!(result, Ok(n) if n > 0) && fds[1].revents != 0;
        self.end(node, matches!(result, Ok(n) if n > 0))?;
        if let Err(e) = result
            && e.kind() != ErrorKind::Interrupted
        {
            if let Some(local) = node.link.local() {
                local.errors().note("wait for packets", &e);
            }
            // The kernel is out of memory: try again, without spinning.
            std::thread::sleep(LONGEST_AWAY);
        }
        Some(told)
    }

    /// The thread is awake. `woken`: by an event other than its deadline. `None` if the node is
    /// lost.
    pub(super) fn end(self, node: &Node, woken: bool) -> Option<()> {
        drop(self.asleep);
        node.policy.set_thread(Thread::Awake);
        node.policy.drivers.recall();
        node.policy.drivers.look(node.now(), UNHEARD);
        if node.is_lost() {
            return None;
        }
        if woken {
            node.wake.take();
        }
        Some(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// TRU-3: a ring with records without end keeps the thread from its other work only for a
    /// moment.
    #[test]
    fn whoever_always_has_something_is_left_after_a_while() {
        let clock = Cell::new(Time::ZERO);
        let now = || {
            clock.set(clock.get() + Duration::from_micros(1));
            clock.get()
        };
        let mut looks = 0;
        let found = spin_by(Costs::default(), now, || {
            looks += 1;
            assert!(looks < 10_000, "it does not end");
            Some(true)
        });
        assert_eq!(found, Some(true));
        assert!(looks > 100, "{looks} looks");
        assert_eq!(spin_by(Costs::default(), now, || Some(false)), Some(false));
        assert_eq!(spin_by(Costs::default(), now, || None), None);
    }
}
