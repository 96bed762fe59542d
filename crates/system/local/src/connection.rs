//! Connections between the processes of a user: their ids, why a message did not leave, and the
//! tables of connections and listeners. One descriptor watches all of them, and a token says which
//! has something.

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

/// Tokens from here on are listeners'.
pub(crate) const LISTENER: u64 = 1 << 63;
/// Tokens from here on are connections to others, of which only the end is told.
pub(crate) const OUTGOING: u64 = 1 << 62;
/// Tokens from here on are connections to those who listen for services, of which only the end is
/// told.
pub(crate) const TO_SERVICE: u64 = OUTGOING | 1 << 32;
/// Tokens from here on are listeners for services.
pub(crate) const SERVICE: u64 = LISTENER | 1 << 32;
/// Tokens from here on are packet sockets.
pub(crate) const FRAMES: u64 = 1 << 63 | 1 << 33;

/// Why a message did not leave.
#[derive(Debug)]
pub enum Untold {
    /// Its reader has not taken earlier ones yet.
    Full,
    /// No living process of this user owns the slot.
    NoOwner,
    /// The slot's name is held by this user.
    OtherUser(u32),
    /// This process would connect as another user than the one whose the slot is.
    Changed(UserChanged),
    /// What else the kernel says.
    Other(io::Error),
}

impl From<Untold> for io::Error {
    fn from(untold: Untold) -> io::Error {
        match untold {
            Untold::Full => io::ErrorKind::WouldBlock.into(),
            Untold::NoOwner => io::ErrorKind::ConnectionRefused.into(),
            Untold::OtherUser(uid) => io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("its name is held by {}, who is sent nothing", User(uid)),
            ),
            Untold::Changed(changed) => io::Error::new(io::ErrorKind::PermissionDenied, changed),
            Untold::Other(error) => error,
        }
    }
}

/// Who sent a message, and what came with it.
pub(crate) struct Sender {
    /// Its process, as this one sees it; 0 from another PID namespace.
    pub(crate) pid: i32,
    /// Descriptors; those that nobody takes are closed with it.
    pub(crate) fds: Vec<OwnedFd>,
    /// To be kept until the descriptors are.
    pub(crate) transit: Transit,
}

/// Which connection to another process; no two of a process are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(crate) slot: Slot,
    pub(crate) number: u64,
}

impl ConnectionId {
    /// The slot that its other end had.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// A connection to the owner of a slot, whose user was proved.
pub(crate) struct Connection {
    pub(crate) fd: Fd,
    pub(crate) id: ConnectionId,
    /// The process that listens at the other end, as this one sees it; 0 from another PID
    /// namespace.
    pub(crate) pid: i32,
    pub(crate) used: AtomicU64,
    /// Messages of queue pair 1 go over it.
    pub(crate) carries_mads: AtomicBool,
}

impl Connection {
    /// Has its other end gone?
    pub(crate) fn has_ended(&self) -> bool {
        matches!(sys::poll(&[self.fd.raw()], 0, Duration::ZERO), Ok(1))
    }
}

/// Connections to others.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) connections: RwLock<HashMap<Slot, Arc<Connection>>>,
    pub(crate) next: AtomicU64,
    pub(crate) clock: AtomicU64,
}

/// Connections of others.
pub(crate) struct Incoming {
    /// Readable while a listener or a connection is, or a connection to another process has ended.
    pub(crate) any: Fd,
    /// Held while messages are taken, so that the order of each connection is kept.
    pub(crate) taking: Mutex<Taking>,
}

/// Connections of others that were taken, and whose turn it is.
pub(crate) struct Taking {
    pub(crate) connections: HashMap<u64, Taken>,
    pub(crate) next: u64,
    pub(crate) clock: u64,
    /// The connection that was busy last, and looks at it in vain since.
    pub(crate) hot: Option<u64>,
    pub(crate) vain: u32,
    /// Messages taken from it in a row.
    pub(crate) row: u32,
    /// Given up when there are no descriptors left, so that whoever knocks can be sent away.
    pub(crate) spare: Option<Fd>,
}

/// A connection of a process of the own user.
pub(crate) struct Taken {
    pub(crate) fd: Fd,
    pub(crate) pid: i32,
    pub(crate) used: u64,
    /// It is told to go, and read to its end.
    pub(crate) leaving: bool,
    /// The token of the service at whose name it came.
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

    /// Has a slot's listener watched.
    pub(crate) fn add_listener(&self, slot: Slot, fd: &Fd) -> io::Result<()> {
        sys::watch(&self.any, fd, LISTENER | u64::from(slot))
    }
}

/// The bytes of a message that was received into a buffer.
pub(crate) fn received(buffer: &[u8], len: usize) -> &[u8] {
    &buffer[..len.min(buffer.len())]
}

/// A connection to the process that listens for a service, whose user was proved.
pub(crate) struct ToService {
    pub(crate) fd: Fd,
    /// As [`Connection::pid`].
    pub(crate) pid: i32,
    pub(crate) token: u64,
    pub(crate) used: AtomicU64,
}

impl ToService {
    /// Has its other end gone?
    pub(crate) fn has_ended(&self) -> bool {
        matches!(sys::poll(&[self.fd.raw()], 0, Duration::ZERO), Ok(1))
    }
}

/// What this process listens for, by token, and those that it asks, by the names they listen at.
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
