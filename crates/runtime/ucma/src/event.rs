//! Events, as programs read them.
use crate::param::ConnParam;
use adverb_cm::Ece;
use std::net::Ipv6Addr;

/// The kind of an event, with the numbers of `rdma_cm_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum EventKind {
    AddrResolved = 0,
    AddrError = 1,
    RouteResolved = 2,
    RouteError = 3,
    ConnectRequest = 4,
    ConnectResponse = 5,
    ConnectError = 6,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    DeviceRemoval = 11,
    MulticastJoin = 12,
    MulticastError = 13,
    AddrChange = 14,
    TimewaitExit = 15,
    AddrinfoResolved = 16,
    AddrinfoError = 17,
    User = 18,
    Internal = 19,
}

/// An address handle's attributes: `struct ib_uverbs_ah_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the structure")]
pub struct Ah {
    pub dgid: Ipv6Addr,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
}

/// The one port of a device.
pub const PORT: u8 = 1;

/// The data of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Param {
    /// No data.
    None,
    /// The connection parameters that the peer sent.
    Conn(ConnParam<Vec<u8>>),
    /// The destination of datagrams.
    #[allow(missing_docs)]
    Datagram { qpn: u32, qkey: u32, ah: Option<Ah>, private_data: Vec<u8> },
    /// A value that the program itself supplied.
    Arg([u8; 8]),
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of `rdma_cm_event`")]
pub struct Event {
    pub kind: EventKind,
    pub status: i32,
    pub param: Param,
    pub ece: Ece,
}

impl Event {
    pub(crate) const fn new(kind: EventKind, status: i32) -> Event {
        Event { kind, status, param: Param::None, ece: Ece { vendor_id: 0, attr_mod: 0 } }
    }
    pub(crate) fn conn(kind: EventKind, status: i32, private_data: &[u8]) -> Event {
        let param =
            Param::Conn(ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() });
        Event { param, ..Event::new(kind, status) }
    }
}

/// An event in the queue of a file.
#[derive(Debug)]
pub struct Queued {
    /// The id with the counter `events_reported` for this event.
    pub owner: u32,
    /// The program's own name for the id or group of the event.
    pub uid: u64,
    /// The multicast group of the event, if any.
    pub group: Option<u32>,
    /// The new id that an incoming request created, if any.
    pub request: Option<u32>,
    pub event: Event,
}
