//! Events, as programs read them.
use crate::abi::{CONN_PARAM, ConnParam, EVENT, Output};
use crate::id::PKEY;
use adverb_cm::Ece;
use std::net::Ipv6Addr;

/// What happened; numbers of `rdma_cm_event_type`.
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
pub struct Ah {
    pub dgid: Ipv6Addr,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
}

/// Bytes of [`Ah`].
pub const AH: usize = 32;
/// The one port of a device.
pub const PORT: u8 = 1;

impl Ah {
    pub fn write(&self) -> [u8; AH] {
        let mut out = Output::<AH>::new();
        out.put(0, &self.dgid.octets()).u32(16, self.flow_label);
        out.u8(20, self.sgid_index).u8(21, self.hop_limit).u8(22, self.traffic_class);
        out.u16(24, self.dlid).u8(26, self.sl).u8(29, 1).u8(30, PORT);
        out.0
    }
}

/// What an event says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Param {
    None,
    Conn(ConnParam),
    Datagram { qpn: u32, qkey: u32, ah: Option<Ah>, private_data: Vec<u8> },
    Arg([u8; 8]),
}

/// An event before it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub kind: EventKind,
    pub status: i32,
    pub param: Param,
    pub ece: Ece,
}

impl Event {
    pub const fn new(kind: EventKind, status: i32) -> Event {
        Event { kind, status, param: Param::None, ece: Ece { vendor_id: 0, attr_mod: 0 } }
    }
    pub fn conn(kind: EventKind, status: i32, private_data: &[u8]) -> Event {
        let param = Param::Conn(ConnParam { private_data: private_data.to_vec(), ..ConnParam::NONE });
        Event { param, ..Event::new(kind, status) }
    }

    /// As `struct rdma_ucm_event_resp`.
    pub fn write(&self, uid: u64, id: u32) -> [u8; EVENT] {
        let mut out = Output::<EVENT>::new();
        out.u64(0, uid).u32(8, id).u32(12, self.kind as u32).u32(16, self.status as u32);
        match &self.param {
            Param::None => {}
            Param::Conn(param) => {
                out.put(20, &param.write());
            }
            Param::Datagram { qpn, qkey, ah, private_data } => {
                let len = private_data.len().min(255);
                out.u32(20, *qpn).u32(24, *qkey);
                if let Some(ah) = ah {
                    out.put(28, &ah.write());
                }
                out.put(60, &private_data[..len]).u8(60 + 256, len as u8);
            }
            Param::Arg(arg) => {
                out.put(20, arg);
            }
        }
        out.u32(328, self.ece.vendor_id).u32(332, self.ece.attr_mod);
        out.0
    }
}

const _: () = assert!(20 + CONN_PARAM <= 324 && PKEY == 0xffff);

/// An event in the queue of a file.
#[derive(Debug)]
pub struct Queued {
    /// The id it is counted for.
    pub owner: u32,
    /// What the program calls the id or group it is about.
    pub uid: u64,
    /// The multicast group it is about.
    pub group: Option<u32>,
    /// The id that a request made.
    pub request: Option<u32>,
    pub event: Event,
}
