//! Requests without packets: one-sided requests in the peer's memory.
use super::rings::Rings;
use super::state::Local;
use crate::host::{Ends, MTU, Peer};
use crate::node::carriers::decorate::{Initiator, Verdict};
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::ranks;
use adverb_engine::memory::RangeKind;
use adverb_engine::wr::Remote;
use adverb_engine::{Access, Effects, Key, KeyTable, Qp, Qpn, Range, SendFlags, Sge, WcOpcode};
use adverb_shm::Busy;
use adverb_sync::{RankedGuard, RankedReadGuard};

/// The operation of a [`PlainPost`].
#[derive(Clone, Copy, Debug)]
pub enum PlainOp {
    /// WRITE to the peer's memory.
    Write(Remote),
    /// READ from the peer's memory.
    Read(Remote),
}

impl PlainOp {
    /// The opcode of the completion.
    #[inline]
    pub(crate) fn wc_opcode(self) -> WcOpcode {
        match self {
            PlainOp::Write(_) => WcOpcode::RdmaWrite,
            PlainOp::Read(_) => WcOpcode::RdmaRead,
        }
    }
}

/// A WRITE or READ of one entry that is being posted.
#[derive(Clone, Copy, Debug)]
pub struct PlainPost<'a> {
    /// The consumer's id.
    pub wr_id: u64,
    /// Flags of the request.
    pub flags: SendFlags,
    /// The operation.
    pub op: PlainOp,
    /// The local data.
    pub data: PlainData<'a>,
}

impl PlainPost<'_> {
    /// Number of bytes in the message.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        match self.data {
            PlainData::Entry(entry) => entry.length,
            PlainData::Inline(bytes) => bytes.len() as u32,
        }
    }
}

/// The data written by a [`PlainPost`], or the destination of a READ.
#[derive(Clone, Copy, Debug)]
pub enum PlainData<'a> {
    /// Registered memory.
    Entry(Sge),
    /// Bytes of a WRITE, at any address.
    Inline(&'a [u8]),
}

/// Requests in the send queue.
fn posted(engine: &Qp) -> usize {
    (engine.config().cap.max_send_wr as usize).saturating_sub(engine.free_sends())
}

