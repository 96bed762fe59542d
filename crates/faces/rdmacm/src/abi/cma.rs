//! The types of `rdma/rdma_cma.h`.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};

use libc::{size_t, sockaddr, sockaddr_storage, socklen_t};

use adverb_abi::*;

/// Address family of GIDs with a service. The headers of the C library lack the name.
pub const AF_IB: c_int = 27;

/// A value of `rdma_cm_event_type`.
pub type EventType = u32;

/// Defines the values of `rdma_cm_event_type`, and their names.
macro_rules! events {
    ($($name:ident = $number:literal,)*) => {
        $(
            #[doc = concat!("`RDMA_CM_EVENT_", stringify!($name), "`.")]
            pub const $name: EventType = $number;
        )*

        /// The name of a kind of event, with a zero at its end.
        pub const fn event_name(kind: EventType) -> &'static CStr {
            let name = match kind {
                $($name => concat!("RDMA_CM_EVENT_", stringify!($name), "\0"),)*
                _ => "UNKNOWN EVENT\0",
            };
            match CStr::from_bytes_with_nul(name.as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        }
    };
}

// From `ADDRINFO_RESOLVED` on: of rdma-core 60.
events! {
    ADDR_RESOLVED = 0,
    ADDR_ERROR = 1,
    ROUTE_RESOLVED = 2,
    ROUTE_ERROR = 3,
    CONNECT_REQUEST = 4,
    CONNECT_RESPONSE = 5,
    CONNECT_ERROR = 6,
    UNREACHABLE = 7,
    REJECTED = 8,
    ESTABLISHED = 9,
    DISCONNECTED = 10,
    DEVICE_REMOVAL = 11,
    MULTICAST_JOIN = 12,
    MULTICAST_ERROR = 13,
    ADDR_CHANGE = 14,
    TIMEWAIT_EXIT = 15,
    ADDRINFO_RESOLVED = 16,
    ADDRINFO_ERROR = 17,
    USER = 18,
    INTERNAL = 19,
}

// Port spaces: `RDMA_PS_IPOIB` and so on.
pub const PS_IPOIB: u32 = 0x0002;
pub const PS_TCP: u32 = 0x0106;
pub const PS_UDP: u32 = 0x0111;
pub const PS_IB: u32 = 0x013f;

/// `RDMA_MAX_RESP_RES`: the maximum of the device and the peer.
pub const MAX_RESP_RES: u8 = 0xff;
/// `RDMA_MAX_INIT_DEPTH`: the maximum of the device and the peer.
pub const MAX_INIT_DEPTH: u8 = 0xff;

// Flags of `rdma_addrinfo`; the last two are of rdma-core 60.
pub const RAI_PASSIVE: c_int = 1;
pub const RAI_NUMERICHOST: c_int = 2;
pub const RAI_FAMILY: c_int = 8;
pub const RAI_SA: c_int = 0x10;
pub const RAI_DNS: c_int = 0x20;

// `RDMA_OPTION_IB` and its option `RDMA_OPTION_IB_PATH`.
pub const OPTION_IB: c_int = 1;
pub const OPTION_IB_PATH: c_int = 1;

/// `RDMA_CM_JOIN_MC_ATTR_ADDRESS`.
pub const JOIN_ADDRESS: u32 = 1;
/// `RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS`.
pub const JOIN_FLAGS: u32 = 2;
/// The first undefined flag.
pub const JOIN_RESERVED: u32 = 4;
/// `RDMA_MC_JOIN_FLAG_FULLMEMBER`.
pub const FULL_MEMBER: u16 = 0;
/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`.
pub const SEND_ONLY_MEMBER: u16 = 1;
/// The first undefined membership.
pub const MEMBER_RESERVED: u32 = 2;

c_types! {
    /// Both ends of a path.
    object rdma_ib_addr {
        sgid: Cell<ibv_gid>,
        dgid: Cell<ibv_gid>,
        pkey: Cell<u16>,
    }

    /// Addresses of an id.
    object rdma_addr {
        src as "src_storage": Cell<sockaddr_storage>,
        dst as "dst_storage": Cell<sockaddr_storage>,
        ibaddr as "addr.ibaddr": rdma_ib_addr,
    }

    /// Addresses and paths of an id.
    object rdma_route {
        addr: rdma_addr,
        path_rec: Cell<*mut ibv_sa_path_rec>,
        num_paths: Cell<c_int>,
    }

    /// A channel on which events arrive.
    object rdma_event_channel {
        fd: c_int,
    }

    /// The public part of an id.
    object rdma_cm_id {
        verbs: Cell<*mut ibv_context>,
        channel: Cell<*mut rdma_event_channel>,
        context: Cell<*mut c_void>,
        qp: Cell<*mut ibv_qp>,
        route: rdma_route,
        ps: Cell<u32>,
        port_num: Cell<u8>,
        event: Cell<*mut rdma_cm_event>,
        send_cq_channel: Cell<*mut ibv_comp_channel>,
        send_cq: Cell<*mut ibv_cq>,
        recv_cq_channel: Cell<*mut ibv_comp_channel>,
        recv_cq: Cell<*mut ibv_cq>,
        srq: Cell<*mut ibv_srq>,
        pd: Cell<*mut ibv_pd>,
        qp_type: Cell<u32>,
    }

    /// Parameters of a connection, which both ends exchange.
    struct rdma_conn_param {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    /// The destination of datagrams.
    struct rdma_ud_param {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }

    /// An event.
    object rdma_cm_event {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: EventType,
        status: c_int,
        param: rdma_event_param,
    }

    /// An address found by `rdma_getaddrinfo`.
    object rdma_addrinfo {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: socklen_t,
        ai_dst_len: socklen_t,
        ai_src_addr: *mut sockaddr,
        ai_dst_addr: *mut sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: size_t,
        ai_route: *mut c_void,
        ai_connect_len: size_t,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }

    /// Attributes for joining a multicast group.
    struct rdma_cm_join_mc_attr_ex {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut sockaddr,
    }
}

/// The parameters of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_event_param {
    /// For connected ids.
    pub conn: rdma_conn_param,
    /// For datagram ids.
    pub ud: rdma_ud_param,
    /// For the program's own events.
    pub arg: u64,
}
