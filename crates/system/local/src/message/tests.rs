use super::*;

fn envelope(src: &str, dst: &str) -> Envelope {
    Envelope {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        traffic_class: 0x2e,
        hop_limit: 63,
    }
}

#[test]
fn packets_message_comes_apart_as_it_was_put_together() {
    for envelope in
        [envelope("10.1.2.3:4791", "10.1.2.4"), envelope("[fe80::1%7]:50000", "fe80::2")]
    {
        let mut bytes = packets_header(&envelope, true);
        for packet in [&b"abcdefghijkl"[..], b"", b"xyz"] {
            bytes.extend_from_slice(&(packet.len() as u16).to_le_bytes());
            bytes.extend_from_slice(packet);
        }
        let Some(Message::Packets { envelope: got, from_sender: true, packets: rest }) =
            parse(&bytes)
        else {
            panic!("{envelope:?}")
        };
        assert_eq!(got, envelope);
        let got: Vec<_> = packets(rest).map(Result::unwrap).collect();
        assert_eq!(got, [&b"abcdefghijkl"[..], b"", b"xyz"]);
    }
}

#[test]
fn cut_and_unknown_messages_are_refused() {
    let whole = packets_header(&envelope("10.1.2.3:4791", "10.1.2.4"), false);
    for len in 0..whole.len() {
        assert_eq!(parse(&whole[..len]), None, "{len} bytes");
    }
    let mut other = whole.clone();
    other[7] ^= 1;
    assert_eq!(parse(&other), None, "another version");
    // A length beyond the end gives one error, and no further item.
    let items: Vec<_> = packets(&[9, 0, 1, 2]).map(|item| item.is_err()).collect();
    assert_eq!(items, [true]);
}

#[test]
fn refresh_and_answer() {
    let ip = "10.1.2.4".parse().unwrap();
    assert_eq!(parse(&refresh(ip)), Some(Message::Refresh { ip }));
    let bytes = answer(7, 3, &[1, 1022]);
    assert_eq!(parse(&bytes), Some(Message::Answer { nonce: 7, index: 3, slots: vec![1, 1022] }));
    assert_eq!(parse(&bytes[..20]), None);
}

#[test]
fn a_handshake_message_survives_the_way() {
    let message = HandshakeMessage {
        nonce: 0x0123_4567_89ab_cdef,
        wants_answer: true,
        mtu: 65536,
        slots: vec![7, 9],
    };
    let bytes = message.emit();
    assert_eq!(HandshakeMessage::parse(&bytes), Some(message));
    for len in 0..26 {
        assert_eq!(HandshakeMessage::parse(&bytes[..len]), None, "cut to {len} bytes");
    }
    let mut other = bytes;
    other[9] = HANDSHAKE_VERSION + 1;
    assert_eq!(HandshakeMessage::parse(&other), None, "another version");
}

/// TRU-3: the data kept from a handshake message is bounded by the number of slots.
#[test]
fn a_handshake_message_names_slots_that_there_are() {
    let message =
        |slots: Vec<Slot>| HandshakeMessage { nonce: 1, wants_answer: false, mtu: 4096, slots };
    for (slots, right) in [
        (vec![MIN_SLOT, MAX_SLOT], true),
        (vec![0], false),
        (vec![5, MAX_SLOT + 1], false),
        (vec![u16::MAX], false),
        ((MIN_SLOT..=MAX_SLOT).collect(), true),
        (vec![7; usize::from(MAX_SLOT) + 1], false),
    ] {
        let count = slots.len();
        assert_eq!(
            HandshakeMessage::parse(&message(slots).emit()).is_some(),
            right,
            "{count} slots"
        );
    }
}

/// TOP-1: a question and a reply survive the way, and a cut or longer question is refused.
#[test]
fn top_1_a_question_and_its_reply_survive_the_way() {
    let question = Question { tag: 0x0123_4567, from: 0x89ab, fault: None };
    let bytes = question.emit();
    assert_eq!(parse(&bytes), Some(Message::Question(question)));
    for len in 0..bytes.len() {
        assert_eq!(parse(&bytes[..len]), None, "cut to {len} bytes");
    }
    assert_eq!(parse(&[&bytes[..], &[0]].concat()), None);
    let fault = |text: String| Question { tag: 1, from: 0, fault: Some(text) };
    for text in ["", "link-down=rxe0@1ms±1ms"] {
        let question = fault(text.to_owned());
        assert_eq!(parse(&question.emit()), Some(Message::Question(question)));
    }
    assert_eq!(parse(&fault("x".repeat(4097)).emit()), None);
    assert_eq!(parse(&[&fault(String::new()).emit()[..], &[0xff]].concat()), None);
    let reply = [&reply_header(7)[..], b"page"].concat();
    assert_eq!(parse_reply(&reply), Some((7, &b"page"[..])));
    assert_eq!(parse(&reply), None, "no process takes a reply");
    for len in 0..16 {
        assert_eq!(parse_reply(&reply[..len]), None, "cut to {len} bytes");
    }
}
