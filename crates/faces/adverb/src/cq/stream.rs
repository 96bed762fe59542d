//! Completions as a stream.
use super::Cq;
use crate::completion::Completion;
use crate::error::{Error, Result};
use futures_core::Stream;
use futures_core::stream::FusedStream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The completions of a queue as a [`Stream`] for any executor ([`Cq::completions`]). Several
/// streams of one queue share its completions. The stream ends only after an error, when the queue
/// has overflowed.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct Completions {
    cq: Cq,
    /// The number of this stream among the waiting tasks.
    number: u64,
    ended: bool,
}

impl Completions {
    pub(super) fn new(cq: &Cq) -> Result<Self> {
        if cq.channel().is_some() {
            return Err(Error::HasChannel);
        }
        Ok(Completions { cq: cq.clone(), number: cq.0.wakers.number(), ended: false })
    }

    /// The next completion.
    ///
    /// # Errors
    /// [`Error::CqOverflow`].
    pub async fn next(&mut self) -> Result<Completion> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Completion>> {
        let Completions { cq, number, .. } = self;
        look_arm_look(|| cq.poll_one(), || cq.wake_next(*number, cx.waker()))
    }
}

/// Takes a completion; if there is none, arms and looks again. A completion that was added before
/// the arm makes no event, and the second look finds it. A later completion makes an event.
pub(crate) fn look_arm_look<T>(
    mut look: impl FnMut() -> Result<Option<T>>,
    arm: impl FnOnce() -> Result<()>,
) -> Poll<Result<T>> {
    if let Some(found) = look()? {
        return Poll::Ready(Ok(found));
    }
    arm()?;
    look()?.map_or(Poll::Pending, |found| Poll::Ready(Ok(found)))
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.cq.wake_no_more(self.number);
    }
}

impl Stream for Completions {
    type Item = Result<Completion>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll(cx);
        self.ended = matches!(polled, Poll::Ready(Err(_)));
        polled.map(Some)
    }
}

impl FusedStream for Completions {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::look_arm_look;
    use std::cell::Cell;
    use std::task::Poll;

    #[test]
    fn cqn_12_what_comes_between_the_look_and_the_arm_is_found() {
        let queue = Cell::new(None);
        let polled = look_arm_look(
            || Ok(queue.take()),
            || {
                queue.set(Some(7));
                Ok(())
            },
        );
        assert!(matches!(polled, Poll::Ready(Ok(7))));
    }

    #[test]
    fn a_queue_that_is_not_empty_is_not_armed() {
        let mut arms = 0;
        let mut arm = || {
            arms += 1;
            Ok(())
        };
        assert!(matches!(look_arm_look(|| Ok(Some(1)), &mut arm), Poll::Ready(Ok(1))));
        assert!(look_arm_look(|| Ok(None::<u8>), &mut arm).is_pending());
        assert_eq!(arms, 1);
    }
}
