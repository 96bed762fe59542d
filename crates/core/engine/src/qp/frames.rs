//! Raw packet queue pairs: what they send and receive are whole Ethernet frames. The host says
//! which frames are theirs.
use super::context::ctx;
use super::{DropReason, Env, Qp, RecvSource};
use crate::memory::Memory;
use crate::types::{QpState, QpType};

impl Qp {
    /// A raw packet queue pair sends frames of at most so many bytes, header included, without the
    /// check sequence.
    #[must_use]
    pub fn with_frames(mut self, max: u32) -> Self {
        self.requester.set_frame(max);
        self
    }

    /// Does a frame find no receive that could take it, where one may still be posted?
    #[must_use]
    pub fn lacks_receive(&self) -> bool {
        !matches!(self.attr.state, QpState::Reset | QpState::Init | QpState::Err)
            && !self.config.uses_srq
            && !self.responder.has_receive()
    }

    /// Takes a frame. What finds no receive, or one that is too short, is dropped and counted.
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
