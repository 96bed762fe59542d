//! INIT_QP_ATTR: the attributes that bring an id's queue pair to a state, as the kernel's `ib_cm`
//! and `cma` give them.
use crate::event::{Ah, PORT};
use crate::host::{Host, Tokens};
use crate::id::CmId;
use crate::param::qp_type;
use crate::request::QpAttr;
use crate::world::World;
use adverb_cm::State;
use adverb_cm::ip::gid;
use nix::errno::Errno;

/// States of queue pairs.
const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const ERR: u32 = 6;

/// Bits of `ibv_qp_attr_mask`.
mod mask {
    pub const STATE: u32 = 1;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;
}

/// Access that the queue pair of a connection allows.
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_ATOMIC: u32 = 1 << 3;

impl<D: Host, T: Tokens> World<D, T> {
    pub(crate) fn init_qp_attr(
        &mut self,
        file: u64,
        number: u32,
        state: u32,
    ) -> Result<QpAttr, Errno> {
        if state > ERR {
            return Err(Errno::EINVAL);
        }
        let id = self.id(file, number)?;
        if id.binding.is_none() {
            return Err(Errno::EINVAL);
        }
        let (conn, datagram) = (id.conn.map(|(conn, _)| conn), id.is_datagram());
        let connection = conn.filter(|_| !datagram).and_then(|conn| self.cm.state(conn));
        let id = self.ids.get(&number).ok_or(Errno::ENOENT)?;
        let mut out = QpAttr::default();
        let mask = match connection {
            None => without_connection(id, &mut out),
            Some(standing) => match state {
                INIT if may_init(standing) => init(id, &mut out),
                RTR if may_run(standing) => rtr(id, &mut out),
                RTS if may_run(standing) => rts(id, &mut out),
                _ => return Err(Errno::EINVAL),
            },
        };
        Ok(QpAttr { mask: mask | mask::STATE, state, ..out })
    }
}

fn may_run(state: State) -> bool {
    use State::{Established, MraRepReceived, RepReceived, RepSent, ReqReceived};
    matches!(state, ReqReceived | RepReceived | RepSent | MraRepReceived | Established)
}

fn may_init(state: State) -> bool {
    may_run(state) || matches!(state, State::ReqSent | State::MraReqReceived)
}

fn without_connection(id: &CmId, out: &mut QpAttr) -> u32 {
    out.port_num = PORT;
    let common = mask::PKEY_INDEX | mask::PORT;
    if id.is_datagram() {
        out.qkey = id.qkey();
        common | mask::QKEY
    } else {
        common | mask::ACCESS_FLAGS
    }
}

fn init(id: &CmId, out: &mut QpAttr) -> u32 {
    let more = if id.agreed.responder_resources > 0 { REMOTE_READ | REMOTE_ATOMIC } else { 0 };
    out.access_flags = REMOTE_WRITE | more;
    out.port_num = PORT;
    mask::ACCESS_FLAGS | mask::PKEY_INDEX | mask::PORT
}

/// The address handle of an id's path.
pub fn address(id: &CmId) -> Option<Ah> {
    let (binding, route) = (id.binding.as_ref()?, id.route?);
    let remote = id.conn.map(|(_, path)| path.remote).or_else(|| id.destination?.ip())?;
    Some(Ah {
        dgid: gid(remote),
        flow_label: route.flow_label,
        sgid_index: binding.sgid_index,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
        dlid: 0,
        sl: route.service_level,
    })
}

fn rtr(id: &CmId, out: &mut QpAttr) -> u32 {
    out.ah = address(id);
    out.path_mtu = id.route.map_or(0, |route| route.mtu.into());
    (out.rq_psn, out.dest_qp_num) = (id.psn, id.agreed.remote_qpn);
    let common = mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
    if matches!(id.qp_type, qp_type::RC | qp_type::XRC_TGT) {
        out.max_dest_rd_atomic = id.agreed.responder_resources;
        return common | mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
    }
    common
}

fn rts(id: &CmId, out: &mut QpAttr) -> u32 {
    out.sq_psn = id.agreed.sq_psn;
    let mut mask = mask::SQ_PSN;
    if matches!(id.qp_type, qp_type::RC | qp_type::XRC_INI) {
        out.max_rd_atomic = id.agreed.initiator_depth;
        (out.retry_cnt, out.rnr_retry) = (id.agreed.retry_count, id.agreed.rnr_retry_count);
        mask |= mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
    }
    if id.qp_type != qp_type::UC {
        out.timeout = id.ack_timeout.unwrap_or(id.agreed.timeout);
        mask |= mask::TIMEOUT;
    }
    mask
}
