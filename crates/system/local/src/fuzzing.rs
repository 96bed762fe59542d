//! For fuzzing: messages as connections would bring them, without connections.

use std::sync::Arc;

use crate::connection::Sender;
use crate::error::LocalError;
use crate::local::Local;
use crate::message::{self, HandshakeMessage, Message};
use crate::packet::Taker;
use crate::user::LocalUser;

/// A process of a user other than this process's.
///
/// # Errors
/// As [`Local::new`].
pub fn stranger(seed: u64, uid: u32) -> Result<Arc<Local>, LocalError> {
    Local::of_user(seed, LocalUser::stranger(uid))
}

/// Handles a message as from another process of the user.
pub fn message(local: &Local, bytes: &[u8], take: Taker<'_>) -> usize {
    let sender = Sender { pid: 0, token: 0, fds: Vec::new(), transit: adverb_os::Transit::begin() };
    local.take_message(bytes, sender, take)
}

/// Parses a message between processes and writes it again, if it is valid.
#[must_use]
pub fn message_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(match message::parse(bytes)? {
        Message::Packets { envelope, from_sender, packets } => {
            let mut out = message::packets_header(&envelope, from_sender);
            out.extend_from_slice(packets);
            out
        }
        Message::Frame { interface, bytes } => {
            [&message::frame_header(interface)[..], bytes].concat()
        }
        Message::Refresh { ip } => message::refresh(ip),
        Message::Answer { nonce, index, slots } => message::answer(nonce, index, &slots),
        Message::Handshake(message) => message.emit(),
        Message::Question(question) => question.emit(),
    })
}

/// The bytes of a handshake message.
#[must_use]
pub fn handshake(message: &HandshakeMessage) -> Vec<u8> {
    message.emit()
}

/// Parses a handshake message after a check of its kind. `bytes` must have at least the length
/// needed for this check.
#[must_use]
pub fn parse_handshake(bytes: &[u8]) -> Option<HandshakeMessage> {
    HandshakeMessage::parse(bytes)
}
