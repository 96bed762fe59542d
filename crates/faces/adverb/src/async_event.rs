//! Asynchronous events of a device.
use crate::device::Context;
use crate::error::{Error, Result};
use adverb_device::Element;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

pub use adverb_device::AsyncEvent as AsyncEventKind;

/// An event of an object, not of a request (`ibv_get_async_event(3)`, IBTA 11.6.3). The event is
/// already acknowledged when the program gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// The object of the event.
    pub to: AsyncElement,
}

/// The object of an asynchronous event.
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
    /// Takes an asynchronous event if an event waits.
    #[must_use]
    pub fn try_async_event(&self) -> Option<AsyncEvent> {
        let (kind, element) = self.lower().try_async_event()?;
        Some(self.async_event_of(kind, &element))
    }

    /// The asynchronous events as a stream for any executor. The stream ends only after an error.
    /// If several streams or threads wait, each event goes to one of them.
    ///
    /// ```
    /// # async fn example() -> adverb::Result<()> {
    /// use adverb::{AsyncElement, AsyncEventKind, Device};
    ///
    /// let context = Device::loopback()?.open()?;
    /// let mut events = context.async_events();
    /// let pd = context.create_pd()?;
    /// let srq = pd.create_srq().limit(8).build()?;
    /// # let (a, qp) = ready(&pd, &srq)?;
    /// for _ in 0..8 {
    ///     srq.recv(()).post()?;
    /// }
    /// // A message of a peer takes one: fewer than the limit are left.
    /// # a.qp.send(()).post()?;
    /// let event = events.next().await?;
    /// assert_eq!(event.kind, AsyncEventKind::SrqLimitReached);
    /// assert_eq!(event.to, AsyncElement::Srq(srq.number()));
    /// # drop(qp);
    /// # Ok(())
    /// # }
    /// # fn ready(
    /// #     pd: &adverb::Pd,
    /// #     srq: &adverb::Srq,
    /// # ) -> adverb::Result<(adverb::testing::Endpoint, adverb::Qp)> {
    /// #     let a = adverb::testing::Endpoint::new(|qp| qp)?;
    /// #     let qp = pd.create_qp().srq(srq).build()?;
    /// #     qp.connect_to(&a.qp.info()?)?;
    /// #     a.qp.connect_to(&qp.info()?)?;
    /// #     Ok((a, qp))
    /// # }
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    /// # runtime.block_on(example())?;
    /// # Ok::<(), adverb::Error>(())
    /// ```
    pub fn async_events(&self) -> AsyncEvents {
        AsyncEvents { context: self.clone(), ended: false }
    }

    /// The next asynchronous event, as a future for any executor. If the future is dropped before
    /// it is ready, it has taken no event.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub async fn async_event(&self) -> Result<AsyncEvent> {
        self.async_events().next().await
    }

    fn async_event_of(&self, kind: AsyncEventKind, element: &Element) -> AsyncEvent {
        let to = match element {
            Element::Qp(qp) => AsyncElement::Qp(qp.number()),
            Element::Cq(cq) => AsyncElement::Cq(cq.number()),
            Element::Srq(srq) => AsyncElement::Srq(srq.number()),
            Element::Port(port) => AsyncElement::Port(*port),
        };
        // The event contains numbers only. So it is acknowledged at once, and the end of the object
        // does not wait for the program.
        self.lower().ack_async_event(element);
        AsyncEvent { kind, to }
    }

    /// Waits for an asynchronous event, for at most `timeout`.
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

/// The asynchronous events of a device as a [`Stream`] ([`Context::async_events`]).
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct AsyncEvents {
    context: Context,
    ended: bool,
}

impl AsyncEvents {
    /// The next event.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub async fn next(&mut self) -> Result<AsyncEvent> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut TaskContext<'_>) -> Poll<Result<AsyncEvent>> {
        self.context.lower().poll_async_event(cx).map(|polled| match polled {
            Ok((kind, element)) => Ok(self.context.async_event_of(kind, &element)),
            Err(e) => Err(Error::from_wait(e)),
        })
    }
}

impl Stream for AsyncEvents {
    type Item = Result<AsyncEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll(cx);
        self.ended = matches!(polled, Poll::Ready(Err(_)));
        polled.map(Some)
    }
}
