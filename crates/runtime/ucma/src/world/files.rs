//! The open files and their events.
use crate::event::Queued;
use crate::host::Tokens;
use std::collections::{BTreeMap, VecDeque};

/// The events that wait in a file. Each has one token.
#[derive(Debug)]
struct Queue<T> {
    events: VecDeque<Queued>,
    tokens: T,
}

/// The open files. A number never comes again. A closed file takes no events and has none.
#[derive(Debug)]
pub(crate) struct Files<T> {
    open: BTreeMap<u64, Queue<T>>,
    opened: u64,
}

impl<T> Default for Files<T> {
    fn default() -> Self {
        Files { open: BTreeMap::new(), opened: 0 }
    }
}

impl<T: Tokens> Files<T> {
    pub fn open(&mut self, tokens: T) -> u64 {
        self.opened += 1;
        self.open.insert(self.opened, Queue { events: VecDeque::new(), tokens });
        self.opened
    }

    /// Returns the tokens of the file.
    pub fn close(&mut self, file: u64) -> Option<T> {
        self.open.remove(&file).map(|queue| queue.tokens)
    }

    /// The tokens of an open file.
    pub fn tokens(&self, file: u64) -> Option<&T> {
        self.open.get(&file).map(|queue| &queue.tokens)
    }

    pub fn push(&mut self, file: u64, event: Queued) {
        if let Some(queue) = self.open.get_mut(&file) {
            queue.events.push_back(event);
            queue.tokens.give();
        }
    }

    /// The oldest event.
    pub fn first(&self, file: u64) -> Option<&Queued> {
        self.open.get(&file)?.events.front()
    }

    /// Removes and returns the oldest event.
    pub fn pop(&mut self, file: u64) -> Option<Queued> {
        let queue = self.open.get_mut(&file)?;
        let first = queue.events.pop_front()?;
        queue.tokens.take();
        Some(first)
    }

    /// Removes and returns the matching events.
    pub fn take(&mut self, file: u64, matches: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let Some(queue) = self.open.get_mut(&file) else { return Vec::new() };
        let (out, kept): (Vec<_>, Vec<_>) = queue.events.drain(..).partition(|e| matches(e));
        queue.events = kept.into();
        out.iter().for_each(|_| queue.tokens.take());
        out
    }

    #[cfg(test)]
    pub fn events(&self) -> impl Iterator<Item = &Queued> {
        self.open.values().flat_map(|queue| &queue.events)
    }
}
