//! The carrier over the network: UDP port 4791. Between processes of one host,
//! [`relay`](crate::node::carriers::relay) takes the packets that a network would lose.
use crate::error::Error;
use crate::interfaces::ip_of;
use crate::node::batch::{Ask, BUDGET, Receiver};
use crate::node::carriers::relay::{Backlog, Relay};
use crate::node::carriers::road::{Road, Room, Unsent, copy_payload, drain};
use crate::node::carriers::udp::state::KnownRoute;
use crate::node::clock::StepClock;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::tx::Tx;
use adverb_engine::{AckOrder, AddressVector, Clock, KeyTable, QpType, Transmit};
use adverb_link::{Route, RxFrom, TxBatch};
use adverb_local::{Slot, slot_of_qpn};
use adverb_wire::{MAX_HEADER_LEN, flow_label_source_port};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;

/// The kinds of packets to another process of this host that use a connection between the
/// processes.
#[derive(Clone, Copy)]
struct ProcessKinds {
    requests: bool,
    responses: bool,
}

/// The parts of a queue pair for sending on the network.
struct Network<'a> {
    node: &'a Node,
    qp: &'a AnyQp,
    to_process: ProcessKinds,
    route: &'a mut Option<KnownRoute>,
    backlog: &'a mut Backlog,
    batch: &'a mut TxBatch,
}

impl Network<'_> {
    /// The route of a packet. `None` (the packet is dropped) if the local address could not be
    /// opened.
    fn route_of(&mut self, t: &Transmit<'_>) -> Option<Route> {
        let addresses = self.node.link.udp().map_or(0, |link| link.own_addresses().version());
        let route = match self.route {
            Some(known) if known.is_of(t, addresses) => known.route,
            _ => {
                let route = Udp(self.node).route(t.path, t.source_port)?;
                *self.route = Some(KnownRoute {
                    path: *t.path,
                    source_port: t.source_port,
                    addresses,
                    route,
                });
                route
            }
        };
        Some(Route { traffic_class: t.traffic_class, ..route })
    }

    /// The process of this host to which the packet is delivered without the network, if any.
    fn other_process(&self, t: &Transmit<'_>, route: &Route) -> Option<Slot> {
        let bth = &t.headers.bth;
        let ProcessKinds { requests, responses } = self.to_process;
        let by_process = if bth.opcode.is_response() { responses } else { requests };
        let link = &self.node.link;
        slot_of_qpn(bth.dest_qpn)
            .filter(|slot| by_process && !link.owns(*slot) && link.is_own_address(route.dst.ip()))
    }
}

impl Road for Network<'_> {
    // ACK and request leave in one run, and so with one system call. The receiver's link takes the
    // ACK first.
    const ACK: AckOrder = AckOrder::Behind;

    fn room(&mut self) -> Room {
        let (node, qp) = (self.node, self.qp);
        if qp.qp_type().is_reliable() || Relay(node).has_room(qp, self.backlog) {
            Room::Yes
        } else {
            Room::Later
        }
    }

    fn send(&mut self, t: &Transmit<'_>, keys: &KeyTable) -> Result<(), Unsent> {
        let node = self.node;
        let Some(route) = self.route_of(t) else { return Ok(()) };
        let mut headers = [0; MAX_HEADER_LEN];
        let len = t.headers.emit(&mut headers);
        let headers = &headers[..len];
        let mut fault = Ok(());
        let (size, pad) = (t.payload.len(), t.headers.bth.pad);
        let fill = |out: &mut [u8]| {
            fault = copy_payload(t.payload, keys, out);
            fault.is_ok()
        };
        if is_looped(&route, t.path) {
            node.groups.send_looped(node, &route, headers, size, pad, fill);
        } else if let Some(slot) = self.other_process(t, &route) {
            self.backlog.add(slot, &route, headers, size, pad, fill);
        } else {
            node.link.push(self.batch, &route, headers, size, pad, fill);
        }
        fault.map_err(Unsent::Fault)
    }

    fn flush(&mut self) -> Room {
        // A dropped packet is counted, and its own protocol sends the packet again.
        let _counted = self.node.link.flush(self.batch);
        let drops = self.qp.qp_type() == QpType::Ud;
        if self.backlog.is_empty() || Relay(self.node).flush_backlog(drops, self.backlog) {
            return Room::Yes;
        }
        if self.qp.qp_type().is_reliable() {
            // Lost, as on a network: the packets will be sent again.
            self.backlog.clear();
            return Room::Yes;
        }
        Room::Later
    }
}

/// The carrier over the network.
#[derive(Clone, Copy)]
pub(crate) struct Udp<'a>(pub(crate) &'a Node);

