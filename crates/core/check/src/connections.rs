//! Events of rdma_cm: taken and not acknowledged.
use crate::events::{CM_EVENTS, OpenEvent};
use crate::report::count;
use crate::{Code, CodeAddress, Ledger};

impl Ledger {
    /// The program took an event at the address `event`. The event counts for `owner`, an id or a
    /// membership.
    pub fn connection_event_taken(
        &mut self,
        owner: usize,
        event: usize,
        kind: u32,
        place: CodeAddress,
    ) {
        self.connection_event_acknowledged(event);
        self.connection_events.open.push(OpenEvent { event, owner, kind, place });
    }

    /// The program acknowledged an event.
    pub fn connection_event_acknowledged(&mut self, event: usize) {
        self.connection_events.open.retain(|open| open.event != event);
    }

    /// Number of events of this owner without acknowledgement.
    #[must_use]
    pub fn unacknowledged_of_connection(&self, owner: usize) -> u64 {
        self.connection_events.open.iter().filter(|open| open.owner == owner).count() as u64
    }

    /// A call waits for the acknowledgement of the events of this owner, and no thread acknowledges
    /// them.
    pub fn connection_not_acknowledged(&mut self, owner: usize, call: &str, place: CodeAddress) {
        let of: Vec<_> = self
            .connection_events
            .open
            .iter()
            .filter(|open| open.owner == owner)
            .copied()
            .collect();
        let Some(oldest) = of.first() else { return };
        let places = [("event taken", oldest.place), ("waits", place)];
        self.reporter.say(Code::EventNotAcknowledged, &places, || {
            let name = CM_EVENTS.get(oldest.kind as usize).unwrap_or(&"the event");
            let more = match of.len() {
                1 => String::new(),
                n => format!(" and {} more", count(n - 1, "event")),
            };
            format!(
                "{call} waits for the acknowledgement of {name}{more}, and never returns if no \
                 other thread calls rdma_ack_cm_event; acknowledge each event before {call}"
            )
        });
    }
}
