//! The messages that set a connection up and end it, and their form on the stream.
//!
//! They do for a queue pair over TCP what the connection manager's REQ, REP, RTU, REJ, DREQ and DREP do over queue pair 1
//! (IBTA 12.6). A message is a header of eight bytes, the letters `NDcm`, version, type and the length of the body, and
//! the body; numbers are big-endian. Lengths are exact: a body that is longer or shorter than its fields is malformed.
use adverb_engine::{Gid, PathMtu};

/// Version of the format; another one is refused.
pub(crate) const VERSION: u8 = 1;
/// Bytes of the header.
pub(crate) const HEADER: usize = 8;
/// Bytes of an offer before its private data.
const OFFER: usize = 36;
/// Bytes of private data with any message, at most.
pub(crate) const MAX_PRIVATE_DATA: usize = 148;
/// Bytes of the longest message.
pub(crate) const MAX_MESSAGE: usize = HEADER + OFFER + MAX_PRIVATE_DATA;

const MAGIC: [u8; 4] = *b"NDcm";
/// QPNs and PSNs have 24 bits.
const BITS_24: u32 = 0x00ff_ffff;

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const READY: u8 = 3;
const REJECT: u8 = 4;
const DISCONNECT: u8 = 5;
const DISCONNECTED: u8 = 6;

/// How many reads may be in progress on a queue pair (`InboundReadLimit`, `OutboundReadLimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadLimits {
    /// Reads of the peer.
    pub inbound: u32,
    /// Own reads.
    pub outbound: u32,
}

/// What one end tells the other of its queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Number of the queue pair.
    pub(crate) qpn: u32,
    /// PSN of its first request.
    pub(crate) psn: u32,
    /// Where it receives.
    pub(crate) gid: Gid,
    /// Largest path MTU of its port.
    pub(crate) mtu: PathMtu,
    /// Reads, as its own side counts them.
    pub(crate) limits: ReadLimits,
    /// The consumer's.
    pub(crate) private_data: Vec<u8>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The consumer said so.
    Consumer,
    /// Nobody listens, or not now.
    NoListener,
    /// Too many requests wait already, or resources are used up.
    Busy,
    /// The request came in another version of the format.
    Version,
    /// The request makes no sense.
    Malformed,
    /// A later version's reason.
    Other(u8),
}

impl Reason {
    const fn code(self) -> u8 {
        match self {
            Reason::Consumer => 0,
            Reason::NoListener => 1,
            Reason::Busy => 2,
            Reason::Version => 3,
            Reason::Malformed => 4,
            Reason::Other(code) => code,
        }
    }
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Reason::Consumer,
            1 => Reason::NoListener,
            2 => Reason::Busy,
            3 => Reason::Version,
            4 => Reason::Malformed,
            other => Reason::Other(other),
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The initiator asks for a connection (REQ).
    Request(Offer),
    /// The listener's side accepts (REP).
    Reply(Offer),
    /// The initiator's queue pair is ready to receive (RTU).
    Ready,
    /// Either side refuses (REJ).
    Reject(Reason, Vec<u8>),
    /// One side ends an established connection (DREQ).
    Disconnect,
    /// The other has seen it (DREP).
    Disconnected,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// They do not begin as one.
    Magic,
    /// Another version of the format.
    Version(u8),
    /// No such type.
    Type(u8),
    /// A length that no message of this type has.
    Length(u8, u16),
    /// The named field has no such value.
    Field(&'static str),
}

impl Malformed {
    /// What the sender is told.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Malformed::Version(_) => Reason::Version,
            _ => Reason::Malformed,
        }
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::Magic => write!(f, "not a message of this protocol"),
            Malformed::Version(v) => write!(f, "version {v} of the format, {VERSION} is known"),
            Malformed::Type(t) => write!(f, "message type {t}"),
            Malformed::Length(t, n) => write!(f, "a body of {n} bytes for message type {t}"),
            Malformed::Field(name) => write!(f, "bad {name}"),
        }
    }
}

