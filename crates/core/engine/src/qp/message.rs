//! Whole SENDs that the peer's host performs: no packet, no PSN, no answer.
//!
//! The host offers receives to the peer ([`Qp::certain_receive`]). The peer's host puts a message
//! into shared memory and names the receive. This host then asks where the message goes
//! ([`Qp::landing`]), copies it there and reports that ([`Qp::landed`]). What is unusual about a
//! message goes through [`Qp::take_message`].
use super::context::ctx;
use super::{DropReason, Env, Qp, RecvSource};
use crate::completion::{Completion, WcFlags, WcOpcode};
use crate::effects::QpEvent;
use crate::keys::KeyTable;
use crate::memory::{Memory, Range, RangeKind};
use crate::packet::Packet;
use crate::types::{Access, QpState, QpType};

impl Qp {
    /// Receives that have left its own receive queue since it was created. The oldest that waits
    /// has this number.
    #[must_use]
    pub fn receives_taken(&self) -> u64 {
        self.responder.rq.taken()
    }
    /// The bytes of a receive that waits on its own receive queue, by its number, if a message of
    /// the peer's may be placed there for certain: it has one entry, and that names memory which is
    /// mapped and registered.
    #[inline]
    #[must_use]
    pub fn certain_receive(&self, keys: &KeyTable, receive: u64) -> Option<u32> {
        self.certain(keys, receive).map(|(_, room)| room)
    }

    /// The address and the bytes of such a receive.
    #[inline]
    fn certain(&self, keys: &KeyTable, receive: u64) -> Option<(u64, u32)> {
        if self.config.qp_type != QpType::Rc || self.config.counted || self.responder.receives_hidden {
            return None;
        }
        let &[entry] = self.responder.rq.sges_of(receive)? else { return None };
        let addr =
            keys.mapped_local(self.config.pd, entry.lkey, Access::LOCAL_WRITE, entry.addr, entry.length)?;
        Some((addr, entry.length))
    }

    /// Where a whole SEND of `len` bytes for this receive goes. `None`: [`Qp::take_message`] says
    /// what becomes of the message.
    #[inline]
    #[must_use]
    pub fn landing(&self, keys: &KeyTable, receive: u32, len: usize) -> Option<Range> {
        let next = self.responder.rq.taken();
        let ready = match self.attr.state {
            QpState::Rts | QpState::Sqd => true,
            QpState::Rtr => self.established,
            _ => false,
        };
        if !ready || receive != next as u32 || self.responder.is_within_message() {
            return None;
        }
        let len = u32::try_from(len).ok()?;
        let (addr, room) = self.certain(keys, next)?;
        (len <= room).then_some(Range { addr, len, kind: RangeKind::Mapped })
    }

    /// The host has placed a message of `len` bytes at [`Qp::landing`]. Answers the completion on
    /// the receive CQ.
    #[inline]
    pub fn landed(&mut self, len: u32, immediate: Option<u32>, solicited: bool) -> Option<Completion> {
        let wr_id = self.responder.rq.pop_id()?;
        self.counters.executed = self.counters.executed.wrapping_add(1);
        let mut completion = Completion::success(wr_id, self.config.qpn, WcOpcode::Recv);
        (completion.byte_len, completion.solicited) = (len, solicited);
        if let Some(immediate) = immediate {
            completion.imm = immediate;
            completion.flags |= WcFlags::WITH_IMM;
        }
        Some(completion)
    }

    /// Takes a whole SEND that the peer's host has performed: it found the receive whose number
    /// ends with these 32 bits offered ([`Qp::certain_receive`]), and nothing of its queue pair was
    /// on its way. There is no PSN and no answer. `false`: the queue pair does not receive, or the
    /// message is for another receive, so it is dropped.
    pub fn take_message<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        env: &mut Env<'_, M, S>,
        receive: u32,
        packet: &Packet<'_>,
    ) -> bool {
        let state = self.attr.state;
        if !matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd) || self.config.qp_type != QpType::Rc {
            self.counters.drop(DropReason::State);
            return false;
        }
        if receive != self.responder.rq.taken() as u32 || self.responder.is_within_message() {
            self.counters.drop(DropReason::Sequence);
            return false;
        }
        if !self.established && state == QpState::Rtr {
            self.established = true;
            env.effects.events.push(QpEvent::CommEst);
        }
        let verdict = self.responder.take_whole(&ctx!(self), env, packet, &mut self.counters);
        self.apply(verdict, env.effects);
        true
    }
}
