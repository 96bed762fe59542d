//! Shared receive queues.
use crate::acks::Acks;
use crate::async_event::{AsyncEvent, Subject};
use crate::error::Error;
use crate::faults::Call;
use crate::nic::Has;
use crate::node::{ListPlace, Listed, SharedQueue};
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::pd::{Pd, Xrcd};
use crate::uses::Uses;
use adverb_engine::qp::NoRecv;
use adverb_engine::tags::{ListDone, ListOp};
use adverb_engine::{Cause, Completion, RecvWqe, RecvWr, WcFlags, WcStatus};
use adverb_nldev::Object;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most tagged buffers of a tag-matching SRQ.
pub const MAX_TAGS: u32 = 4096;

/// A shared receive queue: basic, XRC, or tag-matching.
#[derive(Debug)]
pub struct Srq {
    context: Arc<Context>,
    pd: Arc<Pd>,
    number: u32,
    queue: SharedQueue,
    xrc: Option<(Arc<Xrcd>, Arc<Cq>)>,
    /// The CQ of a tag-matching SRQ.
    tag_cq: Option<Arc<Cq>>,
    async_acks: Acks,
    pub(crate) uses: Uses,
    cookie: AtomicUsize,
    destroyed: AtomicBool,
    place: ListPlace,
}

impl Srq {
    /// Makes a queue. With `xrc` the queue is an XRC SRQ with completions to this CQ.
    ///
    /// # Errors
    /// EINVAL naming the bad argument.
    pub fn new(
        pd: &Arc<Pd>,
        max_wr: u32,
        max_sge: u32,
        limit: u32,
        xrc: Option<(&Arc<Xrcd>, &Arc<Cq>)>,
    ) -> Result<Arc<Self>, Error> {
        Self::make(pd, (max_wr, max_sge, limit), xrc, None)
    }

    /// Makes a tag-matching queue with room for `max_tags` tagged buffers. All receives of its
    /// queue pairs complete at `cq`.
    ///
    /// # Errors
    /// EINVAL naming the bad argument.
    pub fn with_tags(
        pd: &Arc<Pd>,
        max_wr: u32,
        max_sge: u32,
        cq: &Arc<Cq>,
        max_tags: u32,
    ) -> Result<Arc<Self>, Error> {
        Error::check_size("max_num_tags", max_tags, MAX_TAGS)?;
        Self::make(pd, (max_wr, max_sge, 0), None, Some((cq, max_tags)))
    }

    fn make(
        pd: &Arc<Pd>,
        (max_wr, max_sge, limit): (u32, u32, u32),
        xrc: Option<(&Arc<Xrcd>, &Arc<Cq>)>,
        tags: Option<(&Arc<Cq>, u32)>,
    ) -> Result<Arc<Self>, Error> {
        let context = pd.context();
        context.node().check_alive()?;
        context.needs(if tags.is_some() { Has::SRQ | Has::TAGS } else { Has::SRQ })?;
        context.fault_call(Call::CreateSrq)?;
        let limits = context.limits();
        Error::check_size("max_wr", max_wr, limits.max_srq_wr)?;
        if max_sge > limits.max_sge {
            let rule = format!("at most {} are possible", limits.max_sge);
            return Err(Error::invalid(format!("max_sge is {max_sge}"), rule));
        }
        let mut inner = adverb_engine::Srq::new(pd.id(), max_wr, max_sge.max(1));
        inner.modify(None, Some(limit))?;
        if let Some((_, max_tags)) = tags {
            inner = inner.with_tags(max_tags);
        }
        let srq = context.node().registry.add_srq(|number| {
            Arc::new(Srq {
                context: context.clone(),
                pd: pd.clone(),
                number,
                queue: SharedQueue::new(inner),
                xrc: xrc.map(|(x, c)| (x.clone(), c.clone())),
                tag_cq: tags.map(|(cq, _)| cq.clone()),
                async_acks: Acks::default(),
                uses: Uses::new("the shared receive queue"),
                cookie: AtomicUsize::new(0),
                destroyed: AtomicBool::new(false),
                place: context.place(),
            })
        })?;
        srq.place.fill(&srq);
        srq.each_use(Uses::add);
        Ok(srq)
    }

    fn each_use(&self, f: impl Fn(&Uses)) {
        f(&self.pd.uses);
        for cq in [self.xrc_cq(), self.tag_cq()].into_iter().flatten() {
            f(&cq.uses);
        }
        if let Some(xrcd) = self.xrcd() {
            f(&xrcd.uses);
        }
    }

