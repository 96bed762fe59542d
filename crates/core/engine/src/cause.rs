//! Why an operation failed: one typed cause behind every errno, completion status and dropped
//! packet.
use crate::types::{Access, Gid, Key, Qpn};
use alloc::sync::Arc;
use core::fmt::{Display, from_fn};
use core::time::Duration;
use thiserror::Error;

mod words;

/// The reason of a failure, with the values that explain it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum Cause {
    /// There is no key with this index, or its tag differs.
    #[error("key {key:#010x} names no memory region or window")]
    UnknownKey { key: Key },
    /// The key belongs to another protection domain.
    #[error("key {key:#010x} belongs to another protection domain")]
    WrongPd { key: Key },
    /// The range leaves the region or window.
    #[error(
        "{len} bytes at {va:#x} leave the {size} bytes at {start:#x} that key {key:#010x} opens"
    )]
    OutOfBounds { key: Key, va: u64, len: u64, start: u64, size: u64 },
    /// The key lacks a right.
    #[error("key {key:#010x} grants {granted:?}, the operation needs {needed:?}")]
    AccessDenied { key: Key, needed: Access, granted: Access },
    /// A type 2 window bound to another queue pair, or a window that is not bound.
    #[error("memory window {key:#010x} is not bound, or bound to another queue pair")]
    WindowNotUsable { key: Key },
    /// A fast-registered region that no request has registered, or that was invalidated since.
    #[error(
        "key {key:#010x} is of a fast-registered region that is not registered, or was invalidated"
    )]
    NotRegistered { key: Key },
    /// A window is still bound to the region, or the region is in use otherwise.
    #[error("key {key:#010x} is in use (registered already, or a window is bound to its region)")]
    InUse { key: Key },
    /// The QP's own access flags forbid the operation.
    #[error("the queue pair's access flags do not include {needed:?}")]
    QpAccessDenied { needed: Access },
    /// Registered memory could not be reached.
    #[error("registered memory at {addr:#x} cannot be reached")]
    Fault { addr: u64 },
    /// Atomic target not aligned to 8 bytes.
    #[error("atomic at {va:#x} is not aligned to 8 bytes")]
    Misaligned { va: u64 },
    /// Scatter/gather entries beyond the queue's capability.
    #[error("{given} scatter/gather entries, the queue was made for {max}")]
    TooManySges { given: u32, max: u32 },
    /// Inline data beyond the queue's capability.
    #[error("{given} bytes of inline data, the queue was made for {max}")]
    TooMuchInline { given: u32, max: u32 },
    /// Message longer than the transport or port carries.
    #[error("message of {len} bytes, at most {max} allowed")]
    MessageTooLong { len: u64, max: u64 },
    /// Receive buffers shorter than the message.
    #[error("message of at least {message} bytes does not fit receive buffers of {buffers}")]
    RecvTooShort { message: u64, buffers: u64 },
    /// Operation not allowed on this transport or queue.
    #[error("{op} is not possible on {on}")]
    OpNotSupported { op: &'static str, on: &'static str },
    /// The queue pair's state does not allow the operation.
    #[error("{op} is not allowed in state {state:?}")]
    WrongState { op: &'static str, state: crate::types::QpState },
    /// The queue is full.
    #[error("{queue} is full ({depth} work requests)")]
    QueueFull { queue: &'static str, depth: u32 },
    /// An argument is missing or out of range.
    #[error("{what}: {rule}")]
    BadArgument { what: &'static str, rule: &'static str },
    /// The peer did not answer. `last_heard`: the time since its last answer; `None` if it has
    /// never answered this connection.
    #[error(
        "no answer from QP {dest_qpn:#08x} at {peer} to PSN {psn} after {attempts} transmissions, {}",
        last_answer(*.last_heard)
    )]
    RetryExceeded {
        peer: Gid,
        dest_qpn: Qpn,
        psn: u32,
        attempts: u32,
        last_heard: Option<Duration>,
    },
    /// The peer's process has ended.
    #[error("the process of QP {dest_qpn:#08x} at {peer} has ended")]
    PeerEnded { peer: Gid, dest_qpn: Qpn },
    /// The peer had no receive posted, as often as `rnr_retry` allows.
    #[error(
        "QP {dest_qpn:#08x} at {peer} had no receive posted for PSN {psn} in {attempts} attempts"
    )]
    RnrRetryExceeded { peer: Gid, dest_qpn: Qpn, psn: u32, attempts: u32 },
    /// The peer answered with a NAK.
    #[error("QP {dest_qpn:#08x} refused PSN {psn}: {code}")]
    RemoteNak { code: &'static str, psn: u32, dest_qpn: Qpn },
    /// The peer broke the protocol.
    #[error("protocol violation at PSN {psn}: {what}")]
    ProtocolViolation { what: &'static str, psn: u32 },
    /// The completion queue overflowed.
    #[error("completion queue of {depth} entries overflowed")]
    CqOverflow { depth: u32 },
    /// Flushed because the queue pair went to error. `first` is the reason; `None` if the consumer
    /// moved the queue pair.
    #[error("flushed; the queue pair {}", why(.first.as_deref()))]
    Flushed { first: Option<Arc<Cause>> },
    /// A fault injected on purpose.
    #[error("fault injected on request")]
    Injected,
}

impl Cause {
    /// A small number for `vendor_err`; `adverb explain` translates the number into words. 0 is "no
    /// detail".
    #[must_use]
    pub fn vendor_err(&self) -> u32 {
        self.entry().code
    }
}

fn last_answer(last_heard: Option<Duration>) -> impl Display {
    from_fn(move |f| match last_heard {
        Some(age) => write!(f, "last heard {age:?} ago"),
        None => write!(f, "and none before"),
    })
}

fn why(first: Option<&Cause>) -> impl Display {
    from_fn(move |f| match first {
        Some(cause) => write!(f, "failed because: {cause}"),
        None => write!(f, "is in the error state"),
    })
}