impl Udp<'_> {
    /// Sends the packets of a queue pair.
    pub(in crate::node) fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) -> Room {
        let node = self.0;
        let clock = StepClock::new(&node.clocks, false);
        let QpInner { engine, carried, .. } = inner;
        let (sending, waiting) = (&mut carried.udp, &mut carried.relay);
        // Only reliable transports recover from an overrun receiver, or from stray packets: see
        // `relay`.
        let reliable = qp.qp_type().is_reliable();
        if !reliable {
            sending.pumped = clock.now();
        }
        let to_process = ProcessKinds {
            requests: !reliable || engine.is_retrying(),
            responses: !reliable || waiting.answers_directly,
        };
        let Tx { batch, effects } = tx;
        let (route, backlog) = (&mut sending.route, &mut waiting.backlog);
        let mut network = Network { node, qp, to_process, route, backlog, batch };
        drain(node, engine, &mut network, &clock, effects, node.keys.read())
    }

    /// Takes arrived packets and gives them to the queue pairs. `true` if there were any.
    pub(in crate::node) fn receive(&self, rx: &mut Receiver, ask: &Ask) -> bool {
        let node = self.0;
        let Receiver { buffers, batch, .. } = rx;
        node.link.recv(ask.from, buffers, BUDGET, &mut |run| node.dispatch(batch, run)) > 0
    }

    /// Names the descriptors that are readable after an arrival.
    pub(in crate::node) fn sources(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(link) = self.0.link.udp() {
            link.for_each_fd(&mut |_, fd| each(fd));
        }
    }

    /// May a missing packet still be on the way within this host?
    pub(in crate::node) fn is_behind(&self) -> bool {
        // Another thread is receiving at this moment, and may be held up.
        self.0.receiver.is_locked()
    }

    /// Sends a packet outside of any queue pair.
    ///
    /// # Errors
    /// The kernel's error for the packet. If the socket is full, the packet is lost, as on a
    /// network.
    pub(crate) fn send_packet(
        &self,
        route: &Route,
        headers: &[u8],
        payload: &[u8],
    ) -> Result<(), Error> {
        let node = self.0;
        node.with_tx(|tx| {
            let fill = |out: &mut [u8]| {
                out.copy_from_slice(payload);
                true
            };
            node.link.push(&mut tx.batch, route, headers, payload.len(), 0, fill);
            let Err(e) = node.link.flush(&mut tx.batch) else { return Ok(()) };
            match e.raw_os_error().map_or(Errno::EIO, Errno::from_raw) {
                Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => Ok(()),
                errno => Err(Error::new(
                    errno,
                    format!("the kernel does not send to {}: {e}", route.dst.ip()),
                )),
            }
        })
    }

    /// The route of packets to an address. `None` (a drop) if the local address could not be
    /// opened. `preferred` is the queue pair's UDP source port; as with a NIC, a flow label in the
    /// address vector takes precedence.
    fn route(&self, av: &AddressVector, preferred: u16) -> Option<Route> {
        let node = self.0;
        let scope = scope_of(&av.sgid, av.scope_id);
        let opened = node.addresses.open(node, ip_of(&av.sgid), scope);
        let local = opened.inspect_err(|error| log::error!("{error}")).ok()?;
        let port = node.link.port();
        let dst = match ip_of(&av.dgid) {
            group if group.is_multicast() => node.link.group_address(group, av.scope_id),
            IpAddr::V4(a) => SocketAddr::from((a, port)),
            IpAddr::V6(a) => {
                SocketAddr::V6(SocketAddrV6::new(a, port, 0, scope_of(&av.dgid, av.scope_id)))
            }
        };
        let preferred = match av.flow_label {
            0 => preferred,
            label => flow_label_source_port(label),
        };
        let source = node.link.source_port(local, dst.ip(), preferred);
        Some(Route { local, source, dst, traffic_class: av.traffic_class, hop_limit: av.hop_limit })
    }

    /// Link upkeep (steering). The background thread calls this rarely.
    pub(crate) fn maintain(&self) {
        let node = self.0;
        if node.link.maintenance_due() {
            node.link.maintain(&mut || _ = node.receive(RxFrom::Every, false));
        }
    }
}

/// The scope of an address: the interface for a link-local address, else 0.
pub(crate) fn scope_of(gid: &adverb_engine::Gid, scope_id: u32) -> u32 {
    match ip_of(gid) {
        IpAddr::V6(a) if a.is_unicast_link_local() => scope_id,
        _ => 0,
    }
}

/// Does the packet need a loop outside of the kernel? The kernel has no route to IPv6 groups on the
/// loopback interface.
fn is_looped(route: &Route, path: &AddressVector) -> bool {
    matches!(route.dst.ip(), IpAddr::V6(group) if group.is_multicast())
        && Ipv6Addr::from(path.sgid.0).is_loopback()
}
