//! The messages between the processes of a user on one host: their kinds, and how each is written
//! and parsed. A handshake message also carries descriptors.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use adverb_os::sys::{self, Transit};

use crate::packet::Envelope;
use crate::slot::{MAX_SLOT, MIN_SLOT, Slot};

/// The first bytes of every message between processes; the last byte is the version.
const MAGIC: [u8; 8] = *b"Adverb\0\x01";
/// Bytes before the packets.
const HEADER: usize = 56;
/// Bytes before a frame.
const FRAME_HEADER: usize = 16;
const KIND_PACKETS: u8 = 1;
const KIND_REFRESH: u8 = 2;
const KIND_ANSWER: u8 = 3;
const KIND_HANDSHAKE: u8 = 4;
const KIND_FROM_SENDER: u8 = 5;
const KIND_FRAME: u8 = 6;
const KIND_QUESTION: u8 = 7;
const KIND_REPLY: u8 = 8;
/// Bytes before the body of a reply, and of a whole question.
const REPLY_HEADER: usize = 16;
const QUESTION: usize = 20;
/// The longest text of a fault, in bytes.
const LONGEST_FAULT: usize = 4096;
/// The version of the shared memory layouts, on which both sides must agree in addition to the
/// message format.
const HANDSHAKE_VERSION: u8 = 3;

/// The largest message: the size of one `recv` buffer.
pub const MAX_MESSAGE: usize = sys::DATAGRAM;
/// The longest frame between processes.
pub const MAX_FRAME: usize = MAX_MESSAGE - FRAME_HEADER;

/// A message between processes of one user on one host.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Packets of one flow, each preceded by its length (16 bits). If `from_sender`, they come from
    /// their sender, otherwise from a process that received them over UDP.
    Packets {
        /// Source and destination.
        envelope: Envelope,
        /// The packets come from their sender.
        from_sender: bool,
        /// The packets.
        packets: &'a [u8],
    },
    /// The sender's socket at this address is closed: the receiver must measure the steering again.
    Refresh {
        /// The address.
        ip: IpAddr,
    },
    /// A process identifies itself.
    Handshake(HandshakeMessage),
    /// An Ethernet frame of a raw packet queue pair.
    Frame {
        /// The index of the interface.
        interface: u32,
        /// The frame, beginning with the destination address.
        bytes: &'a [u8],
    },
    /// A process of the user asks what this process does.
    Question(Question),
    /// The answer to a steering test.
    Answer {
        /// The round of steering tests.
        nonce: u64,
        /// The index of the steering test.
        index: u32,
        /// The slots of the process that received the steering test.
        slots: Vec<Slot>,
    },
}

/// A question for a page of what a process does, or for a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Chosen by the asker, and repeated in the reply.
    pub tag: u32,
    /// Where the page begins: the number of a queue pair.
    pub from: u32,
    /// The fault in question, instead of a page.
    pub fault: Option<String>,
}

impl Question {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[KIND_QUESTION, self.fault.is_some().into(), 0, 0]);
        out.extend_from_slice(&self.tag.to_le_bytes());
        out.extend_from_slice(&self.from.to_le_bytes());
        out.extend_from_slice(self.fault.as_deref().unwrap_or_default().as_bytes());
        out
    }

    /// Parses a whole message after a check of its magic and kind.
    fn parse(bytes: &[u8]) -> Option<Question> {
        let (tag, from) =
            (u32::from_le_bytes(array(bytes, 12)?), u32::from_le_bytes(array(bytes, 16)?));
        let rest = bytes.get(QUESTION..)?;
        let fault = match *bytes.get(9)? {
            0 if rest.is_empty() => None,
            1 if rest.len() <= LONGEST_FAULT => Some(str::from_utf8(rest).ok()?.to_owned()),
            _ => return None,
        };
        Some(Question { tag, from, fault })
    }
}

/// The header of a reply to the question with this tag.
pub(crate) fn reply_header(tag: u32) -> [u8; REPLY_HEADER] {
    short_header(KIND_REPLY, tag)
}

/// Parses a reply: the tag of its question, and the body.
pub(crate) fn parse_reply(bytes: &[u8]) -> Option<(u32, &[u8])> {
    if array::<8>(bytes, 0)? != MAGIC || *bytes.get(8)? != KIND_REPLY {
        return None;
    }
    Some((u32::from_le_bytes(array(bytes, 12)?), bytes.get(REPLY_HEADER..)?))
}

/// The identity and the properties of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeMessage {
    /// A number different for all processes that ever had these slots.
    pub nonce: u64,
    /// The sender wants an answer.
    pub wants_answer: bool,
    /// The longest packet payload that the process accepts, in bytes; 0 if the process does not
    /// want to share memory.
    pub mtu: u32,
    /// The slots of the process. An answer goes to the first.
    pub slots: Vec<Slot>,
}

/// A received handshake message.
#[derive(Debug)]
pub struct ReceivedHandshake {
    /// The content.
    pub message: HandshakeMessage,
    /// The sender's process id in the PID namespace of this process; 0 from another PID namespace.
    pub pid: i32,
    /// The descriptors sent with the handshake message.
    pub fds: Vec<OwnedFd>,
    /// Must be kept as long as the descriptors.
    pub transit: Transit,
}

