//! Decorators of carriers. They record packets, or apply faults on request, on the usual path of
//! the packets.
//!
//! A carrier sends by a [`Road`](super::road::Road), and gives arrived packets to an
//! [`Inlet`](inlet::Inlet). The decorators implement these traits:
//!
//! | decorator | sends | arrivals | one-sided requests |
//! |---|---|---|---|
//! | [`Captured`] | records each packet taken by the road | records each packet, and its fault | records the packets that a NIC would have sent |
//! | [`Faulty`](faulty::Faulty) | | drops, delays, doubles and reorders packets by the rules of the process | delays requests, or sends them as packets |
//!
//! For UDP packets, the link has the same two decorators (`UdpLink`). There they damage bits and
//! record wrong ICRCs, which only UDP packets have. Both places write one file and apply the same
//! rules ([`Taps`]). A node without decorators pays one branch for a packet or one-sided request.
//!
//! Under faults a ring loses packets, as a network does. The engine needs no other rules: a ring
//! carries the engine's own packets, with retries and RNR. There are two changes:
//! - Deadlines are exact, because a timeout then means a loss (`Node::packet_faults`).
//! - A payload outside the ring is fetched when its packet arrives, before the rules decide.
//!
//! **One-sided requests** send no packet, and only the initiator knows of them. So the rules of the
//! initiator's process decide, as for an arriving answer ([`Verdict`]):
//! - `delay`: the request waits, together with all requests posted with it. Answers to the peer
//!   leave meanwhile.
//! - `drop`: packets carry the request through the ring. The draw was for the next answer, so the
//!   answer to these packets is lost, and the engine sends the request again.
//! - `dup` and `reorder` have no effect, because there is no other answer under way.
mod captured;
mod faulty;
mod inlet;
mod state;
mod taps;

pub(in crate::node) use captured::{Captured, Initiator};
pub(in crate::node) use inlet::Arrival;
pub(in crate::node) use state::{Hold, Tape, Taps, Verdict};
