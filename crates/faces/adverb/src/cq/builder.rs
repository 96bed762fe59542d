//! The builder of completion queues.
use super::channel::CompChannel;
use super::{Cq, CqInner};
use crate::device::Context;
use crate::error::Result;
use crate::handle::Handle;
use crate::wakers::Wakers;
use adverb_device::Sink;
use std::sync::Arc;

/// The default capacity.
const ENTRIES: u32 = 256;

/// The settings of a new completion queue ([`Context::create_cq`]).
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build()"]
pub struct CqBuilder<'a> {
    context: &'a Context,
    entries: u32,
    channel: Option<CompChannel>,
    user_data: u64,
}

impl Context {
    /// Starts a builder for a completion queue (`ibv_create_cq(3)`).
    pub fn create_cq(&self) -> CqBuilder<'_> {
        CqBuilder { context: self, entries: ENTRIES, channel: None, user_data: 0 }
    }
}

impl CqBuilder<'_> {
    /// Sets the capacity (256): 1 to [`Limits::max_cqe`](crate::Limits::max_cqe). The capacity
    /// should be the number of requests that all queue pairs of the queue may have under way. A
    /// queue that overflows is unusable.
    pub fn entries(mut self, n: u32) -> Self {
        self.entries = n;
        self
    }
    /// Sets the channel of the queue's events. A queue without a channel can be polled, or used as
    /// a stream ([`Cq::completions`]).
    pub fn channel(mut self, channel: &CompChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }
    /// Sets a number of the program's choice, which [`Cq::user_data`] returns (0).
    pub fn user_data(mut self, data: u64) -> Self {
        self.user_data = data;
        self
    }
    /// Makes the queue.
    ///
    /// # Errors
    /// EINVAL for a size out of range.
    pub fn build(self) -> Result<Cq> {
        let wakers = Arc::new(Wakers::default());
        let sink = match &self.channel {
            Some(channel) => Sink::Channel(channel.lower().clone()),
            None => Sink::Custom(wakers.clone()),
        };
        let cq = adverb_device::Cq::with_sink(self.context.lower(), self.entries, sink, 0)?;
        let number = cq.number();
        let inner = CqInner {
            cq,
            context: self.context.clone(),
            channel: self.channel.clone(),
            wakers,
            user_data: self.user_data,
        };
        let handle = Handle::new(inner);
        if let Some(channel) = &self.channel {
            channel.add(number, handle.downgrade());
        }
        Ok(Cq(handle))
    }
}
