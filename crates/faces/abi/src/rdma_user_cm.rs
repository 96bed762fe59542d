//! The commands of the kernel's connection manager for programs: `rdma/rdma_user_cm.h`, version 4.
//!
//! A command is a [`Request`], its answer a [`Reply`]. Both have two forms:
//! - Typed: Adverb's `librdmacm.so.1` passes them to Adverb's `libibverbs.so.1` by pointer
//!   (`adverb_ucma_perform`). The fields `response` and `reserved` stay zero.
//! - Bytes: another librdmacm writes a command to `/dev/infiniband/rdma_cm`. [`Request::decode`]
//!   reads this command. The answer goes to the address [`Request::response`].

use core::mem::size_of;

use libc::{sockaddr_in6, sockaddr_storage};

use crate::{c_types, ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr};

/// The room for private data in a command or an event, in bytes.
pub const RDMA_MAX_PRIVATE_DATA: usize = 256;

/// The queries of `RDMA_USER_CM_CMD_QUERY`.
pub const RDMA_USER_CM_QUERY_ADDR: u32 = 0;
/// See [`RDMA_USER_CM_QUERY_ADDR`].
pub const RDMA_USER_CM_QUERY_PATH: u32 = 1;
/// See [`RDMA_USER_CM_QUERY_ADDR`].
pub const RDMA_USER_CM_QUERY_GID: u32 = 2;
/// See [`RDMA_USER_CM_QUERY_ADDR`].
pub const RDMA_USER_CM_QUERY_IB_SERVICE: u32 = 3;

/// The request names the service by its number.
pub const RDMA_USER_CM_IB_SERVICE_FLAG_ID: u32 = 1;
/// The request names the service by its name.
pub const RDMA_USER_CM_IB_SERVICE_FLAG_NAME: u32 = 2;

