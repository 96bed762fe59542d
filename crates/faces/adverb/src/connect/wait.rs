//! Waiting for the events of an id, by threads and tasks.
use crate::wakers::Wakers;
use adverb_sync::{Condvar, Mutex};
use adverb_ucma::Tokens;
use adverb_ucma::ids::{Event, Id};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::Instant;

/// Wakes threads and tasks when an event comes.
#[derive(Debug, Default)]
pub struct Alarm {
    /// The number of events so far.
    count: Mutex<u64>,
    more: Condvar,
    wakers: Arc<Wakers>,
}

impl Tokens for Alarm {
    fn give(&self) {
        *self.count.lock() += 1;
        self.more.notify_all();
        self.wakers.wake_by_ref();
    }
    fn take(&self) {}
}

/// An id with the alarm of its events.
#[derive(Debug)]
pub struct Line {
    pub id: Id,
    alarm: Arc<Alarm>,
}

impl Line {
    pub fn new(id: Id, alarm: Arc<Alarm>) -> Line {
        Line { id, alarm }
    }

    /// The next event, or `None` at the deadline.
    pub fn next_by(&self, until: Option<Instant>) -> Option<Event> {
        loop {
            // Read the count before the look. An event after the look changes the count, so the
            // thread does not sleep.
            let seen = *self.alarm.count.lock();
            if let Some(event) = self.id.next_event() {
                return Some(event);
            }
            let mut count = self.alarm.count.lock();
            while *count == seen {
                match until.map(|at| at.saturating_duration_since(Instant::now())) {
                    None => self.alarm.more.wait(&mut count),
                    Some(left) if left.is_zero() => return None,
                    Some(left) => {
                        self.alarm.more.wait_for(&mut count, left);
                    }
                }
            }
        }
    }

    /// Makes all waiting threads and tasks look again.
    pub fn stir(&self) {
        self.alarm.give();
    }

    /// The next event, for any executor. If the future is dropped before it is ready, it has taken
    /// no event.
    pub fn next(&self) -> Next<'_> {
        Next { line: self, number: self.alarm.wakers.number() }
    }
}

/// The next event of an id.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Next<'a> {
    line: &'a Line,
    number: u64,
}

impl Future for Next<'_> {
    type Output = Event;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Event> {
        // Set the waker before the look. A thread that adds an event after the look then finds the
        // waker.
        self.line.alarm.wakers.set(self.number, cx.waker());
        self.line.id.next_event().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        self.line.alarm.wakers.remove(self.number);
    }
}
