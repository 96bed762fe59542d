//! What a process shares: the link, the queue pairs by number, the keys, the timers and the
//! progress of it all.
//!
//! *Whoever waits makes progress.* Polling, posting and waiting calls drive [`Node::progress`]
//! inline; one background thread sleeps in `epoll` and steps in when the program does not (see
//! `thread`).
use crate::error::Error;
use crate::faults::{Call, Injector};
use crate::host::{Lanes, PathChoice};
use crate::interfaces::Interface;
use crate::ranks;
use adverb_engine::qp::Counters;
use adverb_engine::qp::ReorderMemory;
use adverb_engine::{Gid, KeyTable, Time};
use adverb_link::{AddrIndex, Config, FdKind, InterfaceNews, LinkError, Transit, UdpLink};
use adverb_memory::Life;
use adverb_sync::{Ranked, RankedRw};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

mod addresses;
mod backlog;
mod clock;
mod counters;
mod deliver;
mod due;
mod early;
mod frames;
mod groups;
mod handshake;
mod inject;
mod leave;
mod local;
mod mad_handler;
mod mads;
mod network;
mod numbers;
mod placing;
mod policy;
pub(crate) mod ports;
mod progress;
mod publish;
mod pump;
mod queue_pair;
mod receives;
mod registry;
mod rendezvous;
mod ring;
mod road;
mod sleep;
#[cfg(all(test, not(loom)))]
mod tests;
mod thread;
mod timers;
mod wake;

use backlog::Backlog;
use clock::Clocks;
pub use counters::{NodeCounters, Stats};
use groups::Groups;
pub(crate) use groups::{MOST_ATTACHED, MOST_GROUPS};
pub use mad_handler::{Arrival, MAD_LEN, MadHandler};
use mads::Mads;
pub(crate) use network::scope_of;
use numbers::Numbers;
use policy::Policy;
pub use ports::PortState;
use ports::Ports;
use progress::Rx;
pub(crate) use pump::Tx;
pub use queue_pair::QueuePair;
pub(crate) use queue_pair::{AnyQp, FramePort, Owner, QpInner};
use registry::Registry;
pub(crate) use rendezvous::make_room;
pub use ring::{PlainData, PlainPost};
use timers::Timers;
pub(crate) use timers::{NEVER, Timed, TimedQueue};
use wake::Wake;

/// The engine of a process.
pub struct Node {
    /// The process that it was made in.
    life: Life,
    clocks: Clocks,
    link: UdpLink,
    epoll: Epoll,
    /// Wakes the background thread.
    wake: Wake,
    qps: Numbers,
    registry: Registry,
    pub(crate) keys: RankedRw<KeyTable, ranks::Keys>,
    /// What the queue pairs may keep of packets that come before earlier ones.
    pub(crate) early: Arc<ReorderMemory>,
    timers: Timers,
    /// Looks at completion queues, for the background thread alone.
    watches: Timers,
    rx: Ranked<Rx, ranks::Receiver>,
    /// Addresses opened so far, with the descriptors that epoll watches.
    addresses: Ranked<Vec<(IpAddr, u32, AddrIndex)>, ranks::Addresses>,
    /// Who drives.
    policy: Policy,
    /// Queue pairs to be pumped at the next poll.
    pending: Ranked<Vec<Arc<AnyQp>>, ranks::Pending>,
    any_pending: AtomicBool,
    /// Queue pairs with packets that wait for a receive.
    stashed: Ranked<Vec<Arc<AnyQp>>, ranks::Stashed>,
    any_stashed: AtomicBool,
    /// What queue pairs that have ended left for other processes.
    leaving: Ranked<Vec<Backlog>, ranks::Leaving>,
    any_leaving: AtomicBool,
    /// ACKs are held back for the program's next poll.
    any_delayed: AtomicBool,
    pub(crate) counters: NodeCounters,
    /// Processes of this host that need no network; `None`: everything goes over it.
    pub(crate) lanes: Option<Lanes>,
    /// What queue pairs counted that are gone.
    gone: Ranked<Counters, ranks::Gone>,
    /// Faults on request, other than those of packets.
    pub(crate) faults: Option<Injector>,
    /// When the timer queue looks at packets that a fault holds; `u64::MAX` when it does not.
    held_at: AtomicU64,
    /// Queue pair 1.
    mads: Mads,
    groups: Groups,
    pub(crate) ports: Ports,
    /// Says when interfaces change; `None` where the kernel does not.
    news: Option<InterfaceNews>,
    /// Contexts that are open.
    pub(crate) open: AtomicUsize,
    /// The program has closed the node's descriptors when nothing was open.
    lost: AtomicBool,
    /// Interfaces with raw packet queue pairs, by index.
    pub(crate) frame_ports: Ranked<HashMap<u32, Weak<dyn FramePort>>, ranks::FramePorts>,
}

