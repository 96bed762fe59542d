//! The node of a process: start, forks and end.
use super::addresses::table::Addresses;
use super::batch::Receiver;
use super::carriers::decorate::Taps;
use super::carriers::wire::Wire;
use super::carriers::{Rings, Udp, relay};
use super::clock::Clocks;
use super::core::Node;
use super::counters::Counted;
use super::groups::Groups;
use super::mads::Mads;
use super::object_list::ObjectList;
use super::outage::Outages;
use super::policy::Policy;
use super::ports::Ports;
use super::queue_pair::{Owner, QueuePair};
use super::random::random_u64;
use super::registry::Registry;
use super::timers::Timers;
use super::wake::Wake;
use super::{exit, thread};
use crate::error::Error;
use crate::faults::Injector;
use crate::host::HostConnections;
use crate::interfaces::Interface;
use crate::ranks;
use adverb_engine::KeyTable;
use adverb_engine::qp::ReorderMemory;
use adverb_link::{Config, UdpLink};
use adverb_local::Local;
use adverb_memory::ProcessIdentity;
use adverb_os::{InterfaceNews, Transit};
use adverb_sync::{Ranked, RankedRw};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The turn to make or end the node, for each process of a chain of forks. So a child never meets a
/// lock that another thread of its parent held at the fork. The 65th process of a chain has the
/// place of the first, whose threads it does not have.
static TURNS: [Ranked<(), ranks::NodeInstance>; 64] = [const { Ranked::new(()) }; 64];

/// How often a process may close the descriptors of its node while nothing is open.
const MOST_LOST: usize = 16;

/// The nodes of all processes of a chain of forks. Read without a lock: by the child handler, which
/// may only load and close, and by waits of the program. A node is never dropped. In a child of a
/// child, its descriptors would belong to other files by then.
static NODES: [OnceLock<Arc<Node>>; 1024] = [const { OnceLock::new() }; 1024];

fn turn_of(process: ProcessIdentity) -> &'static Ranked<(), ranks::NodeInstance> {
    &TURNS[process.number() as usize % TURNS.len()]
}

/// A place for a further node of this process.
fn free_place(process: ProcessIdentity) -> Result<&'static OnceLock<Arc<Node>>, Error> {
    let ours = |node: &&Arc<Node>| node.process.number() == process.number();
    if NODES.iter().filter_map(OnceLock::get).filter(ours).count() == MOST_LOST {
        let text =
            "the program has closed the device's descriptors too often while nothing was open";
        return Err(Error::new(Errno::EMFILE, text));
    }
    NODES.iter().find(|place| place.get().is_none()).ok_or_else(|| {
        let text = "1024 processes, each the child of the one before, have opened the device; a new program \
                    (exec) begins anew";
        Error::new(Errno::EMFILE, text)
    })
}

extern "C" fn before_fork() {
    adverb_os::note_transit_before_fork();
}

extern "C" fn in_child_after_fork() {
    // The parent's sockets must not stay open here. They would keep the port's steering pointing at
    // a process that does not read. Memory of the parent and its peers must not stay either. Only
    // system calls are made.
    for node in NODES.iter().filter_map(OnceLock::get).filter(|node| node.is_stale()) {
        if let Some(local) = node.link.local() {
            local.descriptors().close_all();
        }
        if let Some(host) = &node.host {
            host.close_after_fork();
        }
    }
    adverb_os::drop_transit_after_fork();
}

/// Sends everything deferred for a later packet before the process ends.
extern "C" fn at_exit() {
    if let Some(_turn) = turn_of(ProcessIdentity::current()).try_lock()
        && let Some(node) = Node::existing()
    {
        exit::send_at_last(node);
        node.write_captured();
        node.log_counters();
    }
}

/// The parts of a node.
pub(super) struct Parts {
    pub(super) clocks: Clocks,
    pub(super) link: Wire,
    pub(super) host: Option<HostConnections>,
    pub(super) taps: Option<Taps>,
    pub(super) faults: Option<Injector>,
    pub(super) news: Option<InterfaceNews>,
    /// First number of a queue pair.
    pub(super) seed: u64,
}

/// Looks for system calls that a seccomp filter refuses, because peers would only see that no
/// answer comes. Answers whether memory can be shared with other processes.
fn memory_is_allowed() -> bool {
    let because = |(call, e): (&str, std::io::Error)| {
        format!("the kernel refuses {call} ({e}), for example by a seccomp filter")
    };
    if let Some(why) = adverb_os::refused_connection().map(because) {
        log::error!("other processes of this host cannot be reached: {why}");
    }
    let refused = adverb_os::refused_memory().map(because);
    if let Some(why) = &refused {
        log::warn!("no memory is shared with other processes of this host: {why}");
    }
    refused.is_none()
}

impl Node {
    /// The node of this process, made at the first use, and again in a child after `fork`.
    ///
    /// # Errors
    /// Errors of the link or the kernel: descriptors, slots, threads.
    pub fn get() -> Result<Arc<Node>, Error> {
        static AT_FORK: OnceLock<()> = OnceLock::new();
        AT_FORK.get_or_init(|| {
            adverb_memory::at_fork(before_fork, in_child_after_fork);
            adverb_memory::at_exit(at_exit);
        });
        let process = ProcessIdentity::current();
        let _turn = turn_of(process).lock();
        if let Some(node) = Node::existing() {
            return Ok(node.clone());
        }
        let free = free_place(process)?;
        let node = Node::start()?;
        crate::started::set_started(process);
        let _ = free.set(node.clone());
        Ok(node)
    }

