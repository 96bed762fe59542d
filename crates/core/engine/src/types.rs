//! The plain types of verbs, under the names of the IBTA specification.
use core::fmt;

/// A queue pair number (24 bits).
pub type Qpn = u32;
/// A local or remote key. Bits 8..32 are the index. Bits 0..8 are the tag, which a consumer may
/// change on a type 2 memory window.
pub type Key = u32;

/// A global identifier: an IPv6 address, or an IPv4 address mapped into one (RoCEv2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv4 address, if the GID maps one (`::ffff:a.b.c.d`).
    #[must_use]
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        let b = &self.0;
        (b[..10] == [0; 10] && b[10] == 0xff && b[11] == 0xff).then(|| [b[12], b[13], b[14], b[15]])
    }
    /// The GID that maps an IPv4 address.
    #[must_use]
    pub fn from_ipv4(a: [u8; 4]) -> Gid {
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a[0], a[1], a[2], a[3]])
    }
    /// The all-zero GID: an empty table entry.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::net::Ipv6Addr::from(self.0).fmt(f)
    }
}
impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A protection domain: its keys never open memory of another domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PdId(pub u32);

/// Path MTU; the discriminants are the IBTA codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PathMtu {
    #[default]
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

impl PathMtu {
    /// Payload bytes of a full packet.
    #[must_use]
    pub const fn bytes(self) -> usize {
        128 << self as usize
    }
    /// From the IBTA code 1..=5.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<PathMtu> {
        Some(match code {
            1 => PathMtu::Mtu256,
            2 => PathMtu::Mtu512,
            3 => PathMtu::Mtu1024,
            4 => PathMtu::Mtu2048,
            5 => PathMtu::Mtu4096,
            _ => return None,
        })
    }
    /// The largest path MTU for an interface MTU. The overhead is that of the largest packet, 96
    /// bytes: IPv6 (40), UDP (8), BTH (12), the largest extension headers (XRCETH 4 + RETH 16 +
    /// ImmDt 4, or AtomicETH 28) and ICRC (4). So the result holds for every packet of either IP
    /// version. An MTU of 1500 gives 1024, 9000 gives 4096.
    #[must_use]
    pub const fn for_interface(mtu: usize) -> PathMtu {
        let room = mtu.saturating_sub(96);
        match room {
            4096.. => PathMtu::Mtu4096,
            2048.. => PathMtu::Mtu2048,
            1024.. => PathMtu::Mtu1024,
            512.. => PathMtu::Mtu512,
            _ => PathMtu::Mtu256,
        }
    }
}

/// The transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum QpType {
    Rc,
    Uc,
    Ud,
    /// XRC initiator: a send queue only.
    XrcSend,
    /// XRC target: receives into the SRQ named in each packet.
    XrcRecv,
    /// Whole Ethernet frames.
    RawPacket,
}

impl QpType {
    /// Acknowledged transports: RC and both halves of XRC.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, QpType::Rc | QpType::XrcSend | QpType::XrcRecv)
    }
}

/// The states of a queue pair (IBTA 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum QpState {
    #[default]
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    /// Send queue drained (or draining).
    Sqd = 4,
    /// Send queue error (UC, UD).
    Sqe = 5,
    Err = 6,
}

impl QpState {
    /// From the verbs value 0..=6.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<QpState> {
        Some(match code {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            4 => QpState::Sqd,
            5 => QpState::Sqe,
            6 => QpState::Err,
            _ => return None,
        })
    }
}

bitflags::bitflags! {
    /// Access rights of a memory region, a memory window or a queue pair; the bits are those of
    /// `ibv_access_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// The device may write local memory (receive, read and atomic results).
        const LOCAL_WRITE = 1 << 0;
        /// A peer may write (RDMA WRITE, atomic write).
        const REMOTE_WRITE = 1 << 1;
        /// A peer may read (RDMA READ).
        const REMOTE_READ = 1 << 2;
        /// A peer may use atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses count from zero.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging: pages need not exist at registration.
        const ON_DEMAND = 1 << 6;
        /// Huge pages were asked for.
        const HUGETLB = 1 << 7;
        /// A peer may flush to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// A peer may flush to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Relaxed ordering; optional, a hint.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// Limits of the device. A request beyond a limit is refused with the name of the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most work requests in a send or receive queue.
    pub max_qp_wr: u32,
    /// Most scatter/gather entries of a work request.
    pub max_sge: u32,
    /// Most bytes of inline data.
    pub max_inline: u32,
    /// Most completions in a CQ.
    pub max_cqe: u32,
    /// Most READs and atomics that a responder answers at a time.
    pub max_rd_atomic: u8,
    /// Most work requests in an SRQ.
    pub max_srq_wr: u32,
    /// Largest message in bytes.
    pub max_msg: u32,
    /// Path MTU of the port.
    pub port_mtu: PathMtu,
    /// Physical ports (numbered from 1).
    pub ports: u8,
    /// Entries of the P_Key table.
    pub pkeys: u16,
    /// Entries of the GID table.
    pub gids: u16,
}
