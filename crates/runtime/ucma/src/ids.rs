//! Ids as values. The native API and NDKPI build their connectors and listeners on these ids.
//!
//! An [`Id`] is an rdma_cm id of the port space TCP with its own event queue. Calls never wait. The
//! results are [`Event`]s, and each event gives a token to the [`Signal`] from creation. Peers
//! cannot tell such an id from an id of librdmacm.
use crate::address::Address;
use crate::connect::transport;
use crate::event::{EventKind, Param};
use crate::host::{Host, Signal};
use crate::id::CmId;
use crate::live::{Live, LiveHost};
use crate::param::{ConnParam, qp_type};
use crate::request::FileId;
use crate::world::World;
use adverb_cm::ip::PS_TCP;
use adverb_cm::{Ece, Path, State};
use adverb_device::{Errno, Error};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use adverb_cm::{QpKind, RejectReason};

/// Bytes of private data in a request (REQ).
pub const REQUEST_DATA: usize = 56;
/// Bytes of private data in a reply (REP).
pub const REPLY_DATA: usize = 196;
/// Bytes of private data in a reject (REJ).
pub const REJECT_DATA: usize = 148;

/// Bytes of private data in a DREQ.
const DREQ_DATA: usize = 220;
/// Bytes of private data in a DREP.
const DREP_DATA: usize = 224;

/// Description of a queue pair in a request or a reply. The depths always belong to the local end.
/// An event therefore has the peer's depths swapped: RDMA reads sent by the peer are answered by
/// this end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Does the queue pair receive from a shared receive queue?
    pub srq: bool,
    /// RDMA reads and atomics that this end answers at one time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this end sends at one time.
    pub initiator_depth: u8,
    /// Transport retries asked of both ends, 0 to 7. Requests only.
    pub retry_count: u8,
    /// Retries after RNR asked of the other end, 0 to 7; 7 means without limit.
    pub rnr_retry_count: u8,
    /// Private data. In an event, the data has the full length of the message field, padded with
    /// zeros.
    pub private_data: Vec<u8>,
}

/// The agreed values: the attributes for this end's queue pair in RTR and RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Addresses of both ends; the GIDs are the GIDs of these addresses.
    pub path: Path,
    /// Entry of the GID table of the local device.
    pub sgid_index: u8,
    /// Path MTU as a code, 1 (256) to 5 (4096).
    pub mtu: u8,
    /// Queue pair of the other end.
    pub remote_qpn: u32,
    /// First PSN sent by the other end.
    pub rq_psn: u32,
    /// First PSN sent by this end.
    pub sq_psn: u32,
    /// RDMA reads and atomics that this end answers at one time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this end sends at one time.
    pub initiator_depth: u8,
    /// Transport retries.
    pub retry_count: u8,
    /// Retries after RNR.
    pub rnr_retry_count: u8,
}

/// What happened to an id.
#[derive(Debug)]
pub enum Event {
    /// A peer requests a connection: accept, reject or drop the request. Listeners only.
    Request(Request),
    /// The peer accepts: bring the queue pair to RTS and call [`Id::establish`].
    Reply(Offer),
    /// The connection of an accepted request is established.
    Established,
    /// The peer rejects. This can also come after the peer's own request or reply.
    Rejected(RejectReason, Vec<u8>),
    /// The peer did not answer. The log says what is known about the reason.
    Unanswered,
    /// A message to the peer cannot leave this machine. The log says why.
    NotSent(Errno),
    /// The connection has ended. The data is the private data of the peer's DREQ or DREP.
    Disconnected(DisconnectReason, Vec<u8>),
    /// The address or device of the id was removed.
    DeviceRemoved,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DisconnectReason {
    /// The peer disconnected.
    Peer,
    /// The peer confirmed [`Id::disconnect`].
    Confirmed,
    /// The peer did not answer [`Id::disconnect`].
    Unanswered,
    /// The peer's process has ended, or the peer no longer knows the connection.
    Lost,
}

/// A request at a listener.
#[derive(Debug)]
pub struct Request {
    number: u32,
    /// The peer's description of the queue pair at the other end.
    pub offer: Offer,
}

/// An id.
pub struct Id {
    live: Arc<Live>,
    file: FileId,
    number: u32,
}

type LiveWorld = World<LiveHost, Signal>;

impl Id {
    /// Creates an id for connections of this transport. Each event gives a token to `signal`.
    ///
    /// # Errors
    /// What the device or the kernel refused: descriptors, the port.
    pub fn new(kind: QpKind, signal: Signal) -> Result<Id, Error> {
        let live = Live::get()?;
        let kind = match kind {
            QpKind::Uc => qp_type::UC,
            QpKind::Xrc => qp_type::XRC_INI,
            _ => qp_type::RC,
        };
        let mut world = live.world.lock();
        let file = world.open(signal);
        let psn = world.host.random();
        let number = world.ids.add(CmId::new(file.0, 1, PS_TCP, kind, psn));
        drop(world);
        Ok(Id { live, file, number })
    }

