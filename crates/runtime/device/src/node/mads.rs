//! MADs on queue pair 1: from the link to the connection manager's handler, on the background
//! thread; and back.
use crate::error::Error;
use crate::interfaces;
use crate::node::{Arrival, MAD_LEN, MadHandler, NEVER, Node, Timed, quiet_from_link};
use crate::ranks;
use adverb_cm::{Path, Route as Owner};
use adverb_engine::Time;
use adverb_link::{Delivery, MAD_QPN, Route, RxFrom, RxPacket, SLOT_BITS, ServiceClaim, ServiceIndex, Slot};
use adverb_sync::{Ranked, RankedRw};
use adverb_wire::{Bth, Deth, Headers, MAX_HEADER_LEN, Opcode, Operation, Psn, Transport};
use nix::errno::Errno;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

mod came;
mod listen;

use came::{Came, is_taken};

/// Q_Key of queue pair 1 (IBTA 3.5.3).
const QKEY: u32 = 0x8001_0000;
/// MADs that wait for the background thread at most; what comes beyond is dropped and comes again.
const WAITING: usize = 4096;
/// MADs handled before other work of the thread has its turn.
const AT_ONCE: usize = 64;
/// A MAD that may be for anybody is given to everybody at this pace at most.
const SPREAD: Duration = Duration::from_millis(5);
/// How long a request waits for somebody to listen before it is answered for nobody. A client of
/// this device has its queue pair and its route in microseconds, where a NIC takes milliseconds,
/// and programs (perftest's `-R`) ask their server to listen without waiting until it does.
const GRACE: Duration = Duration::from_millis(20);
const SEND_ONLY: Opcode = match Opcode::new(Transport::Ud, Operation::SendOnly) {
    Some(opcode) => opcode,
    None => panic!("UD has SEND Only"),
};

/// What a node has for MADs.
#[derive(Default)]
pub(super) struct Mads {
    handler: RankedRw<Option<Arc<dyn MadHandler>>, ranks::MadHandler>,
    inbox: Ranked<VecDeque<Came>, ranks::MadInbox>,
    /// The background thread has something to do here.
    any: AtomicBool,
    /// The handler's deadline has come.
    due: AtomicBool,
    /// Its entry in the timer queue.
    at: Deadline,
    /// Slots whose processes have ended.
    gone: Ranked<Vec<Slot>, ranks::MadGone>,
    /// Services that this process listens for.
    services: RankedRw<Vec<(u64, Option<IpAddr>, ServiceIndex)>, ranks::MadServices>,
    psn: AtomicU32,
    spread: Ranked<Option<Time>, ranks::MadSpread>,
    /// Requests are to arrive at all addresses, those that come later included.
    everywhere: AtomicBool,
    /// Requests for whom nobody listens yet, until when, oldest first.
    early: Ranked<VecDeque<(Time, Came)>, ranks::MadEarly>,
}

impl Mads {
    pub(super) fn has_handler(&self) -> bool {
        self.handler.read().is_some()
    }
}

struct Deadline(AtomicU64);

impl Default for Deadline {
    fn default() -> Self {
        Deadline(AtomicU64::new(NEVER))
    }
}

/// What became of a MAD.
#[derive(PartialEq, Eq)]
enum Routed {
    /// Whatever there was to do has been done.
    Done,
    /// It asks for a service that nobody listens for.
    Early,
}

/// Whose a MAD is, as this process sees it.
enum Whose {
    /// This process's.
    Ours,
    /// The process's that owns the slot.
    Slot(Slot),
    /// The process's that listens for the service.
    Service(u64),
    /// Any process's.
    Anybody,
    /// No MAD of the connection manager.
    Nobody,
}

impl Node {
    pub(crate) fn set_mad_handler(&self, handler: Arc<dyn MadHandler>) -> Result<(), Error> {
        let mut place = self.mads.handler.write();
        if place.is_some() {
            return Err(Error::new(
                Errno::EBUSY,
                "this process has a connection manager at queue pair 1 already".to_owned(),
            ));
        }
        *place = Some(handler);
        // Faults on request befall MADs, too.
        self.link.add_qp(MAD_QPN, 0);
        Ok(())
    }

    pub(crate) fn unset_mad_handler(&self) {
        // It is dropped when the lock is free again: it may call the device.
        let handler = self.mads.handler.write().take();
        drop(handler);
    }

