//! Process slots: who owns which QPNs, and the messages between the processes of a user.
//!
//! A process claims a slot by listening at an abstract `AF_UNIX` name. The name is exclusive while
//! the process lives and vanishes when it dies, however it dies, so there is nothing to clean up.
//! That somebody has it proves nothing: see [`crate::handover`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use crate::LinkError;
use crate::frames::{self, KIND_FRAME};
use crate::handover::BACKLOG;
use crate::hello::{Hello, KIND_HELLO};
use crate::owner;
use crate::packet::Envelope;
use crate::sys::{self, Fd, FdTable, RawAddr};

pub(crate) mod number;

pub use number::{
    MAD_QPN, MAX_SLOT, MIN_SLOT, MULTICAST_QPN, PROBE_QPN, SLOT_BITS, SLOT_SHIFT, Slot, slot_of_qpn,
};

const SLOTS: u64 = (MAX_SLOT - MIN_SLOT + 1) as u64;

/// A claimed slot: a name at which other processes of the user connect. Given back when dropped.
pub struct SlotClaim {
    slot: Slot,
    /// Listens.
    pub(crate) fd: Fd,
}

impl SlotClaim {
    /// Claims a free slot of the effective user, searching from a place that depends on `seed`. A
    /// name that somebody else holds costs one call and nothing else.
    ///
    /// # Errors
    /// [`LinkError::NoFreeSlot`] when all are taken, with who holds them; otherwise what the system
    /// said.
    pub fn claim(seed: u64) -> Result<SlotClaim, LinkError> {
        Self::claim_in(&FdTable::new(), seed)
    }

