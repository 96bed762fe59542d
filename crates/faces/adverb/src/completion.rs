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

    /// The id the request was given.
    #[must_use]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }
    /// How it ended.
    #[must_use]
    pub fn status(&self) -> WcStatus {
        self.0.status
    }
    /// Did it succeed?
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.0.status == WcStatus::Success
    }
    /// Itself if it succeeded, else its failure with the cause.
    ///
    /// # Errors
    /// [`Error::Failed`].
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
    /// What was done. Of a failed request, too: unlike hardware, this device knows.
    #[must_use]
    pub fn opcode(&self) -> WcOpcode {
        self.0.opcode
    }
    /// Is it of a receive?
    #[must_use]
    pub fn is_recv(&self) -> bool {
        matches!(self.0.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
    }
    /// Bytes received (on UD with the 40 bytes in front), read, or 8 for an atomic.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.0.byte_len as usize
    }
    /// The immediate data that came with the message.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        self.0.flags.contains(WcFlags::WITH_IMM).then(|| u32::from_be(self.0.imm))
    }
    /// The key of ours that the peer invalidated with the message.
    #[must_use]
    pub fn invalidated(&self) -> Option<Key> {
        self.0.flags.contains(WcFlags::WITH_INV).then_some(self.0.imm)
    }
    /// Did the sender ask for a solicited event?
    #[must_use]
    pub fn is_solicited(&self) -> bool {
        self.0.solicited
    }
    /// Our queue pair.
    #[must_use]
    pub fn qp_number(&self) -> u32 {
        self.0.qpn
    }
    /// The sender's queue pair (UD).
    #[must_use]
    pub fn source_qp(&self) -> u32 {
        self.0.src_qpn
    }
    /// When it was added to its queue, as time since the process opened its first device.
    #[must_use]
    pub fn timestamp(&self) -> Duration {
        Duration::from_nanos(self.0.timestamp.0)
    }
    /// Why it failed.
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
