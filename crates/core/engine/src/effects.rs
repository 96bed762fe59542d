//! The outcome of a queue pair's step outside the queue pair, as values, in order.
use crate::cause::Cause;
use crate::completion::{Completion, WcOpcode};
use crate::keys::KeyOp;
use crate::types::QpType;
use crate::wr::{Remote, Sge};
use adverb_wire::GRH_LEN;
use adverb_wire::tag_matching::{self, RENDEZVOUS_LEN, Rvh, Tmh};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The completion queue for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqRef {
    /// The QP's send CQ.
    Send,
    /// The QP's receive CQ.
    Recv,
    /// The CQ of the XRC SRQ with this number.
    XrcSrq(u32),
}

/// Operations of a queue pair that a completion counter counts. The discriminants are the bits of
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
    /// An RDMA READ of the peer.
    RemoteRead = 3,
    /// An RDMA WRITE.
    Write = 4,
    /// An RDMA WRITE of the peer.
    RemoteWrite = 5,
}

/// A finished operation for completion counters, signaled or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The operation.
    pub op: CountedOp,
    /// Bytes of the message.
    pub bytes: u64,
    /// Did the operation succeed?
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

/// Collects the outcome of one or several steps. The host drains the value and passes it again.
///
/// Order of application: first `key_op`, then the completions in order, then the events.
#[derive(Debug, Default)]
pub struct Effects {
    /// Completions in order.
    pub completions: Vec<(CqRef, Completion)>,
    /// Asynchronous events in order.
    pub events: Vec<QpEvent>,
    /// A key that the peer invalidated (Send with invalidate), already checked.
    pub key_op: Option<KeyOp>,
    /// Finished operations of a queue pair with completion counters
    /// ([`Qp::count`](crate::Qp::count)).
    pub counted: Vec<Counted>,
    /// Requests of rendezvous with a matched tag, for the host to perform, in order.
    pub rendezvous: Vec<Rendezvous>,
    /// A message that was dropped because its receive is too short (UC, UD, raw packets). No
    /// completion tells the program.
    pub unfit: Option<Unfit>,
}

/// A dropped message and its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// Bytes of the message, at least. On UD the 40 bytes of the GRH do not count.
    pub message: u64,
    /// Bytes of the receive's buffers.
    pub buffers: u64,
}

/// The task of a tag-matching SRQ for a peer that asked for a rendezvous: read the peer's data,
/// then send a message. Both are requests with
/// [`SendFlags::RENDEZVOUS`](crate::wr::SendFlags::RENDEZVOUS); the READ is signaled.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// Id of the tagged buffer.
    pub wr_id: u64,
    /// The tagged buffer, cut to the length of the data.
    pub sges: Vec<Sge>,
    /// Where the data lies.
    pub from: Remote,
    /// The message that ends the rendezvous.
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

impl Unfit {
    /// A sentence for a queue pair of this type.
    #[must_use]
    pub fn words(self, qp_type: QpType) -> String {
        let Unfit { message, buffers } = self;
        match qp_type {
            QpType::Ud => format!(
                "a datagram of {message} bytes was dropped, and no completion tells of the drop: \
                 40 bytes of GRH come before the data, so the datagram needs a receive of {} \
                 bytes, and the posted receive has {buffers}; make each receive 40 bytes longer \
                 than the longest datagram",
                message + GRH_LEN as u64
            ),
            _ => format!(
                "a message of at least {message} bytes was dropped, and no completion tells of the \
                 drop: the posted receive has {buffers} bytes; make each receive as long as the \
                 longest message"
            ),
        }
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
    /// Notes the end of an operation of the peer, or of a receive.
    #[cold]
    pub(crate) fn count(&mut self, op: CountedOp, bytes: u64, good: bool) {
        self.counted.push(Counted { op, bytes, good });
    }
    /// Is there nothing to do?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.completions.is_empty()
            && self.events.is_empty()
            && self.key_op.is_none()
            && self.counted.is_empty()
            && self.rendezvous.is_empty()
            && self.unfit.is_none()
    }
}
