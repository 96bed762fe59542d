//! The places of a queue whose requests are futures: requests that have a place, and futures that
//! wait for a place.
use crate::completion::Completion;
use std::collections::{HashMap, VecDeque};
use std::task::Waker;

/// Tasks to wake when no lock is held.
pub type Woken = Vec<Waker>;

/// The places of a send or receive queue. Each future has a number, which is also the id of its
/// request.
#[derive(Debug)]
pub struct Places {
    free: u32,
    /// Futures that wait for a place, oldest first.
    line: VecDeque<(u64, Waker)>,
    under_way: HashMap<u64, Slot>,
}

/// A request under way.
#[derive(Debug)]
enum Slot {
    /// The future waits for the completion, or was not polled yet.
    Wanted(Option<Waker>),
    /// The future was dropped.
    Dropped,
    /// The completion has come.
    Done(Completion),
}

impl Places {
    /// Places for a queue of `depth` requests.
    pub fn new(depth: u32) -> Self {
        Places { free: depth, line: VecDeque::new(), under_way: HashMap::new() }
    }

    /// Takes a place, in the order of the calls. If no place is free, the future waits in line.
    pub fn enter(&mut self, number: u64, waker: &Waker, woken: &mut Woken) -> bool {
        let at = self.line.iter().position(|(n, _)| *n == number);
        if self.free > 0 && at.unwrap_or(self.line.len()) == 0 {
            if at.is_some() {
                self.line.pop_front();
            }
            self.free -= 1;
            self.under_way.insert(number, Slot::Wanted(None));
            self.call(woken);
            return true;
        }
        match at {
            Some(at) => self.line[at].1.clone_from(waker),
            None => self.line.push_back((number, waker.clone())),
        }
        false
    }

    /// Takes the future out of the line.
    pub fn leave(&mut self, number: u64, woken: &mut Woken) {
        self.line.retain(|(n, _)| *n != number);
        self.call(woken);
    }

    /// The device refused the request, so its place becomes free.
    pub fn refuse(&mut self, number: u64, woken: &mut Woken) {
        if self.under_way.remove(&number).is_some() {
            self.free += 1;
            self.call(woken);
        }
    }

    /// Notes a completion. A completion of a request that was not posted here belongs to no future.
    pub fn done(&mut self, completion: Completion, woken: &mut Woken) {
        let number = completion.wr_id();
        let Some(slot) = self.under_way.get_mut(&number) else {
            log::debug!("a completion with the id {number:#x} belongs to no future");
            return;
        };
        match std::mem::replace(slot, Slot::Done(completion)) {
            Slot::Wanted(waker) => woken.extend(waker),
            Slot::Dropped => _ = self.under_way.remove(&number),
            Slot::Done(_) => log::error!("the id {number:#x} completes twice"),
        }
        self.free += 1;
        self.call(woken);
    }

    /// Takes the completion of a request under way. Without a completion, notes the task to wake
    /// when the completion comes.
    pub fn take(&mut self, number: u64, waker: &Waker) -> Option<Completion> {
        if let Some(slot @ Slot::Wanted(_)) = self.under_way.get_mut(&number) {
            *slot = Slot::Wanted(Some(waker.clone()));
            return None;
        }
        match self.under_way.remove(&number) {
            Some(Slot::Done(completion)) => Some(completion),
            _ => None,
        }
    }

    /// The future of a request under way was dropped. The place stays taken until the completion
    /// comes.
    pub fn abandon(&mut self, number: u64) {
        match self.under_way.get_mut(&number) {
            Some(Slot::Done(_)) => _ = self.under_way.remove(&number),
            Some(slot) => *slot = Slot::Dropped,
            None => {}
        }
    }

    /// Wakes the first future of the line if a place is free.
    fn call(&self, woken: &mut Woken) {
        if self.free > 0 {
            woken.extend(self.line.front().map(|(_, waker)| waker.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
