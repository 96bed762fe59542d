//! Requests without packets: one-sided requests in the peer's memory, and short SENDs (`message`).
use super::message::{Message, Passed};
use super::rings::Rings;
use super::state::Sent;
use crate::host::{Ends, MTU, Peer, Seen};
use crate::node::carriers::decorate::{Initiator, Taps, Verdict};
use crate::node::carriers::road::Room;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::ranks;
use adverb_engine::memory::RangeKind;
use adverb_engine::packet::Data;
use adverb_engine::qp::Direct;
use adverb_engine::wr::{Remote, SendOp};
use adverb_engine::{Access, Effects, KeyTable, Qp, Qpn, Range, SendFlags, Sge, WcOpcode};
use adverb_sync::RankedReadGuard;

/// What a [`PlainPost`] does.
#[derive(Clone, Copy, Debug)]
pub enum PlainOp {
    /// SEND, with immediate data or without.
    Send(Option<u32>),
    /// WRITE to the peer's memory.
    Write(Remote),
    /// READ from it.
    Read(Remote),
}

impl PlainOp {
    /// What its completion says.
    #[inline]
    pub(crate) fn wc_opcode(self) -> WcOpcode {
        match self {
            PlainOp::Send(_) => WcOpcode::Send,
            PlainOp::Write(_) => WcOpcode::RdmaWrite,
            PlainOp::Read(_) => WcOpcode::RdmaRead,
        }
    }
}

/// A SEND, WRITE or READ of one entry that is being posted.
#[derive(Clone, Copy, Debug)]
pub struct PlainPost<'a> {
    /// The consumer's id.
    pub wr_id: u64,
    /// Flags.
    pub flags: SendFlags,
    /// What it does.
    pub op: PlainOp,
    /// This side's.
    pub data: PlainData<'a>,
}

impl PlainPost<'_> {
    /// Bytes of its message.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        match self.data {
            PlainData::Entry(entry) => entry.length,
            PlainData::Inline(bytes) => bytes.len() as u32,
        }
    }
}

/// What a [`PlainPost`] writes, or where it reads to.
#[derive(Clone, Copy, Debug)]
pub enum PlainData<'a> {
    /// Registered memory.
    Entry(Sge),
    /// Bytes of a SEND or WRITE, wherever they are.
    Inline(&'a [u8]),
}

/// Requests in the send queue.
fn posted(engine: &Qp) -> usize {
    (engine.config().cap.max_send_wr as usize).saturating_sub(engine.free_sends())
}

/// The request as a message, if it is a SEND, or a WRITE with immediate data.
#[inline]
fn message_of<'a>(request: &Direct<'a>) -> Option<Message<'a>> {
    let (immediate, written, payload) = match request.op {
        SendOp::Send => (None, None, request.local),
        SendOp::SendImm(immediate) => (Some(immediate), None, request.local),
        SendOp::WriteImm(_, immediate) => {
            (Some(immediate), Some(u32::try_from(request.len).ok()?), Data::Bytes(&[]))
        }
        _ => return None,
    };
    Some(Message { immediate, solicited: request.solicited, written, payload })
}

impl<'a> Rings<'a> {
    /// Requests that nothing is ahead of are performed here and now. [`Room::Later`]: the next one
    /// is to wait.
    #[inline]
    pub(in crate::node) fn perform(
        &self,
        qp: &AnyQp,
        inner: &mut QpInner,
        effects: &mut Effects,
        peer: &Peer,
    ) -> (RankedReadGuard<'a, KeyTable, ranks::Keys>, Room) {
        let mut keys = self.node.keys.read();
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let QpInner { engine, carried, .. } = inner;
        let super::state::Connected { seen, sent, hold, .. } = &mut carried.ring;
        let tapped = self.node.taps.as_ref().map(|taps| (taps, Initiator::of(engine)));
        loop {
            let posted = tapped.as_ref().map(|_| posted(engine));
            if posted == Some(0) {
                hold.settle();
            }
            let Some(request) = engine.poll_direct(&keys) else { break };
            let len = request.len;
            if let Some((taps, initiator)) = &tapped
                && let Some(weather) = taps.weather()
            {
                match weather.decide(self.node, qp.number(), initiator.psn(), hold, posted.unwrap_or(0)) {
                    Verdict::Perform => {}
                    Verdict::ByPackets => break,
                    Verdict::Wait => {
                        engine.hold_requests(true);
                        break;
                    }
                }
            }
            let near = tapped.as_ref().map(|(_, initiator)| initiator);
            let performed = match message_of(&request) {
                Some(message) => match self.pass(peer, (seen, sent), ends, near, &keys, &request, &message) {
                    Passed::Later => return (keys, Room::Later),
                    passed => passed == Passed::Done,
                },
                None => sent.is_placed(peer) && self.lanes.perform(peer, seen, ends, &keys, &request),
            };
            if !performed {
                break;
            }
            if let Some((taps, initiator)) = &tapped
                && let Some(tape) = taps.tape()
            {
                tape.performed(self.node, initiator, &request.op, (request.local, len), &keys);
            }
            engine.direct_done(effects);
            if len > u64::from(MTU) {
                // Who wants to change a key, and all who wait behind that, do not wait for a queue
                // full of these.
                RankedReadGuard::bump(&mut keys);
            }
        }
        (keys, Room::Yes)
    }

