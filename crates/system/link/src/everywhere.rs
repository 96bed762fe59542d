//! Holds the port at every address, so that only one user of a machine has the port.
//!
//! A socket with the port at one address may send from other addresses. A socket bound to a group
//! or to a broadcast address sends from the address chosen by the route. `IP_PKTINFO` selects any
//! address of the machine, and `IPV6_FREEBIND` any address at all. So a source address proves the
//! user only if no other user has the port at any address. Before a link opens the port at an
//! address, it therefore binds a socket to all addresses of the family. No socket of another user
//! can be bound beside it. This socket receives nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use adverb_os::sys::{self, Fd, FdTable, RawAddr};
use adverb_sync::Mutex;

use crate::LinkError;
use crate::bare::{bare_socket, bind_error, socket_addr};
use crate::looped;
use crate::types::{Config, LocalPorts};

/// The sockets holding the port for all IPv4 addresses and for all IPv6 addresses.
#[derive(Default)]
pub(crate) struct Everywhere(Mutex<[Option<Fd>; 2]>);

impl Everywhere {
    /// Holds the port at all addresses of `ip`'s family, from the first call on.
    pub(crate) fn hold(
        &self,
        table: &Arc<FdTable>,
        ip: IpAddr,
        config: &Config,
    ) -> Result<(), LinkError> {
        let mut held = self.0.lock();
        let held = &mut held[usize::from(ip.is_ipv6())];
        if held.is_some() || config.local_ports == LocalPorts::Any {
            return Ok(());
        }
        *held = Some(open(table, ip, config.port)?);
        Ok(())
    }
}

/// A socket with the port at all addresses of a family, which receives nothing.
fn open(table: &Arc<FdTable>, ip: IpAddr, port: u16) -> Result<Fd, LinkError> {
    const DOING: &str = "hold a UDP port";
    let fail = |error| LinkError::from_io(DOING, error);
    let everywhere: IpAddr =
        if ip.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let fd = bare_socket(table, ip)?;
    sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(fail)?;
    sys::no_groups(&fd, ip.is_ipv6());
    sys::attach_filter(&fd, &looped::NOTHING).map_err(fail)?;
    sys::bind(&fd, &RawAddr::inet(&socket_addr(everywhere, 0, port)))
        .map_err(|error| bind_error(DOING, ip, port, error))?;
    Ok(fd)
}

/// Whether another user holds the port at any address of the family. If so, this user cannot open
/// the port at `ip`: returns the error.
#[must_use]
pub fn port_of_others(ip: IpAddr) -> Option<LinkError> {
    let taken = open(&FdTable::new(), ip, Config::default().port).err();
    taken.filter(|error| matches!(error, LinkError::PortTaken { .. }))
}
