//! The subjects of asynchronous events, and how a program takes events.
use crate::async_event::{AsyncEvent, Source, Subject};
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use nix::errno::Errno;
use std::any::Any;
use std::sync::Arc;
use std::task::{self, Poll};

/// The subject of an asynchronous event.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Element {
    Cq(Arc<Cq>),
    Qp(Arc<Qp>),
    Srq(Arc<Srq>),
    Port(u8),
}

impl Element {
    /// The element of an event's source. `None` for an object of a kind that programs do not know.
    fn of(source: Source) -> Option<Self> {
        let object: Arc<dyn Any + Send + Sync> = match source {
            Source::Port(port) => return Some(Element::Port(port)),
            Source::Object(object) => object,
        };
        let object = match object.downcast() {
            Ok(cq) => return Some(Element::Cq(cq)),
            Err(object) => object,
        };
        match object.downcast() {
            Ok(qp) => Some(Element::Qp(qp)),
            Err(object) => object.downcast().ok().map(Element::Srq),
        }
    }
}

impl Context {
    /// Waits for an asynchronous event if the descriptor's `O_NONBLOCK` allows waiting. The caller
    /// must acknowledge the event with [`Context::ack_async_event`].
    ///
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn next_async_event(&self) -> Result<(AsyncEvent, Element), Errno> {
        if self.node().is_stale() {
            return Err(Errno::EIO);
        }
        let (event, source) = self.events.pop_idly(|(_, source)| source.note_read())?;
        Ok((event, Element::of(source).ok_or(Errno::EIO)?))
    }
    /// Takes an asynchronous event without waiting. The caller must acknowledge the event with
    /// [`Context::ack_async_event`].
    #[must_use]
    pub fn try_async_event(&self) -> Option<(AsyncEvent, Element)> {
        if self.node().is_stale() {
            return None;
        }
        let (event, source) = self.events.take(|(_, source)| source.note_read())?;
        Some((event, Element::of(source)?))
    }
    /// As [`Context::next_async_event`], for a task. The task is woken by an event.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn poll_async_event(
        &self,
        cx: &mut task::Context<'_>,
    ) -> Poll<Result<(AsyncEvent, Element), Errno>> {
        if self.node().is_stale() {
            return Poll::Ready(Err(Errno::EIO));
        }
        let read = |(_, source): &(AsyncEvent, Source)| source.note_read();
        self.events.poll_pop(self.node(), cx, read).map(|(event, source)| {
            let element = Element::of(source).ok_or(Errno::EIO)?;
            Ok((event, element))
        })
    }
    /// Acknowledges an event about `element`.
    pub fn ack_async_event(&self, element: &Element) {
        match element {
            Element::Cq(cq) => cq.async_acks().ack(1),
            Element::Qp(qp) => qp.async_acks().ack(1),
            Element::Srq(srq) => srq.async_acks().ack(1),
            Element::Port(_) => {}
        }
    }
}
