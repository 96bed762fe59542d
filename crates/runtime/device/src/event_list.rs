//! Events in order, with a token for each.
use crate::ranks;
use crate::sync::Ranked;
use std::collections::VecDeque;

/// A count with one token for each event. Threads that wait for events watch this count.
pub trait Tokens {
    /// Adds a token.
    fn give(&self);
    /// Removes a token.
    fn take(&self);
}

/// Events in order. Whenever the lock is free, there are as many tokens as events. The list has no
/// descriptor of its own, so that a model checker can explore it (CQN-12, `make loom`).
#[derive(Debug)]
pub struct EventList<T, K> {
    pub tokens: K,
    queue: Ranked<VecDeque<T>, ranks::Events>,
}

impl<T, K: Tokens> EventList<T, K> {
    pub fn new(tokens: K) -> Self {
        EventList { tokens, queue: Ranked::new(VecDeque::new()) }
    }
    /// Adds an event.
    pub fn push(&self, event: T) {
        let mut queue = self.queue.lock();
        queue.push_back(event);
        self.tokens.give();
    }
    /// Takes the oldest event, if any. `read` sees the event under the lock: a
    /// [`EventList::remove`] either finds the event or comes after `read` (CHN-4).
    pub fn try_pop(&self, read: impl FnOnce(&T)) -> Option<T> {
        let mut queue = self.queue.lock();
        let event = queue.pop_front()?;
        self.tokens.take();
        read(&event);
        Some(event)
    }
    /// Is there no event?
    pub fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }
    /// Gives or takes a token without an event.
    pub fn with_tokens<R>(&self, change: impl FnOnce(&K) -> R) -> R {
        let _queue = self.queue.lock();
        change(&self.tokens)
    }
    /// Removes the matching events, which are never returned (CHN-5). Answers their number.
    pub fn remove(&self, mut matches: impl FnMut(&T) -> bool) -> usize {
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.retain(|e| !matches(e));
        let removed = before - queue.len();
        for _ in 0..removed {
            self.tokens.take();
        }
        removed
    }
}
