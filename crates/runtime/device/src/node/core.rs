//! The node: the queue pairs of a process by number, keys, timers, carriers, and the policy of
//! driving.
use super::addresses::table::Addresses;
use super::batch::Receiver;
use super::carriers::decorate::Taps;
use super::carriers::relay::Kept;
use super::carriers::wire::Wire;
use super::clock::Clocks;
use super::counters::Counted;
use super::groups::Groups;
use super::mads::Mads;
use super::object_list::ObjectList;
use super::outage::Outages;
use super::policy::Policy;
use super::ports::Ports;
use super::queue_pair::{AnyQp, FramePort};
use super::registry::Registry;
use super::timers::{Timed, Timers};
use super::tx::{self, Tx};
use super::wake::Wake;
use crate::error::Error;
use crate::faults::{Call, Injector};
use crate::host::HostConnections;
use crate::own_id::own_id;
use crate::ranks;
use adverb_engine::qp::ReorderMemory;
use adverb_engine::{KeyTable, Time};
use adverb_memory::ProcessIdentity;
use adverb_os::InterfaceNews;
use adverb_sync::{Ranked, RankedRw};
use nix::errno::Errno;
use nix::sys::epoll::Epoll;
use nix::sys::resource::{UsageWho, getrusage};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Longest wait for the receiving thread when a program arms a queue.
const PATIENCE: Duration = Duration::from_millis(20);

/// The node of a process.
pub struct Node {
    /// The process that made the node.
    pub(super) process: ProcessIdentity,
    pub(super) clocks: Clocks,
    pub(super) link: Wire,
    pub(super) epoll: Epoll,
    /// Wakes the background thread.
    pub(super) wake: Wake,
    pub(crate) registry: Registry,
    /// Objects other than queue pairs, for other processes of the user.
    pub(crate) objects: Arc<ObjectList>,
    pub(crate) keys: RankedRw<KeyTable, ranks::Keys>,
    /// Memory for packets that come early, shared by all queue pairs.
    pub(crate) early: Arc<ReorderMemory>,
    pub(super) timers: Timers,
    /// Watches of completion queues, and other deadlines of the background thread alone.
    pub(super) watches: Timers,
    pub(super) receiver: Ranked<Receiver, ranks::Receiver>,
    pub(crate) addresses: Addresses,
    /// Decides which thread drives.
    pub(crate) policy: Policy,
    /// Queue pairs to be pumped at the next poll.
    pub(super) pending: Ranked<Vec<Arc<AnyQp>>, ranks::Pending>,
    pub(super) any_pending: AtomicBool,
    pub(super) relay: Kept,
    /// ACKs are deferred to the program's next poll.
    pub(super) any_delayed: AtomicBool,
    pub(crate) counters: Counted,
    /// Peers on this host. `None`: all packets go over the network.
    pub(crate) host: Option<HostConnections>,
    /// Links that go down on request, and devices that fail.
    pub(super) outages: Outages,
    /// Captures and faults of packets other than UDP packets, if any.
    pub(super) taps: Option<Taps>,
    /// Faults on request, other than faults of packets.
    pub(crate) faults: Option<Injector>,
    /// Time of the timer entry for packets delayed by a fault. `u64::MAX` without an entry.
    pub(super) delayed_until: AtomicU64,
    /// Queue pair 1.
    pub(crate) mads: Mads,
    pub(crate) groups: Groups,
    pub(crate) ports: Ports,
    /// Tells of changed interfaces. `None` where the kernel does not tell.
    pub(super) news: Option<InterfaceNews>,
    /// Number of open contexts.
    pub(crate) open: AtomicUsize,
    /// The program has closed the node's descriptors while nothing was open.
    pub(super) lost: AtomicBool,
    /// Interfaces with raw packet queue pairs, by index.
    pub(crate) frame_ports: Ranked<HashMap<u32, Weak<dyn FramePort>>, ranks::FramePorts>,
}

