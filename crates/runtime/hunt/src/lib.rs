//! The device as an adversary: choices at calls of the program, within the rules.
//!
//! A hunted program (`adverb hunt`, `adverb run --replay`) has a schedule of points with choices.
//! Most choices concern the moment at which a completion becomes visible:
//!
//! - A call may take long, as in a thread that loses the processor.
//! - A completion may come late, as over a slow network, but in the order of its work queue and
//!   after a bounded time.
//! - A send queue may count its places as NICs do, which free a place when a completion is polled.
//! - Requests may be carried out late, in parts, or a second time.
//! - What is undefined has random values. A registration may fail, and a message of an unreliable
//!   transport may be lost.
//!
//! The device tells [`Adversary`](adverb_device::cq::Adversary) what happens to its queues.
//! The faces tell the functions here which calls the program makes, and from which places of its
//! code. Without a schedule the device has no adversary.
#![forbid(unsafe_code)]

mod begin;
mod calls;
mod late;
mod ledger;
mod process;
mod queue;
mod quiet;
mod reads;

pub use begin::{AlreadyHunted, is_on, join_part, part, part_so_far, set};
pub use calls::{
    Chosen, armed, arming, calling, calling_on, choice, failing, garbage, getting, interrupts,
    is_hunted, note_refused, polled, post, posted, posting, read_connection_event,
    read_connection_event_at,
};
pub use process::{HuntedPart, LOG, SCHEDULE, WORDS, set_namers, set_witness};
