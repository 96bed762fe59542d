//! The InfiniBand communication manager (IBTA volume 1, chapter 12), sans-IO.
//!
//! Two programs agree here on a connection of queue pairs: who may connect, with which queue pair
//! numbers, first PSNs, depths and retries. What they say to each other travels as MADs of 256
//! bytes, sent by queue pair 1 as unreliable datagrams; so they are repeated until they are
//! answered. Everything the protocol decides is decided here, as values: commands, MADs and the
//! time go in; MADs to send and events come out. The crate has no clock, socket, thread or
//! randomness, so that the device, a simulator and the tests drive the very same code. Linux's
//! `ib_cm` is the usual peer: formats, timeouts and answers are chosen so that it and this crate
//! understand each other.
//!
//! # Driving it
//! A host owns one [`Endpoint`] for a process and calls, in any order:
//!
//! 1. commands ([`Endpoint::listen`], [`Endpoint::connect`], [`Endpoint::accept`], …) for its
//!    program;
//! 2. [`Endpoint::handle_mad`] with what came to queue pair 1, and [`Endpoint::handle_timeout`] at
//!    the time that [`Endpoint::poll_timeout`] names;
//! 3. after each of them [`Endpoint::poll_transmit`], [`Endpoint::poll_event`] and
//!    [`Endpoint::poll_forgotten`] until they answer `None`.
//!
//! A MAD to send may be lost on the way, or be dropped by the host: none but the protocol needs to
//! care.
//!
//! # A connection
//! The active side calls [`Endpoint::connect`] (REQ). The passive side gets [`Event::Request`] with
//! a new [`Id`] and calls [`Endpoint::accept`] (REP) or [`Endpoint::reject`] (REJ). The active side
//! gets [`Event::Reply`], brings its queue pair to RTS and calls [`Endpoint::established`] (RTU),
//! upon which the passive side gets [`Event::Established`]. Either side calls
//! [`Endpoint::disconnect`] (DREQ); the other is answered for at once (DREP), and both get
//! [`Event::Disconnected`]. Then the connection is in time-wait until no packet of it can be on the
//! way, and [`Event::TimewaitExit`] comes.
//!
//! The program owns each id that a command returned or an event brought, until it calls
//! [`Endpoint::release`], which is possible in every state. An id released early is kept until the
//! peer has heard of its end or cannot be reached, and is not given out again before; nor are two
//! ids alike for as long as the counter does not wrap.
//!
//! Each command has one outcome:
//!
//! | command | outcome |
//! |---|---|
//! | `connect` | `Reply`, `Rejected` or `Unanswered` |
//! | `accept` | `Established`, `Rejected`, `Unanswered` or `Disconnected` |
//! | `established` (active side), `disconnect` | `Disconnected`, once for the connection, whoever begins |
//! | `sidr_request` | `SidrReply` or `Unanswered` |
//!
//! `Delayed` may come before the outcome, `TimewaitExit` after `Disconnected` (and after `Rejected`
//! with [`RejectReason::STALE_CONNECTION`]). An event and a command may cross: a request or reply
//! whose sender has given up since is no longer there to be answered, and the command says
//! [`CommandError::WrongState`].
//!
//! # Retries and timeouts
//! Times are codes: 4.096 us * 2^code. A REQ is sent again when no answer has come within the
//! remote response time and twice the packet lifetime, up to 15 times ([`Timing::LINUX`]: every 4.8
//! s, given up after 77 s). A REP uses what the REQ said, a DREQ what the connection began with. A
//! peer that needs longer says so by an MRA, once for each message; here an MRA answers a repeated
//! REQ or REP while the program has not decided, but for one that the network repeats: it comes
//! sooner than its sender sends again. What a peer may set is limited, so that a
//! connection that nobody owns any more does not stay: response times to 17 s, service timeouts to
//! 275 s.
//!
//! # When things go wrong
//! - A repeated REQ is answered with what was answered before: MRA, REP or REJ. A repeated REP:
//!   RTU, MRA or REJ. A repeated DREQ: DREP. Repeated RTU and DREP change nothing.
//! - A REQ with the queue pair or id of a connection that stands: the peer has forgotten that one.
//!   It ends with [`Ending::Stale`], the REQ is refused with [`RejectReason::STALE_CONNECTION`],
//!   and the next attempt is taken. One that was only asked for makes way at once. One that is
//!   replied to but not confirmed stays, and the REQ is refused alike: the answer to the
//!   REP tells which of both the peer has forgotten.
//! - DREQs that cross answer each other; both sides get [`Ending::Peer`] or [`Ending::Confirmed`].
//! - A passive side that lets go of an id after its REP sends a REJ and goes on with the REP: the
//!   REJ may be lost, and the REP brings it to light.
//! - MADs of connections that do not exist are answered ([`answer_for_nobody`]) if their sender
//!   waits for an answer: REQ with REJ 8, REP with REJ 6, DREQ with DREP, SIDR_REQ with status 1,
//!   LAP with an APR. An RTU is not answered, as on Linux: its sender waits for nothing. Answers
//!   are never answered.
//! - A MAD counts only when it comes from the address the connection leads to and names both
//!   communication ids; the answers to a REQ or SIDR_REQ must bring its transaction id back, a DREQ
//!   the queue pair. All others change nothing.
//!
//! # Memory
//! An endpoint holds at most [`Config::max_connections`] connections, [`Config::max_requests`]
//! requests that the program has not answered, a handful of events for each, and
//! [`Config::max_answers`] answers for peers that ask again. Requests beyond that are left alone,
//! and come again. A full backlog of a program's listener is answered alike:
//! [`Endpoint::drop_request`].
//!
//! # Several processes of a host
//! Queue pair 1 belongs to no process. Each endpoint has a prefix in its communication ids
//! ([`Config::prefix`]), and [`route()`] reads off a MAD whom it is for: the prefix of the id that
//! it brings back, or the service id that somebody listens on. [`answer_for_nobody`] answers for
//! processes that have ended. [`Endpoint::peer_gone`] ends connections to a process of this host
//! that has ended, and [`Endpoint::farewell`] is what somebody else may say to the peers of one
//! that was killed.
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
    Accept, Config, ConnectRequest, Ending, Event, Id, Listener, Path, QpKind, Rejection, SidrAnswer,
    SidrRequest, State, Timing, Transmit,
};