c_types! {
    /// Makes an id.
    struct rdma_ucm_create_id { uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5] }

    /// The number of a new id or membership.
    struct rdma_ucm_create_id_resp { id: u32 }

    /// Destroys an id or a membership.
    struct rdma_ucm_destroy_id { response: u64, id: u32, reserved: u32 }

    /// How many events of an id or a membership have been read.
    struct rdma_ucm_destroy_id_resp { events_reported: u32 }

    /// Binds an id to an IP address: the older form.
    struct rdma_ucm_bind_ip { response: u64, addr: sockaddr_in6, id: u32 }

    /// Binds an id to an address.
    struct rdma_ucm_bind { id: u32, addr_size: u16, reserved: u16, addr: sockaddr_storage }

    /// Resolves an IP address: the older form.
    struct rdma_ucm_resolve_ip { src_addr: sockaddr_in6, dst_addr: sockaddr_in6, id: u32, timeout_ms: u32 }

    /// Resolves an address.
    struct rdma_ucm_resolve_addr {
        id: u32, timeout_ms: u32, src_size: u16, dst_size: u16, reserved: u32,
        src_addr: sockaddr_storage, dst_addr: sockaddr_storage,
    }

    /// Resolves the route.
    struct rdma_ucm_resolve_route { id: u32, timeout_ms: u32 }

    /// Asks for addresses, GIDs, paths or services of an id.
    struct rdma_ucm_query { response: u64, id: u32, option: u32 }

    /// Addresses and path of an id: the older form.
    struct rdma_ucm_query_route_resp {
        node_guid: u64, ib_route: [ib_user_path_rec; 2], src_addr: sockaddr_in6, dst_addr: sockaddr_in6,
        num_paths: u32, port_num: u8, reserved: [u8; 3], ibdev_index: u32, reserved1: u32,
    }

    /// Addresses; with [`RDMA_USER_CM_QUERY_GID`] they are of the family `AF_IB`. `node_guid` and
    /// `pkey` are in network order.
    struct rdma_ucm_query_addr_resp {
        node_guid: u64, port_num: u8, reserved: u8, pkey: u16, src_size: u16, dst_size: u16,
        src_addr: sockaddr_storage, dst_addr: sockaddr_storage, ibdev_index: u32, reserved1: u32,
    }

    /// A path in wire format.
    struct ib_path_rec_data { flags: u32, reserved: u32, path_rec: [u8; 64] }

    /// The parameters that one side of a connection gives.
    struct rdma_ucm_conn_param {
        qp_num: u32, qkey: u32, private_data: [u8; RDMA_MAX_PRIVATE_DATA], private_data_len: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8, rnr_retry_count: u8,
        valid: u8,
    }

    /// The destination of datagrams.
    struct rdma_ucm_ud_param {
        qp_num: u32, qkey: u32, ah_attr: ib_uverbs_ah_attr, private_data: [u8; RDMA_MAX_PRIVATE_DATA], private_data_len: u8,
        reserved: [u8; 7],
    }

    /// Enhanced connection establishment.
    struct rdma_ucm_ece { vendor_id: u32, attr_mod: u32 }

    /// Asks the peer for a connection.
    struct rdma_ucm_connect { conn_param: rdma_ucm_conn_param, id: u32, reserved: u32, ece: rdma_ucm_ece }

    /// Listens for connection requests.
    struct rdma_ucm_listen { id: u32, backlog: u32 }

    /// Accepts, or confirms an acceptance.
    struct rdma_ucm_accept {
        uid: u64, conn_param: rdma_ucm_conn_param, id: u32, reserved: u32, ece: rdma_ucm_ece,
    }

    /// Rejects a connection request.
    struct rdma_ucm_reject {
        id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    }

    /// Ends a connection.
    struct rdma_ucm_disconnect { id: u32 }

    /// Asks for the attributes that take a QP to a state.
    struct rdma_ucm_init_qp_attr { response: u64, id: u32, qp_state: u32 }

    /// Takes the next event.
    struct rdma_ucm_get_event { response: u64 }

    /// An event.
    struct rdma_ucm_event_resp {
        uid: u64, id: u32, event: u32, status: u32, param: EventParam, reserved: u32, ece: rdma_ucm_ece,
    }

    /// Sets an option, or gets one.
    struct rdma_ucm_set_option { optval: u64, id: u32, level: u32, optname: u32, optlen: u32 }

    /// Tells the connection manager of an event of the QP.
    struct rdma_ucm_notify { id: u32, event: u32 }

    /// Joins a multicast group of an IP address: the older form.
    struct rdma_ucm_join_ip_mcast { response: u64, uid: u64, addr: sockaddr_in6, id: u32 }

    /// Joins a multicast group.
    struct rdma_ucm_join_mcast {
        response: u64, uid: u64, id: u32, addr_size: u16, join_flags: u16, addr: sockaddr_storage,
    }

    /// Moves an id to another channel.
    struct rdma_ucm_migrate_id { response: u64, id: u32, fd: u32 }
}

/// The data of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub union EventParam {
    /// For connected ids.
    pub conn: rdma_ucm_conn_param,
    /// For datagram ids.
    pub ud: rdma_ucm_ud_param,
    /// For the program's own events, in two halves: a `u64` would be aligned to eight bytes.
    pub arg: [u32; 2],
}

pub use newer::*;
/// Types that most distributions' headers lack, or that end there in an array without a length.
pub mod newer {
    use super::{c_types, ib_path_rec_data, rdma_ucm_conn_param, rdma_ucm_ud_param};

    c_types! {
        /// Asks the subnet for a service.
        struct rdma_ucm_resolve_ib_service {
            id: u32, reserved: u32, service_id: u64, service_name: [u8; 64], flags: u32, reserved1: u32,
        }

        /// An event that a program puts into the channel of an id.
        union WrittenParam { conn: rdma_ucm_conn_param, ud: rdma_ucm_ud_param, arg: u64 }

        /// Puts an event into the id's own channel.
        struct rdma_ucm_write_cm_event { id: u32, reserved: u32, event: u32, status: u32, param: WrittenParam }

        /// Paths. There is at most one path: on Ethernet a path has no alternative.
        struct rdma_ucm_query_path_resp { num_paths: u32, reserved: u32, path_data: [ib_path_rec_data; 1] }

        /// Services. There are none: Ethernet has no subnet administrator.
        struct rdma_ucm_query_ib_service_resp { num_service_recs: u32, reserved: u32 }
    }
}

