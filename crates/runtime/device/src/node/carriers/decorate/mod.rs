//! Decorators of carriers: packets are recorded, or meet faults on request, on the path that they
//! take anyway.
//!
//! A carrier sends by a [`Road`](super::road::Road), and gives what has arrived to an
//! [`Inlet`](inlet::Inlet). Both decorators are made of these two:
//!
//! | decorator | sends | arrivals | one-sided requests |
//! |---|---|---|---|
//! | [`Captured`] | records each packet that the road has taken | records each packet, and what befell it | records what a NIC would have sent |
//! | [`Faulty`](faulty::Faulty) | | drops, delays, doubles and reorders them by the rules of the process | delays them, or has packets carry them |
//!
//! The carriers of UDP packets have the same two in the link (`UdpLink`): they damage bits and
//! record wrong ICRCs, which only UDP packets have. Both places write one file and obey the same
//! rules ([`Taps`]). A node without either pays one branch a packet and one-sided request.
//!
//! Under faults a ring loses packets, as a network does. Its engine needs no other rules: a ring
//! carries the engine's own packets, with retries and RNR. What changes is that
//! - deadlines are exact, as a timeout means a loss there ([`Taps::is_lossy`]), and
//! - a payload that a packet points at is fetched when the packet comes, before the rules decide.
//!
//! **One-sided requests** move no packet, and only the initiator knows of them. So the rules of the
//! initiator's process decide, as for the answer that would arrive there ([`Verdict`]):
//! - `delay`: the request waits. Requests that were posted with it wait with it, and answers to the
//!   peer leave meanwhile.
//! - `drop`: packets carry the request through the ring. The draw was for the next answer, so the
//!   answer to these packets is lost, and the engine sends the request again.
//! - `dup` and `reorder` mean nothing here: the answer would be the only one under way.
mod captured;
mod faulty;
mod inlet;
mod state;
mod taps;

pub(in crate::node) use captured::{Captured, Initiator, Recorded};
pub(in crate::node) use inlet::Arrival;
pub(in crate::node) use state::{Hold, Tape, Taps, Verdict};
