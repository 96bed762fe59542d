//! What can go wrong while a link is set up, in words.

use std::fmt;
use std::io;
use std::net::IpAddr;

/// Why a link, an address or a slot could not be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// Somebody else owns the UDP port at this address.
    PortTaken {
        /// The local address.
        ip: IpAddr,
        /// The UDP port.
        port: u16,
    },
    /// The machine has no such address (any more).
    NoSuchAddress {
        /// The address asked for.
        ip: IpAddr,
    },
    /// The kernel (a security policy, a sandbox) forbids it.
    PermissionDenied {
        /// What was tried.
        doing: &'static str,
    },
    /// The process or the machine has no descriptor left.
    OutOfDescriptors {
        /// Whether the whole machine is out of them, not only this process (`ulimit -n`).
        machine: bool,
    },
    /// The kernel has no memory for another socket.
    OutOfMemory {
        /// What was tried.
        doing: &'static str,
    },
    /// IPv6 (or IPv4) is switched off on this machine.
    FamilyUnsupported {
        /// The address asked for.
        ip: IpAddr,
    },
    /// The link holds as many sockets as it can.
    TooManySockets {
        /// That many.
        limit: usize,
    },
    /// All slots of the user are taken by live processes.
    NoFreeSlot {
        /// How many there are.
        slots: usize,
    },
    /// Any other error of the operating system.
    Os {
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::PortTaken { ip, port } => write!(
                f,
                "UDP port {port} at {ip} is taken: a program of another user, a program that does not share it \
                 (SO_REUSEPORT), or the kernel's own RoCE device (rdma_rxe) holds it; `ss -ulpn sport = :{port}` names it"
            ),
            LinkError::NoSuchAddress { ip } => write!(f, "no interface of this machine has the address {ip}"),
            LinkError::PermissionDenied { doing } => {
                write!(f, "the system forbids to {doing}: a sandbox or a security policy is in the way")
            }
            LinkError::OutOfDescriptors { machine: false } => {
                f.write_str("this process has no file descriptor left; raise `ulimit -n`")
            }
            LinkError::OutOfDescriptors { machine: true } => {
                f.write_str("the machine has no file descriptor left (fs.file-max)")
            }
            LinkError::OutOfMemory { doing } => write!(f, "the kernel has no memory to {doing}"),
            LinkError::FamilyUnsupported { ip } => write!(
                f,
                "this machine has IPv{} switched off, so {ip} cannot be used",
                if ip.is_ipv6() { 6 } else { 4 }
            ),
            LinkError::TooManySockets { limit } => {
                write!(f, "the link already holds {limit} sockets, its limit")
            }
            LinkError::NoFreeSlot { slots } => {
                write!(f, "all {slots} process slots of this user are taken by live processes")
            }
            LinkError::Os { doing, source } => write!(f, "could not {doing}: {source}"),
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LinkError::Os { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl LinkError {
    /// Sorts an error of the operating system that has the same meaning wherever it comes from.
    pub(crate) fn from_io(doing: &'static str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LinkError::PermissionDenied { doing },
            Some(libc::EMFILE) => LinkError::OutOfDescriptors { machine: false },
            Some(libc::ENFILE) => LinkError::OutOfDescriptors { machine: true },
            Some(libc::ENOMEM | libc::ENOBUFS) => LinkError::OutOfMemory { doing },
            _ => LinkError::Os { doing, source: error },
        }
    }
}
