//! Errors of setting up a link.

use std::fmt;
use std::io;
use std::net::IpAddr;

use adverb_os::sys;
use adverb_os::{OsError, User, owner};
use thiserror::Error;

/// Why a link or an address was not available.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Another program or the kernel holds the UDP port at this address.
    #[error(fmt = port_taken)]
    PortTaken {
        /// The local address.
        ip: IpAddr,
        /// The UDP port.
        port: u16,
        /// The user of this process.
        uid: u32,
        /// The users of the sockets there, by the kernel's table; empty if the kernel does not say.
        holders: Vec<u32>,
    },
    /// The machine has no such address (any more).
    #[error("no interface of this machine has the address {ip}")]
    NoSuchAddress {
        /// The requested address.
        ip: IpAddr,
    },
    /// The kernel does not allow binding a socket to an IPv6 address yet.
    #[error(
        "the address {ip} cannot be used yet: the kernel still checks whether another host has \
         this address (IPv6 duplicate address detection, which needs a carrier)"
    )]
    Tentative {
        /// The requested address.
        ip: IpAddr,
    },
    /// IPv6 (or IPv4) is switched off on this machine.
    #[error("this machine has IPv{} switched off, so {ip} cannot be used", if ip.is_ipv6() { 6 } else { 4 })]
    FamilyUnsupported {
        /// The requested address.
        ip: IpAddr,
    },
    /// The link holds its largest number of sockets.
    #[error("the link already holds {limit} sockets, its limit")]
    TooManySockets {
        /// The limit.
        limit: usize,
    },
    /// Any other error of the operating system.
    #[error(transparent)]
    Os(#[from] OsError),
}

fn port_taken(
    ip: &IpAddr,
    port: &u16,
    uid: &u32,
    holders: &[u32],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "UDP port {port} at {ip} is taken: ")?;
    match holders.iter().find(|holder| *holder != uid) {
        Some(&holder) => write!(
            f,
            "{} has the port{}, there or at another address of this machine, and only programs of \
             one user share the port (this program runs as {}); ask this user to end the program, \
             or use a network namespace of your own",
            User(holder),
            if holder == 0 {
                " (a program of root, or the kernel's own RoCE device, rdma_rxe)"
            } else {
                ""
            },
            User(*uid)
        )?,
        None if holders.is_empty() => f.write_str(
            "a program of another user, a program that does not share the port (SO_REUSEPORT), or \
             the kernel's own RoCE device (rdma_rxe) has the port",
        )?,
        None => f.write_str(
            "a program of this user that does not share the port (SO_REUSEPORT) has the port; end \
             this program",
        )?,
    }
    write!(f, "; `ss -ulpn sport = :{port}` names the program")
}

impl LinkError {
    /// As [`OsError::from_io`].
    pub(crate) fn from_io(doing: &'static str, error: io::Error) -> Self {
        OsError::from_io(doing, error).into()
    }

    /// The error for a port that is not available at an address.
    pub(crate) fn port_taken(ip: IpAddr, port: u16) -> Self {
        let uid = sys::effective_uid();
        let all = owner::port_holders(ip, port);
        // By its user number the kernel is root, and root may be the own user.
        let unclear = all.iter().any(|holder| holder.kernel && holder.uid == uid);
        let holders =
            if unclear { Vec::new() } else { all.iter().map(|holder| holder.uid).collect() };
        LinkError::PortTaken { ip, port, uid, holders }
    }
}