impl Message {
    const fn type_code(&self) -> u8 {
        match self {
            Message::Request(_) => REQUEST,
            Message::Reply(_) => REPLY,
            Message::Ready => READY,
            Message::Reject(..) => REJECT,
            Message::Disconnect => DISCONNECT,
            Message::Disconnected => DISCONNECTED,
        }
    }

    /// Appends the message to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        match self {
            Message::Request(offer) | Message::Reply(offer) => offer.write(&mut body),
            Message::Reject(reason, data) => {
                body.push(reason.code());
                body.extend_from_slice(data);
            }
            Message::Ready | Message::Disconnect | Message::Disconnected => {}
        }
        debug_assert!(body.len() <= MAX_MESSAGE - HEADER, "the caller checked the private data's length");
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.type_code()]);
        out.extend_from_slice(&(body.len() as u16).to_be_bytes());
        out.extend_from_slice(&body);
    }

    /// The message at the start of `bytes` and its length; none while more bytes are needed.
    ///
    /// # Errors
    /// What is wrong with it; nothing after it can be understood.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
        let seen = bytes.len().min(MAGIC.len());
        if bytes[..seen] != MAGIC[..seen] {
            return Err(Malformed::Magic);
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [.., version, type_code, high, low] = *header;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let length = u16::from_be_bytes([high, low]);
        check_length(type_code, length)?;
        let Some(body) = rest.get(..usize::from(length)) else { return Ok(None) };
        let message = match type_code {
            REQUEST => Message::Request(Offer::parse(body)?),
            REPLY => Message::Reply(Offer::parse(body)?),
            READY => Message::Ready,
            REJECT => {
                let (code, data) = body.split_first().ok_or(Malformed::Length(type_code, length))?;
                Message::Reject(Reason::from_code(*code), data.to_vec())
            }
            DISCONNECT => Message::Disconnect,
            _ => Message::Disconnected,
        };
        Ok(Some((message, HEADER + body.len())))
    }
}

/// A length is judged before its bytes have come, so that nothing long is ever waited for or kept.
fn check_length(type_code: u8, length: u16) -> Result<(), Malformed> {
    let possible = match type_code {
        REQUEST | REPLY => OFFER..=OFFER + MAX_PRIVATE_DATA,
        REJECT => 1..=1 + MAX_PRIVATE_DATA,
        READY | DISCONNECT | DISCONNECTED => 0..=0,
        _ => return Err(Malformed::Type(type_code)),
    };
    if possible.contains(&usize::from(length)) { Ok(()) } else { Err(Malformed::Length(type_code, length)) }
}

impl Offer {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.qpn.to_be_bytes());
        out.extend_from_slice(&self.psn.to_be_bytes());
        out.extend_from_slice(&self.gid.0);
        out.extend_from_slice(&self.limits.inbound.to_be_bytes());
        out.extend_from_slice(&self.limits.outbound.to_be_bytes());
        out.extend_from_slice(&u32::from(self.mtu as u8).to_be_bytes());
        out.extend_from_slice(&self.private_data);
    }

    fn parse(body: &[u8]) -> Result<Offer, Malformed> {
        let (head, private_data) = body.split_at_checked(OFFER).ok_or(Malformed::Field("offer"))?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&head[8..24]);
        let offer = Offer {
            qpn: word(0),
            psn: word(4),
            gid: Gid(gid),
            limits: ReadLimits { inbound: word(24), outbound: word(28) },
            mtu: PathMtu::from_code(word(32)).ok_or(Malformed::Field("path MTU"))?,
            private_data: private_data.to_vec(),
        };
        // Numbers 0 and 1 are the management queue pairs, all ones is multicast (IBTA 3.5.10).
        if offer.qpn < 2 || offer.qpn >= BITS_24 {
            return Err(Malformed::Field("queue pair number"));
        }
        if offer.psn > BITS_24 {
            return Err(Malformed::Field("PSN"));
        }
        Ok(offer)
    }
}

#[cfg(test)]
mod tests;
