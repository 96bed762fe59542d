//! Posting: requests are staged and then committed as one (DEF-1 to DEF-8).
use super::Qp;
use crate::error::Error;
use crate::faults::Call;
use crate::node::carriers::frames::Ethernet;
use crate::node::carriers::ring::Rings;
use crate::node::{Owner, PlainOp, PlainPost, QpInner, inject};
use crate::objects::cq::Adversary;
use crate::ranks;
use adverb_engine::wr::SendOp;
use adverb_engine::{Cause, CqRef, Payload, PostError, QpState, RecvWr, SendWr, Time};
use adverb_shm::Busy;
use adverb_sync::RankedGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A chain is sent at once when this many requests or bytes wait.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 16 << 10;
/// After a longer request the thread's hazard is not kept for the next request. So an owner that
/// takes memory or a queue pair back waits for one such copy at most.
const KEPT_HAZARD: u32 = 4 << 10;
/// A datagram queue pair that posts again within this time posts in a burst.
const BURST: Duration = Duration::from_micros(10);

impl Qp {
    /// Starts a chain of send requests that are committed together (DEF-2).
    ///
    /// # Errors
    /// EIO in a child of `fork`: the queue pair belongs to the parent.
    #[inline(always)]
    pub fn send_chain(&self) -> Result<SendChain<'_>, Error> {
        let node = self.own.context.node();
        node.check_alive()?;
        let (mut busy, mut inner) = (None, None);
        if self.posts_one_sided.load(Ordering::Relaxed)
            && let Some(rings) = Rings::of(node)
        {
            (busy, inner) = rings.lock_with_hazard(self);
        }
        let inner = inner.unwrap_or_else(|| self.inner.lock());
        Ok(SendChain { qp: self, inner: Some(inner), busy, performed: 0 })
    }

    /// Queues a send request without committing it. [`Qp::commit_sends`] commits the request,
    /// and [`Qp::abort_sends`] forgets the request.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request, EIO in a child of `fork`. The
    /// request is not queued then.
    pub fn stage_send(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        self.own.context.node().check_alive()?;
        self.stage(&mut self.inner.lock(), wr)
    }

    /// How many more send requests fit into the queue.
    #[must_use]
    pub fn free_sends(&self) -> usize {
        self.inner.lock().engine.free_sends()
    }

    /// Commits all staged requests.
    pub fn commit_sends(&self) {
        if self.own.context.node().is_stale() {
            return;
        }
        self.commit(&mut self.inner.lock());
    }

    /// Queues all requests or none, and commits all staged requests unless `more` will follow
    /// (DEF-2). After a refusal the requests staged before are committed first (DEF-4). Unlike in
    /// verbs, a queue pair in ERR takes no request.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request or in ERR, EIO in a child of `fork`.
    pub fn post_sends(&self, wrs: &[SendWr<'_>], more: bool) -> Result<(), Error> {
        self.own.context.node().check_alive()?;
        let mut inner = self.inner.lock();
        let result = self.stage_all(&mut inner, wrs);
        if result.is_err() || !more {
            self.commit(&mut inner);
        }
        result
    }

    /// Forgets all staged requests.
    pub fn abort_sends(&self) {
        if self.own.context.node().is_stale() {
            return;
        }
        self.inner.lock().engine.abort_sends();
    }

    /// Commits the staged requests. They leave at once, unless the program is in the middle of a
    /// burst. In a burst the program polls, and packets of this queue pair are already on their
    /// way. The program, or the background thread within a millisecond, will come again. So the
    /// requests wait for the next poll or for [`BATCH`] requests, and leave in one run.
    #[inline(never)]
    fn commit(&self, inner: &mut QpInner) {
        let node = self.own.context.node();
        if node.is_stale() {
            // A child of `fork` has neither socket nor host connection.
            return;
        }
        node.with_tx(|tx| {
            let n = inner.engine.commit_sends(&mut tx.effects);
            if let Some(adversary) = self.adversary() {
                adversary.committed(self.number());
            }
            inner.commits.chains += u64::from(n > 0);
            inner.commits.requests += n as u64;
            inner.waiting.requests += n;
            if inner.faults.is_some() {
                inject::messages(node, self, inner, n as u64, &mut tx.effects);
            }
            let small = inner.waiting.requests < BATCH && inner.waiting.bytes < BATCH_BYTES;
            if small
                && !inner.carried.ring.is_near()
                && tx.effects.is_empty()
                && node.policy.thread_is_away()
                && self.in_burst(inner, node.now())
            {
                node.pump_soon(self);
            } else {
                node.pump(self, inner, tx);
            }
        });
    }

    /// A completion did not fit into its completion queue.
    #[cold]
    fn overflows(&self, inner: &mut QpInner, cause: Cause) {
        self.own.context.node().with_tx(|tx| {
            if inner.engine.state() != QpState::Err {
                inner.engine.fail(cause, &mut tx.effects);
            }
            self.own.context.node().deliver(self, inner, &mut tx.effects);
        });
    }

    fn in_burst(&self, inner: &QpInner, now: Time) -> bool {
        if self.qp_type().is_reliable() {
            inner.engine.has_unacknowledged()
        } else {
            now.since(inner.carried.udp.pumped) < BURST
        }
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request. The receive is not queued then.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Error> {
        let node = self.own.context.node();
        node.check_alive()?;
        node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            if inner.faults.is_some() {
                node.fault_call(Call::PostRecv)?;
            }
            inner.engine.post_recv(wr, &mut tx.effects)?;
            node.deliver(self, &mut inner, &mut tx.effects);
            if self.own.role.is_some() {
                Ethernet(node).give_kept(self, &mut inner, tx);
            }
            Ok(())
        })
    }

    /// The adversary of the send queue.
    #[inline]
    fn adversary(&self) -> Option<&dyn Adversary> {
        self.send_cq()?.adversary()
    }

    fn stage(&self, inner: &mut QpInner, wr: &SendWr<'_>) -> Result<(), Error> {
        if let Some(nic) = self.own.context.nic() {
            nic.check_send(wr)?;
        }
        if let Some(cq) = self.send_cq()
            && let Some(adversary) = cq.adversary()
        {
            adversary.stages(cq, self.number(), &inner.engine)?;
        }
        if inner.faults.is_some() {
            self.own.context.node().fault_call(Call::PostSend)?;
        }
        inner.engine.stage_send(wr)?;
        if matches!(wr.op, SendOp::Write(_) | SendOp::Read(_)) {
            self.own.context.node().posts_one_sided();
        }
        if let Some(adversary) = self.adversary() {
            adversary.staged(self.number(), wr, inner.engine.config().signal_all);
        }
        let len = match wr.data {
            Payload::Sges(sges) => sges.iter().map(|s| s.length as usize).sum(),
            Payload::Inline(parts) => parts.iter().map(|p| p.len()).sum::<usize>(),
        };
        inner.waiting.bytes += len;
        inner.traffic.posted(len as u64, matches!(wr.op, SendOp::Read(_)));
        Ok(())
    }

    /// Stages all requests or none. An abort drops all staged requests. So with more than one
    /// request the requests staged before are committed first.
    fn stage_all(&self, inner: &mut QpInner, wrs: &[SendWr<'_>]) -> Result<(), Error> {
        let state = inner.engine.state();
        if state == QpState::Err {
            return Err(PostError::Invalid(Cause::WrongState { op: "post send", state }).into());
        }
        if wrs.len() > 1 && inner.engine.staged_sends() > 0 {
            self.commit(inner);
        }
        for (i, wr) in wrs.iter().enumerate() {
            if let Err(e) = self.stage(inner, wr) {
                if i > 0 {
                    inner.engine.abort_sends();
                }
                return Err(e);
            }
        }
        Ok(())
    }
}

