//! Greetings of other processes of this user, as bytes (TRU-3).
use crate::input::Input;
use crate::link::plain;
use adverb_link::each;
use adverb_local::fuzzing::{handshake, message_again, parse_handshake};
use adverb_local::{HandshakeMessage, MAX_SLOT, MIN_SLOT, Slot};

/// Limit of a greeting's bytes.
const LONGEST: usize = 1 << 16;
/// Number of greetings that arrive before a request for them, and number of kept ones.
const FLOOD: usize = 50;
const KEPT: usize = 16;
/// Bytes of a greeting without its slots.
const FIXED: usize = 24;

fn made(input: &mut Input<'_>) -> Vec<u8> {
    let count = input.pick(&[0, 1, 1, 1, 2, 9, 1022, 1023, 40_000]);
    let first = input.u16();
    let slots: Vec<Slot> = (0..count).map(|n: u32| first.wrapping_add(n as u16)).collect();
    let message = HandshakeMessage {
        nonce: input.u64(),
        wants_answer: input.flag(),
        mtu: input.u32(),
        slots,
    };
    let mut bytes = handshake(&message);
    // Some bytes are changed, and the end may be cut.
    for _ in 0..input.below(4) {
        let at = usize::from(input.u16()) % bytes.len();
        bytes[at] ^= input.u8();
    }
    if input.flag() {
        bytes.truncate(usize::from(input.u16()));
    }
    bytes
}

fn holds(message: &HandshakeMessage, len: usize) {
    assert!(
        !message.slots.is_empty() && message.slots.len() <= usize::from(MAX_SLOT),
        "{message:?}"
    );
    assert!(message.slots.iter().all(|slot| (MIN_SLOT..=MAX_SLOT).contains(slot)), "{message:?}");
    assert!(message.slots.len() * 2 + FIXED <= len, "{message:?} of {len} bytes");
}

/// Parses a greeting and gives it to a link.
///
/// # Panics
/// The parsed values differ from the sent ones, or too many greetings are kept.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let bytes = if flags & 1 == 0 { made(&mut input) } else { input.take(LONGEST).to_vec() };
    if let Some(message) = parse_handshake(&bytes) {
        holds(&message, bytes.len());
        assert_eq!(parse_handshake(&handshake(&message)), Some(message));
    }
    let _ = message_again(&bytes);
    let end = plain();
    let link = end.fed.link();
    let times = if flags & 0xf0 == 0 { FLOOD } else { 1 };
    for _ in 0..times {
        let mut sink = each(|packet| assert!(packet.bytes.len() >= 12, "{packet:?}"));
        let got = end.fed.message(&bytes, &mut sink);
        assert!(got <= bytes.len() / 14);
    }
    let kept = link.local().handshakes();
    assert!(kept.len() <= times.min(KEPT));
    kept.iter().for_each(|handshake| holds(&handshake.message, bytes.len()));
    assert!(link.local().handshakes().is_empty());
}
