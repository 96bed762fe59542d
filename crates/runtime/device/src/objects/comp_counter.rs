//! Completion counters: the number of finished operations, without a completion for each.
//!
//! The engine reports each finished operation (`Effects::counted`), signaled or not, and only for
//! queue pairs with a counter. If a counter counts READs or WRITEs of a peer on this host, these
//! operations come as packets, because no code of this process sees a one-sided operation.
use crate::counts::Counts;
use crate::error::Error;
use crate::objects::context::Context;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use crate::counts::{CounterType, MAX_COUNTERS};

/// Counts finished operations of queue pairs, successful and failed separately. Each failed
/// operation counts one, for every type of counter. Counts wrap to zero.
#[derive(Debug)]
pub struct CompCounter {
    context: Arc<Context>,
    pub(crate) counts: Arc<Counts>,
}

impl CompCounter {
    /// Makes a counter at zero.
    ///
    /// # Errors
    /// ENOMEM beyond [`MAX_COUNTERS`]; EIO in a child of `fork`.
    pub fn new(context: &Arc<Context>, counter_type: CounterType) -> Result<Arc<Self>, Error> {
        context.check_usable()?;
        let counts = Counts::new(counter_type)?;
        Ok(Arc::new(CompCounter { context: context.clone(), counts }))
    }
    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
    /// The count of successful operations.
    #[must_use]
    pub fn good(&self) -> &AtomicU64 {
        &self.counts.good
    }
    /// The count of failed operations.
    #[must_use]
    pub fn failed(&self) -> &AtomicU64 {
        &self.counts.failed
    }
    /// Ends the counter. Refused while the counter is attached to queue pairs.
    ///
    /// # Errors
    /// EBUSY.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.context.node().is_stale() {
            return Ok(());
        }
        self.counts.uses.check_unused()
    }
}
