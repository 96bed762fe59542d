//! What came before its receive was posted.
use adverb_engine::Time;
use adverb_link::OwnedPacket;
use std::collections::VecDeque;
use std::time::Duration;

/// Packets that wait for a receive, with their time of arrival.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    pub(super) packets: VecDeque<(Time, OwnedPacket)>,
}

impl Stash {
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
    }
}

/// Frames that wait for a receive, at most, and for how long. A NIC drops them; but it does not
/// give a program so many at once, either.
const MOST_KEPT: usize = 4096;
const KEPT_FOR: Duration = Duration::from_millis(100);

/// Frames that came before their receive, each with the time.
#[derive(Debug, Default)]
pub(crate) struct KeptFrames(VecDeque<(Time, Vec<u8>)>);

impl KeptFrames {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Keeps one; the oldest, and those that waited too long, make room.
    pub(super) fn keep(&mut self, frame: &[u8], now: Time) {
        while self.0.len() >= MOST_KEPT || self.0.front().is_some_and(|(at, _)| now.since(*at) > KEPT_FOR) {
            self.0.pop_front();
        }
        self.0.push_back((now, frame.to_vec()));
    }
    pub(super) fn next(&mut self, now: Time) -> Option<Vec<u8>> {
        loop {
            let (at, frame) = self.0.pop_front()?;
            if now.since(at) <= KEPT_FOR {
                return Some(frame);
            }
        }
    }
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