impl Node {
    /// Does this node belong to a parent process? Then its objects are dead here. No lock may be
    /// taken and nothing may be sent.
    #[must_use]
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.process.is_over()
    }

    /// Has the program closed the node's descriptors while nothing was open? Then their numbers
    /// belong to the program's own files.
    pub(crate) fn is_lost(&self) -> bool {
        if self.lost.load(Ordering::Acquire) {
            return true;
        }
        let used = self.open.load(Ordering::Acquire) > 0 || self.mads.has_handler();
        let lost = || self.link.local().is_some_and(|local| local.descriptors().has_lost_one());
        if used || !lost() {
            return false;
        }
        log::debug!(
            "the program has closed the device's descriptors; the next open makes new ones"
        );
        self.lost.store(true, Ordering::Release);
        true
    }

    /// EIO with the reason if the object was inherited over a `fork`.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.is_stale() { Err(inherited()) } else { Ok(()) }
    }

    /// The time of the engine.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Time {
        self.clocks.now()
    }

    /// A time not before [`Node::now`], and little after it. For deadlines of milliseconds, which
    /// may be a little late. Costs a fraction of the exact time.
    #[inline]
    pub(crate) fn at_latest(&self) -> Time {
        self.clocks.at_latest()
    }

    /// The queue pair with this number.
    pub(crate) fn qp(&self, qpn: u32) -> Option<Arc<AnyQp>> {
        self.registry.qps.get(qpn)
    }

    /// The program asked for an event, so it is about to sleep. Packets deferred to the next poll
    /// leave now. A program that sleeps in a call that does not drive needs the background thread
    /// at the sockets. `idly`: see `Outside::arms`.
    pub(crate) fn about_to_sleep(&self, idly: bool) {
        // A program whose waits drive sends the rest before it sleeps.
        let delayed = || self.any_delayed.load(Ordering::Relaxed);
        if self.any_pending.load(Ordering::Acquire) || !self.policy.drivers.are_known() && delayed()
        {
            self.send_what_waits(PATIENCE);
        }
        if self.policy.outside.arms(idly, || self.sleeps_of_caller()) {
            self.call_thread_back();
        }
    }

    /// How often the calling thread has slept so far. In virtual time a sleep follows each arm.
    fn sleeps_of_caller(&self) -> u64 {
        if self.clocks.tick().is_zero() {
            return self.now().0;
        }
        getrusage(UsageWho::RUSAGE_THREAD)
            .map_or(0, |usage| usage.voluntary_context_switches() as u64)
    }

    /// A task of the program waits for an event without a thread of its own. Only the background
    /// thread drives.
    pub(crate) fn sleeps_without_us(&self) {
        self.policy.outside.task_waits();
        self.call_thread_back();
    }

    /// Only the background thread drives from now on.
    fn call_thread_back(&self) {
        if self.policy.thread_is_away() {
            self.wake_thread();
        }
    }

    /// The program posts a one-sided request. A program that waits for the peer to write to its
    /// memory makes no other call.
    #[inline]
    pub(crate) fn posts_one_sided(&self) {
        if self.policy.posts() {
            self.tell_of_poster();
        }
    }

    #[cold]
    fn tell_of_poster(&self) {
        self.policy.set_poster(own_id());
        self.wake_thread();
    }

    /// Is `ip` an address of this machine?
    pub(crate) fn is_own_address(&self, ip: IpAddr) -> bool {
        self.link.is_own_address(ip)
    }

    /// Counts a call. Returns the error of a fault on request, if the call has to fail.
    #[inline]
    pub(crate) fn fault_call(&self, call: Call) -> Result<(), Error> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.call(call))
    }

    /// The link, for its counters.
    #[must_use]
    pub fn link(&self) -> &Wire {
        &self.link
    }

    /// Enters a deadline in place of the entry at `old`, and wakes the background thread if the
    /// thread sleeps longer.
    pub(crate) fn enter_timer(&self, at: Time, who: Timed, old: u64) {
        if self.timers.add(at, who, old) && self.policy.thread_sleeps_past(at) {
            self.wake_thread();
        }
    }

    /// As [`Node::enter_timer`], for work of the background thread alone.
    pub(crate) fn enter_deadline_of_thread(&self, at: Time, what: Timed, old: u64) {
        if self.watches.add(at, what, old) && self.policy.thread_sleeps_past(at) {
            self.wake_thread();
        }
    }

    /// Writes recorded packets to the capture.
    pub(super) fn write_captured(&self) {
        if let Some(tape) = self.taps.as_ref().and_then(|taps| taps.tape.as_ref()) {
            tape.write();
        }
    }

    /// The background thread's next deadline.
    pub(super) fn next_deadline(&self) -> u64 {
        self.timers.next().min(self.watches.next())
    }

    /// Wakes the background thread if it sleeps, or is about to. An awake thread will still see
    /// everything the caller has set before.
    pub(crate) fn wake_sleeping_thread(&self) {
        if self.policy.thread_sleeps() {
            self.wake_thread();
        }
    }

    /// Wakes the background thread, so that the thread looks at the timers again.
    pub(crate) fn wake_thread(&self) {
        self.wake.wake();
    }

    /// Readable when packets have arrived, for a thread that waits for an event and drives progress
    /// itself.
    pub(crate) fn packets_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// The thread of the program at this place does not drive any more.
    pub(crate) fn drives_no_more(&self, place: usize) {
        let is_last = self.policy.drivers.leave(place, self.policy.thread_is_away());
        if is_last && !self.is_stale() {
            self.wake_thread();
        }
    }

    /// Lends the calling thread's scratch.
    pub(crate) fn with_tx<R>(&self, f: impl FnOnce(&mut Tx) -> R) -> R {
        tx::with(f)
    }

    /// Has a queue pair pumped by the next poll of the program, or by the background thread.
    pub(crate) fn pump_soon(&self, qp: &AnyQp) {
        if !qp.pending.swap(true, Ordering::Relaxed) {
            self.pending.lock().extend(qp.own.me());
            self.any_pending.store(true, Ordering::Release);
            // An awake thread looks again by itself. A sleeping thread may not know of the work.
            if !self.policy.thread_is_away() {
                self.wake_sleeping_thread();
            }
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("process", &self.process).finish_non_exhaustive()
    }
}

#[cold]
fn inherited() -> Error {
    Error::new(
        Errno::EIO,
        "the object was made before fork() and belongs to the parent; the child opens its own context",
    )
}
