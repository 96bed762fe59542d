//! The path of a queue pair to its peer: the attributes that connect the queue pair.
use super::Qp;
use crate::status::{NtStatus, status_of};
use adverb_device::context::AhAttr;
use adverb_device::engine::{AttrMask, Gid, PathMtu, QpAttr, QpState};

/// Local ACK timeout: 4.096 µs × 2^14, 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// Number of retransmissions.
const RETRIES: u8 = 7;
/// 7 means unlimited retries while the peer has no receive, as is the RDMA connection manager's
/// default.
const RNR_RETRIES: u8 = 7;
/// Delay after an RNR NAK: 0.01 ms.
const MIN_RNR_TIMER: u8 = 1;
const HOP_LIMIT: u8 = 64;

/// The attributes that the two ends of a connection exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerPath {
    /// Index in the local GID table.
    pub(crate) sgid_index: u8,
    /// GID of the peer.
    pub(crate) dgid: Gid,
    /// The peer's queue pair number.
    pub(crate) dest_qpn: u32,
    /// First PSN that the peer sends.
    pub(crate) rq_psn: u32,
    /// First PSN that this end sends.
    pub(crate) sq_psn: u32,
    /// Path MTU of both ends.
    pub(crate) mtu: PathMtu,
    /// Maximum number of the peer's reads in progress.
    pub(crate) inbound_reads: u8,
    /// Maximum number of own reads in progress.
    pub(crate) outbound_reads: u8,
}

impl Qp {
    /// Makes the queue pair ready to receive: packets of the peer are accepted.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for an impossible path or a flushed queue pair, or the error of opening
    /// the local address.
    pub(crate) fn to_rtr(&self, path: &PeerPath) -> Result<(), NtStatus> {
        let context = self.device().context();
        let ah = AhAttr {
            dgid: path.dgid,
            sgid_index: path.sgid_index,
            is_global: true,
            port_num: adverb_device::device::PORT,
            hop_limit: HOP_LIMIT,
            ..AhAttr::default()
        };
        let attr = QpAttr {
            state: QpState::Rtr,
            av: context.resolve(&ah).map_err(|e| status_of(&e))?,
            path_mtu: path.mtu,
            dest_qpn: path.dest_qpn,
            rq_psn: path.rq_psn,
            max_dest_rd_atomic: path.inbound_reads,
            min_rnr_timer: MIN_RNR_TIMER,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        self.device().modify(&attr, mask).map_err(|e| status_of(&e))
    }

    /// Makes the queue pair ready to send.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` if the queue pair is not ready to receive.
    pub(crate) fn to_rts(&self, path: &PeerPath) -> Result<(), NtStatus> {
        let attr = QpAttr {
            state: QpState::Rts,
            sq_psn: path.sq_psn,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES,
            max_rd_atomic: path.outbound_reads,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE
            | AttrMask::SQ_PSN
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::MAX_QP_RD_ATOMIC;
        self.device().modify(&attr, mask).map_err(|e| status_of(&e))
    }
}