    /// The upper bits of this process's communication ids: its first slot.
    pub(crate) fn mad_prefix(&self) -> u32 {
        self.link.slots().first().copied().map_or(0, u32::from)
    }

    pub(crate) fn listen_for_mads(&self, claim: &ServiceClaim) -> Result<ServiceIndex, Error> {
        // Whoever finds the name finds the entry.
        let mut services = self.mads.services.write();
        let index = self.link.listen_for(claim).map_err(quiet_from_link)?;
        services.push((claim.service(), claim.at(), index));
        Ok(index)
    }

    pub(crate) fn stop_listening_for_mads(&self, index: ServiceIndex) {
        self.mads.services.write().retain(|(.., of)| *of != index);
        self.link.stop_listening(index);
    }

    /// Has the handler's timeout called by then.
    pub(crate) fn mad_deadline(&self, at: Time) {
        let old = self.mads.at.0.fetch_min(at.0, Ordering::SeqCst);
        if at.0 < old {
            self.enter_timer(at, Timed::Mad, old);
        }
    }

    /// The deadline's entry at `at` has come.
    pub(super) fn mad_timer_due(&self, at: Time) {
        let place = &self.mads.at.0;
        if place.compare_exchange(at.0, NEVER, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.mads.due.store(true, Ordering::SeqCst);
            self.stir_mads();
        }
    }

    /// Processes of this host have ended.
    pub(crate) fn mad_peers_ended(&self, slots: &[Slot]) {
        if !slots.is_empty() && self.mads.handler.read().is_some() {
            self.mads.gone.lock().extend_from_slice(slots);
            self.stir_mads();
        }
    }

    pub(crate) fn watch_mad_peer(&self, remote_id: u32) -> bool {
        let slot = slot_of_id(remote_id);
        if self.link.owns(slot) {
            return true;
        }
        match self.link.watch_owner(slot) {
            Delivery::Done => true,
            Delivery::Full => false,
            Delivery::NoOwner => {
                self.mad_peers_ended(&[slot]);
                false
            }
        }
    }

    /// Takes in a packet for queue pair 1. What it leads to is the background thread's to do, which
    /// holds no lock then.
    pub(super) fn take_mad(&self, p: &RxPacket<'_>, headers: &Headers, payload: &[u8]) {
        if !is_taken(p, headers, payload) {
            self.counters.mad_refused.fetch_add(1, Ordering::Relaxed);
            log::debug!("dropped a packet from {} for queue pair 1: no MAD of a connection manager", p.src);
            return;
        }
        self.keep_mad(Came::of(p));
    }

