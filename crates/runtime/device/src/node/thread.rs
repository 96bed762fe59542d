//! The background thread: it takes over while the program does not look.
//!
//! It sleeps in `epoll` on the sockets and the next deadline. When it wakes and finds that the
//! program's own polling had already taken what woke it, it stays away from the sockets for a
//! while, longer each time (up to `LONGEST_AWAY`), so that a polling program keeps its core; as
//! soon as it finds work of its own it comes back. For a program that arms its queues and sleeps on
//! their descriptors by itself it never stays away.
use super::core::Node;
use crate::error::Error;
use crate::node::batch::Ask;
use crate::node::carriers::{Relay, Rings, Udp};
use crate::node::policy::{LONGEST_AWAY, Pace, Thread, Turn};
use crate::node::poster::PosterWatch;
use crate::node::sleep::Asleep;
use adverb_engine::Time;
use adverb_link::RxFrom;
use adverb_os::InterfaceNews;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd;
use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long the thread goes on looking after work of its own.
const SPIN: Duration = Duration::from_micros(30);
/// How long it does so at most: timers, and peers that end, wait meanwhile, and a peer can see to
/// it that there is always something.
const LONGEST_SPIN: Duration = Duration::from_millis(1);
/// Slices of a processor's time in which it runs: when it wakes, somebody waits, and two programs
/// that spin may have every processor.
const SLICE: Duration = Duration::from_micros(100);
/// Pace of trying again what another process had no room for.
const RETRY: Duration = Duration::from_micros(100);
/// Pace of the thread where the program has closed the descriptors of an open device.
const LOST: Duration = Duration::from_millis(10);
/// Pace of link upkeep while packets go astray.
const UPKEEP: Duration = Duration::from_millis(100);

/// Starts the thread with every signal blocked, so that the program's handlers run on its own
/// threads.
pub(super) fn spawn(node: &Arc<Node>) -> Result<(), Error> {
    let mut old = SigSet::empty();
    nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut old))?;
    let weak = Arc::downgrade(node);
    let (up, is_up) = mpsc::channel();
    let spawned = std::thread::Builder::new().name("adverb".into()).spawn(move || {
        let _ours = adverb_memory::OwnThread::this();
        // Naps of microseconds end in time.
        if let Err(e) = nix::sys::prctl::set_timerslack(1) {
            log::debug!("timers of the background thread are as late as others: {e}");
        }
        if let Err(e) = adverb_os::short_slices(SLICE.as_nanos() as u64) {
            log::debug!("the background thread runs in slices of the usual length: {e}");
        }
        let _ = up.send(nix::unistd::gettid());
        run(&weak);
    });
    nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&old), None)?;
    match spawned {
        Ok(_) => {
            if let (Ok(thread), Some(lanes)) = (is_up.recv(), &node.lanes) {
                lanes.published.set_thread(thread.as_raw().unsigned_abs());
            }
            Ok(())
        }
        Err(e) => Err(Error::new(
            e.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
            format!("cannot start the background thread: {e} (a limit on processes or memory?)"),
        )),
    }
}

fn run(node: &Weak<Node>) {
    let mut pace = Pace::default();
    let mut watch = None;
    loop {
        let Some(node) = node.upgrade() else { return };
        let watch = watch.get_or_insert_with(|| PosterWatch::new(&node));
        let news = match Sleep::begin(&node, pace.away()) {
            Some(sleep) => sleep.block(&node, watch),
            None => Some(false),
        };
        let Some(news) = news else { return };
        turn(&node, &mut pace, news);
    }
}

/// What the thread does from one sleep to the next. `news`: interfaces have changed.
pub(super) fn turn(node: &Node, pace: &mut Pace, news: bool) {
    if news || node.ports.any.load(Ordering::SeqCst) {
        hear_of_interfaces(node);
    }
    node.mads.run(node);
    Relay(node).send_leaving();
    node.run_watches();
    let woke = node.policy.shown();
    let turn = pace.wakes(woke, node.policy.copies(), node.policy.program(), || node.now());
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
    let received = node.receive_as(Ask { from: RxFrom::Every, hold: false, rings });
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

/// Interfaces have changed: contexts are told of it, and the connection manager.
fn hear_of_interfaces(node: &Node) {
    if let Some(news) = &node.news
        && let Err(e) = node.ports.hear(news)
    {
        log::info!("the network interfaces cannot be listed: {e}");
    }
    node.link.own_addresses_changed();
    node.ports.tell();
    node.mads.open_what_came(node);
    node.mads.with_handler(node, |handler, now| handler.interfaces_changed(now));
}

/// Leaves peers that have ended.
fn look_for_ends(node: &Node) {
    if let Some(rings) = Rings::with_peers(node) {
        rings.look_for_ends();
    }
}

/// After work of its own the thread looks a little longer: more is likely to come, and a wake-up
/// costs more than this whole stay. Answers whether something came, unless the program looks by
/// itself meanwhile. It does not yield: the scheduler takes a yield for a wish to run later than
/// others, and the next wake-up would then wait for a whole slice of a program that spins.
fn spin(node: &Node) -> Option<bool> {
    let looks = node.policy.looks();
    spin_by(
        || node.now(),
        || {
            let policy = &node.policy;
            let others = policy.looks() != looks || policy.program().has_sockets(node.now());
            (!others).then(|| node.receive(RxFrom::All, false) | node.mads.run(node))
        },
    )
}

/// Looks until nothing has come for [`SPIN`], and no longer than [`LONGEST_SPIN`]. `None` as
/// soon as `look` says so.
fn spin_by(now: impl Fn() -> Time, mut look: impl FnMut() -> Option<bool>) -> Option<bool> {
    let begun = now();
    let (mut until, end) = (begun + SPIN, begun + LONGEST_SPIN);
    let mut found = false;
    while now() < until {
        if look()? {
            found = true;
            until = (now() + SPIN).min(end);
        }
    }
    Some(found)
}

/// How soon the thread looks again for the sake of what waits for the next poll.
fn waits(node: &Node) -> Option<Duration> {
    if node.mads.wait() {
        return Some(Duration::ZERO);
    }
    if node.any_pending.load(Ordering::Acquire) || node.relay.is_waiting() {
        // A queue pair, or what one left, waits for another process to take packets, or packets
        // wait for a receive.
        return Some(RETRY);
    }
    node.any_delayed.load(Ordering::Acquire).then_some(LONGEST_AWAY)
}

fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

/// A sleep of the thread that peers and the program know of, until the next deadline, a wake-up,
/// news of interfaces, or (unless the thread stays away from the sockets) a packet.
pub(super) struct Sleep<'a> {
    /// How long, from now on.
    pub(super) limit: Option<Duration>,
    /// The announcement to peers on this host; `None` if the thread stays away from the sockets.
    pub(super) asleep: Option<Asleep<'a>>,
}

