//! A door for fuzzing: bytes of a peer without a socket.
use crate::connect::{HEADER, Header, Message};

/// Reads a message of the exchange as a socket would give it and writes it again; `None` if it is none.
#[must_use]
pub fn message_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let (header, body) = bytes.split_first_chunk::<HEADER>()?;
    let header = Header::decode(*header).ok()?;
    Message::decode(header, body.get(..header.body_len)?).ok()?.encode().ok()
}
