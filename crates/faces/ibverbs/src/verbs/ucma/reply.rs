//! Replies to programs, as C structures.
use super::request::PATH_FLAGS;
use super::sockaddr;
use crate::abi::rdma_user_cm as abi;
use crate::abi::rdma_user_cm::Integers;
use crate::abi::{
    Plain, ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_global_route, ib_uverbs_qp_attr,
};
use adverb_ucma::{
    Address, Addresses, Ah, ConnParam, Ece, Event, PKEY, PORT, Param, Path, QpAttr, Reply, Route,
};
use libc::{sockaddr_in6, sockaddr_storage};

/// "Exactly", for a value in a path record.
const EXACTLY: u8 = 2;

/// The reply to a command.
pub fn reply(from: &Reply<'_>) -> abi::Reply {
    match *from {
        Reply::Id(id) => abi::Reply::Id(abi::rdma_ucm_create_id_resp { id }),
        Reply::EventsReported(events_reported) => {
            abi::Reply::EventsReported(abi::rdma_ucm_destroy_id_resp { events_reported })
        }
        Reply::Addresses(ref from) => abi::Reply::Addresses(addresses(from)),
        Reply::Path(ref from) => abi::Reply::Paths(path(from)),
        Reply::Route(ref from, ref path) => abi::Reply::Route(route(from, path)),
        Reply::NoServices => abi::Reply::Services(abi::rdma_ucm_query_ib_service_resp::zeroed()),
        Reply::QpAttr(ref from) => abi::Reply::QpAttr(qp_attr(from)),
        Reply::Event { uid, about, event: from } => abi::Reply::Event(event(uid, about, from)),
        Reply::Byte(value) => abi::Reply::Byte(value),
        Reply::Flag(value) => abi::Reply::Number(value.into()),
    }
}

/// The values for an unknown device.
const NO_DEVICE: (u64, u32) = (0, u32::MAX);

fn addresses(from: &Addresses) -> abi::rdma_ucm_query_addr_resp {
    let mut out = abi::rdma_ucm_query_addr_resp::zeroed();
    let (guid, index) = from.device.unwrap_or(NO_DEVICE);
    (out.node_guid, out.ibdev_index) = (guid.to_be(), index);
    if from.device.is_some() {
        (out.port_num, out.pkey) = (PORT, PKEY.to_be());
    }
    let address = |from: Option<Address>| {
        from.map_or((0, sockaddr_storage::of_bytes(&[])), |a| {
            (sockaddr::size(&a), sockaddr::write(&a))
        })
    };
    (out.src_size, out.src_addr) = address(from.source);
    (out.dst_size, out.dst_addr) = address(from.destination);
    out
}

/// A path record in wire format (IBTA, PathRecord).
fn record(path: &Path, route: &Route) -> [u8; 64] {
    let mut out = [0; 64];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    let flow_hop = route.flow_label << 8 | u32::from(route.hop_limit);
    put(8, &path.destination.octets());
    put(24, &path.source.octets());
    put(44, &flow_hop.to_be_bytes());
    // Reversible, and a single path.
    put(48, &[route.traffic_class, 1 << 7 | 1]);
    put(50, &PKEY.to_be_bytes());
    put(52, &u16::from(route.service_level).to_be_bytes());
    put(54, &[EXACTLY << 6 | route.mtu, EXACTLY << 6, EXACTLY << 6 | route.packet_lifetime]);
    out
}

fn path(from: &Path) -> abi::rdma_ucm_query_path_resp {
    let mut out = abi::rdma_ucm_query_path_resp::zeroed();
    if let Some(route) = &from.route {
        out.num_paths = 1;
        let path_rec = record(from, route);
        out.path_data = [abi::ib_path_rec_data { flags: PATH_FLAGS, reserved: 0, path_rec }];
    }
    out
}

