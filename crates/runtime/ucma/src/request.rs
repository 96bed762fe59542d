//! Requests of programs and the replies to them, as values.
use crate::address::Address;
use crate::event::{Ah, Event, EventKind};
use crate::id::Route;
use crate::param::ConnParam;
use adverb_cm::Ece;
use nix::errno::Errno;
use std::net::Ipv6Addr;
use std::time::Duration;

/// An open file of `/dev/infiniband/rdma_cm`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

/// A request of a program. `id` is the number of an rdma_cm id.
///
/// A request owns no memory, because a thread waiting in [`Request::GetEvent`] may be cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the commands in rdma_user_cm.h")]
pub enum Request<'a> {
    /// Answered with [`Reply::Id`].
    CreateId { uid: u64, port_space: u16, qp_type: u8 },
    /// Answered with [`Reply::EventsReported`].
    DestroyId { id: u32 },
    /// Takes a local address and port.
    Bind { id: u32, address: Address },
    /// Answered later by an event: ADDR_RESOLVED or ADDR_ERROR. `patience` limits how long the id
    /// waits for the neighbour on the way to the destination to answer.
    ResolveAddr { id: u32, source: Option<Address>, destination: Address, patience: Duration },
    /// Answered later by an event: ROUTE_RESOLVED.
    ResolveRoute { id: u32 },
    /// Refused: Ethernet has no subnet administrator.
    ResolveIbService { id: u32 },
    /// Answered with [`Reply::Route`].
    QueryRoute { id: u32 },
    /// Answered as described at [`Question`].
    Query { id: u32, question: Question },
    /// An event reports the answer of the peer.
    Connect { id: u32, param: ConnParam<&'a [u8]>, ece: Ece },
    /// Accepts requests from now on.
    Listen { id: u32, backlog: u32 },
    /// Without parameters, this confirms the reply to the id's own request.
    Accept { id: u32, uid: u64, param: ConnParam<&'a [u8]>, ece: Ece },
    /// Refuses the request of a peer.
    Reject { id: u32, reason: u8, private_data: &'a [u8] },
    /// Ends the connection.
    Disconnect { id: u32 },
    /// Answered with [`Reply::QpAttr`].
    InitQpAttr { id: u32, state: u32 },
    /// Answered with [`Reply::Event`]. EAGAIN: no event waits.
    GetEvent,
    /// Answered with [`Reply::Byte`] or [`Reply::Flag`].
    GetOption { id: u32, name: OptionName },
    /// The world asks [`Caller::option`] for the value.
    SetOption { id: u32 },
    /// Reports an asynchronous event of the queue pair.
    Notify { id: u32, event: u32 },
    /// Answered with [`Reply::Id`], and later by an event: MULTICAST_JOIN or MULTICAST_ERROR.
    Join { id: u32, uid: u64, group: Address },
    /// Answered with [`Reply::EventsReported`].
    Leave { group: u32 },
    /// Moves an id of the file `from` to the file of the request. Answered with
    /// [`Reply::EventsReported`].
    Migrate { id: u32, from: FileId },
    /// Queues an event supplied by the program.
    WriteEvent { id: u32, kind: EventKind, status: i32, arg: [u8; 8] },
}

/// The kinds of [`Request::Query`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// [`Reply::Addresses`].
    Addresses,
    /// [`Reply::Path`].
    Path,
    /// [`Reply::Addresses`], with the addresses as GIDs.
    Gids,
    /// [`Reply::NoServices`].
    Services,
    /// An unknown question.
    Unknown,
}

/// An option that [`Request::GetOption`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum OptionName {
    Tos,
    ReuseAddr,
    FamilyOnly,
    AckTimeout,
    Unknown,
}

/// An option with its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum OptionValue {
    Tos(u8),
    ReuseAddr(bool),
    FamilyOnly(bool),
    AckTimeout(u8),
    /// A route resolved by the program itself.
    Path(Route),
}

/// The requesting program. It supplies the value of an option and takes the reply.
pub trait Caller {
    /// The option of [`Request::SetOption`].
    ///
    /// # Errors
    /// EFAULT: the value cannot be read. EINVAL, ENOSYS: there is no such value or option.
    fn option(&mut self) -> Result<OptionValue, Errno>;
    /// Takes the reply.
    ///
    /// # Errors
    /// EFAULT, ENOSPC: the reply cannot be delivered. The request then changes nothing, except for
    /// [`Request::DestroyId`], [`Request::Leave`] and [`Request::Migrate`].
    fn reply(&mut self, reply: &Reply<'_>) -> Result<(), Errno>;
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The number of a new id or membership.
    Id(u32),
    /// How many events of an id or a membership the program has read.
    EventsReported(u32),
    /// Addresses.
    Addresses(Addresses),
    /// The path.
    Path(Path),
    /// Addresses and path: the reply to the older command QUERY_ROUTE.
    Route(Addresses, Path),
    /// The services of the subnet: none, as Ethernet has no subnet administrator.
    NoServices,
    /// Attributes of the queue pair.
    QpAttr(QpAttr),
    /// An event.
    Event {
        /// The program's own name for the id or membership.
        uid: u64,
        /// The number of the id, of the new id of a request, or of the membership.
        about: u32,
        /// The event.
        event: &'a Event,
    },
    /// The value of an option.
    Byte(u8),
    /// The value of an option.
    Flag(bool),
}

/// Device and addresses of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Node GUID and index of the device, once the device is known.
    pub device: Option<(u64, u32)>,
    /// The id's own address.
    pub source: Option<Address>,
    /// The address of the peer.
    pub destination: Option<Address>,
}

/// The path of an id. Unknown GIDs are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The id's own GID.
    pub source: Ipv6Addr,
    /// The GID of the peer.
    pub destination: Ipv6Addr,
    /// The route, once resolved.
    pub route: Option<Route>,
}

/// Attributes that bring a queue pair to a state. `mask` says which attributes are set. The names
/// come from `ibv_qp_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct QpAttr {
    pub mask: u32,
    pub state: u32,
    pub path_mtu: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub access_flags: u32,
    pub ah: Option<Ah>,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}
