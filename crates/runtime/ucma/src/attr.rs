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
use adverb_device::engine::{Access, AttrMask, QpState};
use nix::errno::Errno;

impl<D: Host, T: Tokens> World<D, T> {
    pub(crate) fn init_qp_attr(
        &mut self,
        file: u64,
        number: u32,
        state: u32,
    ) -> Result<QpAttr, Errno> {
        let to = QpState::from_code(state).ok_or(Errno::EINVAL)?;
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
            Some(standing) => match to {
                QpState::Init if may_init(standing) => init(id, &mut out),
                QpState::Rtr if may_run(standing) => rtr(id, &mut out),
                QpState::Rts if may_run(standing) => rts(id, &mut out),
                _ => return Err(Errno::EINVAL),
            },
        };
        Ok(QpAttr { mask: (mask | AttrMask::STATE).bits(), state, ..out })
    }
}

fn may_run(state: State) -> bool {
    use State::{Established, MraRepReceived, RepReceived, RepSent, ReqReceived};
    matches!(state, ReqReceived | RepReceived | RepSent | MraRepReceived | Established)
}

fn may_init(state: State) -> bool {
    may_run(state) || matches!(state, State::ReqSent | State::MraReqReceived)
}

fn without_connection(id: &CmId, out: &mut QpAttr) -> AttrMask {
    out.port_num = PORT;
    let common = AttrMask::PKEY_INDEX | AttrMask::PORT;
    if id.is_datagram() {
        out.qkey = id.qkey();
        common | AttrMask::QKEY
    } else {
        common | AttrMask::ACCESS_FLAGS
    }
}

fn init(id: &CmId, out: &mut QpAttr) -> AttrMask {
    let mut access = Access::REMOTE_WRITE;
    access.set(Access::REMOTE_READ | Access::REMOTE_ATOMIC, id.agreed.responder_resources > 0);
    out.access_flags = access.bits();
    out.port_num = PORT;
    AttrMask::ACCESS_FLAGS | AttrMask::PKEY_INDEX | AttrMask::PORT
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

fn rtr(id: &CmId, out: &mut QpAttr) -> AttrMask {
    out.ah = address(id);
    out.path_mtu = id.route.map_or(0, |route| route.mtu.into());
    (out.rq_psn, out.dest_qp_num) = (id.psn, id.agreed.remote_qpn);
    let common = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    if matches!(id.qp_type, qp_type::RC | qp_type::XRC_TGT) {
        out.max_dest_rd_atomic = id.agreed.responder_resources;
        return common | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
    }
    common
}

fn rts(id: &CmId, out: &mut QpAttr) -> AttrMask {
    out.sq_psn = id.agreed.sq_psn;
    let mut mask = AttrMask::SQ_PSN;
    if matches!(id.qp_type, qp_type::RC | qp_type::XRC_INI) {
        out.max_rd_atomic = id.agreed.initiator_depth;
        (out.retry_cnt, out.rnr_retry) = (id.agreed.retry_count, id.agreed.rnr_retry_count);
        mask |= AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
    }
    if id.qp_type != qp_type::UC {
        out.timeout = id.ack_timeout.unwrap_or(id.agreed.timeout);
        mask |= AttrMask::TIMEOUT;
    }
    mask
}