/// One place per process of a line, so that a child never meets a lock that a thread of its parent
/// held at the fork.
static NODES: [Ranked<Option<Arc<Node>>, ranks::NodePlace>; 64] = [const { Ranked::new(None) }; 64];

/// How often a process may close the descriptors of its node while nothing is open.
const MOST_LOST: usize = 16;

/// The nodes of each process, for the child handler, which may only load and close.
static CHILD_CLOSES: [[OnceLock<Arc<Node>>; MOST_LOST]; 64] =
    [const { [const { OnceLock::new() }; MOST_LOST] }; 64];

fn place_of(life: Life) -> usize {
    life.number() as usize % NODES.len()
}

extern "C" fn before_fork() {
    adverb_link::note_transit_before_fork();
}

extern "C" fn in_child_after_fork() {
    // The parent's sockets must not live on here: they would keep the port's steering pointing at a
    // process that does not read. Nor is memory of the parent or its peers to live on. Only system
    // calls are made.
    let all = CHILD_CLOSES.iter().flatten();
    for node in all.filter_map(OnceLock::get).filter(|node| node.is_stale()) {
        node.link.close_after_fork();
        if let Some(lanes) = &node.lanes {
            lanes.close_after_fork();
        }
    }
    adverb_link::drop_transit_after_fork();
}

/// What was held back to leave with something else leaves before the process does.
extern "C" fn at_exit() {
    if let Some(place) = NODES[place_of(Life::current())].try_lock()
        && let Some(node) = place.as_ref().filter(|node| node.is_of_use())
    {
        node.send_at_last();
        node.log_counters();
    }
}

impl Node {
    /// The node of this process, made on first use and again in a child after `fork`.
    ///
    /// # Errors
    /// What the link or the kernel refused: descriptors, slots, threads.
    pub fn get() -> Result<Arc<Node>, Error> {
        static AT_FORK: OnceLock<()> = OnceLock::new();
        AT_FORK.get_or_init(|| {
            adverb_memory::at_fork(before_fork, in_child_after_fork);
            adverb_memory::at_exit(at_exit);
        });
        let life = Life::current();
        let mut place = NODES[place_of(life)].lock();
        if let Some(node) = place.as_ref().filter(|node| node.is_of_use()) {
            return Ok(node.clone());
        }
        let mut closes = CHILD_CLOSES[place_of(life)].iter();
        let free = closes.find(|place| place.get().is_none_or(|node| node.life.number() != life.number()));
        let Some(free) = free else {
            let text = "the program has closed the device's descriptors too often while nothing was open";
            return Err(Error::new(Errno::EMFILE, text));
        };
        let node = Node::start(life)?;
        crate::started::set_started(life);
        // A node is never dropped: in a child of a child its descriptors would be somebody else's
        // by then.
        if let Some(old) = place.replace(node.clone()) {
            std::mem::forget(old);
        }
        let _ = free.set(node.clone());
        Ok(node)
    }

    /// That of this process, if it has one.
    pub(crate) fn existing() -> Option<Arc<Node>> {
        let place = NODES[place_of(Life::current())].lock();
        place.as_ref().filter(|node| node.is_of_use()).cloned()
    }

