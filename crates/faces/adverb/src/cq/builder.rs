//! Making completion queues.
use super::channel::CompChannel;
use super::{Cq, CqInner};
use crate::device::Context;
use crate::error::Result;
use crate::handle::Handle;
use crate::wakers::Wakers;
use adverb_device::Sink;
use std::sync::Arc;

/// Entries unless told otherwise.
const ENTRIES: u32 = 256;

/// How a completion queue is made ([`Context::create_cq`]).
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build()"]
pub struct CqBuilder<'a> {
    context: &'a Context,
    entries: u32,
    channel: Option<CompChannel>,
    user_data: u64,
}

impl Context {
    /// Starts making a completion queue (`ibv_create_cq(3)`).
    pub fn create_cq(&self) -> CqBuilder<'_> {
        CqBuilder::new(self)
    }
}

impl<'a> CqBuilder<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        CqBuilder { context, entries: ENTRIES, channel: None, user_data: 0 }
    }
    /// Completions it holds (256): 1 to [`Limits::max_cqe`](crate::Limits::max_cqe). Enough are as
    /// many as requests that its queue pairs may have under way: a queue that overflows is lost.
    pub fn entries(mut self, n: u32) -> Self {
        self.entries = n;
        self
    }
    /// Its events go to this channel. Without one it can be polled, or waited for as a stream
    /// ([`Cq::completions`]).
    pub fn channel(mut self, channel: &CompChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }
    /// A number of the program's own, found again at [`Cq::user_data`] (0).
    pub fn user_data(mut self, data: u64) -> Self {
        self.user_data = data;
        self
    }
    /// Makes it.
    ///
    /// # Errors
    /// EINVAL for a size out of range.
    pub fn build(self) -> Result<Cq> {
        let wakers = Arc::new(Wakers::default());
        let sink = match &self.channel {
            Some(channel) => Sink::Channel(channel.raw().clone()),
            None => Sink::Custom(wakers.clone()),
        };
        let cq = adverb_device::Cq::with_sink(self.context.raw(), self.entries, sink, 0)?;
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
