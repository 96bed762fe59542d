//! The commands of the kernel's connection manager for programs (`rdma/rdma_user_cm.h`, version 4):
//! bodies and answers.
//!
//! Each goes behind a header of eight bytes ([`super::super::command`]).

use libc::sockaddr_storage;

use adverb_abi::{c_types, ib_uverbs_ah_attr};

/// Bytes of private data that a command or an event has room for.
pub const PRIVATE_DATA: usize = 256;

/// What `RDMA_USER_CM_CMD_QUERY` can ask.
pub const QUERY_ADDR: u32 = 0;
/// See [`QUERY_ADDR`].
pub const QUERY_PATH: u32 = 1;
/// See [`QUERY_ADDR`].
pub const QUERY_GID: u32 = 2;
/// See [`QUERY_ADDR`].
pub const QUERY_IB_SERVICE: u32 = 3;

/// `RDMA_USER_CM_IB_SERVICE_FLAG_ID`.
pub const SERVICE_FLAG_ID: u32 = 1;
/// `RDMA_USER_CM_IB_SERVICE_FLAG_NAME`.
pub const SERVICE_FLAG_NAME: u32 = 2;

c_types! {
    /// Makes an id.
    #[derive(Clone, Copy)]
    struct CreateId as "struct rdma_ucm_create_id" {
        uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5],
    }

    /// The id's handle.
    #[derive(Clone, Copy, Default)]
    struct Handle as "struct rdma_ucm_create_id_resp" { id: u32 }

    /// Destroys an id or a membership.
    #[derive(Clone, Copy)]
    struct DestroyId as "struct rdma_ucm_destroy_id" { response: u64, id: u32, reserved: u32 }

    /// How many events of it have been read.
    #[derive(Clone, Copy, Default)]
    struct EventsReported as "struct rdma_ucm_destroy_id_resp" { events_reported: u32 }

    /// Binds an id to an address.
    #[derive(Clone, Copy)]
    struct Bind as "struct rdma_ucm_bind" {
        id: u32, addr_size: u16, reserved: u16, addr: sockaddr_storage,
    }

    /// Finds the way to an address.
    #[derive(Clone, Copy)]
    struct ResolveAddr as "struct rdma_ucm_resolve_addr" {
        id: u32, timeout_ms: u32, src_size: u16, dst_size: u16, reserved: u32,
        src_addr: sockaddr_storage, dst_addr: sockaddr_storage,
    }

    /// Finds the path.
    #[derive(Clone, Copy)]
    struct ResolveRoute as "struct rdma_ucm_resolve_route" { id: u32, timeout_ms: u32 }

    /// Asks for addresses, GIDs, paths or services of an id.
    #[derive(Clone, Copy)]
    struct Query as "struct rdma_ucm_query" { response: u64, id: u32, option: u32 }

    /// Addresses; with [`QUERY_GID`] they are of the family `AF_IB`.
    #[derive(Clone, Copy)]
    struct Addresses as "struct rdma_ucm_query_addr_resp" {
        node_guid: u64, port_num: u8, reserved: u8, pkey: u16, src_size: u16, dst_size: u16,
        src_addr: sockaddr_storage, dst_addr: sockaddr_storage, ibdev_index: u32, reserved1: u32,
    }

    /// A path in the form that travels.
    #[derive(Clone, Copy)]
    struct PathData as "struct ib_path_rec_data" { flags: u32, reserved: u32, path_rec: [u8; 64] }

    /// What an end says of a connection.
    #[derive(Clone, Copy)]
    struct ConnParam as "struct rdma_ucm_conn_param" {
        qp_num: u32, qkey: u32, private_data: [u8; PRIVATE_DATA], private_data_len: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8, rnr_retry_count: u8,
        valid: u8,
    }

    /// Where datagrams go.
    #[derive(Clone, Copy)]
    struct UdParam as "struct rdma_ucm_ud_param" {
        qp_num: u32, qkey: u32, ah_attr: ib_uverbs_ah_attr, private_data: [u8; PRIVATE_DATA], private_data_len: u8,
        reserved: [u8; 7],
    }

    /// Enhanced connection establishment.
    #[derive(Clone, Copy, Default)]
    struct Ece as "struct rdma_ucm_ece" { vendor_id: u32, attr_mod: u32 }

    /// Asks the peer for a connection.
    #[derive(Clone, Copy)]
    struct Connect as "struct rdma_ucm_connect" { conn_param: ConnParam, id: u32, reserved: u32, ece: Ece }

    /// Waits for peers.
    #[derive(Clone, Copy)]
    struct Listen as "struct rdma_ucm_listen" { id: u32, backlog: u32 }

    /// Accepts, or confirms an acceptance.
    #[derive(Clone, Copy)]
    struct Accept as "struct rdma_ucm_accept" {
        uid: u64, conn_param: ConnParam, id: u32, reserved: u32, ece: Ece,
    }

    /// Refuses.
    #[derive(Clone, Copy)]
    struct Reject as "struct rdma_ucm_reject" {
        id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; PRIVATE_DATA],
    }

    /// Ends a connection.
    #[derive(Clone, Copy)]
    struct Disconnect as "struct rdma_ucm_disconnect" { id: u32 }

    /// Asks for the attributes that take a QP to a state.
    #[derive(Clone, Copy)]
    struct InitQpAttr as "struct rdma_ucm_init_qp_attr" { response: u64, id: u32, qp_state: u32 }

    /// Tells the connection manager of an event of the QP.
    #[derive(Clone, Copy)]
    struct Notify as "struct rdma_ucm_notify" { id: u32, event: u32 }

    /// Joins a multicast group.
    #[derive(Clone, Copy)]
    struct JoinMcast as "struct rdma_ucm_join_mcast" {
        response: u64, uid: u64, id: u32, addr_size: u16, join_flags: u16, addr: sockaddr_storage,
    }

    /// Takes the next event.
    #[derive(Clone, Copy)]
    struct GetEvent as "struct rdma_ucm_get_event" { response: u64 }

    /// An event.
    #[derive(Clone, Copy)]
    struct Event as "struct rdma_ucm_event_resp" {
        uid: u64, id: u32, event: u32, status: u32, param: EventParam, reserved: u32, ece: Ece,
    }

    /// Sets an option.
    #[derive(Clone, Copy)]
    struct SetOption as "struct rdma_ucm_set_option" {
        optval: u64, id: u32, level: u32, optname: u32, optlen: u32,
    }

    /// Moves an id to another channel.
    #[derive(Clone, Copy)]
    struct MigrateId as "struct rdma_ucm_migrate_id" { response: u64, id: u32, fd: u32 }
}