    /// The word of the face.
    #[must_use]
    pub fn cookie(&self) -> usize {
        self.cookie.load(Ordering::Acquire)
    }
    /// Sets the word of the face.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Release);
    }
    /// The SRQ number for XRC senders.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
    /// The CQ of an XRC SRQ.
    #[must_use]
    pub fn xrc_cq(&self) -> Option<&Arc<Cq>> {
        self.xrc.as_ref().map(|(_, cq)| cq)
    }
    /// The XRC domain of an XRC SRQ.
    #[must_use]
    pub fn xrcd(&self) -> Option<&Arc<Xrcd>> {
        self.xrc.as_ref().map(|(x, _)| x)
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// ENOMEM when full, EINVAL for a bad request, EIO in a child of `fork`.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Error> {
        self.context.node().check_alive()?;
        self.context.node().fault_call(Call::PostSrqRecv)?;
        Ok(self.queue.lock().post(wr)?)
    }

    /// Changes the capacity and arms the limit event, each if given.
    ///
    /// # Errors
    /// EINVAL. Nothing was changed then.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        self.context.check_usable()?;
        if let Some(max_wr) = max_wr {
            Error::check_size("max_wr", max_wr, self.context.limits().max_srq_wr)?;
        }
        Ok(self.queue.lock().modify(max_wr, limit)?)
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// `(max_wr, max_sge, limit)`.
    #[must_use]
    pub fn attributes(&self) -> (u32, u32, u32) {
        self.queue.lock().attributes()
    }

    /// Number of waiting receives.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }
    /// Is no receive waiting?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The CQ of a tag-matching SRQ.
    #[must_use]
    pub fn tag_cq(&self) -> Option<&Arc<Cq>> {
        self.tag_cq.as_ref()
    }

    /// Performs an operation on the matching list, and answers the result. A signaled or failed
    /// operation makes a completion. `known` is the number of unexpected messages known to the
    /// program.
    ///
    /// # Errors
    /// EINVAL for a bad request, ENOMEM when the list is full, EIO in a child of `fork`.
    pub fn tag_op(
        &self,
        wr_id: u64,
        op: ListOp<'_>,
        known: Option<u32>,
        signaled: bool,
    ) -> Result<ListDone, Error> {
        let node = self.context.node();
        node.check_alive()?;
        let mut inner = self.queue.lock();
        let done = inner.tag_op(op, known)?;
        let mut c = if done.good {
            Completion::success(wr_id, 0, done.opcode)
        } else {
            let (what, rule) = (
                "handle",
                "no entry of the matching list has this handle; perhaps a message took the entry",
            );
            let cause = Arc::new(Cause::BadArgument { what, rule });
            Completion::failure(wr_id, 0, done.opcode, WcStatus::TmErr, cause)
        };
        c.flags.set(WcFlags::TM_SYNC_REQ, done.sync_needed);
        // Under the lock: no message may take an entry before the completion of its addition.
        if (signaled || !done.good)
            && let Some(cq) = &self.tag_cq
        {
            // An overflow of the queue is reported by the queue itself.
            let _ = cq.push(c, || node.now());
        }
        Ok(done)
    }

    /// Takes a receive.
    pub(crate) fn pop(self: &Arc<Self>) -> Result<RecvWqe, NoRecv> {
        self.pop_by(adverb_engine::Srq::pop)
    }

    /// Takes the receive of a message that begins with `first`, if the queue matches tags.
    pub(crate) fn pop_message(self: &Arc<Self>, first: &[u8]) -> Result<RecvWqe, NoRecv> {
        self.pop_by(|inner| inner.pop_message(first))
    }

    /// Does the queue match tags?
    #[inline]
    pub(crate) fn matches_tags(&self) -> bool {
        self.tag_cq.is_some()
    }

    #[inline]
    fn pop_by(
        self: &Arc<Self>,
        take: impl FnOnce(&mut adverb_engine::Srq) -> Option<(RecvWqe, bool)>,
    ) -> Result<RecvWqe, NoRecv> {
        let (wqe, limit_reached) = take(&mut self.queue.lock()).ok_or(NoRecv::Empty)?;
        if limit_reached {
            self.context.raise(AsyncEvent::SrqLimitReached, self.clone());
        }
        Ok(wqe)
    }

    /// The receives, and the queue pairs that take them.
    #[inline]
    pub(crate) fn queue(&self) -> &SharedQueue {
        &self.queue
    }

    /// Ends the queue. Refused while queue pairs use the queue. Waits until the events of the queue
    /// were acknowledged.
    ///
    /// # Errors
    /// EBUSY.
    pub fn destroy(self: &Arc<Self>) -> Result<(), Error> {
        if self.context.node().is_stale() {
            return Ok(());
        }
        self.uses.check_unused()?;
        if self.destroyed.swap(true, Ordering::SeqCst) {
            return Err(Error::invalid("srq", "the shared receive queue was destroyed already"));
        }
        self.context.node().registry.remove_srq(self.number);
        self.context.forget(&**self);
        self.async_acks.wait_all(|| format!("shared receive queue {}", self.number));
        self.each_use(Uses::remove);
        Ok(())
    }
}

impl Listed for Srq {
    fn describe(&self) -> Option<(String, Object)> {
        // `enum ib_srq_type`.
        let kind = match (&self.xrc, &self.tag_cq) {
            (Some(_), _) => 1,
            (None, Some(_)) => 2,
            (None, None) => 0,
        };
        let object = Object::Srq { number: self.number, pd: self.pd.id().0, kind };
        let lives = !self.destroyed.load(Ordering::Relaxed);
        lives.then(|| (self.context.device().name().to_owned(), object))
    }
}

impl Subject for Srq {
    fn async_acks(&self) -> &Acks {
        &self.async_acks
    }
}
