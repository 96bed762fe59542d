//! Whole SENDs that the peer's host performs: no packet, no PSN, no answer.
//!
//! The host offers receives to the peer ([`Qp::certain_receive`]). The peer's host puts a message
//! into shared memory and names the receive. This host then asks where the message goes
//! ([`Qp::landing`]), copies the message there and reports the copy ([`Qp::landed`]). A message for
//! which `landing` has no place goes through [`Qp::take_message`].
use super::context::ctx;
use super::{DropReason, Env, Qp, RecvSource};
use crate::completion::{Completion, WcFlags, WcOpcode};
use crate::effects::{Effects, QpEvent};
use crate::keys::KeyTable;
use crate::memory::{Memory, Range, RangeKind};
use crate::packet::Packet;
use crate::srq::Srq;
use crate::types::{Access, QpState, QpType};

impl Qp {
    /// How many receives have left the queue since the queue was made. This is also the number of
    /// the oldest waiting receive. `shared` is the SRQ from which this queue pair alone takes its
    /// receives.
    #[inline]
    #[must_use]
    pub fn receives_taken(&self, shared: Option<&Srq>) -> u64 {
        shared.map_or_else(|| self.responder.rq.taken(), Srq::taken)
    }

    /// How many receives wait in the queue.
    #[inline]
    #[must_use]
    pub fn receives_waiting(&self, shared: Option<&Srq>) -> usize {
        shared.map_or_else(|| self.responder.rq.len() as usize, Srq::len)
    }

    /// The size in bytes of a waiting receive, given by its number, if a message of the peer
    /// certainly finds its place there. The receive has no entry, or one entry with registered and
    /// mapped memory.
    #[inline]
    #[must_use]
    pub fn certain_receive(
        &self,
        shared: Option<&Srq>,
        keys: &KeyTable,
        receive: u64,
    ) -> Option<u32> {
        self.certain(shared, keys, receive).map(|(_, room)| room)
    }

    /// The address and the size in bytes of such a receive.
    #[inline]
    fn certain(&self, shared: Option<&Srq>, keys: &KeyTable, receive: u64) -> Option<(u64, u32)> {
        if self.config.qp_type != QpType::Rc
            || self.config.counted
            || self.responder.receives_hidden
        {
            return None;
        }
        let (sges, pd) = match shared {
            None => (self.responder.rq.sges_of(receive)?, self.config.pd),
            Some(srq) => (srq.sges_of(receive)?, srq.pd()),
        };
        match *sges {
            [] => Some((0, 0)),
            [entry] => {
                let addr = keys.mapped_local(
                    pd,
                    entry.lkey,
                    Access::LOCAL_WRITE,
                    entry.addr,
                    entry.length,
                )?;
                Some((addr, entry.length))
            }
            _ => None,
        }
    }

    /// Where a whole SEND of `len` bytes for this receive goes. With `None`, [`Qp::take_message`]
    /// decides what becomes of the message.
    #[inline]
    #[must_use]
    pub fn landing(
        &self,
        shared: Option<&Srq>,
        keys: &KeyTable,
        receive: u32,
        len: usize,
    ) -> Option<Range> {
        let next = self.receives_taken(shared);
        let ready = match self.attr.state {
            QpState::Rts | QpState::Sqd => true,
            QpState::Rtr => self.established,
            _ => false,
        };
        if !ready || receive != next as u32 || self.responder.is_within_message() {
            return None;
        }
        let len = u32::try_from(len).ok()?;
        let (addr, room) = self.certain(shared, keys, next)?;
        (len <= room).then_some(Range { addr, len, kind: RangeKind::Mapped })
    }

    /// Takes the oldest receive of the queue pair's own queue, where a message was placed. Answers
    /// the receive's id.
    #[inline]
    pub fn take_landed(&mut self) -> Option<u64> {
        self.responder.rq.pop_id()
    }

    /// Checks whether the queue pair takes a message for a receive. `receive` is the low half of
    /// the receive's number, `next` the number of the oldest receive. The caller drops the message
    /// on `false`: the queue pair does not receive, or the message is for another receive. The
    /// first message establishes the connection.
    pub fn expects(&mut self, (receive, next): (u32, u64), effects: &mut Effects) -> bool {
        let state = self.attr.state;
        if !matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd)
            || self.config.qp_type != QpType::Rc
        {
            self.counters.drop(DropReason::State);
            return false;
        }
        if receive != next as u32 || self.responder.is_within_message() {
            self.counters.drop(DropReason::Sequence);
            return false;
        }
        if !self.established && state == QpState::Rtr {
            self.established = true;
            effects.events.push(QpEvent::CommEst);
        }
        true
    }

    /// The host has taken the receive with this id and its payload is in place. Either the host
    /// copied a SEND of `len` bytes to [`Qp::landing`], or the peer's host wrote `len` bytes by a
    /// WRITE with immediate data (`opcode`). Answers the completion for the receive CQ.
    #[inline]
    #[must_use]
    pub fn landed(
        &mut self,
        wr_id: u64,
        (opcode, len): (WcOpcode, u32),
        immediate: Option<u32>,
        solicited: bool,
    ) -> Completion {
        self.counters.executed = self.counters.executed.wrapping_add(1);
        let mut completion = Completion::success(wr_id, self.config.qpn, opcode);
        (completion.byte_len, completion.solicited) = (len, solicited);
        if let Some(immediate) = immediate {
            completion.imm = immediate;
            completion.flags |= WcFlags::WITH_IMM;
        }
        completion
    }

    /// Takes a whole SEND that the peer's host has performed. `receive` is the low half of the
    /// receive's number, `next` the number of the oldest receive. The sender found this receive
    /// offered ([`Qp::certain_receive`]), and nothing of the sender's queue pair was on its way.
    /// There is no PSN and no answer. With `false` the message is dropped: the queue pair does not
    /// receive, or the message is for another receive.
    pub fn take_message<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        env: &mut Env<'_, M, S>,
        (receive, next): (u32, u64),
        packet: &Packet<'_>,
    ) -> bool {
        if !self.expects((receive, next), env.effects) {
            return false;
        }
        let verdict = self.responder.take_whole(&ctx!(self), env, packet, &mut self.counters);
        self.apply(verdict, env.effects);
        true
    }
}
