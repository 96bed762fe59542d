//! The path of MADs on queue pair 1: from the link to the connection manager's handler, on the
//! thread with the turn (see `serve`), and back.
use super::state::Mads;
use crate::error::Error;
use crate::interfaces;
use crate::node::carriers::Udp;
use crate::node::core::Node;
use crate::node::mad_handler::{Arrival, MAD_LEN, MadHandler};
use crate::node::timers::{NEVER, Timed};
use adverb_cm::{Path, Route as Owner};
use adverb_engine::Time;
use adverb_link::{OwnedPacket, Proof, Route, RxFrom, RxPacket};
use adverb_local::{Delivery, MAD_QPN, SLOT_BITS, ServiceClaim, ServiceIndex, Slot};
use adverb_os::scope_in;
use adverb_wire::{
    Bth, Deth, Headers, MAX_HEADER_LEN, Opcode, Operation, Psn, Transport, ud_source_port,
};
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Largest number of MADs that wait for the background thread. Further MADs are dropped, and their
/// senders send them again.
const WAITING: usize = 4096;
/// MADs handled before other work of the thread has its turn.
const AT_ONCE: usize = 64;
/// Shortest interval between two MADs that are spread to all processes.
const SPREAD: Duration = Duration::from_millis(5);
/// How long a request waits for a listener before it is refused. Programs (perftest's `-R`) tell
/// their server to listen, and do not wait for the server. With a NIC, the client then needs
/// milliseconds for its route and queue pair. With this device it needs microseconds, so its
/// request may come too early.
const GRACE: Duration = Duration::from_millis(20);
/// Q_Key of queue pair 1 (IBTA 3.5.3).
const QKEY: u32 = 0x8001_0000;
const SEND_ONLY: Opcode = match Opcode::new(Transport::Ud, Operation::SendOnly) {
    Some(opcode) => opcode,
    None => panic!("UD has SEND Only"),
};

/// The owner of a MAD, as this process sees it.
enum Whose {
    /// This process.
    Ours,
    /// The process that owns the slot.
    Slot(Slot),
    /// The process that listens for the service.
    Service(u64),
    /// Any process.
    Anybody,
    /// Not a MAD of the connection manager.
    Nobody,
}

impl Mads {
    pub(crate) fn set_handler(
        &self,
        node: &Node,
        handler: Arc<dyn MadHandler>,
    ) -> Result<(), Error> {
        let mut place = self.handler.write();
        if place.is_some() {
            let text = "this process has a connection manager at queue pair 1 already";
            return Err(Error::new(Errno::EBUSY, text));
        }
        *place = Some(handler);
        // Faults on request apply to MADs, too.
        node.link.add_qp(MAD_QPN, 0);
        Ok(())
    }

    pub(crate) fn unset_handler(&self) {
        // Dropped after the lock is free, because the handler may call the device.
        let handler = self.handler.write().take();
        drop(handler);
    }

    /// The upper bits of this process's communication ids: its first slot.
    pub(crate) fn prefix(&self, node: &Node) -> u32 {
        node.link.slots().first().copied().map_or(0, u32::from)
    }

    pub(crate) fn listen(&self, node: &Node, claim: &ServiceClaim) -> Result<ServiceIndex, Error> {
        // Locked first, so that a process that finds the name also finds the entry.
        let mut services = self.services.write();
        let index = node.link.listen_for(claim)?;
        services.push((claim.service, claim.at, index));
        Ok(index)
    }

    pub(crate) fn stop_listening(&self, node: &Node, index: ServiceIndex) {
        self.services.write().retain(|(.., of)| *of != index);
        node.link.stop_listening(index);
    }

    /// Has the handler's timeout called at `at` at the latest.
    pub(crate) fn keep_deadline(&self, node: &Node, at: Time) {
        let old = self.at.0.fetch_min(at.0, Ordering::SeqCst);
        if at.0 < old {
            node.enter_timer(at, Timed::Mad, old);
        }
    }

    /// The deadline's entry at `at` has come.
    pub(in crate::node) fn timer_due(&self, node: &Node, at: Time) {
        let place = &self.at.0;
        if place.compare_exchange(at.0, NEVER, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.due.store(true, Ordering::SeqCst);
            self.stir(node);
        }
    }

