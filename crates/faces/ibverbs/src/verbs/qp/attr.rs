//! Attributes of queue pairs: `ibv_qp_attr` in and out.
use crate::abi::*;
use crate::verbs::address::{address_in, address_out};
use adverb_device::engine::{Access, AttrMask, PathMtu, QpAttr, QpCap, QpState};
use adverb_device::{Error, Qp};

pub fn cap_in(c: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: c.max_send_wr,
        max_recv_wr: c.max_recv_wr,
        max_send_sge: c.max_send_sge,
        max_recv_sge: c.max_recv_sge,
        max_inline_data: c.max_inline_data,
    }
}

pub fn cap_out(c: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: c.max_send_wr,
        max_recv_wr: c.max_recv_wr,
        max_send_sge: c.max_send_sge,
        max_recv_sge: c.max_recv_sge,
        max_inline_data: c.max_inline_data,
    }
}

/// Copies the fields that have the same name and type in both forms.
macro_rules! copy_same {
    ($to:ident = $from:ident: $($field:ident)*) => { $($to.$field = $from.$field;)* };
    ($to:ident = $from:ident) => {
        copy_same! {
            $to = $from: qkey rq_psn sq_psn pkey_index alt_pkey_index max_rd_atomic
            max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num
            alt_timeout rate_limit
        }
    };
}

/// Reads the fields named in the mask.
pub fn attr_in(qp: &Qp, a: &ibv_qp_attr, mask: AttrMask) -> Result<QpAttr, Error> {
    let mut out = QpAttr::default();
    let state = |what: &str, value: u32| {
        QpState::from_code(value)
            .ok_or_else(|| Error::invalid(format!("{what} is {value}"), "no such state"))
    };
    if mask.contains(AttrMask::STATE) {
        out.state = state("qp_state", a.qp_state)?;
    }
    if mask.contains(AttrMask::CUR_STATE) {
        out.cur_state = state("cur_qp_state", a.cur_qp_state)?;
    }
    if mask.contains(AttrMask::PATH_MTU) {
        out.path_mtu = PathMtu::from_code(a.path_mtu).ok_or_else(|| {
            Error::invalid(
                format!("path_mtu is {}", a.path_mtu),
                "1 (256) to 5 (4096) are possible",
            )
        })?;
    }
    if mask.contains(AttrMask::AV) {
        out.av = qp.context().resolve(&address_in(&a.ah_attr))?;
    }
    if mask.contains(AttrMask::ALT_PATH) {
        out.alt_av = qp.context().resolve(&address_in(&a.alt_ah_attr))?;
    }
    copy_same!(out = a);
    out.path_mig_state = a.path_mig_state as u8;
    out.dest_qpn = a.dest_qp_num;
    out.access = Access::from_bits_truncate(a.qp_access_flags);
    out.cap = cap_in(&a.cap);
    out.en_sqd_async_notify = a.en_sqd_async_notify != 0;
    Ok(out)
}

pub fn attr_out(a: &QpAttr) -> ibv_qp_attr {
    let mut out = ibv_qp_attr::zeroed();
    copy_same!(out = a);
    out.qp_state = a.state as u32;
    out.cur_qp_state = a.state as u32;
    out.path_mtu = a.path_mtu as u32;
    out.path_mig_state = a.path_mig_state.into();
    out.dest_qp_num = a.dest_qpn;
    out.qp_access_flags = a.access.bits();
    out.cap = cap_out(&a.cap);
    out.ah_attr = address_out(&a.av);
    out.alt_ah_attr = address_out(&a.alt_av);
    out.en_sqd_async_notify = a.en_sqd_async_notify.into();
    out.sq_draining = a.sq_draining.into();
    out
}
