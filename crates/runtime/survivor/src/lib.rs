//! Ends the connections of killed processes.
//!
//! The kernel's connection manager cleans up after each process, however the process ends. Each
//! peer gets a DREQ, or a REJ if the connection was not established yet. A connection manager
//! inside the process cannot do this after SIGKILL. Peers on the same host see the end themselves.
//! Peers on other hosts would wait for ever. So `adverb run` leaves a small process behind, the
//! *survivor*. The survivor sleeps until the program ends, and then ends the connections and
//! itself.
//!
//! 1. A process entrusts each connection over the network to the survivor when the connection is
//!    requested, with a MAD for the peer, the farewell ([`Survivor::entrust`]).
//! 2. The process entrusts the connection again when the state changes and another MAD is right.
//! 3. The process withdraws the connection at the end of the connection ([`Survivor::withdraw`]).
//! 4. When the process ends, the survivor sends the farewell of each remaining connection several
//!    times, and does not wait for an answer.
//!
//! The survivor has a random name in the abstract socket namespace, and only the environment
//! variable [`VARIABLE`] contains this name. Each message uses a new connection. So no descriptor
//! stays open for the program to close or use by mistake, and the kernel reports the sender of each
//! message. Both sides accept only processes of their own user.
//!
//! A pidfd reports the end of a process. The survivor ignores processes of other PID namespaces,
//! because they have no pidfd here.
//!
//! The survivor also answers the programs of its run that ask for the objects of all processes of
//! the user, such as `rdma res`. Such a program has no device of its own.
//!
//! The crate also handles the opposite direction: programs started by the command end with the
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
pub use children::{give_back, is_interrupted, note_interrupt, prepare, see_children};
pub use client::Survivor;
pub use guard::{AtEnd, end_as, end_orphans, guard, wait};
pub use record::Record;
pub use serve::Objects;

/// The environment variable with the name of a run's survivor.
pub const VARIABLE: &str = "ADVERB_SURVIVOR";
