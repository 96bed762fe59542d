//! The port at every address, so that one user has it on a machine.
//!
//! A socket that has the port at one address may send from others: one that is bound to a group or
//! to a broadcast address sends from whatever the route says, `IP_PKTINFO` names any address of the
//! machine, and with `IPV6_FREEBIND` any address at all. So a source says whose a packet is only if
//! no other user has the port anywhere. Before a link opens the port at an address it therefore
//! binds a socket to all addresses of the family, which no other user's can stand beside. Nothing
//! is received there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use adverb_os::OsError;
use adverb_os::sys::{self, Fd, FdTable, RawAddr};
use adverb_sync::Mutex;

use crate::LinkError;
use crate::bare::{bare_socket, socket_addr};
use crate::looped;
use crate::types::{Config, LocalPorts};

/// The sockets that hold the port for all addresses of IPv4 and of IPv6.
#[derive(Default)]
pub(crate) struct Everywhere(Mutex<[Option<Fd>; 2]>);

impl Everywhere {
    /// Holds the port at all addresses of the family of `ip`, from the first call on.
    pub(crate) fn hold(&self, table: &Arc<FdTable>, ip: IpAddr, config: &Config) -> Result<(), LinkError> {
        let mut held = self.0.lock();
        let held = &mut held[usize::from(ip.is_ipv6())];
        if held.is_some() || config.local_ports == LocalPorts::Any {
            return Ok(());
        }
        *held = Some(open(table, ip, config.port)?);
        Ok(())
    }
}

/// A socket that has the port at all addresses of a family, and receives nothing.
fn open(table: &Arc<FdTable>, ip: IpAddr, port: u16) -> Result<Fd, LinkError> {
    let fail = |error| LinkError::from_io("hold a UDP port", error);
    let everywhere: IpAddr =
        if ip.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let fd = bare_socket(table, ip)?;
    sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(fail)?;
    sys::no_groups(&fd, ip.is_ipv6());
    sys::attach_filter(&fd, &looped::NOTHING).map_err(fail)?;
    sys::bind(&fd, &RawAddr::inet(&socket_addr(everywhere, 0, port))).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EADDRINUSE) => LinkError::port_taken(ip, port),
            Some(libc::EACCES | libc::EPERM) => OsError::PermissionDenied { doing: "bind a UDP port" }.into(),
            _ => fail(error),
        }
    })?;
    Ok(fd)
}

/// Does somebody hold the port who is not of the own user, at any address of the family? Then it
/// cannot be opened at this one.
#[must_use]
pub fn port_of_others(ip: IpAddr) -> Option<LinkError> {
    let taken = open(&FdTable::new(), ip, Config::default().port).err();
    taken.filter(|error| matches!(error, LinkError::PortTaken { .. }))
}
