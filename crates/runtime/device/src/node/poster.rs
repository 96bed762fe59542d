//! Watches a thread of the program that posts one-sided requests: see [`Naps`].
use super::core::Node;
use super::policy::naps::{Naps, Reading};
use adverb_threads::Task;
use nix::time::ClockId;
use std::time::Duration;

/// The background thread's watch of a poster.
pub(super) struct PosterWatch {
    pub(super) naps: Naps,
    /// The number of the watched thread.
    poster: i32,
}

impl PosterWatch {
    pub(super) fn new(node: &Node) -> Self {
        PosterWatch { naps: Naps::new(node.clocks.tick(), node.policy.costs()), poster: 0 }
    }

    /// Begins to watch the thread named by the program.
    pub(super) fn look(&mut self, node: &Node) {
        let Some(poster) = node.policy.take_poster() else { return };
        self.poster = poster;
        match self.read(node) {
            Some(reading) => self.naps.begin(reading),
            None => self.judge(node),
        }
    }

    /// The background thread has napped.
    pub(super) fn napped(&mut self, node: &Node) {
        if self.naps.napped(node.now()) {
            self.judge(node);
        }
    }

    fn judge(&mut self, node: &Node) {
        let reading = self.read(node);
        if let Some(posts) = self.naps.judge(reading) {
            node.policy.tell_after(posts);
        }
    }

    fn read(&self, node: &Node) -> Option<Reading> {
        let [ran, waited] = Task::own(self.poster).times()?;
        let own = ClockId::CLOCK_THREAD_CPUTIME_ID.now().map_or(Duration::ZERO, Duration::from);
        Some(Reading { at: node.now(), ran, waited, own })
    }
}