    /// Processes of this host have ended.
    pub(crate) fn peers_ended(&self, node: &Node, slots: &[Slot]) {
        if !slots.is_empty() && self.handler.read().is_some() {
            self.ended.lock().extend_from_slice(slots);
            self.stir(node);
        }
    }

    pub(crate) fn watch_peer(&self, node: &Node, remote_id: u32) -> bool {
        let slot = slot_of_id(remote_id);
        if node.link.owns(slot) {
            return true;
        }
        match node.link.watch_owner(slot) {
            Delivery::Done => true,
            Delivery::Full => false,
            Delivery::NoOwner => {
                self.peers_ended(node, &[slot]);
                false
            }
        }
    }

    /// Takes a packet for queue pair 1. A thread without locks handles the packet later.
    pub(in crate::node) fn take(
        &self,
        node: &Node,
        p: &RxPacket<'_>,
        headers: &Headers,
        payload: &[u8],
    ) {
        if !is_taken(p, headers, payload) {
            node.counters.mad_refused.fetch_add(1, Ordering::Relaxed);
            log::debug!(
                "dropped a packet from {} for queue pair 1: no MAD of a connection manager",
                p.src
            );
            return;
        }
        if !node.is_cut_off(p.dst) {
            self.keep(node, OwnedPacket::keep(p));
        }
    }