/// A type that consists of integers only: any bytes are a valid value, and no byte is padding.
///
/// # Safety
/// Implemented only in this crate, for types of the C headers that fulfil this.
pub unsafe trait Integers: Copy {
    /// The bytes of the value.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the trait guarantees that each byte is initialised.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The value of some bytes. Missing bytes at the end read as zero.
    fn of_bytes(bytes: &[u8]) -> Self {
        let mut value = core::mem::MaybeUninit::<Self>::zeroed();
        let len = bytes.len().min(size_of::<Self>());
        // SAFETY: both buffers have `len` bytes, and the trait guarantees that any bytes are a
        // valid value.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), len);
            value.assume_init()
        }
    }
}

macro_rules! integers {
    ($($name:ident)*) => { $(
        // SAFETY: these types of the kernel's headers consist of integers and leave no gap between
        // them.
        unsafe impl Integers for $name {}
    )* };
}

integers! { sockaddr_in6 sockaddr_storage ib_path_rec_data u8 i32 }

/// Declares the commands: name, body, number, the field with the address of the answer, and how
/// many bytes of the body older programs write.
macro_rules! commands {
    ($($name:ident($body:ident) = $number:literal $(at $response:ident)? $(from $least:literal)?,)*) => {
        /// A command. The discriminant is the number of the command (`RDMA_USER_CM_CMD_*`).
        #[derive(Clone, Copy)]
        #[repr(C, u32)]
        #[allow(missing_docs, reason = "the bodies say what the commands do")]
        pub enum Request { $($name($body) = $number,)* }

        impl Request {
            /// The numbers of all commands.
            pub const NUMBERS: &[u32] = &[$($number),*];

            /// The number, and the bytes of the body.
            pub fn parts(&self) -> (u32, &[u8]) {
                match self { $(Request::$name(body) => ($number, body.bytes()),)* }
            }

            /// The address for the answer of this command. For option commands, also the address of
            /// the value.
            pub fn response(&self) -> Option<u64> {
                match self { $(Request::$name(_body) => commands!(@ _body $($response)?),)* }
            }

            fn of_body(number: u32, body: &[u8]) -> Option<Request> {
                Some(match number {
                    $($number => {
                        let least = [$($least,)? size_of::<$body>()][0];
                        Request::$name($body::of_bytes(body.get(..least).map(|_| body)?))
                    })*
                    _ => return None,
                })
            }
        }
    };
    (@ $body:ident) => { None };
    (@ $body:ident $response:ident) => { Some($body.$response) };
}

commands! {
    CreateId(rdma_ucm_create_id) = 0 at response,
    DestroyId(rdma_ucm_destroy_id) = 1 at response,
    BindIp(rdma_ucm_bind_ip) = 2,
    ResolveIp(rdma_ucm_resolve_ip) = 3,
    ResolveRoute(rdma_ucm_resolve_route) = 4,
    QueryRoute(rdma_ucm_query) = 5 at response,
    Connect(rdma_ucm_connect) = 6 from 280,
    Listen(rdma_ucm_listen) = 7,
    Accept(rdma_ucm_accept) = 8 from 288,
    Reject(rdma_ucm_reject) = 9,
    Disconnect(rdma_ucm_disconnect) = 10,
    InitQpAttr(rdma_ucm_init_qp_attr) = 11 at response,
    GetEvent(rdma_ucm_get_event) = 12 at response,
    GetOption(rdma_ucm_set_option) = 13 at optval,
    SetOption(rdma_ucm_set_option) = 14 at optval,
    Notify(rdma_ucm_notify) = 15,
    JoinIpMcast(rdma_ucm_join_ip_mcast) = 16 at response,
    LeaveMcast(rdma_ucm_destroy_id) = 17 at response,
    MigrateId(rdma_ucm_migrate_id) = 18 at response,
    Query(rdma_ucm_query) = 19 at response,
    Bind(rdma_ucm_bind) = 20,
    ResolveAddr(rdma_ucm_resolve_addr) = 21,
    JoinMcast(rdma_ucm_join_mcast) = 22 at response,
    ResolveIbService(rdma_ucm_resolve_ib_service) = 23,
    WriteCmEvent(rdma_ucm_write_cm_event) = 24,
}

