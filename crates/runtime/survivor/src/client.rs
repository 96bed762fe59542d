//! The side of the processes with connections.
use crate::VARIABLE;
use crate::record::{Record, Said};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, send, socket,
    sockopt,
};
use std::io;
use std::os::fd::AsRawFd;

/// The survivor of this run, if there is one.
///
/// # Example
/// ```
/// use adverb_survivor::Survivor;
///
/// // A program that was started by hand has no survivor, so
/// // its connections are not entrusted.
/// let survivor = Survivor::named(None);
/// survivor.withdraw(7);
/// ```
#[derive(Debug)]
pub struct Survivor {
    name: Option<String>,
}

impl Survivor {
    /// The survivor named in the environment.
    #[must_use]
    pub fn of_this_run() -> Survivor {
        Survivor::named(std::env::var(VARIABLE).ok())
    }

    /// The survivor with this name.
    #[must_use]
    pub fn named(name: Option<String>) -> Survivor {
        Survivor { name: name.filter(|name| !name.is_empty()) }
    }

    /// Entrusts a connection to the survivor, which ends the connection if this process ends
    /// without doing so. The record replaces an earlier record of the same connection. Never waits.
    /// If the survivor does not exist or does not answer in time, the log says so at `debug`.
    pub fn entrust(&self, record: Record) {
        self.say(Said::Entrust(Box::new(record)));
    }

    /// Takes a connection back: the connection with this communication id of this process is over.
    pub fn withdraw(&self, local_id: u32) {
        self.say(Said::Withdraw(local_id));
    }

    fn say(&self, said: Said) {
        let Some(name) = &self.name else { return };
        if let Err(e) = tell(name, &said) {
            log::debug!("the survivor of this run is not told of a connection: {e}");
        }
    }
}

fn tell(name: &str, said: &Said) -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    let owner = getsockopt(&fd, sockopt::PeerCredentials)?;
    if owner.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the name belongs to user {}, so nothing is sent", owner.uid()),
        ));
    }
    send(fd.as_raw_fd(), &said.emit(), MsgFlags::MSG_NOSIGNAL)?;
    Ok(())
}