    /// The interfaces of this moment, with their GID tables. What has changed at open devices they
    /// are told of soon.
    pub(crate) fn look_at_interfaces(&self) -> nix::Result<Vec<(Interface, Vec<Gid>)>> {
        let found = self.ports.look()?;
        if self.ports.any.load(Ordering::SeqCst) {
            self.wake_thread();
        }
        Ok(found)
    }

    /// Does the kernel say when interfaces change?
    pub(crate) fn hears_of_interfaces(&self) -> bool {
        self.news.is_some()
    }

    fn start(life: Life) -> Result<Arc<Node>, Error> {
        let faults = crate::faults::asked()?;
        let config = Config {
            seed: random_u64(),
            faults: faults.packets.clone(),
            capture: crate::capture::begin(),
            ..Config::default()
        };
        // Faults of packets and captures want a network.
        let local = crate::host::path_choice()? == PathChoice::Local
            && faults.packets.is_none()
            && config.capture.is_none();
        let _transit = Transit::begin();
        crate::memory::share_allocations()?;
        // Whoever cannot be told from a stranger is given nothing; the link says so.
        let local = local && adverb_link::users_can_be_told_apart();
        let lanes = local.then(Lanes::new).transpose();
        let lanes = lanes.unwrap_or_else(|e| {
            log::warn!("no memory is shared with other processes of this host: {e}");
            None
        });
        let link = UdpLink::new(config).map_err(from_link)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = Wake::new()?;
        let node = Arc::new(Node {
            life,
            clocks: Clocks::start(),
            link,
            epoll,
            wake,
            qps: Numbers::new(random_u64()),
            registry: Registry::default(),
            keys: RankedRw::new(KeyTable::new()),
            early: Arc::new(ReorderMemory::new(ReorderMemory::USUAL)),
            timers: Timers::new(),
            watches: Timers::new(),
            rx: Ranked::new(Rx::new()),
            addresses: Ranked::default(),
            pending: Ranked::default(),
            any_pending: AtomicBool::new(false),
            stashed: Ranked::default(),
            any_stashed: AtomicBool::new(false),
            leaving: Ranked::default(),
            any_leaving: AtomicBool::new(false),
            any_delayed: AtomicBool::new(false),
            policy: Policy::new(),
            counters: NodeCounters::default(),
            lanes,
            gone: Ranked::default(),
            faults: Injector::new(faults),
            held_at: AtomicU64::new(u64::MAX),
            mads: Mads::default(),
            groups: Groups::default(),
            ports: Ports::default(),
            open: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            frame_ports: Ranked::default(),
            news: InterfaceNews::new()
                .inspect_err(|e| {
                    log::info!("open devices do not follow their interfaces: no netlink socket: {e}")
                })
                .ok(),
        });
        node.watch()?;
        thread::spawn(&node)?;
        Ok(node)
    }

