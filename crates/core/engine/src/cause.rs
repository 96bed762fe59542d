//! Why an operation failed: one typed cause behind every errno, completion status and dropped
//! packet.
use crate::types::{Access, Gid, Key, Qpn};
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

/// The reason of a failure, with the values that explain it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cause {
    /// There is no key with this index, or its tag differs.
    UnknownKey { key: Key },
    /// The key belongs to another protection domain.
    WrongPd { key: Key },
    /// The range leaves the region or window.
    OutOfBounds { key: Key, va: u64, len: u64, start: u64, size: u64 },
    /// The key lacks a right.
    AccessDenied { key: Key, needed: Access, granted: Access },
    /// A type 2 window bound to another queue pair, or a window that is not bound.
    WindowNotUsable { key: Key },
    /// A fast-registered region that no request has registered, or that was invalidated since.
    NotRegistered { key: Key },
    /// A window is still bound to the region, or the region is in use otherwise.
    InUse { key: Key },
    /// The QP's own access flags forbid the operation.
    QpAccessDenied { needed: Access },
    /// Registered memory could not be reached.
    Fault { addr: u64 },
    /// Atomic target not aligned to 8 bytes.
    Misaligned { va: u64 },
    /// Scatter/gather entries beyond the queue's capability.
    TooManySges { given: u32, max: u32 },
    /// Inline data beyond the queue's capability.
    TooMuchInline { given: u32, max: u32 },
    /// Message longer than the transport or port carries.
    MessageTooLong { len: u64, max: u64 },
    /// Receive buffers shorter than the message.
    RecvTooShort { message: u64, buffers: u64 },
    /// Operation not allowed on this transport or queue.
    OpNotSupported { op: &'static str, on: &'static str },
    /// The queue pair's state does not allow the operation.
    WrongState { op: &'static str, state: crate::types::QpState },
    /// The queue is full.
    QueueFull { queue: &'static str, depth: u32 },
    /// An argument is missing or out of range.
    BadArgument { what: &'static str, rule: &'static str },
    /// The peer did not answer. `last_heard`: the time since its last answer; `None` if it has
    /// never answered this connection.
    RetryExceeded {
        peer: Gid,
        dest_qpn: Qpn,
        psn: u32,
        attempts: u32,
        last_heard: Option<Duration>,
    },
    /// The peer's process has ended.
    PeerEnded { peer: Gid, dest_qpn: Qpn },
    /// The peer had no receive posted, as often as `rnr_retry` allows.
    RnrRetryExceeded { peer: Gid, dest_qpn: Qpn, psn: u32, attempts: u32 },
    /// The peer answered with a NAK.
    RemoteNak { code: &'static str, psn: u32, dest_qpn: Qpn },
    /// The peer broke the protocol.
    ProtocolViolation { what: &'static str, psn: u32 },
    /// The completion queue overflowed.
    CqOverflow { depth: u32 },
    /// Flushed because the queue pair went to error. `first` is the reason; `None` if the consumer
    /// moved the queue pair.
    Flushed { first: Option<Arc<Cause>> },
    /// A fault injected on purpose.
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::UnknownKey { key } => {
                write!(f, "key {key:#010x} names no memory region or window")
            }
            Cause::WrongPd { key } => {
                write!(f, "key {key:#010x} belongs to another protection domain")
            }
            Cause::OutOfBounds { key, va, len, start, size } => write!(
                f,
                "{len} bytes at {va:#x} leave the {size} bytes at {start:#x} that key {key:#010x} opens"
            ),
            Cause::AccessDenied { key, needed, granted } => {
                write!(f, "key {key:#010x} grants {granted:?}, the operation needs {needed:?}")
            }
            Cause::WindowNotUsable { key } => {
                write!(f, "memory window {key:#010x} is not bound, or bound to another queue pair")
            }
            Cause::NotRegistered { key } => {
                write!(
                    f,
                    "key {key:#010x} is of a fast-registered region that is not registered, or was invalidated"
                )
            }
            Cause::InUse { key } => {
                write!(
                    f,
                    "key {key:#010x} is in use (registered already, or a window is bound to its region)"
                )
            }
            Cause::QpAccessDenied { needed } => {
                write!(f, "the queue pair's access flags do not include {needed:?}")
            }
            Cause::Fault { addr } => write!(f, "registered memory at {addr:#x} cannot be reached"),
            Cause::Misaligned { va } => write!(f, "atomic at {va:#x} is not aligned to 8 bytes"),
            Cause::TooManySges { given, max } => {
                write!(f, "{given} scatter/gather entries, the queue was made for {max}")
            }
            Cause::TooMuchInline { given, max } => {
                write!(f, "{given} bytes of inline data, the queue was made for {max}")
            }
            Cause::MessageTooLong { len, max } => {
                write!(f, "message of {len} bytes, at most {max} allowed")
            }
            Cause::RecvTooShort { message, buffers } => {
                write!(
                    f,
                    "message of at least {message} bytes does not fit receive buffers of {buffers}"
                )
            }
            Cause::OpNotSupported { op, on } => write!(f, "{op} is not possible on {on}"),
            Cause::WrongState { op, state } => write!(f, "{op} is not allowed in state {state:?}"),
            Cause::QueueFull { queue, depth } => {
                write!(f, "{queue} is full ({depth} work requests)")
            }
            Cause::BadArgument { what, rule } => write!(f, "{what}: {rule}"),
            Cause::RetryExceeded { peer, dest_qpn, psn, attempts, last_heard } => {
                write!(
                    f,
                    "no answer from QP {dest_qpn:#08x} at {peer} to PSN {psn} after {attempts} \
                     transmissions, "
                )?;
                match last_heard {
                    Some(age) => write!(f, "last heard {age:?} ago"),
                    None => write!(f, "and none before"),
                }
            }
            Cause::PeerEnded { peer, dest_qpn } => {
                write!(f, "the process of QP {dest_qpn:#08x} at {peer} has ended")
            }
            Cause::RnrRetryExceeded { peer, dest_qpn, psn, attempts } => write!(
                f,
                "QP {dest_qpn:#08x} at {peer} had no receive posted for PSN {psn} in {attempts} attempts"
            ),
            Cause::RemoteNak { code, psn, dest_qpn } => {
                write!(f, "QP {dest_qpn:#08x} refused PSN {psn}: {code}")
            }
            Cause::ProtocolViolation { what, psn } => {
                write!(f, "protocol violation at PSN {psn}: {what}")
            }
            Cause::CqOverflow { depth } => {
                write!(f, "completion queue of {depth} entries overflowed")
            }
            Cause::Flushed { first: Some(c) } => {
                write!(f, "flushed; the queue pair failed because: {c}")
            }
            Cause::Flushed { first: None } => {
                write!(f, "flushed; the queue pair is in the error state")
            }
            Cause::Injected => write!(f, "fault injected on request"),
        }
    }
}

impl core::error::Error for Cause {}
