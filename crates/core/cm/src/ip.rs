//! Connections by address and port over InfiniBand (IBTA annex A11): the service ids of ports, and
//! the header of 36 bytes before a program's private data in REQ and SIDR_REQ.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// Length of [`IpHeader`] in bytes.
pub const IP_HEADER_LEN: usize = 36;

/// Port space of TCP-like services, RC and UC (`RDMA_PS_TCP`).
pub const PS_TCP: u16 = 0x0106;
/// Port space of datagram services (`RDMA_PS_UDP`).
pub const PS_UDP: u16 = 0x0111;
/// Port space of any kind of queue pair (`RDMA_PS_IB`).
pub const PS_IB: u16 = 0x013f;
/// Port space of IP over InfiniBand (`RDMA_PS_IPOIB`).
pub const PS_IPOIB: u16 = 0x0002;

/// The service id of a port.
#[must_use]
pub const fn service_id(port_space: u16, port: u16) -> u64 {
    (port_space as u64) << 16 | port as u64
}

/// The port space and port of a service id; `None` if the service id does not belong to a port.
#[must_use]
pub const fn port_of(service_id: u64) -> Option<(u16, u16)> {
    if service_id >> 32 == 0 { Some(((service_id >> 16) as u16, service_id as u16)) } else { None }
}

/// Source address and port, and the destination address. Both addresses are of the same family. The
/// destination port is in the service id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpHeader {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Destination address.
    pub destination: IpAddr,
}

/// Why bytes are not an IP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum IpHeaderError {
    /// Fewer than 36 bytes.
    #[error("{0} bytes of private data, the RDMA IP CM header takes {IP_HEADER_LEN}")]
    TooShort(usize),
    /// The version is not 0.0.
    #[error("RDMA IP CM header of version {}.{}, expected 0.0", .0 >> 4, .0 & 15)]
    Version(u8),
    /// Neither IPv4 nor IPv6.
    #[error("IP version {0}, expected 4 or 6")]
    IpVersion(u8),
}

impl IpHeader {
    /// Creates a header; `None` if the addresses are of different families.
    #[must_use]
    pub const fn new(source: SocketAddr, destination: IpAddr) -> Option<IpHeader> {
        match (source, destination) {
            (SocketAddr::V4(_), IpAddr::V4(_)) | (SocketAddr::V6(_), IpAddr::V6(_)) => {
                Some(IpHeader { source, destination })
            }
            _ => None,
        }
    }

    /// Reads the header from the front of private data, and returns the header and the rest.
    ///
    /// # Errors
    /// There is no valid header. The error says why.
    pub fn parse(private_data: &[u8]) -> Result<(IpHeader, &[u8]), IpHeaderError> {
        let (head, rest) = private_data
            .split_first_chunk::<IP_HEADER_LEN>()
            .ok_or(IpHeaderError::TooShort(private_data.len()))?;
        if head[0] != 0 {
            return Err(IpHeaderError::Version(head[0]));
        }
        let port = u16::from_be_bytes([head[2], head[3]]);
        let address = |from: usize| -> Result<IpAddr, IpHeaderError> {
            let bytes: [u8; 16] = core::array::from_fn(|n| head[from + n]);
            match head[1] >> 4 {
                4 => Ok(Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]).into()),
                6 => Ok(Ipv6Addr::from(bytes).into()),
                other => Err(IpHeaderError::IpVersion(other)),
            }
        };
        Ok((
            IpHeader { source: SocketAddr::new(address(4)?, port), destination: address(20)? },
            rest,
        ))
    }

    /// Writes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; IP_HEADER_LEN] {
        let mut out = [0; IP_HEADER_LEN];
        out[1] = if self.source.is_ipv4() { 4 << 4 } else { 6 << 4 };
        out[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        for (from, address) in [(4, self.source.ip()), (20, self.destination)] {
            match address {
                IpAddr::V4(v4) => out[from + 12..from + 16].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => out[from..from + 16].copy_from_slice(&v6.octets()),
            }
        }
        out
    }
}

/// The GID of an address: an IPv4 address becomes `::ffff:a.b.c.d`.
#[must_use]
pub const fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