    /// Does this node belong to a parent process? Its objects are dead here: nothing may be locked
    /// or sent.
    #[must_use]
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.life.is_over()
    }

    /// Can something be opened here? Not in a child, and not if the program has closed all
    /// descriptors, as those do that become daemons: with a NIC none is open when no device is.
    fn is_of_use(&self) -> bool {
        !self.is_stale() && !self.is_lost()
    }

    /// Has the program closed the node's descriptors while nothing was open? Then under their
    /// numbers are the program's own.
    pub(crate) fn is_lost(&self) -> bool {
        if self.lost.load(Ordering::Acquire) {
            return true;
        }
        let used = self.open.load(Ordering::Acquire) > 0 || self.mads.has_handler();
        if used || !self.link.has_lost_a_descriptor() {
            return false;
        }
        log::debug!("the program has closed the device's descriptors; the next open makes new ones");
        self.lost.store(true, Ordering::Release);
        true
    }

    /// EIO with the reason if the object was inherited over a `fork`.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.is_stale() { Err(inherited()) } else { Ok(()) }
    }

    /// Is it an address of this machine?
    pub(crate) fn is_own_address(&self, ip: IpAddr) -> bool {
        self.link.is_own_address(ip)
    }

    /// Counts a call; the error that a fault on request makes of it.
    #[inline]
    pub(crate) fn fault_call(&self, call: Call) -> Result<(), Error> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.call(call))
    }

    /// The link, for its counters.
    #[must_use]
    pub fn link(&self) -> &UdpLink {
        &self.link
    }

    /// Has epoll watch every descriptor of the link.
    fn watch(&self) -> Result<(), Error> {
        // An epoll of the program's own may be under the number of ours.
        if self.wake.fd().is_none() {
            return Err(Error::new(Errno::EBADF, "the program has closed the descriptors of an open device"));
        }
        let mut result = Ok(());
        self.link.for_each_fd(&mut |_: FdKind, fd: BorrowedFd<'_>| {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, fd.as_raw_fd() as u64);
            match self.epoll.add(fd, event) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => result = Err(Error::from(e)),
            }
        });
        if let Some(fd) = self.lanes.as_ref().and_then(Lanes::control_fd) {
            match self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, fd.as_raw_fd() as u64)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => result = Err(Error::from(e)),
            }
        }
        result
    }

    /// Enters a deadline in place of the entry at `old`, and sees to it that the background thread
    /// wakes in time.
    pub(crate) fn enter_timer(&self, at: Time, who: Timed, old: u64) {
        if self.timers.add(at, who, old) && self.policy.thread_sleeps_past(at) {
            self.wake_thread();
        }
    }

    /// As [`Node::enter_timer`], for a look at the completion queue `number`, which the background
    /// thread has at `at`.
    pub(crate) fn enter_watch(&self, at: Time, number: u32, old: u64) {
        if self.watches.add(at, Timed::Watch(number), old) && self.policy.thread_sleeps_past(at) {
            self.wake_thread();
        }
    }

    /// The background thread's next deadline.
    fn next_deadline(&self) -> u64 {
        self.timers.next().min(self.watches.next())
    }

    /// Is the background thread asleep, or about to be? If not, it will still see what the caller
    /// has set before.
    pub(crate) fn thread_sleeps(&self) -> bool {
        self.policy.thread_sleeps()
    }

    /// Wakes the background thread, so that it looks at the timers again.
    pub(crate) fn wake_thread(&self) {
        self.wake.wake();
    }

    /// Readable when packets have arrived: for a thread that waits for an event and drives progress
    /// itself.
    pub(crate) fn packets_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("life", &self.life).finish_non_exhaustive()
    }
}

#[cold]
fn inherited() -> Error {
    Error::new(
        Errno::EIO,
        "the object was made before fork() and belongs to the parent; the child opens its own context",
    )
}

fn from_link(e: LinkError) -> Error {
    let error = quiet_from_link(e);
    log::error!("{error}");
    error
}

/// As [`from_link`], for what a program may try until it succeeds.
pub(crate) fn quiet_from_link(e: LinkError) -> Error {
    let errno = match &e {
        LinkError::PortTaken { .. } | LinkError::ServiceTaken { .. } => Errno::EADDRINUSE,
        LinkError::NoSuchAddress { .. } | LinkError::Tentative { .. } => Errno::EADDRNOTAVAIL,
        LinkError::PermissionDenied { .. } | LinkError::UserChanged(_) => Errno::EPERM,
        LinkError::OutOfDescriptors { .. } | LinkError::TooManySockets { .. } => Errno::EMFILE,
        LinkError::OutOfMemory { .. } => Errno::ENOMEM,
        LinkError::NoFreeSlot { .. } => Errno::EUSERS,
        LinkError::FamilyUnsupported { .. } => Errno::EAFNOSUPPORT,
        LinkError::Os { source, .. } => source.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
        _ => Errno::EIO,
    };
    Error::new(errno, e.to_string())
}

/// Random bits that a peer cannot guess.
pub(crate) fn random_u32() -> u32 {
    getrandom::u32().unwrap_or_else(|_| random_u64() as u32)
}

fn random_u64() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        // No entropy source at all: time and process still keep processes apart.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64);
        now ^ (u64::from(std::process::id()) << 32)
    })
}
