//! Errors between the processes of a user.

use std::fmt;
use std::io;
use std::net::IpAddr;

use adverb_os::{OsError, User};
use thiserror::Error;

/// The process with the changed user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Changed {
    #[error("this process")]
    Here,
    /// The process with this process id.
    #[error("process {0} of this host")]
    Peer(i32),
}

/// A process opened its device as one user and now runs as another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{process} opened the device as {} and runs as {} now, so no process of this host accepts a \
     new connection from this process; open the device after the change of user (setuid, seteuid), \
     or connect before the change",
    User(*.opened), User(*.now)
)]
pub struct UserChanged {
    pub(crate) process: Changed,
    /// The user that opened the device.
    pub opened: u32,
    /// The current effective user.
    pub now: u32,
}

/// Why a slot, a service or a connection was not available.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LocalError {
    /// All slots of the user are taken by live processes, of this user or of other users holding
    /// the slots' names.
    #[error(fmt = no_free_slot)]
    NoFreeSlot {
        /// The number of slots.
        slots: usize,
        /// The user of the slots.
        uid: u32,
        /// The users holding the names, and the number of names of each; empty if the kernel does
        /// not say.
        holders: Vec<(u32, usize)>,
    },
    /// Another claim of the service conflicts.
    #[error(fmt = service_taken)]
    ServiceTaken {
        /// The service id.
        service: u64,
        /// The requested address; `None`: all addresses.
        at: Option<IpAddr>,
        /// The user of the conflicting process, if the kernel says.
        holder: Option<u32>,
    },
    /// The process has changed its user since opening the device.
    #[error("{0}")]
    UserChanged(UserChanged),
    /// Any other error of the operating system.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl LocalError {
    /// As [`OsError::from_io`].
    pub(crate) fn from_io(doing: &'static str, error: io::Error) -> Self {
        OsError::from_io(doing, error).into()
    }
}

fn service_taken(
    service: &u64,
    at: &Option<IpAddr>,
    holder: &Option<u32>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    // The service ids of ports: port space, then port (IBTA annex A11).
    write!(f, "port {} (service id {service:#x}) ", service & 0xffff)?;
    match at {
        Some(ip) => write!(f, "at {ip} is taken")?,
        None => f.write_str("is taken")?,
    }
    holder.map_or(Ok(()), |holder| write!(f, " by a process of {}", User(holder)))
}

fn no_free_slot(
    slots: &usize,
    uid: &u32,
    holders: &[(u32, usize)],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "all {slots} process slots of this user are taken by live processes")?;
    let others: Vec<_> = holders.iter().filter(|(holder, _)| holder != uid).collect();
    if others.is_empty() {
        return Ok(());
    }
    f.write_str(": ")?;
    for (holder, count) in &others {
        write!(f, "{count} of them by {}, ", User(*holder))?;
    }
    write!(
        f,
        "probably to keep this user out; end the programs with these names (`ss -xlp | grep \
         @adverb-{uid}-` as root shows the programs), or use a network namespace of your own"
    )
}