    fn with<R>(
        &self,
        call: impl FnOnce(&mut LiveWorld, u64, u32) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if self.live.mads.is_stale() {
            return Err(Errno::EIO);
        }
        self.live.command(|world| {
            let done = call(world, self.file.0, self.number);
            world.pump();
            done
        })
    }

    /// Allows other ids to bind the same port, if they also call this. Call this before
    /// [`Id::bind`].
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn share_port(&self) -> Result<(), Errno> {
        self.with(|world, file, number| {
            world.id(file, number)?.reuse = true;
            Ok(())
        })
    }

    /// Binds the id to a local address; port 0 selects a free port. The port is then exclusive,
    /// also among the other processes of the user.
    ///
    /// # Errors
    /// EADDRINUSE. EADDRNOTAVAIL: not an address of this machine; or the wildcard address, while
    /// another id has the port at a single address.
    pub fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        self.with(|world, file, number| world.bind(file, number, Address::Ip(address)))
    }

    /// Accepts requests from now on. At most `backlog` requests wait.
    ///
    /// # Errors
    /// EADDRINUSE: another id or process listens there.
    pub fn listen(&self, backlog: u32) -> Result<(), Errno> {
        self.with(|world, file, number| world.listen(file, number, backlog))
    }

    /// Resolves the address and route to `destination`, from `source` if given and not yet bound.
    ///
    /// # Errors
    /// ENETUNREACH, EHOSTUNREACH, ENODEV, EADDRNOTAVAIL, EADDRINUSE. EINVAL: the two addresses
    /// belong to different families.
    pub fn resolve(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Result<(), Errno> {
        self.with(|world, file, number| {
            world.resolve_addr(
                file,
                number,
                source.map(Address::Ip),
                Address::Ip(destination),
                None,
            )?;
            let mut events = world.files.take(file, |_| true).into_iter();
            let failed = events.find(|e| e.event.kind == EventKind::AddrError);
            if let Some(failed) = failed {
                return Err(Errno::from_raw(-failed.event.status));
            }
            world.resolve_route(file, number, None)?;
            world.files.take(file, |e| e.event.kind == EventKind::RouteResolved);
            Ok(())
        })
    }

    /// Requests a connection. The result is `Reply`, `Rejected` or `Unanswered`.
    ///
    /// # Errors
    /// EINVAL: not resolved, or more private data than [`REQUEST_DATA`]; ENOMEM: too many
    /// connections.
    pub fn connect(&self, offer: &Offer) -> Result<(), Errno> {
        self.with(|world, file, number| world.connect(file, number, &param(offer), Ece::default()))
    }

    /// Accepts a request. The result is `Established`, `Rejected`, `Unanswered` or `Disconnected`.
    ///
    /// # Errors
    /// EINVAL: no request, or the peer has given up, or more private data than [`REPLY_DATA`].
    pub fn accept(&self, offer: &Offer) -> Result<(), Errno> {
        self.with(|world, file, number| {
            world.accept(file, number, 1, &param(offer), Ece::default())
        })
    }

    /// Confirms a reply. The connection is then established.
    ///
    /// # Errors
    /// EINVAL: no reply, or the peer has given up.
    pub fn establish(&self) -> Result<(), Errno> {
        self.with(|world, file, number| {
            world.accept(file, number, 1, &ConnParam::default(), Ece::default())
        })
    }

    /// Refuses a request or a reply.
    ///
    /// # Errors
    /// EINVAL: nothing to refuse, or more private data than [`REJECT_DATA`].
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), Errno> {
        self.with(|world, file, number| {
            let (conn, _) = world.id(file, number)?.conn.ok_or(Errno::EINVAL)?;
            let done =
                world.cm.reject(conn, reason, &[], private_data).map_err(crate::world::errno);
            world.watch(conn);
            done
        })
    }

    /// Ends the connection, with at most 220 bytes of private data. `Disconnected` follows, unless
    /// there is no connection.
    ///
    /// # Errors
    /// EINVAL: never connected, or not connected yet.
    pub fn disconnect(&self, private_data: &[u8]) -> Result<(), Errno> {
        self.with(|world, file, number| {
            let (conn, _) = world.id(file, number)?.conn.ok_or(Errno::EINVAL)?;
            let now = world.host.now();
            world.cm.disconnect(now, conn, private_data).map_err(crate::world::errno)
        })
    }

