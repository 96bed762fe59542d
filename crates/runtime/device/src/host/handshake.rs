//! The objects exchanged by two processes of a host to share memory.
use adverb_local::{Bell, Bells, ConnectionId, PeerFd, Rope};
use adverb_shm::Consumer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::OwnedFd;

/// The objects given to another process.
pub(crate) struct Given {
    /// The connection of the greeting. Tells the greeted process from a later process with the same
    /// slot.
    pub(crate) connection: ConnectionId,
    pub(crate) ring: Consumer,
    pub(crate) bell: Bell,
}

/// The descriptors of a greeting.
pub(crate) struct HandshakeFds {
    pub(crate) ring: OwnedFd,
    pub(crate) bell: Rope,
    pub(crate) tables: OwnedFd,
    pub(crate) shadow: PeerFd,
}

impl HandshakeFds {
    /// The descriptors sent by a peer, if each has the right kind. Memory is checked at the
    /// mapping.
    pub(crate) fn of(fds: Vec<OwnedFd>, bells: &Bells) -> io::Result<Self> {
        let fds = <[OwnedFd; 4]>::try_from(fds)
            .map_err(|fds| io::Error::other(format!("a greeting with {} descriptors of 4", fds.len())))?;
        let [ring, bell, tables, shadow] = fds;
        Ok(HandshakeFds { ring, bell: bells.rope(bell)?, tables, shadow: bells.keep(shadow)? })
    }

    /// Has the giver ended?
    pub(crate) fn has_ended(&self) -> bool {
        let Some(end) = self.bell.as_end() else { return true };
        let mut fds = [PollFd::new(end, PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }
}
