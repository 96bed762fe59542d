//! Explicit congestion notification (RFC 3168): the field of the traffic class, and whether the
//! peer is to be told of marks.
use crate::time::Time;
use core::time::Duration;

/// ECN-capable transport, codepoint 0, in the traffic class; the field; in it, congestion
/// experienced is both bits.
pub(super) const ECT_0: u8 = 2;
pub(super) const ECN: u8 = 3;
/// At most one notification in so long, as NICs do it.
const INTERVAL: Duration = Duration::from_micros(50);

/// Whether the peer is to be told that its packets were marked.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    pub(super) due: bool,
    last: Option<Time>,
}

impl Notifier {
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    pub(super) fn marked(&mut self, now: Time) {
        if self.last.is_none_or(|last| now.since(last) >= INTERVAL) {
            (self.due, self.last) = (true, Some(now));
        }
    }
}