/// What comes with an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub union EventParam {
    /// Of connected ids.
    pub conn: ConnParam,
    /// Of datagram ids.
    pub ud: UdParam,
    /// Of the program's own events.
    pub arg: [u32; 2],
}

/// How many paths an answer has room for.
pub const PATHS: usize = 6;

/// Paths.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Paths {
    /// How many there are.
    pub num_paths: u32,
    /// Nothing.
    pub reserved: u32,
    /// The paths.
    pub path_data: [PathData; PATHS],
}

/// An entry in the list of a subnet's services; newer than the headers of most distributions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ServiceRecord {
    /// Its number, in network order.
    pub id: u64,
    /// Where it is.
    pub gid: [u8; 16],
    /// The partition, in network order.
    pub pkey: u16,
    /// Nothing.
    pub reserved: [u8; 2],
    /// How long it is valid.
    pub lease: u32,
    /// Who may change it.
    pub key: [u8; 16],
    /// Its name.
    pub name: [u8; 64],
    /// What it says of itself, in bytes.
    pub data_8: [u8; 16],
    /// In pairs of bytes.
    pub data_16: [u16; 8],
    /// In words.
    pub data_32: [u32; 4],
    /// In double words.
    pub data_64: [u64; 2],
}

/// How many services an answer has room for.
pub const SERVICES: usize = 64;

/// Services.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Services {
    /// How many there are.
    pub num_service_recs: u32,
    /// Nothing.
    pub reserved: u32,
    /// The services.
    pub recs: [ServiceRecord; SERVICES],
}

/// Asks the subnet for a service; newer than the headers of most distributions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ResolveIbService {
    /// The id's handle.
    pub id: u32,
    /// Nothing.
    pub reserved: u32,
    /// The service's number, with [`SERVICE_FLAG_ID`].
    pub service_id: u64,
    /// The service's name, with [`SERVICE_FLAG_NAME`].
    pub service_name: [u8; 64],
    /// Which of the two it is.
    pub flags: u32,
    /// Nothing.
    pub reserved1: u32,
}

/// Puts an event into the id's own channel; newer than the headers of most distributions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WriteCmEvent {
    /// The id's handle.
    pub id: u32,
    /// Nothing.
    pub reserved: u32,
    /// Its kind.
    pub event: u32,
    /// Its status.
    pub status: u32,
    /// What comes with it.
    pub param: WrittenParam,
}

/// What comes with a written event.
#[repr(C)]
#[derive(Clone, Copy)]
pub union WrittenParam {
    /// Of connected ids.
    pub conn: ConnParam,
    /// Of datagram ids.
    pub ud: UdParam,
    /// A value of the program's.
    pub arg: u64,
}
