//! NICs that this device can stand for, so that programs that work here also work there. A NIC has
//! limits, missing features, refused changes of state, and the kernel's limit on locked pages.
//!
//! Requested with the environment variable [`VARIABLE`], before the process first opens a device.
//! Without the variable a context has no [`Nic`], and the cost is the check of this field.
use crate::error::Error;
use adverb_engine::cq::arm::ArmRule;
use adverb_engine::{Cause, Limits, Payload, PostError, QpState, QpType, SendOp, SendWr};
use std::sync::OnceLock;

mod memlock;
pub mod room;
mod table;
#[cfg(test)]
mod tests;

pub use memlock::Locked;
pub(crate) use memlock::pages_of;
pub use table::ALL;

/// The environment variable.
pub const VARIABLE: &str = "ADVERB_AS_NIC";

bitflags::bitflags! {
    /// Features of a device beside queue pairs, sends and receives.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Has: u32 {
        /// RDMA read and write.
        const RDMA = 1;
        /// Atomic operations.
        const ATOMIC = 1 << 1;
        /// Immediate data.
        const IMM = 1 << 2;
        /// Sends that invalidate a key of the peer.
        const INVALIDATE = 1 << 3;
        /// Memory windows.
        const WINDOWS = 1 << 4;
        /// Shared receive queues.
        const SRQ = 1 << 5;
        /// Tag matching.
        const TAGS = 1 << 6;
        /// Device memory.
        const DM = 1 << 7;
        /// On-demand paging.
        const ODP = 1 << 8;
        /// Multicast groups.
        const MULTICAST = 1 << 9;
        /// Completion queues that change their size.
        const RESIZE = 1 << 10;
        /// Atomic write and flush.
        const FLUSH = 1 << 11;
        /// A queue pair in RESET may be reset again.
        const RESET_TWICE = 1 << 12;
        /// Requests that invalidate a local key.
        const LOCAL_INVALIDATE = 1 << 13;
    }
}

impl Has {
    const fn words(self) -> &'static str {
        match self {
            Has::RDMA => "RDMA read and write",
            Has::ATOMIC => "atomic operations",
            Has::IMM => "immediate data",
            Has::INVALIDATE => "a send with invalidate",
            Has::LOCAL_INVALIDATE => "local invalidation",
            Has::WINDOWS => "memory windows",
            Has::SRQ => "shared receive queues",
            Has::TAGS => "tag matching",
            Has::DM => "device memory",
            Has::ODP => "on-demand paging",
            Has::MULTICAST => "multicast",
            Has::RESIZE => "resizing a completion queue",
            Has::FLUSH => "atomic write and flush",
            _ => "going from RESET to RESET",
        }
    }
}

/// A NIC that this device stands for.
#[derive(Debug)]
pub struct Nic {
    /// The name for requesting the NIC.
    pub name: &'static str,
    /// The part with these numbers, and the source of the numbers.
    pub of: &'static str,
    /// Kinds of queue pairs.
    pub qp_types: &'static [QpType],
    /// Features.
    pub has: Has,
    /// Requests of a send or receive queue.
    pub max_qp_wr: u32,
    /// Elements of a send, and of a receive.
    pub max_sge: u32,
    /// Elements of an RDMA read.
    pub max_sge_rd: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Room of its requests beyond the requested sizes.
    pub room: room::Room,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Reads and atomics at a time.
    pub max_rd_atomic: u8,
    /// Requests of a shared receive queue; 0 without such queues.
    pub max_srq_wr: u32,
    /// Which completions satisfy an arm.
    pub arms: ArmRule,
}

/// The requested NIC, if there is a request.
///
/// # Errors
/// EINVAL for an unknown name.
pub fn asked() -> Result<Option<&'static Nic>, Error> {
    static ASKED: OnceLock<Option<String>> = OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let value = adverb_os::chosen(VARIABLE)?.to_string_lossy().into_owned();
        Some(value).filter(|v| !v.is_empty())
    });
    asked
        .as_deref()
        .map(|name| Nic::by_name(name).map_err(|why| Error::invalid(VARIABLE, why)))
        .transpose()
}

impl Nic {
    /// The NIC with this name.
    ///
    /// # Errors
    /// A message with the known names.
    pub fn by_name(name: &str) -> Result<&'static Nic, String> {
        ALL.iter().find(|nic| nic.name == name).ok_or_else(|| {
            format!("there is no device {name:?} to stand for; {} are possible", Nic::names())
        })
    }

    /// All names, separated by commas.
    #[must_use]
    pub fn names() -> String {
        ALL.iter().map(|nic| nic.name).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn limits(&self, own: Limits) -> Limits {
        Limits {
            max_qp_wr: self.max_qp_wr,
            max_sge: self.max_sge,
            max_inline: self.max_inline,
            max_cqe: self.max_cqe,
            max_rd_atomic: self.max_rd_atomic,
            max_srq_wr: self.max_srq_wr,
            ..own
        }
    }

    /// # Errors
    /// EOPNOTSUPP if the NIC lacks a feature.
    pub fn needs(&self, what: Has) -> Result<(), Error> {
        if self.has.contains(what) {
            return Ok(());
        }
        Err(Error::unsupported(format!("{} does not have {}", self.name, what.words())))
    }

    pub(crate) fn check_qp_type(&self, kind: QpType) -> Result<(), Error> {
        if self.qp_types.contains(&kind) {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "{} has no {kind:?} queue pairs, but {:?}",
            self.name, self.qp_types
        )))
    }

    /// Refuses a change of state that the standard allows and this NIC refuses.
    pub(crate) fn check_change(&self, from: QpState, to: QpState) -> Result<(), Error> {
        if from == QpState::Reset && to == QpState::Reset && !self.has.contains(Has::RESET_TWICE) {
            let rule = format!("{} refuses {}", self.name, Has::RESET_TWICE.words());
            return Err(Error::invalid(format!("qp_state is {to:?}"), rule));
        }
        Ok(())
    }

    /// Refuses a request that this NIC does not take.
    pub(crate) fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let needed: &[Has] = match wr.op {
            SendOp::Send | SendOp::FastReg(_) => &[],
            SendOp::SendImm(_) => &[Has::IMM],
            SendOp::SendInv(_) => &[Has::INVALIDATE],
            SendOp::LocalInv(_) => &[Has::LOCAL_INVALIDATE],
            SendOp::Write(_) | SendOp::Read(_) => &[Has::RDMA],
            SendOp::WriteImm(..) => &[Has::RDMA, Has::IMM],
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => &[Has::ATOMIC],
            SendOp::AtomicWrite(_) | SendOp::Flush { .. } => &[Has::FLUSH],
            SendOp::BindMw(_) => &[Has::WINDOWS],
        };
        let refused = |op| Err(PostError::Invalid(Cause::OpNotSupported { op, on: self.name }));
        if let Some(lacks) = needed.iter().find(|what| !self.has.contains(**what)) {
            return refused(lacks.words());
        }
        match (wr.op, wr.data) {
            (SendOp::Read(_), Payload::Sges(sges)) if sges.len() > self.max_sge_rd as usize => {
                refused("a read into so many elements (max_sge_rd)")
            }
            _ => Ok(()),
        }
    }
}
