//! Explicit congestion notification (RFC 3168): the field in the traffic class, and when the peer
//! gets a notification.
use adverb_wire::Time;
use core::time::Duration;

/// ECN-capable transport, codepoint 0, in the traffic class.
pub(super) const ECT_0: u8 = 2;
/// Mask of the field in the traffic class. Congestion experienced (CE) sets both bits.
pub(super) const ECN: u8 = 3;
/// At most one notification in this time, as on NICs.
const INTERVAL: Duration = Duration::from_micros(50);

/// Decides when to tell the peer that its packets were marked.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    pub(super) due: bool,
    last: Option<Time>,
}

impl Notifier {
    pub(super) fn marked(&mut self, now: Time) {
        if self.last.is_none_or(|last| now.since(last) >= INTERVAL) {
            (self.due, self.last) = (true, Some(now));
        }
    }
}