integers! {
    rdma_ucm_create_id rdma_ucm_destroy_id rdma_ucm_bind_ip rdma_ucm_resolve_ip rdma_ucm_resolve_route
    rdma_ucm_query rdma_ucm_connect rdma_ucm_listen rdma_ucm_accept rdma_ucm_reject rdma_ucm_disconnect
    rdma_ucm_init_qp_attr rdma_ucm_get_event rdma_ucm_set_option rdma_ucm_notify rdma_ucm_join_ip_mcast
    rdma_ucm_migrate_id rdma_ucm_bind rdma_ucm_resolve_addr rdma_ucm_join_mcast rdma_ucm_resolve_ib_service
    rdma_ucm_write_cm_event
}

impl Request {
    /// The length of the longest command with its header, in bytes.
    pub const LONGEST: usize = HEADER + size_of::<rdma_ucm_write_cm_event>();

    /// Reads the bytes that a program wrote: a header, then the body. Returns the command and the
    /// size of the room for its answer, in bytes. Returns `None` for an unknown command or too few
    /// bytes. Bytes behind the body are ignored. Bytes that older programs omit at the end of a
    /// body read as zero.
    #[must_use]
    pub fn decode(written: &[u8]) -> Option<(Request, usize)> {
        let (head, rest) = written.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, in_low, in_high, out_low, out_high] = *head;
        let given = usize::from(u16::from_ne_bytes([in_low, in_high]));
        let request = Request::of_body(u32::from_ne_bytes([a, b, c, d]), rest.get(..given)?)?;
        Some((request, usize::from(u16::from_ne_bytes([out_low, out_high]))))
    }
}

/// The length of a command's header in bytes: its number, and the lengths of body and answer.
const HEADER: usize = 8;

/// Declares the answers.
macro_rules! replies {
    ($($(#[$meta:meta])* $name:ident($body:ident),)*) => {
        /// The answer of a command.
        #[derive(Clone, Copy)]
        #[repr(C, u32)]
        pub enum Reply {
            /// The command has no answer.
            None,
            $($(#[$meta])* $name($body),)*
        }

        impl Reply {
            /// The bytes of the answer.
            pub fn bytes(&self) -> &[u8] {
                match self {
                    Reply::None => &[],
                    $(Reply::$name(body) => body.bytes(),)*
                }
            }
        }

        $(
            impl Answer for $body {
                fn of(reply: Reply) -> Option<Self> {
                    match reply { Reply::$name(body) => Some(body), _ => None }
                }
            }
        )*
    };
}

/// A type that answers a command.
pub trait Answer: Sized {
    /// The answer of this type, or `None` for the answer of another command.
    fn of(reply: Reply) -> Option<Self>;
}

replies! {
    /// The answer of `CreateId`, `JoinIpMcast` and `JoinMcast`.
    Id(rdma_ucm_create_id_resp),
    /// The answer of `DestroyId`, `LeaveMcast` and `MigrateId`.
    EventsReported(rdma_ucm_destroy_id_resp),
    /// The answer of `QueryRoute`.
    Route(rdma_ucm_query_route_resp),
    /// The answer of `Query` for addresses and for GIDs.
    Addresses(rdma_ucm_query_addr_resp),
    /// The answer of `Query` for paths.
    Paths(rdma_ucm_query_path_resp),
    /// The answer of `Query` for services.
    Services(rdma_ucm_query_ib_service_resp),
    /// The answer of `InitQpAttr`.
    QpAttr(ib_uverbs_qp_attr),
    /// The answer of `GetEvent`.
    Event(rdma_ucm_event_resp),
    /// The answer of `GetOption`, for values of one byte.
    Byte(u8),
    /// The answer of `GetOption`, for numbers.
    Number(i32),
}

integers! {
    rdma_ucm_create_id_resp rdma_ucm_destroy_id_resp rdma_ucm_query_route_resp rdma_ucm_query_addr_resp
    rdma_ucm_query_path_resp rdma_ucm_query_ib_service_resp ib_uverbs_qp_attr rdma_ucm_event_resp
}

impl rdma_ucm_conn_param {
    /// The private data, with the length of the length field.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data[..usize::from(self.private_data_len)]
    }
}

#[cfg(test)]
mod tests;
