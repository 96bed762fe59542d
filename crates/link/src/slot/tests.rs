use super::*;

fn envelope(src: &str, dst: &str) -> Envelope {
    Envelope { src: src.parse().unwrap(), dst: dst.parse().unwrap(), traffic_class: 0x2e, hop_limit: 63 }
}

#[test]
fn packets_message_comes_apart_as_it_was_put_together() {
    for envelope in [envelope("10.1.2.3:4791", "10.1.2.4"), envelope("[fe80::1%7]:50000", "fe80::2")] {
        let mut bytes = packets_header(&envelope, true);
        for packet in [&b"abcdefghijkl"[..], b"", b"xyz"] {
            bytes.extend_from_slice(&(packet.len() as u16).to_le_bytes());
            bytes.extend_from_slice(packet);
        }
        let Some(Message::Packets { envelope: got, direct: true, packets: rest }) = parse(&bytes) else {
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
    // A length beyond the end gives one error and ends.
    let items: Vec<_> = packets(&[9, 0, 1, 2]).map(|item| item.is_err()).collect();
    assert_eq!(items, [true]);
}

#[test]
fn nudge_and_answer() {
    let ip = "10.1.2.4".parse().unwrap();
    assert_eq!(parse(&nudge(ip)), Some(Message::Nudge { ip }));
    let bytes = answer(7, 3, &[1, 1022]);
    assert_eq!(parse(&bytes), Some(Message::Answer { nonce: 7, index: 3, slots: vec![1, 1022] }));
    assert_eq!(parse(&bytes[..20]), None);
}

#[test]
fn slots_of_qpns() {
    assert_eq!(slot_of_qpn(0), None);
    assert_eq!(slot_of_qpn(1), None);
    assert_eq!(slot_of_qpn(MULTICAST_QPN), None);
    assert_eq!(slot_of_qpn(PROBE_QPN), None);
    assert_eq!(slot_of_qpn(1 << SLOT_SHIFT), Some(MIN_SLOT));
    assert_eq!(slot_of_qpn((u32::from(MAX_SLOT) << SLOT_SHIFT) | 0x3fff), Some(MAX_SLOT));
}

#[test]
fn a_slot_is_exclusive_while_its_holder_lives() {
    let seed = u64::from(std::process::id());
    let first = SlotClaim::claim(seed).unwrap();
    let second = SlotClaim::claim(seed).unwrap();
    assert_ne!(first.slot(), second.slot());
    let slot = first.slot();
    drop(first);
    assert_eq!(SlotClaim::claim(seed).unwrap().slot(), slot);
}
