//! Ends the connections of processes that were killed.
//!
//! The kernel's connection manager cleans up after a process however the process ends: each peer
//! gets a DREQ, or a REJ if the connection was not made yet. A connection manager that lives in the
//! process cannot do so after SIGKILL. Within a
//! host the peers see the end by themselves; peers on other hosts would wait for ever. So `adverb
//! run` leaves a small process behind, the *survivor*. It sleeps until the program ends, and ends
//! with it.
//!
//! A process entrusts each connection over the network to the survivor when it is asked for, with
//! the words for its peer, and anew when it has moved on so that other words are due
//! ([`Survivor::entrust`]); it takes it back when the connection is over ([`Survivor::withdraw`]).
//! When the process ends, the survivor sends the last words of each connection that it still has, a
//! few times, as nobody waits for the answer.
//!
//! The survivor is found by a name in the abstract namespace of sockets that only the environment
//! variable [`VARIABLE`] tells. Each message is a connection of its own: no descriptor stays open
//! that the program could close or use by mistake, and the kernel says whose message it is. Both
//! sides talk to processes of their own user only.
//!
//! The end of a process is seen at its pidfd. Processes of other PID namespaces, which have none
//! here, are not heard.
//!
//! The crate also sees to the other direction: the programs that the command starts end with the
//! command ([`guard()`]).
#![warn(missing_docs)]

#[allow(unsafe_code, reason = "forks of a process with one thread, and close_range")]
mod apart;
#[allow(
    unsafe_code,
    reason = "what a program is started with: a signal's disposition, its parent-death signal"
)]
mod children;
mod client;
mod guard;
mod record;
mod serve;

pub use apart::{in_a_copy, leave_behind};
pub use children::{give_back, prepare, see_children};
pub use client::Survivor;
pub use guard::{AtEnd, end_as, end_orphans, guard, wait};
pub use record::Record;

/// The environment variable that names the survivor of a run.
pub const VARIABLE: &str = "ADVERB_SURVIVOR";
