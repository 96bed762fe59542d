//! What a queue pair's step leads to outside itself, as values, in order.
use crate::cause::Cause;
use crate::completion::{Completion, WcOpcode};
use crate::keys::KeyOp;
use crate::wr::{Remote, Sge};
use adverb_wire::tag_matching::{self, RENDEZVOUS_LEN, Rvh, Tmh};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Which completion queue a completion goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqRef {
    /// The QP's send CQ.
    Send,
    /// The QP's receive CQ.
    Recv,
    /// The CQ of the XRC SRQ with this number.
    XrcSrq(u32),
}

/// What a completion counter counts of a queue pair; discriminants are the bits of
/// `ibv_qp_attach_comp_cntr_op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CountedOp {
    /// A SEND of any kind.
    Send = 0,
    /// A receive.
    Recv = 1,
    /// An RDMA READ.
    Read = 2,
    /// An RDMA READ of the peer's.
    RemoteRead = 3,
    /// An RDMA WRITE.
    Write = 4,
    /// An RDMA WRITE of the peer's.
    RemoteWrite = 5,
}

/// An operation that has ended, for completion counters: signaled or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Which.
    pub op: CountedOp,
    /// Bytes of its message.
    pub bytes: u64,
    /// Successfully?
    pub good: bool,
}

/// An asynchronous event of a queue pair (`ibv_event_type` without the prefix).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum QpEvent {
    Fatal(Arc<Cause>),
    ReqErr(Arc<Cause>),
    AccessErr(Arc<Cause>),
    CommEst,
    SqDrained,
    LastWqeReached,
}

/// Collects the outcome of one or several steps. Reused: the host drains it and passes it again.
///
/// Order of application: first `key_op`, then the completions in order, then the events.
#[derive(Debug, Default)]
pub struct Effects {
    /// Completions in order.
    pub completions: Vec<(CqRef, Completion)>,
    /// Asynchronous events in order.
    pub events: Vec<QpEvent>,
    /// A key the peer invalidated (Send with invalidate), already checked.
    pub key_op: Option<KeyOp>,
    /// Operations that have ended, of a queue pair that has them counted
    /// ([`Qp::count`](crate::Qp::count)).
    pub counted: Vec<Counted>,
    /// Requests for a rendezvous whose tag was matched, for the host to perform, in order.
    pub rendezvous: Vec<Rendezvous>,
}

/// What a tag matching SRQ is to do for a peer that asked for a rendezvous: read its data, then say
/// so. Both are requests with [`SendFlags::RENDEZVOUS`](crate::wr::SendFlags::RENDEZVOUS), the READ
/// signaled.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// Id of the tagged buffer.
    pub wr_id: u64,
    /// The tagged buffer, as long as the data.
    pub sges: Vec<Sge>,
    /// Where the data is.
    pub from: Remote,
    /// The message that ends it.
    pub fin: [u8; RENDEZVOUS_LEN],
}

impl Rendezvous {
    /// For a message that matched a buffer with room for the data.
    pub(crate) fn new(wr_id: u64, buffer: &[Sge], tmh: Tmh, rvh: Rvh) -> Self {
        let mut left = rvh.len;
        let sges = buffer
            .iter()
            .map(|s| {
                let length = s.length.min(left);
                left -= length;
                Sge { length, ..*s }
            })
            .collect();
        let from = Remote { va: rvh.va, rkey: rvh.rkey };
        Rendezvous { wr_id, sges, from, fin: tag_matching::fin(tmh, rvh) }
    }
}

impl Effects {
    /// Notes the end of a send request.
    #[cold]
    pub(crate) fn count_sent(&mut self, opcode: WcOpcode, bytes: u64, good: bool) {
        let op = match opcode {
            WcOpcode::Send => CountedOp::Send,
            WcOpcode::RdmaWrite => CountedOp::Write,
            WcOpcode::RdmaRead | WcOpcode::TmRecv => CountedOp::Read,
            _ => return,
        };
        self.counted.push(Counted { op, bytes, good });
    }
    /// Notes the end of an operation of the peer's, or of a receive.
    #[cold]
    pub(crate) fn count(&mut self, op: CountedOp, bytes: u64, good: bool) {
        self.counted.push(Counted { op, bytes, good });
    }
    /// Nothing to do?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.completions.is_empty()
            && self.events.is_empty()
            && self.key_op.is_none()
            && self.counted.is_empty()
            && self.rendezvous.is_empty()
    }
}
