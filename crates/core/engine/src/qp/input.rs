//! Arriving packets, and frames of raw packet queue pairs. The host selects the frames for a queue
//! pair.
use super::context::ctx;
use super::ecn::ECN;
use super::requester::{AnswerEnv, transport_of};
use super::{Course, DropReason, Env, Kept, Qp, RecvSource};
use crate::effects::QpEvent;
use crate::keys::KeyTable;
use crate::memory::Memory;
use crate::packet::Packet;
use crate::types::{QpState, QpType, Qpn};
use adverb_wire::{Headers, Opcode, QPN_MASK, Time};

/// The multicast destination of UD packets.
const MULTICAST_QPN: Qpn = QPN_MASK;

impl Qp {
    /// Takes a packet for this QP. Cannot fail: a bad packet is a counted drop or a NAK. The caller
    /// calls [`Qp::take_turn`] afterwards.
    pub fn handle_packet<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
    ) {
        if packet.headers.bth.opcode == Opcode::CNP {
            return self.handle_cnp(packet);
        }
        if let Err(reason) = self.admit(packet) {
            self.counters.drop(reason);
            return;
        }
        if packet.traffic_class & ECN == ECN {
            self.marked(packet, env.clock.now());
        }
        if self.attr.state == QpState::Err {
            self.responder.end_again(&ctx!(self), env.keys, packet, &mut self.counters);
            return;
        }
        if packet.headers.bth.opcode.is_response() {
            let mut answer = AnswerEnv {
                ctx: &ctx!(self),
                clock: env.clock,
                keys: env.keys,
                memory: env.memory,
                effects: env.effects,
                counters: &mut self.counters,
            };
            self.requester.handle_response(&mut answer, packet);
            self.settle(env.effects);
            return;
        }
        if !self.established && self.attr.state == QpState::Rtr {
            self.established = true;
            env.effects.events.push(QpEvent::CommEst);
        }
        // An XRC target has no protection domain of its own. The SRQ named in the packet gives the
        // domain for memory accesses.
        if let Some(xrc) = packet.headers.xrceth
            && self.config.qp_type == QpType::XrcRecv
            && let Some(pd) = env.srq.pd(xrc.srqn)
        {
            self.config.pd = pd;
        }
        let verdict = self.responder.handle_request(&ctx!(self), env, packet, &mut self.counters);
        self.apply(verdict, env.effects);
    }

    /// Sets the longest frame of a raw packet queue pair to `max` bytes, with the header and
    /// without the frame check sequence.
    #[must_use]
    pub fn with_frames(mut self, max: u32) -> Self {
        self.requester.frame = max;
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

    /// Is a packet with these headers the next packet, and is its payload read by
    /// [`Memory::write`](crate::Memory::write) alone? The packet must belong to a SEND. A shared
    /// receive queue with tag matching reads the payload of a first packet; the host has to exclude
    /// such queues.
    ///
    /// The host copies the payload of such a packet from another process straight to its
    /// destination: [`Qp::handle_packet`] gets a stand-in of the same length, and the host's
    /// `write` copies the real payload. So no code but `write` may look at the payload.
    #[must_use]
    pub fn takes_straight(&self, headers: &Headers) -> bool {
        matches!(self.attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
            && self.config.qp_type == QpType::Rc
            && self.responder.takes_straight(headers)
    }

    /// Where the payloads of the next packets go, from the expected packet on.
    #[must_use]
    pub fn course<'a>(&'a self, keys: &'a KeyTable) -> Course<'a> {
        self.responder.course(keys, self.config.pd)
    }

    /// May [`Qp::take_turn`] have a packet or work to do?
    #[inline]
    #[must_use]
    pub fn has_kept(&self) -> bool {
        !(self.responder.reorder.is_idle() && self.requester.reorder.is_idle())
    }
    /// The next early packet in order, now that earlier packets are handled. After each
    /// [`Qp::handle_packet`] the host calls this function until it answers `None`, and gives each
    /// packet to `handle_packet`.
    #[inline]
    pub fn take_turn(&mut self, now: Time) -> Option<Kept> {
        if !self.has_kept() {
            return None;
        }
        self.responder
            .take_turn(now, &mut self.counters)
            .or_else(|| self.requester.take_turn(now, &mut self.counters))
    }

    /// The checks of IBTA 9.6.1 before either half handles the packet.
    fn admit(&self, packet: &Packet<'_>) -> Result<(), DropReason> {
        let bth = &packet.headers.bth;
        let (state, qp_type) = (self.attr.state, self.config.qp_type);
        // In ERR the queue pair receives only the request that ended the connection, or an earlier
        // request: the NAK was lost.
        let ended_here = state == QpState::Err
            && bth.opcode.is_request()
            && self.responder.ended_at_or_after(bth.psn);
        if matches!(state, QpState::Reset | QpState::Init | QpState::Err) && !ended_here {
            return Err(DropReason::State);
        }
        if qp_type == QpType::RawPacket || bth.opcode.transport() != transport_of(qp_type) {
            return Err(DropReason::Transport);
        }
        let multicast = qp_type == QpType::Ud && bth.dest_qpn == MULTICAST_QPN;
        if bth.dest_qpn != self.config.qpn && !multicast {
            return Err(DropReason::DestQpn);
        }
        // The only entry of the P_Key table is the default partition, as a full member. A full
        // member talks to full and limited members (IBTA 10.9.3).
        if bth.pkey & 0x7fff != 0x7fff {
            return Err(DropReason::PKey);
        }
        // The host sets the zero GID as source of a packet that the host considers forged.
        if packet.src == crate::Gid::default()
            || qp_type != QpType::Ud && packet.src != self.attr.av.dgid
        {
            return Err(DropReason::Source);
        }
        if bth.opcode.is_response() {
            if qp_type == QpType::XrcRecv {
                return Err(DropReason::Opcode);
            }
            if !matches!(state, QpState::Rts | QpState::Sqd) {
                return Err(DropReason::State);
            }
        } else if qp_type == QpType::XrcSend || !bth.opcode.is_request() {
            return Err(DropReason::Opcode);
        }
        Ok(())
    }
}
