//! The carrier between processes of one user on one host: UC and UD.
//!
//! UC and UD have no acknowledgements, so a sender does not learn that it outruns the receiver.
//! Over UDP, a burst would overrun the receiver's socket buffer and be lost. No program expects
//! such a loss on a single machine. So the packets go to the owner's socket for other processes,
//! which reports when it is full.
//!
//! 1. Packets for a full socket wait, separately for each process (`Backlog`). So a slow process
//!    does not delay packets to other processes.
//! 2. If many messages wait for a process (`MESSAGES`), the queue pair pauses and its send queue
//!    fills. The program waits for completions, as on a network with link-level flow control.
//! 3. A process may take nothing for longer (`FULL_LIMIT`), for instance when it is stopped in a
//!    debugger. A UC queue pair has no other peer, so it waits, and the log reports the wait. A UD
//!    queue pair drops its datagrams for the process from then on.
//!
//! The program counts waiting packets as sent. So when their queue pair is destroyed, the node
//! gives the packets to their owners (`Relay::keep_leaving`), and the end of the process waits a
//! moment for the owners.
//!
//! At the receiver, a message may arrive shortly before its receive is posted, for instance because
//! the receiver's threads were not scheduled for a few milliseconds. The message is kept for a
//! moment (`Relay::pending`) and not dropped at once.
//!
//! Reliable transports use the same sockets if packets of one host do not get through on port 4791.
//! Steering may be stale for a moment after a process has ended. Retransmissions after a timeout go
//! to their owner directly, and so do the answers.
mod backlog;
mod carrier;
mod kept;
mod state;

pub(crate) use backlog::Backlog;
pub(crate) use carrier::Relay;
pub(crate) use kept::Kept;
pub(crate) use state::{Waiting, takes_receive};