fn route(from: &Addresses, path: &Path) -> abi::rdma_ucm_query_route_resp {
    let mut out = abi::rdma_ucm_query_route_resp::zeroed();
    let (guid, index) = from.device.unwrap_or(NO_DEVICE);
    (out.node_guid, out.ibdev_index) = (guid.to_be(), index);
    let address = |from: Option<Address>| {
        from.map_or(sockaddr_in6::of_bytes(&[]), |a| {
            sockaddr_in6::of_bytes(sockaddr::write(&a).bytes())
        })
    };
    (out.src_addr, out.dst_addr) = (address(from.source), address(from.destination));
    if from.device.is_none() {
        return out;
    }
    out.port_num = PORT;
    let mut record = ib_user_path_rec::zeroed();
    (record.dgid, record.sgid) = (path.destination.octets(), path.source.octets());
    record.pkey = PKEY.to_be();
    if let Some(route) = &path.route {
        out.num_paths = 1;
        record.flow_label = route.flow_label.to_be();
        (record.reversible, record.mtu) = (1, route.mtu.into());
        (record.hop_limit, record.traffic_class) = (route.hop_limit, route.traffic_class);
        (record.numb_path, record.sl) = (1, route.service_level);
        (record.mtu_selector, record.rate_selector) = (EXACTLY, EXACTLY);
        (record.packet_life_time_selector, record.packet_life_time) =
            (EXACTLY, route.packet_lifetime);
    }
    out.ib_route[0] = record;
    out
}

fn address_handle(from: &Ah) -> ib_uverbs_ah_attr {
    ib_uverbs_ah_attr {
        grh: ib_uverbs_global_route {
            dgid: from.dgid.octets(),
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
            reserved: 0,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: PORT,
        reserved: 0,
    }
}

fn qp_attr(from: &QpAttr) -> ib_uverbs_qp_attr {
    ib_uverbs_qp_attr {
        qp_attr_mask: from.mask,
        qp_state: from.state,
        path_mtu: from.path_mtu,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.access_flags,
        ah_attr: from.ah.as_ref().map_or(ib_uverbs_ah_attr::zeroed(), address_handle),
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        ..ib_uverbs_qp_attr::zeroed()
    }
}

/// Private data as a field and its length. Private data never exceeds 255 bytes.
fn private_data(from: &[u8]) -> ([u8; abi::RDMA_MAX_PRIVATE_DATA], u8) {
    let mut out = [0; abi::RDMA_MAX_PRIVATE_DATA];
    let len = u8::try_from(from.len()).unwrap_or(u8::MAX);
    out[..len.into()].copy_from_slice(&from[..len.into()]);
    (out, len)
}

fn conn_param(from: &ConnParam<Vec<u8>>) -> abi::rdma_ucm_conn_param {
    let (private_data, private_data_len) = private_data(&from.private_data);
    abi::rdma_ucm_conn_param {
        qp_num: from.qpn,
        qkey: from.qkey,
        private_data,
        private_data_len,
        srq: from.srq.into(),
        responder_resources: from.responder_resources,
        initiator_depth: from.initiator_depth,
        flow_control: from.flow_control.into(),
        retry_count: from.retry_count,
        rnr_retry_count: from.rnr_retry_count,
        valid: 0,
    }
}

fn event(uid: u64, about: u32, from: &Event) -> abi::rdma_ucm_event_resp {
    let mut out = abi::rdma_ucm_event_resp::zeroed();
    (out.uid, out.id, out.event, out.status) = (uid, about, from.kind as u32, from.status as u32);
    match &from.param {
        Param::None => {}
        Param::Conn(param) => out.param.conn = conn_param(param),
        Param::Datagram { qpn, qkey, ah, private_data: data } => {
            let (private_data, private_data_len) = private_data(data);
            out.param.ud = abi::rdma_ucm_ud_param {
                qp_num: *qpn,
                qkey: *qkey,
                ah_attr: ah.as_ref().map_or(ib_uverbs_ah_attr::zeroed(), address_handle),
                private_data,
                private_data_len,
                reserved: [0; 7],
            };
        }
        Param::Arg(arg) => {
            let [a, b, c, d, e, f, g, h] = *arg;
            out.param.arg = [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])];
        }
    }
    let Ece { vendor_id, attr_mod } = from.ece;
    out.ece = abi::rdma_ucm_ece { vendor_id, attr_mod };
    out
}
