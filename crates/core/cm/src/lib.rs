//! The InfiniBand communication manager (IBTA volume 1, chapter 12), sans-IO.
//!
//! The communication manager sets up connections between queue pairs of two programs. The programs
//! agree on the service, queue pair numbers, first PSNs, depths and retries. Their messages are
//! MADs of 256 bytes. Queue pair 1 sends MADs as unreliable datagrams, so a sender repeats each MAD
//! until the MAD is answered.
//!
//! This crate makes all decisions of the protocol, as values. Commands, MADs and the time go in;
//! MADs to send and events come out. The crate has no clock, socket, thread or randomness, so the
//! device, a simulator and the tests run the same code. Linux's `ib_cm` is the usual peer: formats,
//! timeouts and answers are chosen for interoperation with Linux.
//!
//! # Driving it
//! A host owns one [`Endpoint`] per process and calls, in any order:
//!
//! 1. commands ([`Endpoint::listen`], [`Endpoint::connect`], [`Endpoint::accept`], …) for its
//!    program;
//! 2. [`Endpoint::handle_mad`] for each MAD that arrives at queue pair 1, and
//!    [`Endpoint::handle_timeout`] at the time that [`Endpoint::poll_timeout`] returns;
//! 3. after each of these calls, [`Endpoint::poll_transmit`], [`Endpoint::poll_event`] and
//!    [`Endpoint::poll_forgotten`] until they return `None`.
//!
//! The network may lose a MAD, and the host may drop a MAD. Only the protocol has to handle this.
//!
//! # A connection
//! 1. The active side calls [`Endpoint::connect`] (REQ).
//! 2. The passive side gets [`Event::Request`] with a new [`Id`]. It calls [`Endpoint::accept`]
//!    (REP) or [`Endpoint::reject`] (REJ).
//! 3. The active side gets [`Event::Reply`], brings its queue pair to RTS and calls
//!    [`Endpoint::established`] (RTU).
//! 4. The passive side gets [`Event::Established`].
//! 5. Either side calls [`Endpoint::disconnect`] (DREQ). The other side gets
//!    [`Event::Disconnected`].
//! 6. The other side calls [`Endpoint::disconnect`] or [`Endpoint::release`] (DREP). The first side
//!    gets [`Event::Disconnected`].
//! 7. Each side that has sent or received the DREP is in time-wait, until no packet of the
//!    connection can be in flight. Then [`Event::TimewaitExit`] comes.
//!
//! The endpoint never answers for a program that owns the id: a program that does not answer a DREQ
//! lets the other side wait until its retries end, as in Linux.
//!
//! The program owns each id that a command returned or an event brought, until it calls
//! [`Endpoint::release`], which is allowed in every state. If an id is released early, the endpoint
//! keeps it until the peer knows of the end or cannot be reached. The endpoint does not give out
//! the id again before. Two ids never have the same number until the counter wraps.
//!
//! Each command has one outcome:
//!
//! | command | outcome |
//! |---|---|
//! | `connect` | `Reply`, `Rejected` or `Unanswered` |
//! | `accept` | `Established`, `Rejected`, `Unanswered` or `Disconnected` |
//! | `established` (active side), `disconnect` | `Disconnected`, once per connection, whichever side begins |
//! | `sidr_request` | `SidrReply` or `Unanswered` |
//!
//! `Delayed` may come before the outcome. `TimewaitExit` may come after `Disconnected`, and after
//! `Rejected` with [`RejectReason::STALE_CONNECTION`]. An event and a command may cross: if the
//! sender of a request or reply has given up in the meantime, there is nothing left to answer. The
//! command then returns [`CommandError::WrongState`].
//!
//! # Retries and timeouts
//! Times are codes: 4.096 us * 2^code. The active side sends a REQ again if no answer comes within
//! the remote response time plus twice the packet lifetime, up to 15 times. With [`Timing::LINUX`]
//! this is every 4.8 s, and the sender gives up after 77 s. A REP uses the timing in the REQ; a
//! DREQ uses the timing with which the connection began.
//!
//! A peer that needs more time sends an MRA, once per message. This crate answers a repeated REQ or
//! REP with an MRA while the program has not decided. A repetition that comes sooner than the
//! sender's timeout is a copy made by the network, and gets no MRA. Limits on the peer's values
//! prevent a connection without owner from staying: 17 s for response times, 275 s for service
//! timeouts.
//!
//! # When things go wrong
//! - A repeated REQ gets the earlier answer again: MRA, REP or REJ. A repeated REP gets RTU, MRA or
//!   REJ. A repeated DREQ gets DREP once the program has answered. Repeated RTU and DREP have no
//!   effect.
//! - A REQ may carry the queue pair or id of an established connection. The peer has then forgotten
//!   that connection. The old connection ends with [`Ending::Stale`], the REQ is rejected with
//!   [`RejectReason::STALE_CONNECTION`], and the next attempt succeeds. If the old connection is
//!   only requested, it is dropped at once. If the old connection is replied to but not confirmed,
//!   it stays, and the REQ is rejected in the same way. The answer to the REP then shows which of
//!   the two connections the peer has forgotten.
//! - If DREQs cross, both sides get [`Ending::Peer`], and neither repeats its DREQ. Time-wait
//!   begins when a side calls [`Endpoint::disconnect`] once more or releases the id, as in Linux.
//! - If the passive side releases an id after its REP, the endpoint sends a REJ and continues to
//!   send the REP. The REJ may be lost, and the REP makes the peer answer.
//! - MADs of unknown connections are answered ([`answer_for_nobody`]) if the sender waits for an
//!   answer: REQ with REJ 8, REP with REJ 6, DREQ with DREP, SIDR_REQ with status 1, LAP with an
//!   APR. An RTU gets no answer, as in Linux, because its sender waits for nothing. Answers are
//!   never answered.
//! - A MAD is valid only if it comes from the address of the connection's peer and names both
//!   communication ids. An answer to a REQ or SIDR_REQ must also carry the transaction id of the
//!   request, and a DREQ the queue pair. All other MADs have no effect.
//!
//! # Memory
//! An endpoint holds at most [`Config::max_connections`] connections, [`Config::max_requests`]
//! requests that the program has not answered, a few events for each, and [`Config::max_answers`]
//! answers for peers that ask again. Requests beyond the limit are ignored, and their senders
//! repeat them. A full backlog of a listener works in the same way: [`Endpoint::drop_request`].
//!
//! # Several processes of a host
//! Queue pair 1 belongs to the host and not to a process. Each endpoint has a prefix in its
//! communication ids ([`Config::prefix`]). [`route()`] reads the destination process from a MAD:
//! from the prefix of the destination's communication id, or from the service id.
//! [`answer_for_nobody`] answers for processes that have ended. [`Endpoint::peer_ended`] ends
//! connections to a process of this host that has ended. [`Endpoint::farewell`] is the MAD that
//! another process may send to the peer after this process was killed.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bits;
mod commands;
mod conn;
mod data;
mod error;
mod farewell;
pub mod ip;
pub mod mad;
mod reason;
mod receive;
mod route;
mod table;
mod timeouts;
mod types;
mod values;
mod views;

#[cfg(test)]
mod tests;

pub use adverb_wire::Time;
pub use bits::MAD_LEN;
pub use data::{Data, TooLong};
pub use error::CommandError;
pub use mad::{Ece, MadError, MadKind, Message, SidrStatus};
pub use reason::RejectReason;
pub use route::{Route, answer_for_nobody, route};
pub use table::{Endpoint, Remote};
pub use types::{
    Accept, Config, ConnectRequest, Ending, Event, Id, Listener, Path, QpKind, Rejection,
    SidrAnswer, SidrRequest, State, Timing, Transmit,
};
