//! The objects exchanged by two processes of a host to share memory.
use super::peer::any_event;
use adverb_local::{ConnectionId, Doorbell, DoorbellHandle, Doorbells, PeerFd};
use adverb_shm::Consumer;
use nix::poll::{PollFd, PollFlags};
use std::io;
use std::os::fd::OwnedFd;

/// The objects given to another process.
pub(crate) struct Given {
    /// The connection of the handshake message. Tells its receiver from a later process with the
    /// same slot.
    pub(crate) connection: ConnectionId,
    pub(crate) ring: Consumer,
    pub(crate) doorbell: Doorbell,
}

/// The descriptors of a handshake message.
pub(crate) struct HandshakeFds {
    pub(crate) ring: OwnedFd,
    pub(crate) doorbell: DoorbellHandle,
    pub(crate) tables: OwnedFd,
    pub(crate) memory_file: PeerFd,
}

impl HandshakeFds {
    /// The descriptors sent by a peer, if each has the right kind. Memory is checked at the
    /// mapping.
    pub(crate) fn of(fds: Vec<OwnedFd>, doorbells: &Doorbells) -> io::Result<Self> {
        let fds = <[OwnedFd; 4]>::try_from(fds).map_err(|fds| {
            io::Error::other(format!("a handshake message with {} descriptors of 4", fds.len()))
        })?;
        let [ring, doorbell, tables, memory_file] = fds;
        Ok(HandshakeFds {
            ring,
            doorbell: doorbells.handle(doorbell)?,
            tables,
            memory_file: doorbells.keep(memory_file)?,
        })
    }

    /// Has the giver ended?
    pub(crate) fn has_ended(&self) -> bool {
        let Some(end) = self.doorbell.as_end() else { return true };
        any_event(&mut [PollFd::new(end, PollFlags::empty())])
    }
}