    fn keep(&self, node: &Node, arrived: OwnedPacket) {
        let mut inbox = self.inbox.lock();
        if inbox.len() >= WAITING {
            drop(inbox);
            node.counters.mad_refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        inbox.push_back(arrived);
        drop(inbox);
        self.stir(node);
    }

    /// Does the waiting work. The calling thread has the turn and holds no lock.
    pub(super) fn work(&self, node: &Node) {
        if !self.empty_inbox(node) {
            return;
        }
        let ended = std::mem::take(&mut *self.ended.lock());
        if !ended.is_empty() {
            // MADs sent before the end of a process count.
            node.receive(RxFrom::Every, false);
            self.empty_inbox(node);
            for slot in ended {
                self.with_handler(node, |handler, now| handler.peer_ended(now, u32::from(slot)));
            }
        }
        if self.due.swap(false, Ordering::SeqCst) {
            self.with_handler(node, |handler, now| handler.timeout(now));
            self.route_early(node);
        }
    }

    /// Handles arrived MADs. `false` if some are left.
    fn empty_inbox(&self, node: &Node) -> bool {
        for _ in 0..AT_ONCE {
            let Some(arrived) = self.inbox.lock().pop_front() else { return true };
            if self.route_one(node, &arrived.packet()) {
                self.keep_early(node, arrived);
            }
        }
        self.any.store(true, Ordering::SeqCst);
        false
    }

    /// Keeps a request without a listener, to be routed once more after [`GRACE`].
    fn keep_early(&self, node: &Node, arrived: OwnedPacket) {
        let until = node.now() + GRACE;
        let mut early = self.early.lock();
        if early.len() >= WAITING {
            drop(early);
            return self.refuse(node, &arrived.packet());
        }
        early.push_back((until, arrived));
        drop(early);
        self.keep_deadline(node, until);
    }

    /// Routes requests without a listener once more.
    fn route_early(&self, node: &Node) {
        let now = node.now();
        loop {
            let mut early = self.early.lock();
            let Some((until, arrived)) = early.pop_front() else { return };
            if until > now {
                early.push_front((until, arrived));
                drop(early);
                self.keep_deadline(node, until);
                return;
            }
            drop(early);
            if self.route_one(node, &arrived.packet()) {
                self.refuse(node, &arrived.packet());
            }
        }
    }

    pub(in crate::node) fn with_handler(
        &self,
        node: &Node,
        call: impl FnOnce(&dyn MadHandler, Time) -> Option<Time>,
    ) -> bool {
        let handler = self.handler.read().clone();
        let Some(handler) = handler else { return false };
        if let Some(next) = call(&*handler, node.now()) {
            self.keep_deadline(node, next);
        }
        true
    }

    fn whose(&self, node: &Node, mad: &[u8], local: IpAddr) -> Whose {
        match adverb_cm::route(mad) {
            Err(_) => Whose::Nobody,
            Ok(Owner::All) => Whose::Anybody,
            Ok(Owner::Id(id)) => {
                let slot = slot_of_id(id.0);
                if node.link.owns(slot) { Whose::Ours } else { Whose::Slot(slot) }
            }
            Ok(Owner::Service(service)) => {
                let here = |(of, at, _): &(u64, Option<IpAddr>, ServiceIndex)| {
                    *of == service && at.is_none_or(|at| at == local)
                };
                let ours = self.services.read().iter().any(here);
                if ours { Whose::Ours } else { Whose::Service(service) }
            }
        }
    }

    /// Gives a MAD to its process, or answers the MAD. `true`: neither, because the MAD asks for a
    /// service without a listener.
    fn route_one(&self, node: &Node, p: &RxPacket<'_>) -> bool {
        let Some(mad) = p.bytes.last_chunk() else { return false };
        let whose = self.whose(node, mad, p.dst);
        let told = match whose {
            Whose::Ours => self.give(node, p, mad),
            // Never forwarded twice: a MAD must not travel in circles.
            Whose::Slot(_) | Whose::Service(_) if p.proof.is_forwarded() => Delivery::NoOwner,
            Whose::Slot(slot) => node.link.tell_owner(slot, &p.as_local()),
            Whose::Service(service) => node.link.tell_service(service, p.dst, &p.as_local()),
            Whose::Anybody => {
                self.give(node, p, mad);
                if !p.proof.is_forwarded() && self.may_spread(node) {
                    node.link.tell_everybody(&p.as_local());
                }
                Delivery::Done
            }
            Whose::Nobody => Delivery::Done,
        };
        let early = matches!(whose, Whose::Service(_)) && !p.proof.is_forwarded();
        if told == Delivery::NoOwner && !early {
            self.refuse(node, p);
        }
        told == Delivery::NoOwner && early
    }

    /// Gives a MAD to the handler of this process.
    fn give(&self, node: &Node, p: &RxPacket<'_>, mad: &[u8; MAD_LEN]) -> Delivery {
        if p.proof.is_missing() {
            // Any user of this machine may have sent the MAD. Processes of the own user send from
            // addresses where this process has a socket. A listening process has sockets at the
            // interfaces' addresses, and a connecting process at its peers' addresses.
            log::debug!("a MAD from {} is dropped: this process has no socket there", p.src);
            node.counters.mad_refused.fetch_add(1, Ordering::Relaxed);
            return Delivery::Done;
        }
        let arrival = Arrival { path: path_of(p), scope_id: scope_in(p.src), mad };
        let given = self.with_handler(node, |handler, now| handler.mad(now, &arrival));
        if given { Delivery::Done } else { Delivery::NoOwner }
    }

    /// Answers an arrived MAD without an owner.
    fn refuse(&self, node: &Node, p: &RxPacket<'_>) {
        if let Some(mad) = p.bytes.last_chunk() {
            self.answer_for_nobody(node, &path_of(p), mad);
        }
    }

    fn may_spread(&self, node: &Node) -> bool {
        let now = node.now();
        let mut last = self.spread.lock();
        let may = last.is_none_or(|last| now.since(last) >= SPREAD);
        if may {
            *last = Some(now);
        }
        may
    }

    /// Answers a MAD without an owner. `path` is the path of the receiver: from this process to the
    /// sender.
    fn answer_for_nobody(&self, node: &Node, path: &Path, mad: &[u8; MAD_LEN]) {
        if let Some(answer) = adverb_cm::answer_for_nobody(mad) {
            node.counters.mad_for_nobody.fetch_add(1, Ordering::Relaxed);
            if let Err(e) = self.send(node, path, &answer) {
                log::debug!("a MAD from {} without a receiver is not answered: {e}", path.remote);
            }
        }
    }

    /// Opens the port at the remote address of a path, which is this machine's own.
    pub(crate) fn hear_from(&self, node: &Node, path: &Path) -> Result<(), Error> {
        let scope = self.scope_of(node, path.remote)?;
        node.addresses.hear(node, path.remote, scope)
    }

    /// Sends a MAD.
    pub(crate) fn send(&self, node: &Node, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), Error> {
        let route = self.route_of(node, path)?;
        let psn = Psn::new(self.psn.fetch_add(1, Ordering::Relaxed));
        let mut headers = Headers::new(Bth { ack_req: true, ..Bth::new(SEND_ONLY, MAD_QPN, psn) });
        headers.deth = Some(Deth { qkey: QKEY, src_qpn: MAD_QPN });
        let mut out = [0; MAX_HEADER_LEN];
        let len = headers.emit(&mut out);
        if node.host.is_some() && node.is_own_address(path.remote) {
            let bytes = [&out[..len], mad].concat();
            if let Some(packet) = node.link.packet_by(&route, &bytes) {
                self.send_here(node, path, &packet, mad);
            }
            return Ok(());
        }
        Udp(node).send_packet(&route, &out[..len], mad)
    }

    /// Gives a MAD to a process of this host.
    fn send_here(&self, node: &Node, path: &Path, packet: &RxPacket<'_>, mad: &[u8; MAD_LEN]) {
        let (whose, local) = (self.whose(node, mad, path.remote), &packet.as_local());
        let told = match whose {
            Whose::Ours => {
                self.keep(node, OwnedPacket::keep(packet));
                Delivery::Done
            }
            Whose::Slot(slot) => node.link.tell_owner(slot, local),
            Whose::Service(service) => node.link.tell_service(service, path.remote, local),
            Whose::Anybody => {
                self.keep(node, OwnedPacket::keep(packet));
                node.link.tell_everybody(local);
                Delivery::Done
            }
            Whose::Nobody => Delivery::Done,
        };
        match (told, whose) {
            // The request has not been forwarded yet.
            (Delivery::NoOwner, Whose::Service(_)) => {
                self.keep_early(
                    node,
                    OwnedPacket::keep(&RxPacket { proof: Proof::Wire, ..*packet }),
                );
            }
            (Delivery::NoOwner, _) => self.answer_for_nobody(node, &path.reversed(), mad),
            _ => {}
        }
    }

    fn route_of(&self, node: &Node, path: &Path) -> Result<Route, Error> {
        if path.local.is_ipv4() != path.remote.is_ipv4() {
            let what = format!("MAD from {} to {}", path.local, path.remote);
            return Err(Error::invalid(what, "both addresses must be of one family"));
        }
        let scope = self.scope_of(node, path.local)?;
        let local = node.addresses.open(node, path.local, scope)?;
        let port = node.link.port();
        let dst = match path.remote {
            IpAddr::V4(v4) => SocketAddr::from((v4, port)),
            IpAddr::V6(v6) => {
                let scope = if v6.is_unicast_link_local() { scope } else { 0 };
                SocketAddrV6::new(v6, port, 0, scope).into()
            }
        };
        let source = node.link.source_port(local, path.remote, ud_source_port(MAD_QPN));
        Ok(Route { source, ..Route::new(local, dst) })
    }

    /// The interface of a link-local address of this or another host. 0 for other addresses.
    fn scope_of(&self, node: &Node, ip: IpAddr) -> Result<u32, Error> {
        match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                let open = node.addresses.scope_of(ip);
                open.map_or_else(|| interface_of(ip), Ok)
            }
            _ => Ok(0),
        }
    }
}