impl<'a> Sleep<'a> {
    /// Announces the sleep. `None`: there is work, and the thread stays awake.
    pub(super) fn begin(node: &'a Node, away: Duration) -> Option<Self> {
        // Announce first, then look at the deadlines: whoever adds one in between sees the
        // announcement and wakes us.
        node.policy.set_thread(Thread::Awake);
        let now = node.now().0;
        let next = node.next_deadline();
        let mut limit =
            if next == u64::MAX { None } else { Some(Duration::from_nanos(next.saturating_sub(now))) };
        if !away.is_zero() {
            limit = sooner(limit, Some(away));
        }
        limit = sooner(limit, waits(node));
        if node.link.maintenance_due() {
            limit = sooner(limit, Some(UPKEEP));
        }
        let until = limit.map_or(u64::MAX, |l| now + l.as_nanos() as u64);
        node.policy.set_thread(Thread::Asleep { until, away: !away.is_zero() });
        if node.next_deadline() < next {
            node.policy.set_thread(Thread::Awake);
            return None;
        }
        // The same with what is left for the next poll: its setter looks at the announcement after
        // this, or is seen here.
        fence(Ordering::SeqCst);
        limit = sooner(limit, waits(node));
        let asleep = away.is_zero().then(|| Asleep::begin(node));
        if asleep.as_ref().is_some_and(|a| a.needless) {
            node.policy.set_thread(Thread::Awake);
            return None;
        }
        Some(Sleep { limit, asleep })
    }

    /// Sleeps. `true`: interfaces have changed. `None` if the node is lost: nothing of its may be
    /// read any more.
    fn block(self, node: &Node, watch: &mut PosterWatch) -> Option<bool> {
        let news = node.news.as_ref().and_then(InterfaceNews::fd);
        let Some(wake) = node.wake.fd() else {
            // The program has closed the descriptors of an open device: there is nothing to wait
            // on.
            drop(self.asleep);
            std::thread::sleep(LOST);
            node.policy.set_thread(Thread::Awake);
            return (!node.is_lost()).then_some(false);
        };
        let mut fds = [
            PollFd::new(wake, PollFlags::POLLIN),
            // Without news the first one again, of which nothing is asked.
            PollFd::new(
                news.unwrap_or(wake),
                if news.is_some() { PollFlags::POLLIN } else { PollFlags::empty() },
            ),
            PollFd::new(node.epoll.0.as_fd(), PollFlags::POLLIN),
        ];
        let watched = if self.asleep.is_some() { &mut fds[..] } else { &mut fds[..2] };
        watch.look(node);
        let until = self.limit.map(|limit| node.now() + limit);
        let result = loop {
            let now = node.now();
            let (left, nap) = (until.map(|until| until.since(now)), watch.naps.length(now));
            let limit = sooner(left, nap).map(TimeSpec::from_duration);
            let result = ppoll(watched, limit, None);
            let napped = result == Ok(0) && nap.is_some_and(|nap| left.is_none_or(|left| nap < left));
            if !napped || node.is_lost() {
                break result;
            }
            watch.napped(node);
        };
        let told = matches!(result, Ok(n) if n > 0) && fds[1].any() == Some(true);
        self.end(node, matches!(result, Ok(n) if n > 0))?;
        if let Err(e) = result
            && e != Errno::EINTR
        {
            node.link.socket_failed("wait for packets", &e.into());
            // Out of kernel memory: try again, without spinning.
            std::thread::sleep(LONGEST_AWAY);
        }
        Some(told)
    }

    /// The thread is awake; `woken`: not by its deadline. `None` if the node is lost.
    pub(super) fn end(self, node: &Node, woken: bool) -> Option<()> {
        drop(self.asleep);
        node.policy.set_thread(Thread::Awake);
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

    /// TRU-3: a ring that gives records for ever keeps the thread from its other work for a moment
    /// only.
    #[test]
    fn whoever_always_has_something_is_left_after_a_while() {
        let clock = Cell::new(Time::ZERO);
        let now = || {
            clock.set(clock.get() + Duration::from_micros(1));
            clock.get()
        };
        let mut looks = 0;
        let found = spin_by(now, || {
            looks += 1;
            assert!(looks < 10_000, "it does not end");
            Some(true)
        });
        assert_eq!(found, Some(true));
        assert!(looks > 100, "{looks} looks");
        assert_eq!(spin_by(now, || Some(false)), Some(false));
        assert_eq!(spin_by(now, || None), None);
    }
}