/// A chain of send requests under the queue pair's lock. A drop without [`SendChain::commit`]
/// forgets the staged requests.
pub struct SendChain<'a> {
    qp: &'a Qp,
    inner: Option<RankedGuard<'a, QpInner, ranks::QueuePair>>,
    /// The thread's hazard. Similar one-sided requests are performed behind this hazard, one after
    /// the other.
    busy: Option<Busy<'a>>,
    /// Requests already performed.
    performed: u64,
}

impl SendChain<'_> {
    /// Queues a request.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request. The request is not queued then, and
    /// earlier requests stay.
    pub fn stage(&mut self, wr: &SendWr<'_>) -> Result<(), Error> {
        self.busy = None;
        match &mut self.inner {
            Some(inner) => self.qp.stage(inner, wr),
            None => Ok(()),
        }
    }

    /// Performs a WRITE or READ at once, if no request is ahead and the peer's memory is
    /// within reach. The request cannot be taken back, because the commit of the chain has begun.
    /// `false`: nothing has happened, and the caller stages the request.
    #[inline(always)]
    pub fn perform(&mut self, request: &PlainPost<'_>) -> bool {
        let performed = self.try_perform(request);
        if !performed {
            self.busy = None;
            self.qp.posts_one_sided.store(false, Ordering::Relaxed);
        }
        performed
    }

    #[inline(always)]
    fn try_perform(&mut self, request: &PlainPost<'_>) -> bool {
        let (qp, Some(inner)) = (self.qp, &mut self.inner) else { return false };
        let own = &qp.own;
        let plain = inner.faults.is_none()
            && inner.outage.is_none()
            && inner.rendezvous.is_empty()
            && own.context.nic().is_none();
        if !plain || qp.adversary().is_some() {
            return false;
        }
        let node = own.context.node();
        let Some(rings) = Rings::of(node) else { return false };
        if !rings.perform_post(qp.number(), inner, request, &mut self.busy) {
            return false;
        }
        let len = request.len();
        if len > KEPT_HAZARD {
            self.busy = None;
        }
        node.posts_one_sided();
        if self.performed == 0 && !qp.posts_one_sided.load(Ordering::Relaxed) {
            qp.posts_one_sided.store(true, Ordering::Relaxed);
        }
        self.performed += 1;
        let is_read = matches!(request.op, PlainOp::Read(_));
        inner.traffic.posted(len.into(), is_read);
        let read = if is_read { len } else { 0 };
        let opcode = request.op.wc_opcode();
        if let Some(completion) =
            inner.engine.host_posted(request.wr_id, request.flags, opcode, read)
        {
            // An owner that takes something back does not wait for the consequences of a
            // completion.
            self.busy = None;
            if let Err(cause) = own.complete(CqRef::Send, completion) {
                qp.overflows(inner, cause);
            }
        }
        true
    }

    /// Commits the chain.
    #[inline(always)]
    pub fn commit(mut self) {
        self.busy = None;
        let Some(mut inner) = self.inner.take() else { return };
        if self.performed > 0 {
            inner.commits.requests += self.performed;
            if inner.engine.staged_sends() == 0 {
                inner.commits.chains += 1;
                return;
            }
        }
        self.qp.commit(&mut inner);
    }
}

impl Drop for SendChain<'_> {
    fn drop(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.engine.abort_sends();
        }
    }
}