    /// Performs a SEND, or a WRITE with immediate data, whose end is `message`.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "what a request is performed with")]
    fn pass(
        &self,
        peer: &Peer,
        (seen, sent): (&mut Seen, &mut Sent),
        ends: Ends,
        near: Option<&Initiator>,
        keys: &KeyTable,
        request: &Direct<'_>,
        message: &Message<'_>,
    ) -> Passed {
        if let SendOp::WriteImm(remote, _) = request.op
            && request.len > 0
        {
            let may = self.may_write(peer, (seen, sent), ends, message);
            if may != Passed::Done {
                return may;
            }
            let write = Direct { op: SendOp::Write(remote), ..*request };
            if !self.lanes.perform(peer, seen, ends, keys, &write) {
                return Passed::ByPackets;
            }
        }
        self.send_message(peer, (seen, sent), ends, near, keys, message)
    }

    /// Performs a WRITE, READ or SEND that is being posted, if it need not wait and both memories
    /// are mapped: as [`Node::perform`], without its way through the queue. `false`: nothing has
    /// happened.
    #[inline]
    pub(crate) fn perform_post(&self, number: Qpn, inner: &mut QpInner, request: &PlainPost<'_>) -> bool {
        let PlainPost { op, flags, data, .. } = *request;
        let QpInner { engine, carried, .. } = inner;
        let super::state::Connected { peer, seen, sent, .. } = &mut carried.ring;
        let Some(peer) = peer.as_ref().filter(|peer| !peer.is_gone()) else { return false };
        let ends = Ends { qpn: number, dest_qpn: engine.attr().dest_qpn };
        // The local memory stays registered while the keys are held.
        let keys = self.node.keys.read();
        let (remote, read) = match op {
            PlainOp::Write(remote) => (remote, false),
            PlainOp::Read(remote) => (remote, true),
            PlainOp::Send(immediate) => {
                let range;
                let payload = match data {
                    PlainData::Inline(bytes) if engine.direct_post_inline(bytes.len()) => Data::Bytes(bytes),
                    PlainData::Inline(_) => return false,
                    PlainData::Entry(entry) => {
                        let Some(addr) = engine.direct_post(&keys, false, &entry) else { return false };
                        range = [Range { addr, len: entry.length, kind: RangeKind::Mapped }];
                        Data::Gather(&range)
                    }
                };
                let solicited = flags.contains(SendFlags::SOLICITED);
                let message = Message { immediate, solicited, written: None, payload };
                let near = self.node.taps.as_ref().map(|_| Initiator::of(engine));
                let passed = self.send_message(peer, (seen, sent), ends, near.as_ref(), &keys, &message);
                return passed == Passed::Done;
            }
        };
        if !sent.is_placed(peer) {
            return false;
        }
        let at = (remote, if read { Access::REMOTE_READ } else { Access::REMOTE_WRITE });
        let done = |engine: &Qp, local: Data<'_>, len: u64| {
            if let Some(tape) = self.node.taps.as_ref().and_then(Taps::tape) {
                let op = if read { SendOp::Read(remote) } else { SendOp::Write(remote) };
                tape.performed(self.node, &Initiator::of(engine), &op, (local, len), &keys);
            }
        };
        match data {
            PlainData::Inline(bytes) => {
                let takes = !read && engine.direct_post_inline(bytes.len());
                let performed = takes
                    && self.lanes.transfer(peer, seen, ends, at, bytes.len() as u64, |window, guard, off| {
                        window.write(guard, off, bytes).is_ok()
                    });
                if performed {
                    done(engine, Data::Bytes(bytes), bytes.len() as u64);
                }
                performed
            }
            PlainData::Entry(entry) => {
                let Some(addr) = engine.direct_post(&keys, read, &entry) else { return false };
                let local = Range { addr, len: entry.length, kind: RangeKind::Mapped };
                let len = u64::from(entry.length);
                let performed = self.lanes.transfer(peer, seen, ends, at, len, |window, guard, off| {
                    if read {
                        window.read_to(guard, off, local).is_ok()
                    } else {
                        window.write_from(guard, off, local).is_ok()
                    }
                });
                if performed {
                    done(engine, Data::Gather(&[local]), len);
                }
                performed
            }
        }
    }
}
