//! The messages about a connection, in bytes.
use adverb_cm::{MAD_LEN, Path};
use std::net::{IpAddr, Ipv6Addr};

/// Length of a message: kind, id, two addresses, and a MAD.
pub(crate) const LEN: usize = MAD + MAD_LEN;
const LOCAL: usize = 8;
const REMOTE: usize = 24;
const MAD: usize = 40;

/// A connection or an attempt, and the MAD for its peer if the process dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Communication id of this end.
    pub local_id: u32,
    /// The addresses of the connection's MADs.
    pub path: Path,
    /// The survivor's MAD for the peer ([`adverb_cm::Endpoint::farewell`]).
    pub farewell: [u8; MAD_LEN],
}

/// A message of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// The process has this connection now, or the connection has changed its state.
    Entrust(Box<Record>),
    /// The connection with this local id is over.
    Withdraw(u32),
}

impl Said {
    pub(crate) fn emit(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        match self {
            Said::Entrust(record) => {
                put(0, &1_u32.to_le_bytes());
                put(4, &record.local_id.to_le_bytes());
                put(LOCAL, &to_v6(record.path.local).octets());
                put(REMOTE, &to_v6(record.path.remote).octets());
                put(MAD, &record.farewell);
            }
            Said::Withdraw(local_id) => put(4, &local_id.to_le_bytes()),
        }
        out
    }

    /// `None`: the bytes are not a valid message.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<Said> {
        let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let address =
            |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).map(Ipv6Addr::from).ok();
        let local_id = word(4)?;
        match word(0)? {
            0 => Some(Said::Withdraw(local_id)),
            1 => {
                let path =
                    Path { local: from_v6(address(LOCAL)?), remote: from_v6(address(REMOTE)?) };
                let farewell: [u8; MAD_LEN] = bytes[MAD..].try_into().ok()?;
                let same_family = path.local.is_ipv4() == path.remote.is_ipv4();
                let possible = same_family && adverb_cm::route(&farewell).is_ok();
                possible.then(|| Said::Entrust(Box::new(Record { local_id, path, farewell })))
            }
            _ => None,
        }
    }
}

fn to_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn from_v6(ip: Ipv6Addr) -> IpAddr {
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_cm::Message;
    use adverb_cm::mad::Dreq;

    fn record(local: &str, remote: &str) -> Box<Record> {
        let path = Path { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
        let dreq =
            Dreq { local_id: 0x1234_5678, remote_id: 7, remote_qpn: 0x1f_0004, ..Dreq::default() };
        Box::new(Record { local_id: dreq.local_id, path, farewell: Message::from(dreq).emit(9) })
    }

    #[test]
    fn ucm_12_a_record_comes_through() {
        for (local, remote) in [("192.0.2.1", "192.0.2.2"), ("fe80::1", "2001:db8::2")] {
            let said = Said::Entrust(record(local, remote));
            assert_eq!(Said::parse(&said.emit()), Some(said));
        }
        let over = Said::Withdraw(7);
        assert_eq!(Said::parse(&over.emit()), Some(over));
    }

    #[test]
    fn other_bytes_are_no_message() {
        let good = Said::Entrust(record("192.0.2.1", "192.0.2.2")).emit();
        // A wrong kind, addresses of two families, and no MAD of a connection manager.
        for (at, byte) in [(0, 2), (3, 1), (LOCAL, 0x20), (MAD + 1, 8)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Said::parse(&bad), None, "byte {at}");
        }
    }
}
