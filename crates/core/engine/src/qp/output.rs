//! Departing packets.
use super::ack::{AckDelay, AckOrder};
use super::context::ctx;
use super::queue_pair::{Half, Qp};
use super::requester::Step;
use crate::cause::Cause;
use crate::clock::Clock;
use crate::effects::Effects;
use crate::keys::KeyTable;
use crate::memory::MemoryFault;
use crate::packet::{Output, Transmit};
use crate::types::{QpState, QpType};

impl Qp {
    /// The next task for the host. The host calls this until [`Output::Idle`].
    pub fn poll_output(
        &mut self,
        clock: &dyn Clock,
        keys: &KeyTable,
        effects: &mut Effects,
    ) -> Output<'_> {
        if let Some(verdict) = self.responder.take_fatal() {
            self.apply(verdict, effects);
        }
        if self.notifier.due {
            self.accompany_ack();
            return Output::Packet(self.notification());
        }
        let sends = matches!(self.attr.state, QpState::Rts | QpState::Sqd) && !self.paused;
        // A plain ACK leaves behind a departing request or ahead of it, as set by the host. The ACK
        // never leaves behind a message of several packets that gives the peer a completion.
        // Otherwise the peer would get the answer to its request, with an event, before the request
        // completes.
        let ahead = sends && self.ack_leads_request();
        let ack_last = self.responder.only_ack_waits() && !ahead;
        if !ack_last
            && self.responder.has_output()
            && self.responder.prepare_response(&ctx!(self), keys)
        {
            self.accompany_ack();
            self.last_packet = Half::Responder;
            self.counters.responses += 1;
            return Output::Packet(self.responder.response(&ctx!(self)));
        }
        if sends {
            match self.requester.poll(&ctx!(self), clock, keys, effects, &mut self.counters) {
                Step::Packet => {
                    self.accompany_ack();
                    self.last_packet = Half::Requester;
                    return Output::Packet(self.request());
                }
                Step::Key(op) => return Output::Key(op),
                Step::Idle => self.settle(effects),
            }
        }
        if ack_last && !self.delays_ack() && self.responder.prepare_response(&ctx!(self), keys) {
            self.last_packet = Half::Responder;
            self.counters.responses += 1;
            return Output::Packet(self.responder.response(&ctx!(self)));
        }
        Output::Idle
    }
    #[inline]
    fn ack_leads_request(&self) -> bool {
        match self.ack_order {
            AckOrder::Ahead => self.requester.wants_output(),
            AckOrder::Behind => self.requester.is_at_long_message(),
        }
    }
    /// Sets the order of a plain ACK and a request that leave together.
    #[inline]
    pub fn set_ack_order(&mut self, order: AckOrder) {
        self.ack_order = order;
    }
    /// The packet prepared by the requester.
    #[inline]
    fn request(&self) -> Transmit<'_> {
        let ud = self.config.qp_type == QpType::Ud;
        let path = if ud { self.requester.ud_path() } else { &self.attr.av };
        let (source_port, traffic_class) =
            (ctx!(self).source_port(), ctx!(self).traffic_class(path));
        let (headers, payload) = (&self.requester.headers, self.requester.payload());
        Transmit { path, traffic_class, source_port, headers, payload }
    }
    /// A packet leaves. A delayed ACK may leave behind it.
    #[inline]
    fn accompany_ack(&mut self) {
        if self.ack == AckDelay::Alone {
            self.ack = AckDelay::Accompanied;
        }
    }
    /// Does only a plain ACK wait, because the host delays it?
    #[inline]
    #[must_use]
    pub fn delays_ack(&self) -> bool {
        self.ack == AckDelay::Alone && self.responder.only_ack_waits()
    }
    /// With `delay`, a plain ACK waits until another packet leaves, so that both leave in one run.
    /// The host makes sure that the ACK does not wait for long.
    #[inline]
    pub fn delay_ack(&mut self, delay: bool) {
        self.ack = if delay { AckDelay::Alone } else { AckDelay::None };
    }
    /// The host performed (or refused) the last [`Output::Key`].
    pub fn key_op_done(&mut self, result: Result<(), Cause>, effects: &mut Effects) {
        self.requester.key_op_done(&self.config, result, effects);
        self.settle(effects);
    }
    /// The host could not read the payload of the last [`Output::Packet`] and did not send the
    /// packet.
    pub fn transmit_failed(&mut self, fault: MemoryFault, effects: &mut Effects) {
        match self.last_packet {
            Half::Requester => {
                self.requester.transmit_failed(fault.addr);
                self.settle(effects);
            }
            Half::Responder => {
                let verdict = self.responder.transmit_failed(fault);
                self.apply(verdict, effects);
            }
        }
    }
}