/// The interface with an address.
fn interface_of(ip: IpAddr) -> Result<u32, Error> {
    let interface = interfaces::usable()?.into_iter().find(|i| i.addresses.contains(&ip));
    interface.map(|interface| interface.index).ok_or_else(|| {
        let text = format!("no device has the address {ip} (is the interface up?)");
        Error::new(Errno::EADDRNOTAVAIL, text)
    })
}

/// Is the packet a valid MAD of queue pair 1? Other packets change nothing.
fn is_taken(p: &RxPacket<'_>, headers: &Headers, payload: &[u8]) -> bool {
    headers.bth.opcode == SEND_ONLY
        && headers.bth.pkey & 0x7fff == 0x7fff
        && headers.deth.is_some_and(|deth| deth.qkey == QKEY && deth.src_qpn == MAD_QPN)
        && payload.len() == MAD_LEN
        && headers.bth.pad == 0
        && !p.src.ip().is_multicast()
        && !p.src.ip().is_unspecified()
        && adverb_cm::route(payload).is_ok()
}

fn path_of(p: &RxPacket<'_>) -> Path {
    Path { local: p.dst, remote: p.src.ip() }
}

fn slot_of_id(id: u32) -> Slot {
    (id >> (32 - SLOT_BITS)) as Slot
}
