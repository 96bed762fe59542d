//! Queue pair attributes: the fields of `ibv_modify_qp` and the rules of its transitions.
use crate::types::{Access, Gid, PathMtu, QpState, Qpn};
use core::fmt;
use thiserror::Error;

mod narrow;
mod rules;
pub use narrow::{Cut, Narrow, cut};
pub use rules::check_modify;
#[cfg(test)]
mod tests;

bitflags::bitflags! {
    /// The fields of a [`QpAttr`] that a modify carries, with the bits of `ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AttrMask: u32 {
        /// `IBV_QP_STATE`.
        const STATE = 1 << 0;
        /// `IBV_QP_CUR_STATE`.
        const CUR_STATE = 1 << 1;
        /// `IBV_QP_EN_SQD_ASYNC_NOTIFY`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `IBV_QP_ACCESS_FLAGS`.
        const ACCESS_FLAGS = 1 << 3;
        /// `IBV_QP_PKEY_INDEX`.
        const PKEY_INDEX = 1 << 4;
        /// `IBV_QP_PORT`.
        const PORT = 1 << 5;
        /// `IBV_QP_QKEY`.
        const QKEY = 1 << 6;
        /// `IBV_QP_AV`.
        const AV = 1 << 7;
        /// `IBV_QP_PATH_MTU`.
        const PATH_MTU = 1 << 8;
        /// `IBV_QP_TIMEOUT`.
        const TIMEOUT = 1 << 9;
        /// `IBV_QP_RETRY_CNT`.
        const RETRY_CNT = 1 << 10;
        /// `IBV_QP_RNR_RETRY`.
        const RNR_RETRY = 1 << 11;
        /// `IBV_QP_RQ_PSN`.
        const RQ_PSN = 1 << 12;
        /// `IBV_QP_MAX_QP_RD_ATOMIC`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `IBV_QP_ALT_PATH`.
        const ALT_PATH = 1 << 14;
        /// `IBV_QP_MIN_RNR_TIMER`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `IBV_QP_SQ_PSN`.
        const SQ_PSN = 1 << 16;
        /// `IBV_QP_MAX_DEST_RD_ATOMIC`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `IBV_QP_PATH_MIG_STATE`.
        const PATH_MIG_STATE = 1 << 18;
        /// `IBV_QP_CAP`.
        const CAP = 1 << 19;
        /// `IBV_QP_DEST_QPN`.
        const DEST_QPN = 1 << 20;
        /// `IBV_QP_RATE_LIMIT`.
        const RATE_LIMIT = 1 << 25;
    }
}

/// A resolved address vector: the destination of a QP's or an address handle's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AddressVector {
    /// Source GID (the local address behind `sgid_index`).
    pub sgid: Gid,
    /// Destination GID.
    pub dgid: Gid,
    /// Interface index of link-local destinations (IPv6 scope), else 0.
    pub scope_id: u32,
    /// Index of `sgid` in the port's GID table.
    pub sgid_index: u8,
    /// Hop limit or TTL.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label (20 bits).
    pub flow_label: u32,
    /// Service level.
    pub sl: u8,
    /// Source path bits (InfiniBand; kept for queries).
    pub src_path_bits: u8,
    /// Static rate (kept for queries).
    pub static_rate: u8,
    /// A GRH was given; always needed on RoCE.
    pub is_global: bool,
    /// Destination LID (InfiniBand; kept for queries).
    pub dlid: u16,
    /// Physical port.
    pub port_num: u8,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QpCap {
    /// Send work requests.
    pub max_send_wr: u32,
    /// Receive work requests.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data of a send.
    pub max_inline_data: u32,
}

/// The attributes of a queue pair. Codes (timeout, RNR timer) are stored as given by the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct QpAttr {
    pub state: QpState,
    pub cur_state: QpState,
    pub path_mtu: PathMtu,
    pub path_mig_state: u8,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qpn: Qpn,
    pub access: Access,
    pub cap: QpCap,
    pub av: AddressVector,
    pub alt_av: AddressVector,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: bool,
    /// Draining towards SQD.
    pub sq_draining: bool,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code, 5 bits.
    pub min_rnr_timer: u8,
    pub port_num: u8,
    /// Local ACK timeout code, 5 bits; 0 is never.
    pub timeout: u8,
    pub retry_cnt: u8,
    /// 7 is forever.
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// Why a modify was refused (EINVAL). Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum AttrError {
    /// The transition does not exist.
    #[error("no transition from {from:?} to {to:?}")]
    BadTransition { from: QpState, to: QpState },
    /// `IBV_QP_CUR_STATE` does not match.
    #[error("IBV_QP_CUR_STATE says {claimed:?}, the queue pair is in {actual:?}")]
    NotInState { claimed: QpState, actual: QpState },
    /// Attributes are missing that this transition needs on this QP type.
    #[error("{from:?} to {to:?} needs {}", AttrNames(*.attrs))]
    Missing { attrs: AttrMask, from: QpState, to: QpState },
    /// Attributes that may not be given on this transition.
    #[error("{from:?} to {to:?} does not take {}", AttrNames(*.attrs))]
    NotAllowed { attrs: AttrMask, from: QpState, to: QpState },
    /// A value is out of range; `attr` is the attribute in verbs' words, e.g. `IBV_QP_TIMEOUT`.
    #[error("{attr} is {value}: {rule}")]
    BadValue { attr: &'static str, value: u64, rule: &'static str },
}

/// Names of the attributes in a mask, in verbs' words.
pub(crate) struct AttrNames(pub AttrMask);

impl fmt::Display for AttrNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, _)) in self.0.iter_names().enumerate() {
            write!(f, "{}IBV_QP_{name}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