    /// The oldest event.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        let next = |world: &mut LiveWorld, file: u64, _: u32| loop {
            let taken = world.take_event(file).ok_or(Errno::EAGAIN)?;
            if let Some(event) = values(taken) {
                return Ok(event);
            }
        };
        self.with(next).ok()
    }

    /// Takes over a request as an id with its own events, which give tokens to `signal`.
    ///
    /// # Errors
    /// ENOENT: the request belongs to another listener, or to the parent of a fork.
    pub fn take(&self, request: &Request, signal: Signal) -> Result<Id, Errno> {
        let file = self.with(|world, file, _| {
            world.id(file, request.number)?;
            let own = world.open(signal);
            world.take_over(request.number, own);
            Ok(own)
        })?;
        Ok(Id { live: self.live.clone(), file, number: request.number })
    }

    fn read<R>(&self, get: impl FnOnce(&CmId) -> Option<R>) -> Option<R> {
        let world = self.live.world.lock();
        world.ids.get(&self.number).and_then(get)
    }

    /// The local address of the id. A wildcard listener returns the unspecified address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.read(|id| socket_addr(id.source))
    }

    /// The address of the other end.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.read(|id| socket_addr(id.destination))
    }

    /// Name of the device of this id's queue pairs; `None` until the device is known.
    #[must_use]
    pub fn device(&self) -> Option<String> {
        self.read(|id| Some(id.binding.as_ref()?.name.clone()))
    }

    /// The local address of outgoing packets, and the index of this address in the GID table.
    #[must_use]
    pub fn binding(&self) -> Option<(IpAddr, u8)> {
        self.read(|id| id.binding.as_ref().map(|binding| (binding.address, binding.sgid_index)))
    }

    /// Transport of the connection.
    #[must_use]
    pub fn kind(&self) -> Option<QpKind> {
        self.read(|id| Some(transport(id.qp_type)))
    }

    /// The agreed values. The passive side has them from the request on, the active side from the
    /// reply on.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        self.read(|id| {
            let (_, path) = id.conn?;
            let agreed = &id.agreed;
            let (binding, route) = (id.binding.as_ref()?, id.route?);
            Some(Link {
                path,
                sgid_index: binding.sgid_index,
                mtu: route.mtu.min(binding.mtu),
                remote_qpn: agreed.remote_qpn,
                rq_psn: id.psn,
                sq_psn: agreed.sq_psn,
                responder_resources: agreed.responder_resources,
                initiator_depth: agreed.initiator_depth,
                retry_count: agreed.retry_count,
                rnr_retry_count: agreed.rnr_retry_count,
            })
        })
    }
}

/// Ends the id: rejects unanswered requests, and disconnects a connection.
impl Drop for Id {
    fn drop(&mut self) {
        if !self.live.mads.is_stale() {
            drop(self.live.command(|world| world.close(self.file)));
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("local", &self.local_addr())
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}

impl LiveWorld {
    /// Marks a request as read and moves the request's id to the file `file`.
    fn take_over(&mut self, number: u32, file: FileId) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        (id.file, id.uid) = (file.0, 1);
        let state = id.conn.and_then(|(conn, _)| self.cm.state(conn));
        if state == Some(State::ReqReceived) {
            return;
        }
        // The peer gave up while the request waited to be read.
        let removed = RejectReason::TIMEOUT.0.into();
        self.event(number, crate::event::Event::conn(EventKind::Rejected, removed, &[]));
    }
}

fn socket_addr(address: Option<Address>) -> Option<SocketAddr> {
    match address? {
        Address::Ip(address) => Some(address),
        Address::Ib { .. } => None,
    }
}

fn param(offer: &Offer) -> ConnParam<&[u8]> {
    ConnParam {
        qpn: offer.qpn,
        qkey: 0,
        private_data: &offer.private_data,
        srq: offer.srq,
        responder_resources: offer.responder_resources,
        initiator_depth: offer.initiator_depth,
        flow_control: true,
        retry_count: offer.retry_count,
        rnr_retry_count: offer.rnr_retry_count,
        valid: true,
    }
}

fn offer(param: ConnParam<Vec<u8>>) -> Offer {
    Offer {
        qpn: param.qpn,
        srq: param.srq,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        private_data: param.private_data,
    }
}

/// Converts a queued event to a value; `None` for kinds without a value in this API.
fn values(queued: crate::event::Queued) -> Option<Event> {
    let (kind, status) = (queued.event.kind, queued.event.status);
    let param = match queued.event.param {
        Param::Conn(param) => param,
        _ => ConnParam::default(),
    };
    Some(match kind {
        EventKind::ConnectRequest => {
            Event::Request(Request { number: queued.request?, offer: offer(param) })
        }
        EventKind::ConnectResponse => Event::Reply(offer(param)),
        EventKind::Established => Event::Established,
        EventKind::Rejected => {
            let reason = RejectReason(u16::try_from(status).unwrap_or_default());
            Event::Rejected(reason, param.private_data)
        }
        EventKind::Unreachable if status < 0 && status != -(Errno::ETIMEDOUT as i32) => {
            Event::NotSent(Errno::from_raw(-status))
        }
        EventKind::Unreachable | EventKind::ConnectError => Event::Unanswered,
        EventKind::Disconnected => {
            // The length of the private data identifies the message.
            let end = match param.private_data.len() {
                _ if status != 0 => DisconnectReason::Unanswered,
                DREQ_DATA => DisconnectReason::Peer,
                DREP_DATA => DisconnectReason::Confirmed,
                _ => DisconnectReason::Lost,
            };
            Event::Disconnected(end, param.private_data)
        }
        EventKind::DeviceRemoval => Event::DeviceRemoved,
        _ => return None,
    })
}
