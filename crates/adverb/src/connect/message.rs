//! The messages of the exchange, as bytes.
//!
//! Header: `ADVC`, version, kind, length of the body (two bytes, network order). Body of REQUEST and REPLY: a
//! [`QpInfo`], then private data; of REJECT: private data; of READY: nothing.
use super::{ConnectError, Peer, ProtocolError};
use crate::qp::QpInfo;

/// Bytes of private data a message carries at most.
pub const MAX_PRIVATE: usize = 1024;
/// Bytes of a header.
pub const HEADER: usize = 8;

const MAGIC: [u8; 4] = *b"ADVC";
const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const REJECT: u8 = 3;
const READY: u8 = 4;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Request(Peer),
    Reply(Peer),
    Reject(Vec<u8>),
    Ready,
}

/// A header that is right: what the body is, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u8,
    pub body_len: usize,
}

impl Header {
    pub fn decode(bytes: [u8; HEADER]) -> Result<Header, ProtocolError> {
        let [m0, m1, m2, m3, version, kind, l0, l1] = bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(ProtocolError::Magic);
        }
        if version != VERSION {
            return Err(ProtocolError::Version(version));
        }
        let body_len = usize::from(u16::from_be_bytes([l0, l1]));
        let allowed = match kind {
            REQUEST | REPLY => QpInfo::ENCODED_LEN..=QpInfo::ENCODED_LEN + MAX_PRIVATE,
            REJECT => 0..=MAX_PRIVATE,
            READY => 0..=0,
            other => return Err(ProtocolError::Kind(other)),
        };
        if !allowed.contains(&body_len) {
            return Err(ProtocolError::Length(body_len));
        }
        Ok(Header { kind, body_len })
    }
}

impl Message {
    pub fn kind(&self) -> u8 {
        match self {
            Message::Request(_) => REQUEST,
            Message::Reply(_) => REPLY,
            Message::Reject(_) => REJECT,
            Message::Ready => READY,
        }
    }

    /// Header and body.
    pub fn encode(&self) -> Result<Vec<u8>, ConnectError> {
        let (info, private): (Option<&QpInfo>, &[u8]) = match self {
            Message::Request(peer) | Message::Reply(peer) => (Some(&peer.info), &peer.private_data),
            Message::Reject(private) => (None, private),
            Message::Ready => (None, &[]),
        };
        if private.len() > MAX_PRIVATE {
            return Err(ConnectError::PrivateTooLong { len: private.len() });
        }
        let body_len = info.map_or(0, |_| QpInfo::ENCODED_LEN) + private.len();
        let mut bytes = Vec::with_capacity(HEADER + body_len);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.kind()]);
        bytes.extend((body_len as u16).to_be_bytes());
        if let Some(info) = info {
            bytes.extend(info.to_bytes());
        }
        bytes.extend(private);
        Ok(bytes)
    }

    /// The message behind a header; `body` has [`Header::body_len`] bytes.
    pub fn decode(header: Header, body: &[u8]) -> Result<Message, ProtocolError> {
        let peer = || {
            let (info, private) = body.split_first_chunk().ok_or(ProtocolError::Length(body.len()))?;
            let info = QpInfo::from_bytes(info).map_err(ProtocolError::Info)?;
            Ok(Peer { info, private_data: private.to_vec() })
        };
        match header.kind {
            REQUEST => peer().map(Message::Request),
            REPLY => peer().map(Message::Reply),
            REJECT => Ok(Message::Reject(body.to_vec())),
            READY => Ok(Message::Ready),
            other => Err(ProtocolError::Kind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Header, MAX_PRIVATE, Message};
    use crate::connect::{ConnectError, Peer, ProtocolError};
    use crate::qp::QpInfo;
    use adverb_device::engine::{Gid, PathMtu, QpType};
    use proptest::prelude::*;

    fn peer(private: usize) -> Peer {
        let info = QpInfo {
            qp_type: QpType::Uc,
            number: 5,
            first_psn: 6,
            gid: Gid([9; 16]),
            path_mtu: PathMtu::Mtu1024,
            reads_out: 1,
            reads_in: 2,
            qkey: 3,
        };
        Peer { info, private_data: vec![7; private] }
    }

    /// What a reader does.
    fn read(bytes: &[u8]) -> Result<Message, ProtocolError> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(ProtocolError::Length(bytes.len()));
        };
        let header = Header::decode(*header)?;
        let body = body.get(..header.body_len).ok_or(ProtocolError::Length(body.len()))?;
        Message::decode(header, body)
    }

    #[test]
    fn messages_cross() {
        let all = [
            Message::Request(peer(0)),
            Message::Reply(peer(MAX_PRIVATE)),
            Message::Reject(vec![1, 2]),
            Message::Ready,
        ];
        for message in all {
            assert_eq!(read(&message.encode().unwrap()), Ok(message));
        }
    }

    #[test]
    fn wrong_headers_are_named() {
        let spoiled = |at: usize, value: u8| {
            let mut bytes = Message::Ready.encode().unwrap();
            bytes[at] = value;
            read(&bytes)
        };
        assert_eq!(spoiled(0, b'H'), Err(ProtocolError::Magic));
        assert_eq!(spoiled(4, 9), Err(ProtocolError::Version(9)));
        assert_eq!(spoiled(5, 0), Err(ProtocolError::Kind(0)));
        assert_eq!(spoiled(5, 1), Err(ProtocolError::Length(0)), "a request without its data");
        assert_eq!(spoiled(6, 0xff), Err(ProtocolError::Length(0xff00)), "nobody allocates that");
        let long = Message::Reject(vec![0; MAX_PRIVATE + 1]).encode();
        assert!(matches!(long, Err(ConnectError::PrivateTooLong { len }) if len == MAX_PRIVATE + 1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200), like_ours in any::<bool>()) {
            let mut bytes = bytes;
            if like_ours && bytes.len() > 5 {
                bytes[..5].copy_from_slice(b"ADVC\x01");
            }
            if let Ok(message) = read(&bytes) {
                prop_assert_eq!(read(&message.encode().unwrap()), Ok(message));
            }
        }
    }
}
