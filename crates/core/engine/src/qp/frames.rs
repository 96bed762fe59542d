//! Raw packet queue pairs, which send and receive whole Ethernet frames. The host selects the
//! frames for a queue pair.
use super::context::ctx;
use super::{DropReason, Env, Qp, RecvSource};
use crate::memory::Memory;
use crate::types::{QpState, QpType};

impl Qp {
    /// Sets the longest frame of a raw packet queue pair to `max` bytes, with the header and
    /// without the frame check sequence.
    #[must_use]
    pub fn with_frames(mut self, max: u32) -> Self {
        self.requester.set_frame(max);
        self
    }

    /// Does a frame find no receive, although a receive may still be posted?
    #[must_use]
    pub fn lacks_receive(&self) -> bool {
        !matches!(self.attr.state, QpState::Reset | QpState::Init | QpState::Err)
            && !self.config.uses_srq
            && !self.responder.has_receive()
    }

    /// Takes a frame. Without a receive, or with a receive that is too short, the frame is dropped
    /// and counted.
    pub fn take_frame<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        env: &mut Env<'_, M, S>,
        frame: &[u8],
    ) {
        let receives = !matches!(self.attr.state, QpState::Reset | QpState::Init | QpState::Err);
        if self.config.qp_type != QpType::RawPacket || !receives {
            self.counters.drop(DropReason::State);
            return;
        }
        let verdict = self.responder.handle_frame(&ctx!(self), env, frame, &mut self.counters);
        self.apply(verdict, env.effects);
    }
}
