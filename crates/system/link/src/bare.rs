//! The common beginning of all UDP sockets of the link.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use adverb_os::OsError;
use adverb_os::sys::{self, Fd, FdTable};

use crate::LinkError;

/// The socket address of an IP address with its scope.
pub(crate) fn socket_addr(ip: IpAddr, scope_id: u32, port: u16) -> SocketAddr {
    match ip {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), port),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope_id).into(),
    }
}

/// A UDP socket that sends with DF and a known identification, because the ICRC covers both.
pub(crate) fn bare_socket(table: &Arc<FdTable>, ip: IpAddr) -> Result<Fd, LinkError> {
    const DOING: &str = "open a UDP socket";
    let v6 = ip.is_ipv6();
    let fd = sys::udp_socket(table, v6).map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => LinkError::FamilyUnsupported { ip },
        Some(libc::E2BIG) => LinkError::TooManySockets { limit: sys::FD_LIMIT },
        _ => LinkError::from_io(DOING, error),
    })?;
    let set = |level, name, value| {
        sys::set_option(&fd, level, name, value).map_err(|error| LinkError::from_io(DOING, error))
    };
    if v6 {
        set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    } else {
        set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    }
    Ok(fd)
}

/// Why a socket is not bound to the port.
pub(crate) fn bind_error(
    doing: &'static str,
    ip: IpAddr,
    port: u16,
    error: io::Error,
) -> LinkError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => LinkError::port_taken(ip, port),
        Some(libc::EACCES | libc::EPERM) => {
            OsError::PermissionDenied { doing: "bind a UDP port" }.into()
        }
        _ => LinkError::from_io(doing, error),
    }
}
