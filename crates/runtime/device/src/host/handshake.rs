//! What two processes of a host give each other to share memory.
use adverb_local::{Bell, Bells, ConnectionId, PeerFd, Rope};
use adverb_shm::Consumer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::OwnedFd;

/// What a process has been given.
pub(crate) struct Given {
    /// Over which connection: what another process was given that has the slot now is not taken for
    /// it.
    pub(crate) connection: ConnectionId,
    pub(crate) ring: Consumer,
    pub(crate) bell: Bell,
}

/// What a greeting carries.
pub(crate) struct HandshakeFds {
    pub(crate) ring: OwnedFd,
    pub(crate) bell: Rope,
    pub(crate) tables: OwnedFd,
    pub(crate) shadow: PeerFd,
}

impl HandshakeFds {
    /// What a peer sent, if each is what it has to be; those that are mapped are looked at by
    /// whoever maps them.
    pub(crate) fn of(fds: Vec<OwnedFd>, bells: &Bells) -> io::Result<Self> {
        let fds = <[OwnedFd; 4]>::try_from(fds)
            .map_err(|fds| io::Error::other(format!("a greeting with {} descriptors of 4", fds.len())))?;
        let [ring, bell, tables, shadow] = fds;
        Ok(HandshakeFds { ring, bell: bells.rope(bell)?, tables, shadow: bells.keep(shadow)? })
    }

    /// Is the giver gone?
    pub(crate) fn has_ended(&self) -> bool {
        let Some(end) = self.bell.as_end() else { return true };
        let mut fds = [PollFd::new(end, PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }
}
