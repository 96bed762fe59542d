//! Shared receive queues.
use crate::cq::Cq;
use crate::data::Slices;
use crate::error::Result;
use crate::handle::{Handle, ends};
use crate::pd::Pd;
use crate::xrc::Xrcd;
use adverb_device::engine::RecvWr;
use std::sync::Arc;

/// A shared receive queue: several queue pairs take receives from it (IBTA 10.2.9,
/// `ibv_create_srq(3)`). The queue is cheap to clone, and is destroyed with its last handle and
/// queue pair.
#[derive(Clone, Debug)]
pub struct Srq(pub(crate) Handle<SrqInner>);

#[derive(Debug)]
pub struct SrqInner {
    pub(crate) srq: Arc<adverb_device::Srq>,
    _pd: Pd,
    _xrc: Option<(Xrcd, Cq)>,
}

ends!(SrqInner = "the shared receive queue" by srq.destroy);

/// The settings of a new shared receive queue ([`Pd::create_srq`]).
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build()"]
pub struct SrqBuilder<'a> {
    pd: &'a Pd,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    xrc: Option<(Xrcd, Cq)>,
}

impl Pd {
    /// Starts a builder for a shared receive queue (`ibv_create_srq(3)`).
    pub fn create_srq(&self) -> SrqBuilder<'_> {
        SrqBuilder { pd: self, max_wr: 128, max_sge: 4, limit: 0, xrc: None }
    }
}

impl SrqBuilder<'_> {
    /// Sets the capacity (128): 1 to [`Limits::max_srq_wr`](crate::Limits::max_srq_wr).
    pub fn max_wr(mut self, n: u32) -> Self {
        self.max_wr = n;
        self
    }
    /// Sets how many pieces a receive has at most (4).
    pub fn max_sge(mut self, n: u32) -> Self {
        self.max_sge = n;
        self
    }
    /// Arms the limit event, which comes when fewer than `n` receives are left (0: never).
    pub fn limit(mut self, n: u32) -> Self {
        self.limit = n;
        self
    }
    /// Makes the queue an XRC queue of this domain. Its receives complete on `cq`
    /// (`ibv_create_srq_ex(3)`).
    pub fn xrc(mut self, xrcd: &Xrcd, cq: &Cq) -> Self {
        self.xrc = Some((xrcd.clone(), cq.clone()));
        self
    }
    /// Makes the queue.
    ///
    /// # Errors
    /// EINVAL for a size out of range.
    pub fn build(self) -> Result<Srq> {
        let xrc = self.xrc.as_ref().map(|(xrcd, cq)| (xrcd.lower(), cq.lower()));
        let srq =
            adverb_device::Srq::new(self.pd.lower(), self.max_wr, self.max_sge, self.limit, xrc)?;
        Ok(Srq(Handle::new(SrqInner { srq, _pd: self.pd.clone(), _xrc: self.xrc })))
    }
}

impl Srq {
    /// The number by which an XRC sender names the queue.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.srq.number()
    }

    /// Starts a receive into registered memory (`ibv_post_srq_recv(3)`).
    pub fn recv<'a>(&'a self, slices: impl Into<Slices<'a>>) -> SrqRecv<'a> {
        SrqRecv { srq: self, slices: slices.into(), wr_id: 0 }
    }

    /// The number of posted receives.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.srq.len()
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.srq.is_empty()
    }

    /// Arms the limit event again (`ibv_modify_srq(3)`). The event comes once, when fewer than
    /// `limit` receives are left ([`Context::try_async_event`](crate::Context::try_async_event)).
    ///
    /// # Errors
    /// EINVAL for a limit above the capacity.
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        Ok(self.0.srq.modify(None, Some(limit))?)
    }

    /// Destroys the queue now.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if other handles or queue pairs of the queue exist. The
    /// queue then ends with the last of them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }
}

/// A receive that is not posted yet.
#[derive(Debug)]
#[must_use = "nothing is posted before post()"]
pub struct SrqRecv<'a> {
    srq: &'a Srq,
    slices: Slices<'a>,
    wr_id: u64,
}

impl SrqRecv<'_> {
    /// Sets the id that the completion carries (0).
    pub fn id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }
    /// Posts the receive.
    ///
    /// # Errors
    /// [`Error::QueueFull`](crate::Error::QueueFull); EINVAL for too many pieces. Then the receive
    /// is not queued.
    pub fn post(self) -> Result<()> {
        let wr_id = self.wr_id;
        let posted =
            self.slices.with_sges(|sges| self.srq.lower().post_recv(&RecvWr { wr_id, sges }));
        Ok(posted?)
    }
}