    fn keep_mad(&self, came: Came) {
        let mut inbox = self.mads.inbox.lock();
        if inbox.len() >= WAITING {
            drop(inbox);
            self.counters.mad_refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        inbox.push_back(came);
        drop(inbox);
        self.stir_mads();
    }

    fn stir_mads(&self) {
        self.mads.any.store(true, Ordering::SeqCst);
        if self.thread_sleeps() {
            self.wake_thread();
        }
    }

    /// Does something wait for [`Node::run_mads`]?
    pub(super) fn mads_wait(&self) -> bool {
        self.mads.any.load(Ordering::SeqCst)
    }

    /// Does what waits: only from the background thread, with no lock held.
    pub(super) fn run_mads(&self) -> bool {
        if !self.mads.any.swap(false, Ordering::SeqCst) {
            return false;
        }
        if !self.empty_inbox() {
            return true;
        }
        let gone = std::mem::take(&mut *self.mads.gone.lock());
        if !gone.is_empty() {
            // What they sent before they ended counts.
            self.receive(RxFrom::Every, false);
            self.empty_inbox();
            for slot in gone {
                self.with_mad_handler(|handler, now| handler.peer_gone(now, u32::from(slot)));
            }
        }
        if self.mads.due.swap(false, Ordering::SeqCst) {
            self.with_mad_handler(|handler, now| handler.timeout(now));
            self.route_early();
        }
        true
    }

    /// Handles MADs that came; `false` if some are left.
    fn empty_inbox(&self) -> bool {
        for _ in 0..AT_ONCE {
            let Some(came) = self.mads.inbox.lock().pop_front() else { return true };
            if self.route_mad(&came) == Routed::Early {
                self.keep_early(came);
            }
        }
        self.mads.any.store(true, Ordering::SeqCst);
        false
    }

    /// A request for whom nobody listens is looked at once more after [`GRACE`].
    fn keep_early(&self, came: Came) {
        let until = self.now() + GRACE;
        let mut early = self.mads.early.lock();
        if early.len() < WAITING {
            early.push_back((until, came));
            drop(early);
            self.mad_deadline(until);
        } else if let Some(mad) = came.mad() {
            self.answer_for_nobody(&came.path(), mad);
        }
    }

    /// Looks once more at requests that came too early.
    fn route_early(&self) {
        let now = self.now();
        loop {
            let mut early = self.mads.early.lock();
            let Some((until, came)) = early.pop_front() else { return };
            if until > now {
                early.push_front((until, came));
                drop(early);
                self.mad_deadline(until);
                return;
            }
            drop(early);
            if self.route_mad(&came) == Routed::Early
                && let Some(mad) = came.mad()
            {
                self.answer_for_nobody(&came.path(), mad);
            }
        }
    }

    pub(super) fn with_mad_handler(&self, call: impl FnOnce(&dyn MadHandler, Time) -> Option<Time>) -> bool {
        let handler = self.mads.handler.read().clone();
        let Some(handler) = handler else { return false };
        if let Some(next) = call(&*handler, self.now()) {
            self.mad_deadline(next);
        }
        true
    }

    fn whose(&self, mad: &[u8], local: IpAddr) -> Whose {
        match adverb_cm::route(mad) {
            Err(_) => Whose::Nobody,
            Ok(Owner::All) => Whose::Anybody,
            Ok(Owner::Id(id)) => {
                let slot = slot_of_id(id.0);
                if self.link.owns(slot) { Whose::Ours } else { Whose::Slot(slot) }
            }
            Ok(Owner::Service(service)) => {
                let here = |(of, at, _): &(u64, Option<IpAddr>, ServiceIndex)| {
                    *of == service && at.is_none_or(|at| at == local)
                };
                let ours = self.mads.services.read().iter().any(here);
                if ours { Whose::Ours } else { Whose::Service(service) }
            }
        }
    }

    /// Brings a MAD to its process, or answers it.
    fn route_mad(&self, came: &Came) -> Routed {
        let Some(mad) = came.mad() else { return Routed::Done };
        let packet = came.packet();
        let whose = self.whose(mad, came.dst);
        let told = match whose {
            Whose::Ours => self.give_mad(came, mad),
            // Never handed on twice: a MAD must not travel in circles.
            Whose::Slot(_) | Whose::Service(_) if came.handed_on => Delivery::NoOwner,
            Whose::Slot(slot) => self.link.tell_owner(slot, &packet),
            Whose::Service(service) => self.link.tell_service(service, came.dst, &packet),
            Whose::Anybody => {
                self.give_mad(came, mad);
                if !came.handed_on && self.may_spread() {
                    self.link.tell_everybody(&packet);
                }
                Delivery::Done
            }
            Whose::Nobody => Delivery::Done,
        };
        if told == Delivery::NoOwner {
            if matches!(whose, Whose::Service(_)) && !came.handed_on {
                return Routed::Early;
            }
            self.answer_for_nobody(&came.path(), mad);
        }
        Routed::Done
    }

    /// Gives a MAD to the handler of this process.
    fn give_mad(&self, came: &Came, mad: &[u8; MAD_LEN]) -> Delivery {
        if came.unproven {
            // Any user of this machine may have sent it. The own user's send from where a socket
            // is: those of the interfaces are open where somebody listens, and those of peers where
            // somebody connects.
            log::debug!("a MAD from {} is dropped: this process has no socket there", came.src);
            self.counters.mad_refused.fetch_add(1, Ordering::Relaxed);
            return Delivery::Done;
        }
        let arrival = Arrival { path: came.path(), scope_id: came.scope_id(), mad };
        let given = self.with_mad_handler(|handler, now| handler.mad(now, &arrival));
        if given { Delivery::Done } else { Delivery::NoOwner }
    }

    fn may_spread(&self) -> bool {
        let now = self.now();
        let mut last = self.mads.spread.lock();
        let may = last.is_none_or(|last| now.since(last) >= SPREAD);
        if may {
            *last = Some(now);
        }
        may
    }

    /// `path` as its receiver sees it: from here to who sent it.
    fn answer_for_nobody(&self, path: &Path, mad: &[u8; MAD_LEN]) {
        if let Some(answer) = adverb_cm::answer_for_nobody(mad) {
            self.counters.mad_for_nobody.fetch_add(1, Ordering::Relaxed);
            if let Err(e) = self.send_mad(path, &answer) {
                log::debug!("a MAD from {} for nobody is not answered: {e}", path.remote);
            }
        }
    }

    /// Opens the port at the address that a path leads to, which is this machine's.
    pub(crate) fn hear_mads_from(&self, path: &Path) -> Result<(), Error> {
        let scope = self.scope_of_local(path.remote)?;
        self.hear_quietly(path.remote, scope)
    }

    /// Sends a MAD.
    pub(crate) fn send_mad(&self, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), Error> {
        let route = self.mad_route(path)?;
        let psn = Psn::new(self.mads.psn.fetch_add(1, Ordering::Relaxed));
        let mut headers = Headers::new(Bth { ack_req: true, ..Bth::new(SEND_ONLY, MAD_QPN, psn) });
        headers.deth = Some(Deth { qkey: QKEY, src_qpn: MAD_QPN });
        let mut out = [0; MAX_HEADER_LEN];
        let len = headers.emit(&mut out);
        if self.lanes.is_some() && self.is_own_address(path.remote) {
            let bytes = [&out[..len], mad].concat();
            if let Some(packet) = self.link.packet_by(&route, &bytes) {
                self.send_mad_here(path, &packet, mad);
            }
            return Ok(());
        }
        self.send_packet(&route, &out[..len], mad)
    }

    /// Brings a MAD to a process of this host.
    fn send_mad_here(&self, path: &Path, packet: &RxPacket<'_>, mad: &[u8; MAD_LEN]) {
        let whose = self.whose(mad, path.remote);
        let told = match whose {
            Whose::Ours => {
                self.keep_mad(Came::of(packet));
                Delivery::Done
            }
            Whose::Slot(slot) => self.link.tell_owner(slot, packet),
            Whose::Service(service) => self.link.tell_service(service, path.remote, packet),
            Whose::Anybody => {
                self.keep_mad(Came::of(packet));
                self.link.tell_everybody(packet);
                Delivery::Done
            }
            Whose::Nobody => Delivery::Done,
        };
        match (told, whose) {
            // It has not been handed on to anybody yet.
            (Delivery::NoOwner, Whose::Service(_)) => {
                self.keep_early(Came { handed_on: false, ..Came::of(packet) });
            }
            (Delivery::NoOwner, _) => self.answer_for_nobody(&path.reversed(), mad),
            _ => {}
        }
    }

    fn mad_route(&self, path: &Path) -> Result<Route, Error> {
        if path.local.is_ipv4() != path.remote.is_ipv4() {
            return Err(Error::invalid(
                format!("MAD from {} to {}", path.local, path.remote),
                "both addresses must be of one family",
            ));
        }
        let scope = self.scope_of_local(path.local)?;
        let local = self.open_address_quietly(path.local, scope)?;
        let port = self.link.port();
        let dst = match path.remote {
            IpAddr::V4(v4) => SocketAddr::from((v4, port)),
            IpAddr::V6(v6) => {
                let scope = if interfaces::is_link_local(&v6) { scope } else { 0 };
                SocketAddrV6::new(v6, port, 0, scope).into()
            }
        };
        Ok(Route::new(local, dst))
    }

    /// The interface of a link-local address, which may be anywhere; 0 for others.
    fn scope_of_local(&self, ip: IpAddr) -> Result<u32, Error> {
        match ip {
            IpAddr::V6(v6) if interfaces::is_link_local(&v6) => {
                let open =
                    self.addresses.lock().iter().find(|(of, ..)| *of == ip).map(|(_, scope, _)| *scope);
                open.map_or_else(|| interface_of(ip), Ok)
            }
            _ => Ok(0),
        }
    }
}

/// The interface that has an address.
fn interface_of(ip: IpAddr) -> Result<u32, Error> {
    let interface = interfaces::usable()?.into_iter().find(|i| i.addresses.contains(&ip));
    interface.map(|interface| interface.index).ok_or_else(|| {
        Error::new(Errno::EADDRNOTAVAIL, format!("no device has the address {ip} (is its interface up?)"))
    })
}

fn slot_of_id(id: u32) -> Slot {
    (id >> (32 - SLOT_BITS)) as Slot
}
