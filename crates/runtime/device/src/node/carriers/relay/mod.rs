//! The carrier between processes of one user on one host: UC and UD.
//!
//! These transports have no acknowledgements, so nothing tells a sender that it outruns its
//! receiver; over UDP a burst would overrun the receiver's socket buffer and be lost, which no
//! program expects on one machine. Their packets therefore go to the owner's hand-over socket,
//! which says when it is full: then they wait, for each process apart ([`Backlog`]), so that one
//! that is slow does not hold up what goes to others. When much waits for a process ([`MESSAGES`])
//! the queue pair pauses, its send queue fills, and the program waits for completions as on a
//! network with link-level flow control. A process that takes nothing for longer ([`DEAF`]), as it
//! is stopped in a debugger, holds up a UC queue pair, which has no other peer, and the log says
//! so; what a UD queue pair has for it is lost from then on.
//!
//! What waits so when its queue pair is destroyed was sent, as far as the program was told. The
//! node gives it to its owners ([`Relay::keep_leaving`]), and waits a moment for them before the
//! process ends.
//!
//! At the other end a message may come a moment before its receive is posted, as when the
//! receiver's threads were not scheduled for a few milliseconds. It is kept for a moment
//! ([`Stash`]) instead of being dropped at once.
//!
//! The same sockets serve reliable transports when packets of one host do not get through on port
//! 4791 (its steering may be stale for a moment after a process has gone): what is sent again after
//! a timeout goes to its owner directly, and so does the answer.
mod backlog;
mod carrier;
mod kept;
mod state;

pub(crate) use backlog::Backlog;
pub(crate) use carrier::Relay;
pub(crate) use kept::Kept;
pub(crate) use state::{Waiting, takes_receive};
