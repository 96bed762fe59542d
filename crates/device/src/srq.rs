//! Shared receive queues.
use crate::context::{AsyncEvent, Context, Element};
use crate::cq::Cq;
use crate::error::Error;
use crate::event_queue::Acks;
use crate::faults::Call;
use crate::node::Node;
use crate::pd::{Pd, Xrcd};
use crate::qp::Qp;
use crate::uses::Uses;
use adverb_engine::qp::{NoRecv, RecvSource};
use adverb_engine::{PdId, RecvWqe, RecvWr};
use adverb_sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A shared receive queue, basic or XRC.
#[derive(Debug)]
pub struct Srq {
    context: Arc<Context>,
    pd: Arc<Pd>,
    number: u32,
    inner: Mutex<adverb_engine::Srq>,
    xrc: Option<(Arc<Xrcd>, Arc<Cq>)>,
    pub(crate) async_acks: Acks,
    pub(crate) uses: Uses,
    cookie: AtomicUsize,
    destroyed: AtomicBool,
}

impl Srq {
    /// Makes a queue; with `xrc` an XRC one, whose completions go to that CQ.
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
        let context = pd.context();
        context.node().check_alive()?;
        context.node().fault_call(Call::CreateSrq)?;
        let limits = context.limits();
        if max_wr == 0 || max_wr > limits.max_srq_wr {
            return Err(Error::invalid(
                format!("max_wr is {max_wr}"),
                format!("1 to {} are possible", limits.max_srq_wr),
            ));
        }
        if max_sge > limits.max_sge {
            return Err(Error::invalid(
                format!("max_sge is {max_sge}"),
                format!("at most {} are possible", limits.max_sge),
            ));
        }
        let mut inner = adverb_engine::Srq::new(pd.id(), max_wr, max_sge.max(1));
        inner.set_limit(limit)?;
        pd.uses.add();
        if let Some((xrcd, cq)) = xrc {
            xrcd.uses.add();
            cq.uses.add();
        }
        Ok(context.node().add_srq(|number| {
            Arc::new(Srq {
                context: context.clone(),
                pd: pd.clone(),
                number,
                inner: Mutex::new(inner),
                xrc: xrc.map(|(x, c)| (x.clone(), c.clone())),
                async_acks: Acks::default(),
                uses: Uses::new("the shared receive queue"),
                cookie: AtomicUsize::new(0),
                destroyed: AtomicBool::new(false),
            })
        }))
    }

    /// The face's own word.
    #[must_use]
    pub fn cookie(&self) -> usize {
        self.cookie.load(Ordering::Acquire)
    }
    /// Sets the face's own word.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Release);
    }
    /// The SRQ number, as an XRC sender names it.
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
        Ok(self.inner.lock().post(wr)?)
    }

    /// Changes the capacity and arms the limit event, each if given.
    ///
    /// # Errors
    /// EINVAL; nothing was changed then.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        self.context.node().check_alive()?;
        if let Some(max_wr) = max_wr {
            let max = self.context.limits().max_srq_wr;
            if max_wr == 0 || max_wr > max {
                return Err(Error::invalid(
                    format!("max_wr is {max_wr}"),
                    format!("1 to {max} are possible"),
                ));
            }
        }
        Ok(self.inner.lock().modify(max_wr, limit)?)
    }

    /// `(max_wr, max_sge, limit)`.
    #[must_use]
    pub fn attributes(&self) -> (u32, u32, u32) {
        self.inner.lock().attributes()
    }

    /// Receives waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lock().len()
    }
    /// None waiting?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pop(self: &Arc<Self>) -> Result<RecvWqe, NoRecv> {
        let (wqe, limit_reached) = self.inner.lock().pop().ok_or(NoRecv::Empty)?;
        if limit_reached {
            self.context.raise(AsyncEvent::SrqLimitReached, Element::Srq(self.clone()));
        }
        Ok(wqe)
    }

    /// Ends the queue; refused while queue pairs use it. Waits until its events were acknowledged.
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
        self.context.node().remove_srq(self.number);
        self.context.forget(|e| matches!(e, Element::Srq(s) if Arc::ptr_eq(s, self)));
        self.async_acks.wait_all(|| format!("shared receive queue {}", self.number));
        self.pd.uses.remove();
        if let Some((xrcd, cq)) = &self.xrc {
            xrcd.uses.remove();
            cq.uses.remove();
        }
        Ok(())
    }
}

/// Where a queue pair's receives come from while a packet is handled.
pub(crate) struct SrqSource<'a> {
    pub(crate) node: &'a Node,
    pub(crate) qp: &'a Qp,
}

impl RecvSource for SrqSource<'_> {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        match xrc_srqn {
            None => self.qp.srq.as_ref().ok_or(NoRecv::NoSuchSrq)?.pop(),
            Some(number) => self.xrc(number).ok_or(NoRecv::NoSuchSrq)?.pop(),
        }
    }

    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        Some(self.xrc(xrc_srqn)?.pd.id())
    }
}

impl SrqSource<'_> {
    /// The SRQ with this number, if it is of the target QP's own XRC domain (IBTA 9.7.4.1.4).
    fn xrc(&self, number: u32) -> Option<Arc<Srq>> {
        let srq = self.node.srq(number)?;
        match (srq.xrcd(), &self.qp.xrcd) {
            (Some(a), Some(b)) if Xrcd::same(a, b) => Some(srq),
            _ => None,
        }
    }
}
