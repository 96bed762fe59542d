//! Connections between the processes of a user: their ids, the errors of sending a message, and the
//! tables of connections and listeners. One descriptor watches all connections, and a token names
//! the ready one.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use adverb_os::User;
use adverb_os::sys::{self, Fd, FdTable, Transit};
use adverb_sync::{Mutex, RwLock};

use crate::error::UserChanged;
use crate::slot::Slot;

/// Tokens from this value on belong to listeners.
pub(crate) const LISTENER: u64 = 1 << 63;
/// Tokens from this value on belong to outgoing connections, of which only the end is reported.
pub(crate) const OUTGOING: u64 = 1 << 62;
/// Tokens from this value on belong to connections to service listeners, of which only the end is
/// reported.
pub(crate) const TO_SERVICE: u64 = OUTGOING | 1 << 32;
/// Tokens from this value on belong to service listeners.
pub(crate) const SERVICE: u64 = LISTENER | 1 << 32;
/// Tokens from this value on belong to packet sockets.
pub(crate) const FRAMES: u64 = 1 << 63 | 1 << 33;

/// Why a message was not sent.
#[derive(Debug)]
pub enum Untold {
    /// The receiver has not taken earlier messages yet.
    Full,
    /// No living process of this user owns the slot.
    NoOwner,
    /// This other user holds the slot's name.
    OtherUser(u32),
    /// This process would connect as another user than the slot's.
    Changed(UserChanged),
    /// Another error of the kernel.
    Other(io::Error),
}

impl From<Untold> for io::Error {
    fn from(untold: Untold) -> io::Error {
        match untold {
            Untold::Full => io::ErrorKind::WouldBlock.into(),
            Untold::NoOwner => io::ErrorKind::ConnectionRefused.into(),
            Untold::OtherUser(uid) => io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("the name belongs to {}, so nothing is sent", User(uid)),
            ),
            Untold::Changed(changed) => io::Error::new(io::ErrorKind::PermissionDenied, changed),
            Untold::Other(error) => error,
        }
    }
}

/// The sender of a message, and the descriptors sent with it.
pub(crate) struct Sender {
    /// The sender's process id in the PID namespace of this process; 0 from another PID namespace.
    pub(crate) pid: i32,
    /// The connection, for a reply.
    pub(crate) token: u64,
    /// The descriptors; any left are closed on drop.
    pub(crate) fds: Vec<OwnedFd>,
    /// Must be kept as long as the descriptors.
    pub(crate) transit: Transit,
}

/// The identity of a connection to another process, unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(crate) slot: Slot,
    pub(crate) number: u64,
}

impl ConnectionId {
    /// The slot of the other end.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// A connection to the owner of a slot, with a proved user.
pub(crate) struct Connection {
    pub(crate) fd: Fd,
    pub(crate) id: ConnectionId,
    /// The process id of the listener at the other end, in the PID namespace of this process; 0 in
    /// another PID namespace.
    pub(crate) pid: i32,
    pub(crate) used: AtomicU64,
    /// Messages of queue pair 1 use this connection.
    pub(crate) carries_mads: AtomicBool,
}

/// Whether the other end of a connection has ended.
pub(crate) fn has_ended(fd: &Fd) -> bool {
    matches!(sys::poll(&[fd.raw()], 0, Duration::ZERO), Ok(1))
}

/// Connections to other processes.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) connections: RwLock<HashMap<Slot, Arc<Connection>>>,
    pub(crate) next: AtomicU64,
    pub(crate) clock: AtomicU64,
}

/// Connections from other processes.
pub(crate) struct Incoming {
    /// Readable while a listener or a connection is readable, or an outgoing connection has ended.
    pub(crate) any: Fd,
    /// Held while messages are taken, so that each connection keeps its order.
    pub(crate) taking: Mutex<Taking>,
}

/// Accepted connections, and the state of taking messages from them.
pub(crate) struct Taking {
    pub(crate) connections: HashMap<u64, Taken>,
    pub(crate) next: u64,
    pub(crate) clock: u64,
    /// The most recently busy connection; `vain` counts unsuccessful looks at it since.
    pub(crate) hot: Option<u64>,
    pub(crate) vain: u32,
    /// Messages taken from `hot` in a row.
    pub(crate) row: u32,
    /// Closed when no descriptors are left, so that a new connection can be accepted and refused.
    pub(crate) spare: Option<Fd>,
}

/// A connection from a process of the own user.
pub(crate) struct Taken {
    pub(crate) fd: Fd,
    pub(crate) pid: i32,
    pub(crate) used: u64,
    /// The connection was asked to end, and is read until then.
    pub(crate) leaving: bool,
    /// The token of the service, if the connection was accepted at a service's name.
    pub(crate) service: Option<u64>,
}

impl Incoming {
    pub(crate) fn new(table: &Arc<FdTable>) -> io::Result<Self> {
        Ok(Incoming {
            any: sys::any_of(table)?,
            taking: Mutex::new(Taking {
                connections: HashMap::new(),
                next: 0,
                clock: 0,
                hot: None,
                vain: 0,
                row: 0,
                spare: sys::message_socket(table).ok(),
            }),
        })
    }

    /// Watches a slot's listener.
    pub(crate) fn add_listener(&self, slot: Slot, fd: &Fd) -> io::Result<()> {
        sys::watch(&self.any, fd, LISTENER | u64::from(slot))
    }
}

/// The bytes of a message received into a buffer.
pub(crate) fn received(buffer: &[u8], len: usize) -> &[u8] {
    &buffer[..len.min(buffer.len())]
}

/// A connection to the process listening for a service, with a proved user.
pub(crate) struct ToService {
    pub(crate) fd: Fd,
    /// As [`Connection::pid`].
    pub(crate) pid: i32,
    pub(crate) token: u64,
    pub(crate) used: AtomicU64,
}

/// The services of this process, by token, and its connections to services of other processes, by
/// name.
#[derive(Default)]
pub(crate) struct Services {
    pub(crate) listening: Mutex<Vec<(u64, Arc<Fd>)>>,
    pub(crate) asked: RwLock<HashMap<String, Arc<ToService>>>,
    pub(crate) next: AtomicU64,
}

impl Services {
    pub(crate) fn get(&self, token: u64) -> Option<Arc<Fd>> {
        self.listening.lock().iter().find(|(of, _)| *of == token).map(|(_, fd)| fd.clone())
    }
}