    /// The node of this process, if there is one. Takes no lock. A child has no node yet, and a
    /// program that has closed all descriptors has none any more. Programs that become daemons do
    /// so. With a NIC no descriptor is open while no device is open.
    #[must_use]
    pub fn existing() -> Option<&'static Arc<Node>> {
        NODES.iter().map_while(OnceLock::get).find(|n| !n.is_stale() && !n.is_lost())
    }

    /// The present interfaces. Open devices are told of changes soon.
    pub(crate) fn look_at_interfaces(&self) -> nix::Result<Arc<[Interface]>> {
        let found = self.ports.look(self.news.as_ref())?;
        if self.ports.any.load(Ordering::SeqCst) {
            self.wake_thread();
        }
        Ok(found)
    }

    /// Does the kernel tell of changed interfaces?
    pub(crate) fn hears_of_interfaces(&self) -> bool {
        self.news.is_some()
    }

    fn start() -> Result<Arc<Node>, Error> {
        let faults = crate::faults::asked()?;
        let (capture, packets) = (crate::capture::begin(), faults.packets.clone());
        let config =
            Config { faults: packets.clone(), capture: capture.clone(), ..Config::default() };
        let shares = crate::memory::is_shared()?;
        let _transit = Transit::begin();
        crate::memory::share_allocations()?;
        // A user that cannot be told from other users shares no memory. The link logs this.
        let shares = shares && adverb_os::users_can_be_told_apart();
        let allowed = memory_is_allowed();
        let shares = shares && allowed;
        let local = Local::new(random_u64()).map_err(Error::from);
        let local = local.inspect_err(|error| log::error!("{error}"))?;
        let host = shares.then(|| HostConnections::new(local.errors().clone())).transpose();
        let host = host.unwrap_or_else(|e| {
            log::warn!("no memory is shared with other processes of this host: {e}");
            None
        });
        let taps = host.as_ref().and_then(|_| Taps::new(capture, &packets));
        let link = Wire::Udp { link: UdpLink::new(config, local.clone()), local };
        let news = InterfaceNews::new()
            .inspect_err(|e| {
                log::info!("open devices do not follow their interfaces: no netlink socket: {e}")
            })
            .ok();
        let (clocks, faults) = (Clocks::start(), Injector::new(faults));
        let seed = random_u64();
        let node = Node::of(Parts { clocks, link, host, taps, faults, news, seed })?;
        node.watch()?;
        node.hear_questions();
        thread::spawn(&node)?;
        Ok(node)
    }

    /// A node without a thread.
    pub(super) fn of(parts: Parts) -> Result<Arc<Node>, Error> {
        let Parts { clocks, link, host, taps, faults, news, seed } = parts;
        let policy = Policy::new(clocks.tick());
        let outages = faults.as_ref().map_or(Vec::new(), |faults| faults.spec.outages());
        Ok(Arc::new(Node {
            process: ProcessIdentity::current(),
            clocks,
            link,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            wake: Wake::new()?,
            registry: Registry::new(seed),
            objects: ObjectList::new(),
            keys: RankedRw::new(KeyTable::new()),
            early: Arc::new(ReorderMemory::new(ReorderMemory::USUAL)),
            timers: Timers::default(),
            watches: Timers::default(),
            receiver: Ranked::new(Receiver::new()),
            addresses: Addresses::default(),
            pending: Ranked::default(),
            any_pending: AtomicBool::new(false),
            relay: relay::Kept::default(),
            any_delayed: AtomicBool::new(false),
            policy,
            counters: Counted::default(),
            host,
            taps,
            faults,
            outages: Outages::new(outages),
            delayed_until: AtomicU64::new(u64::MAX),
            mads: Mads::default(),
            groups: Groups::default(),
            ports: Ports::default(),
            open: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            frame_ports: Ranked::default(),
            news,
        }))
    }

    /// Enters the queue pair made by `make` for a free number.
    pub(crate) fn add_qp<O: Owner>(
        &self,
        make: impl FnOnce(u32) -> Result<Arc<QueuePair<O>>, Error>,
    ) -> Result<Arc<QueuePair<O>>, Error> {
        if !self.mads.has_handler() {
            self.registry.qps.before_first(|| self.link.follow_user())?;
        }
        let (qp, claimed) = self.registry.qps.insert(&self.link, make).inspect_err(|_| {
            // A slot may have been claimed for the queue pair.
            let _ = self.watch();
        })?;
        if claimed && let Err(e) = self.watch() {
            self.registry.qps.remove(qp.number());
            return Err(e);
        }
        if self.outages.of(qp.own.device()).is_some() {
            self.cut(&*qp);
        }
        Ok(qp)
    }

    /// The queue pair has ended, and its number may be given again.
    pub(crate) fn remove_qp(&self, qpn: u32) {
        if let Some(link) = self.link.udp() {
            link.tap().remove_qp(qpn);
        }
        if let Some(faults) = self.packet_faults() {
            faults.rules.remove_qp(qpn);
        }
        self.registry.qps.remove(qpn);
    }

    /// Has epoll watch the sources of every carrier.
    pub(super) fn watch(&self) -> Result<(), Error> {
        // If the program has closed our `epoll`, an `epoll` of the program may have the same
        // number.
        if self.wake.fd().is_none() {
            let text = "the program has closed the descriptors of an open device";
            return Err(Error::new(Errno::EBADF, text));
        }
        let mut result = Ok(());
        let mut add = |fd: BorrowedFd<'_>| {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, fd.as_raw_fd() as u64);
            match self.epoll.add(fd, event) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => result = Err(Error::from(e)),
            }
        };
        Udp(self).sources(&mut add);
        if let Some(rings) = Rings::of(self) {
            rings.sources(&mut add);
        }
        result
    }
}
