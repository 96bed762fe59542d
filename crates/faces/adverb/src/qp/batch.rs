//! Requests that the device gets together.
use super::Qp;
use super::wr::{Undo, Wr};
use crate::error::{Error, Result};
use crate::sites;
use std::panic::Location;

/// Requests that the device gets in one step, as with `ibv_wr_start(3)` and `ibv_wr_complete`. A
/// batch collects requests and does nothing before [`Batch::submit`]. A batch that is dropped
/// before has posted nothing, as with `ibv_wr_abort`.
///
/// The batch borrows the data until then. Inline data is copied when the batch is submitted.
#[derive(Debug)]
#[must_use = "nothing is posted before submit()"]
pub struct Batch<'d> {
    qp: &'d Qp,
    requests: Vec<Wr<'d>>,
}

/// A request of a batch was refused. Nothing of the batch was posted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("request {index} of the batch: {error}")]
pub struct BatchError {
    /// The index of the request, counted from 0.
    pub index: usize,
    /// Why.
    #[source]
    pub error: Error,
}

impl From<BatchError> for Error {
    fn from(e: BatchError) -> Self {
        e.error
    }
}

impl<'d> Batch<'d> {
    pub(super) fn new(qp: &'d Qp) -> Self {
        Batch { qp, requests: Vec::new() }
    }

    pub(super) fn push(&mut self, wr: Wr<'d>) {
        self.requests.push(wr);
    }

    /// The number of collected requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the batch has no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Posts all requests in order, or none of them.
    ///
    /// # Errors
    /// The first request that was refused, and the reason
    /// ([`Request::post`](super::Request::post)).
    #[track_caller]
    pub fn submit(self) -> Result<(), BatchError> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let refused = |error| BatchError { index: 0, error };
        let (qp, cq) = (self.qp.lower(), self.qp.raw_send_cq());
        sites::posted(
            qp,
            cq,
            Location::caller(),
            || self.commit(),
            |e: &BatchError| e.error.errno(),
            refused,
        )
    }

    fn commit(&self) -> Result<(), BatchError> {
        let refused = |index: usize, error: Error| BatchError { index, error };
        let mut chain = self.qp.lower().send_chain().map_err(|e| refused(0, e.into()))?;
        let mut undo = Undo::default();
        for (index, wr) in self.requests.iter().enumerate() {
            wr.stage(wr.wr_id, &mut chain, self.qp.qp_type(), &mut undo)
                .map_err(|e| refused(index, e))?;
        }
        undo.forget();
        chain.commit();
        Ok(())
    }
}
