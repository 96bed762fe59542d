//! Events of rdma_cm: taken and not acknowledged.
use crate::report::count;
use crate::state::OpenEvent;
use crate::{Code, CodeAddress, Ledger};

/// The kinds of events, by number.
pub const CM_EVENTS: [&str; 19] = [
    "RDMA_CM_EVENT_ADDR_RESOLVED",
    "RDMA_CM_EVENT_ADDR_ERROR",
    "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",
    "RDMA_CM_EVENT_CONNECT_REQUEST",
    "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",
    "RDMA_CM_EVENT_UNREACHABLE",
    "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",
    "RDMA_CM_EVENT_DISCONNECTED",
    "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN",
    "RDMA_CM_EVENT_MULTICAST_ERROR",
    "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",
    "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    "RDMA_CM_EVENT_ADDRINFO_ERROR",
    "RDMA_CM_EVENT_USER",
];

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
        self.connection_events.push(OpenEvent { event, owner, kind, place });
    }

    /// The program acknowledged an event.
    pub fn connection_event_acknowledged(&mut self, event: usize) {
        self.connection_events.retain(|open| open.event != event);
    }

    /// Number of events of this owner without acknowledgement.
    #[must_use]
    pub fn unacknowledged_of_connection(&self, owner: usize) -> u64 {
        self.connection_events.iter().filter(|open| open.owner == owner).count() as u64
    }

    /// A call waits for the acknowledgement of the events of this owner, and no thread acknowledges
    /// them.
    pub fn connection_not_acknowledged(&mut self, owner: usize, call: &str, place: CodeAddress) {
        let of = self.connection_events.iter().filter(|open| open.owner == owner);
        let of: Vec<_> = of.copied().collect();
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