impl<'a> Rings<'a> {
    /// Performs, here and now, the requests at the head of the send queue.
    #[inline]
    pub(in crate::node) fn perform(
        &self,
        qp: &AnyQp,
        inner: &mut QpInner,
        effects: &mut Effects,
        peer: &Peer,
    ) -> RankedReadGuard<'a, KeyTable, ranks::Keys> {
        let mut keys = self.node.keys.read();
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let QpInner { engine, carried, .. } = inner;
        let super::state::Connected { seen, hold, .. } = &mut carried.ring;
        let tapped = self.node.taps.as_ref().map(|taps| (taps, Initiator::of(engine)));
        loop {
            let posted = tapped.as_ref().map(|_| posted(engine));
            if posted == Some(0) {
                hold.settle();
            }
            let Some(request) = engine.poll_host_request(&keys) else { break };
            let len = request.len;
            if let Some((taps, initiator)) = &tapped
                && let Some(profile) = &taps.profile
            {
                match profile.decide(
                    self.node,
                    qp.number(),
                    initiator.psn(),
                    hold,
                    posted.unwrap_or(0),
                ) {
                    Verdict::Perform => {}
                    Verdict::ByPackets => break,
                    Verdict::Wait => {
                        engine.pause_requests(true);
                        break;
                    }
                }
            }
            if !self.host.perform(peer, seen, ends, &keys, &request) {
                break;
            }
            if let Some((taps, initiator)) = &tapped
                && let Some(tape) = &taps.tape
            {
                tape.performed(self.node, initiator, &request.op, (request.local, len), &keys);
            }
            engine.host_request_done(effects);
            if len > u64::from(MTU) {
                // A thread that changes a key waits for this lock, and other threads wait behind
                // the first. The bump lets these threads in between two requests of a long queue.
                RankedReadGuard::bump(&mut keys);
            }
        }
        keys
    }

    /// Locks a queue pair and sets the thread's hazard for the use named last. A single atomic
    /// change does both. `None` for the lock: another thread holds the lock, and the hazard is not
    /// set.
    #[inline(always)]
    pub(crate) fn lock_with_hazard(
        &self,
        qp: &'a AnyQp,
    ) -> (Option<Busy<'a>>, Option<RankedGuard<'a, QpInner, ranks::QueuePair>>) {
        let (busy, inner) = self.host.published.enter_by(|| qp.inner.try_lock());
        (busy.filter(|_| inner.is_some()), inner)
    }

    /// Performs a WRITE or READ that is being posted, if the request need not wait and both
    /// memories are mapped. The effect is the same as [`Rings::perform`], without the send queue.
    /// `false`: nothing has happened. `busy`: the thread's hazard, which stays set between similar
    /// requests.
    #[inline(always)]
    pub(crate) fn perform_post(
        &self,
        number: Qpn,
        inner: &mut QpInner,
        request: &PlainPost<'_>,
        busy: &mut Option<Busy<'a>>,
    ) -> bool {
        let PlainPost { op, data, .. } = *request;
        let (remote, read) = match op {
            PlainOp::Write(remote) => (remote, false),
            PlainOp::Read(remote) => (remote, true),
        };
        if self.node.taps.is_some() {
            // A capture reads memory by the key table, so the thread clears its hazard.
            *busy = None;
            return false;
        }
        let QpInner { engine, carried, .. } = inner;
        let super::state::Connected { peer, seen, local, .. } = &mut carried.ring;
        let Some(peer) = peer.as_ref().filter(|peer| !peer.was_left()) else { return false };
        let ends = Ends { qpn: number, dest_qpn: engine.attr().dest_qpn };
        let needed = if read { Access::REMOTE_READ } else { Access::REMOTE_WRITE };
        match data {
            PlainData::Inline(bytes) => {
                if read || !engine.host_post_inline(bytes.len()) {
                    return false;
                }
                let at = (remote, needed, bytes.len() as u64);
                let Some((window, off, guard)) = self.host.reach(peer, seen, ends, at, busy) else {
                    return false;
                };
                if window.write(&guard, off, bytes).is_ok() {
                    return true;
                }
            }
            PlainData::Entry(entry) => {
                if !self.knows(local, entry.lkey) {
                    *busy = None;
                    self.learn(engine, local, entry.lkey, &self.node.keys.read());
                }
                let Some(known) = &local.known else { return false };
                let Some(addr) = engine.host_post(known, read, &entry) else { return false };
                let range = Range { addr, len: entry.length, kind: RangeKind::Mapped };
                let at = (remote, needed, u64::from(entry.length));
                let Some((window, off, guard)) = self.host.reach(peer, seen, ends, at, busy) else {
                    return false;
                };
                // The local memory stays registered while the hazard is set, if the key was still
                // in the table after the hazard was set.
                let copied = local.keys == self.host.own_keys()
                    && if read {
                        window.read_to(&guard, off, range).is_ok()
                    } else {
                        window.write_from(&guard, off, range).is_ok()
                    };
                if copied {
                    return true;
                }
            }
        }
        seen.forget_shortcut();
        false
    }

    /// Is `local` up to date, with the region of `lkey`? After the thread has set a hazard, the
    /// answer stays true until the hazard is cleared.
    #[inline]
    fn knows(&self, local: &Local, lkey: Key) -> bool {
        local.keys == self.host.own_keys()
            && local.known.as_ref().is_some_and(|known| known.key() == lkey)
    }

    /// Looks up the region of a local key.
    #[cold]
    #[inline(never)]
    fn learn(&self, engine: &Qp, local: &mut Local, lkey: Key, keys: &KeyTable) {
        // A key is removed from the table before `own_keys` changes.
        *local = Local { keys: self.host.own_keys(), known: engine.mapped_region(keys, lkey) };
    }
}