    pub(crate) fn claim_in(table: &Arc<FdTable>, seed: u64) -> Result<SlotClaim, LinkError> {
        const DOING: &str = "claim a process slot";
        let fail = |error| LinkError::from_io(DOING, error);
        let fd = sys::message_socket(table).map_err(fail)?;
        let uid = sys::effective_uid();
        // A finaliser (splitmix64): neighbouring seeds must not search the same places.
        let mut start = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        start = (start ^ (start >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        start = (start ^ (start >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        start ^= start >> 31;
        for step in 0..SLOTS {
            let slot = MIN_SLOT + ((start % SLOTS + step) % SLOTS) as Slot;
            match sys::bind(&fd, &RawAddr::abstract_name(&slot_name(uid, slot))) {
                Ok(()) => {
                    sys::listen(&fd, BACKLOG).map_err(fail)?;
                    return Ok(SlotClaim { slot, fd });
                }
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        let slots = format!("adverb-{uid}-");
        let holders = owner::holders(|name| {
            name.strip_prefix(&slots)
                .and_then(|rest| rest.parse().ok())
                .is_some_and(|slot: Slot| (MIN_SLOT..=MAX_SLOT).contains(&slot))
        });
        Err(LinkError::NoFreeSlot { slots: SLOTS as usize, uid, holders: holders.into_iter().collect() })
    }

    /// The slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// The abstract name whose holder owns the slot.
pub(crate) fn slot_name(uid: u32, slot: Slot) -> String {
    format!("adverb-{uid}-{slot}")
}

/// Begins every message between processes; the last byte is the version.
pub(crate) const MAGIC: [u8; 8] = *b"Adverb\0\x01";
const HEADER: usize = 56;
const KIND_PACKETS: u8 = 1;
const KIND_NUDGE: u8 = 2;
const KIND_ANSWER: u8 = 3;
const KIND_DIRECT: u8 = 5;

/// Largest message: what one `recv` buffer takes.
pub(crate) const MESSAGE: usize = sys::DATAGRAM;

/// A message between processes of one user on one host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// Packets of one flow, each preceded by its length (16 bits); `direct` from their sender,
    /// otherwise from who received them over UDP.
    Packets { envelope: Envelope, direct: bool, packets: &'a [u8] },
    /// The sender's socket at this address is gone: measure the steering again.
    Nudge { ip: IpAddr },
    /// A process says who it is.
    Hello(Hello),
    /// An Ethernet frame of a raw packet queue pair.
    Frame { interface: u32, bytes: &'a [u8] },
    /// The answer to a probe.
    Answer { nonce: u64, index: u32, slots: Vec<Slot> },
}

fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

/// The start of a packets message.
pub(crate) fn packets_header(envelope: &Envelope, direct: bool) -> Vec<u8> {
    let scope = match envelope.src {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(&MAGIC);
    let family = if envelope.dst.is_ipv6() { 6 } else { 4 };
    let kind = if direct { KIND_DIRECT } else { KIND_PACKETS };
    out.extend_from_slice(&[kind, family, envelope.traffic_class, envelope.hop_limit]);
    out.extend_from_slice(&scope.to_le_bytes());
    out.extend_from_slice(&envelope.src.port().to_le_bytes());
    out.resize(24, 0);
    put_ip(&mut out, envelope.src.ip());
    put_ip(&mut out, envelope.dst);
    out
}

/// A whole nudge message.
pub(crate) fn nudge(ip: IpAddr) -> Vec<u8> {
    let src = SocketAddr::new(ip, 0);
    let mut out = packets_header(&Envelope { src, dst: ip, traffic_class: 0, hop_limit: 0 }, false);
    out[8] = KIND_NUDGE;
    out
}

/// A whole answer to a probe.
pub(crate) fn answer(nonce: u64, index: u32, slots: &[Slot]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(KIND_ANSWER);
    out.extend_from_slice(&nonce.to_le_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    slots.iter().for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
    out
}

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn ip_at(bytes: &[u8], at: usize, v6: bool) -> Option<IpAddr> {
    let ip = Ipv6Addr::from(array::<16>(bytes, at)?);
    if v6 { Some(ip.into()) } else { ip.to_ipv4_mapped().map(|v4: Ipv4Addr| v4.into()) }
}

/// Takes a message apart; `None` when it is malformed.
pub(crate) fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    if array::<8>(bytes, 0)? != MAGIC {
        return None;
    }
    let kind = *bytes.get(8)?;
    if kind == KIND_ANSWER {
        let nonce = u64::from_le_bytes(array(bytes, 9)?);
        let index = u32::from_le_bytes(array(bytes, 17)?);
        let slots = bytes[21..].chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        return Some(Message::Answer { nonce, index, slots });
    }
    if kind == KIND_FRAME {
        return frames::parse_message(bytes).map(|(interface, bytes)| Message::Frame { interface, bytes });
    }
    if kind == KIND_HELLO {
        return Hello::parse(bytes).map(Message::Hello);
    }
    let v6 = match *bytes.get(9)? {
        4 => false,
        6 => true,
        _ => return None,
    };
    let dst = ip_at(bytes, 40, v6)?;
    match kind {
        KIND_NUDGE => Some(Message::Nudge { ip: dst }),
        KIND_PACKETS | KIND_DIRECT => {
            let scope = u32::from_le_bytes(array(bytes, 12)?);
            let port = u16::from_le_bytes(array(bytes, 16)?);
            let src = match ip_at(bytes, 24, v6)? {
                IpAddr::V4(v4) => SocketAddr::new(v4.into(), port),
                IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
            };
            let envelope = Envelope { src, dst, traffic_class: bytes[10], hop_limit: bytes[11] };
            let packets = bytes.get(HEADER..)?;
            Some(Message::Packets { envelope, direct: kind == KIND_DIRECT, packets })
        }
        _ => None,
    }
}

/// Splits the packets of a message; an error item ends a malformed one.
pub(crate) fn packets(mut rest: &[u8]) -> impl Iterator<Item = io::Result<&[u8]>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let packet = array::<2>(rest, 0).and_then(|len| rest.get(2..2 + u16::from_le_bytes(len) as usize));
        rest = packet.map_or(&[][..], |packet| &rest[2 + packet.len()..]);
        Some(packet.ok_or_else(|| io::ErrorKind::InvalidData.into()))
    })
}

#[cfg(test)]
mod tests;
