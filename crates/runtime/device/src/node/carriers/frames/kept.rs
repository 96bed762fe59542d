//! Frames that came before their receive.
use adverb_engine::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Frames that wait for a receive, at most, and for how long. A NIC drops them; but it does not
/// give a program so many at once, either.
const MOST_KEPT: usize = 4096;
const KEPT_FOR: Duration = Duration::from_millis(100);

/// Frames that came before their receive, each with the time.
#[derive(Debug, Default)]
pub(crate) struct KeptFrames(VecDeque<(Time, Vec<u8>)>);

impl KeptFrames {
    pub(in crate::node) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(in crate::node) fn clear(&mut self) {
        self.0.clear();
    }
    /// Keeps one; the oldest, and those that waited too long, make room.
    pub(in crate::node) fn keep(&mut self, frame: &[u8], now: Time) {
        while self.0.len() >= MOST_KEPT || self.0.front().is_some_and(|(at, _)| now.since(*at) > KEPT_FOR) {
            self.0.pop_front();
        }
        self.0.push_back((now, frame.to_vec()));
    }
    pub(in crate::node) fn next(&mut self, now: Time) -> Option<Vec<u8>> {
        loop {
            let (at, frame) = self.0.pop_front()?;
            if now.since(at) <= KEPT_FOR {
                return Some(frame);
            }
        }
    }
}
