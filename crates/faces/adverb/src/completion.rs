//! Work completions.
use crate::error::{Error, Failure, Result};
use adverb_device::engine::{self, Cause, Key, WcFlags, WcOpcode, WcStatus};
use std::sync::Arc;
use std::time::Duration;

/// The outcome of a work request (`ibv_poll_cq(3)`, IBTA 11.4.2.1).
#[derive(Clone, Debug)]
pub struct Completion(engine::Completion);

impl Completion {
    pub(crate) fn new(completion: engine::Completion) -> Self {
        Completion(completion)
    }

    /// The id of the request.
    #[must_use]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }
    /// The status.
    #[must_use]
    pub fn status(&self) -> WcStatus {
        self.0.status
    }
    /// Whether the request succeeded.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.0.status == WcStatus::Success
    }
    /// The completion itself if the request succeeded, or else the failure with its cause.
    ///
    /// # Errors
    /// [`Error::Failed`] if the request failed.
    pub fn ok(self) -> Result<Completion> {
        if self.is_ok() { Ok(self) } else { Err(self.failure()) }
    }
    fn failure(&self) -> Error {
        Error::Failed(Box::new(Failure {
            wr_id: self.wr_id(),
            qp_number: self.qp_number(),
            opcode: self.opcode(),
            status: self.status(),
            cause: self.cause().cloned(),
        }))
    }
    /// The operation. Unlike hardware, this device also sets it for a failed request.
    #[must_use]
    pub fn opcode(&self) -> WcOpcode {
        self.0.opcode
    }
    /// Whether the request was a receive.
    #[must_use]
    pub fn is_recv(&self) -> bool {
        matches!(self.0.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
    }
    /// The received bytes (on UD with the 40 bytes of the GRH), the bytes read, or 8 for an atomic.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.0.byte_len as usize
    }
    /// The immediate data of the message.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        self.0.flags.contains(WcFlags::WITH_IMM).then(|| u32::from_be(self.0.imm))
    }
    /// The local key that the peer invalidated with the message.
    #[must_use]
    pub fn invalidated(&self) -> Option<Key> {
        self.0.flags.contains(WcFlags::WITH_INV).then_some(self.0.imm)
    }
    /// Whether the sender asked for a solicited event.
    #[must_use]
    pub fn is_solicited(&self) -> bool {
        self.0.solicited
    }
    /// The local queue pair.
    #[must_use]
    pub fn qp_number(&self) -> u32 {
        self.0.qpn
    }
    /// The sender's queue pair (UD).
    #[must_use]
    pub fn source_qp(&self) -> u32 {
        self.0.src_qpn
    }
    /// The time at which the completion was added to its queue, since the process opened its first
    /// device.
    #[must_use]
    pub fn timestamp(&self) -> Duration {
        Duration::from_nanos(self.0.timestamp.0)
    }
    /// Why the request failed.
    #[must_use]
    pub fn cause(&self) -> Option<&Arc<Cause>> {
        self.0.cause.as_ref()
    }
}

/// A placeholder for [`Cq::poll`](crate::Cq::poll) to overwrite.
impl Default for Completion {
    fn default() -> Self {
        Completion(engine::Completion::success(0, 0, WcOpcode::Send))
    }
}
