//! What a queue pair's step leads to outside itself, as values, in order.
use crate::cause::Cause;
use crate::completion::Completion;
use crate::keys::KeyOp;
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
}

impl Effects {
    /// Nothing to do?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.completions.is_empty() && self.events.is_empty() && self.key_op.is_none()
    }
}
