//! Frames that arrived before their receive was posted.
use adverb_engine::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Largest number of frames waiting for a receive. A NIC drops such frames, but does not deliver so
/// many frames at once.
const MOST_KEPT: usize = 4096;
/// Longest wait of such a frame.
const KEPT_FOR: Duration = Duration::from_millis(100);

/// Frames that arrived before their receive, each with its time.
#[derive(Debug, Default)]
pub(crate) struct KeptFrames(VecDeque<(Time, Vec<u8>)>);

impl KeptFrames {
    pub(in crate::node) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(in crate::node) fn clear(&mut self) {
        self.0.clear();
    }
    /// Keeps a frame. The oldest frame makes room, and so does each frame that has waited too long.
    pub(in crate::node) fn keep(&mut self, frame: &[u8], now: Time) {
        while self.0.len() >= MOST_KEPT
            || self.0.front().is_some_and(|(at, _)| now.since(*at) > KEPT_FOR)
        {
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