impl HandshakeMessage {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[KIND_HANDSHAKE, HANDSHAKE_VERSION, u8::from(self.wants_answer), 0]);
        out.extend_from_slice(&self.mtu.to_le_bytes());
        out.extend_from_slice(&self.nonce.to_le_bytes());
        self.slots.iter().for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
        out
    }

    /// Parses a whole message after a check of its magic and kind.
    pub(crate) fn parse(bytes: &[u8]) -> Option<HandshakeMessage> {
        let [_, version, answer, _] = array::<4>(bytes, 8)?;
        if version != HANDSHAKE_VERSION {
            return None;
        }
        let mtu = u32::from_le_bytes(array(bytes, 12)?);
        let nonce = u64::from_le_bytes(array(bytes, 16)?);
        // All slots are kept, so their number is limited, and each must be a possible slot.
        let slots: Vec<Slot> = slots_in(&bytes[24..]).take(usize::from(MAX_SLOT) + 1).collect();
        let possible = !slots.is_empty()
            && slots.len() <= usize::from(MAX_SLOT)
            && slots.iter().all(|slot| (MIN_SLOT..=MAX_SLOT).contains(slot));
        possible.then_some(HandshakeMessage { nonce, wants_answer: answer != 0, mtu, slots })
    }
}

fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

/// The header of a message with packets.
pub(crate) fn packets_header(envelope: &Envelope, from_sender: bool) -> Vec<u8> {
    let scope = match envelope.src {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(&MAGIC);
    let family = if envelope.dst.is_ipv6() { 6 } else { 4 };
    let kind = if from_sender { KIND_FROM_SENDER } else { KIND_PACKETS };
    out.extend_from_slice(&[kind, family, envelope.traffic_class, envelope.hop_limit]);
    out.extend_from_slice(&scope.to_le_bytes());
    out.extend_from_slice(&envelope.src.port().to_le_bytes());
    out.resize(24, 0);
    put_ip(&mut out, envelope.src.ip());
    put_ip(&mut out, envelope.dst);
    out
}

/// A complete refresh message.
pub(crate) fn refresh(ip: IpAddr) -> Vec<u8> {
    let src = SocketAddr::new(ip, 0);
    let mut out = packets_header(&Envelope { src, dst: ip, traffic_class: 0, hop_limit: 0 }, false);
    out[8] = KIND_REFRESH;
    out
}

/// A complete answer to a steering test.
pub(crate) fn answer(nonce: u64, index: u32, slots: &[Slot]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(KIND_ANSWER);
    out.extend_from_slice(&nonce.to_le_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    slots.iter().for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
    out
}

/// The header of a message with a frame.
pub(crate) fn frame_header(interface: u32) -> [u8; FRAME_HEADER] {
    short_header(KIND_FRAME, interface)
}

/// A header with one number.
fn short_header(kind: u8, number: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[..8].copy_from_slice(&MAGIC);
    header[8] = kind;
    header[12..].copy_from_slice(&number.to_le_bytes());
    header
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The slots in the rest of a message.
fn slots_in(bytes: &[u8]) -> impl Iterator<Item = Slot> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

fn ip_at(bytes: &[u8], at: usize, v6: bool) -> Option<IpAddr> {
    let ip = Ipv6Addr::from(array::<16>(bytes, at)?);
    if v6 { Some(ip.into()) } else { ip.to_ipv4_mapped().map(|v4: Ipv4Addr| v4.into()) }
}

/// Parses a message; `None` if it is malformed.
pub fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    if array::<8>(bytes, 0)? != MAGIC {
        return None;
    }
    let kind = *bytes.get(8)?;
    match kind {
        KIND_ANSWER => {
            let nonce = u64::from_le_bytes(array(bytes, 9)?);
            let index = u32::from_le_bytes(array(bytes, 17)?);
            return Some(Message::Answer { nonce, index, slots: slots_in(&bytes[21..]).collect() });
        }
        KIND_FRAME => {
            let interface = u32::from_le_bytes(array(bytes, 12)?);
            return Some(Message::Frame { interface, bytes: bytes.get(FRAME_HEADER..)? });
        }
        KIND_HANDSHAKE => return HandshakeMessage::parse(bytes).map(Message::Handshake),
        KIND_QUESTION => return Question::parse(bytes).map(Message::Question),
        _ => {}
    }
    let v6 = match *bytes.get(9)? {
        4 => false,
        6 => true,
        _ => return None,
    };
    let dst = ip_at(bytes, 40, v6)?;
    match kind {
        KIND_REFRESH => Some(Message::Refresh { ip: dst }),
        KIND_PACKETS | KIND_FROM_SENDER => {
            let scope = u32::from_le_bytes(array(bytes, 12)?);
            let port = u16::from_le_bytes(array(bytes, 16)?);
            let src = match ip_at(bytes, 24, v6)? {
                IpAddr::V4(v4) => SocketAddr::new(v4.into(), port),
                IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
            };
            let envelope = Envelope { src, dst, traffic_class: bytes[10], hop_limit: bytes[11] };
            let packets = bytes.get(HEADER..)?;
            Some(Message::Packets { envelope, from_sender: kind == KIND_FROM_SENDER, packets })
        }
        _ => None,
    }
}

/// Splits the packets of a message. An error item ends a malformed list.
pub fn packets(mut rest: &[u8]) -> impl Iterator<Item = io::Result<&[u8]>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let packet =
            array::<2>(rest, 0).and_then(|len| rest.get(2..2 + u16::from_le_bytes(len) as usize));
        rest = packet.map_or(&[][..], |packet| &rest[2 + packet.len()..]);
        Some(packet.ok_or_else(|| io::ErrorKind::InvalidData.into()))
    })
}

#[cfg(test)]
mod tests;
