//! Asynchronous events of a device.
use crate::device::Context;
use adverb_device::Element;
use std::time::{Duration, Instant};

pub use adverb_device::AsyncEvent as AsyncEventKind;

/// Something that happened to an object, not to a request (`ibv_get_async_event(3)`, IBTA 11.6.3).
/// Acknowledged already when it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// To what.
    pub to: AsyncElement,
}

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncElement {
    /// The queue pair with this number ([`Qp::number`](crate::Qp::number)).
    Qp(u32),
    /// The completion queue with this number.
    Cq(u32),
    /// The shared receive queue with this number ([`Srq::number`](crate::Srq::number)).
    Srq(u32),
    /// The port.
    Port(u8),
}

impl Context {
    /// Takes an asynchronous event, if one waits.
    #[must_use]
    pub fn try_async_event(&self) -> Option<AsyncEvent> {
        let (kind, element) = self.raw().try_async_event()?;
        let to = match &element {
            Element::Qp(qp) => AsyncElement::Qp(qp.number()),
            Element::Cq(cq) => AsyncElement::Cq(cq.number()),
            Element::Srq(srq) => AsyncElement::Srq(srq.number()),
            Element::Port(port) => AsyncElement::Port(*port),
        };
        // The event speaks of numbers: it needs no object to stay, so nobody's end waits for it.
        self.raw().ack_async_event(&element);
        Some(AsyncEvent { kind, to })
    }

    /// Waits for an asynchronous event, at most so long.
    #[must_use]
    pub fn async_event_within(&self, timeout: Duration) -> Option<AsyncEvent> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.try_async_event() {
                return Some(event);
            }
            if start.elapsed() >= timeout {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
