use super::*;
use proptest::prelude::*;

fn offers() -> impl Strategy<Value = Offer> {
    (
        2..BITS_24,
        0..=BITS_24,
        any::<[u8; 16]>(),
        1u32..=5,
        any::<(u32, u32)>(),
        proptest::collection::vec(any::<u8>(), 0..=MAX_PRIVATE_DATA),
    )
        .prop_map(|(qpn, psn, gid, mtu, (inbound, outbound), private_data)| Offer {
            qpn,
            psn,
            gid: Gid(gid),
            mtu: PathMtu::from_code(mtu).expect("1 to 5"),
            limits: ReadLimits { inbound, outbound },
            private_data,
        })
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        offers().prop_map(Message::Request),
        offers().prop_map(Message::Reply),
        Just(Message::Ready),
        (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..=MAX_PRIVATE_DATA))
            .prop_map(|(code, data)| Message::Reject(Reason::from_code(code), data)),
        Just(Message::Disconnect),
        Just(Message::Disconnected),
    ]
}

proptest! {
    /// What is written is read, whatever follows it.
    #[test]
    fn round_trip(message in messages(), rest in proptest::collection::vec(any::<u8>(), 0..32)) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        prop_assert!(bytes.len() <= MAX_MESSAGE);
        let length = bytes.len();
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(Message::parse(&bytes), Ok(Some((message, length))));
    }

    /// Every shorter piece of a message asks for more.
    #[test]
    fn a_piece_asks_for_more(message in messages()) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        for end in 0..bytes.len() {
            prop_assert_eq!(Message::parse(&bytes[..end]), Ok(None), "{} bytes", end);
        }
    }

    /// The parser answers for any bytes, and never asks for more than the longest message has.
    #[test]
    fn total(bytes in proptest::collection::vec(any::<u8>(), 0..2 * MAX_MESSAGE)) {
        if let Ok(None) = Message::parse(&bytes) {
            prop_assert!(bytes.len() < MAX_MESSAGE);
        }
    }

    /// The same for bytes that begin as a message does.
    #[test]
    fn total_behind_a_good_header(
        type_code in 0u8..8,
        length in any::<u16>(),
        body in proptest::collection::vec(any::<u8>(), 0..2 * MAX_MESSAGE),
    ) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, type_code]);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&body);
        match Message::parse(&bytes) {
            Ok(Some((message, consumed))) => {
                let mut again = Vec::new();
                message.write(&mut again);
                prop_assert_eq!(&again[..], &bytes[..consumed]);
            }
            Ok(None) => prop_assert!(bytes.len() < MAX_MESSAGE),
            Err(_) => {}
        }
    }
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes
}

fn offer() -> Offer {
    Offer {
        qpn: 0x0012_3456,
        psn: 0x00ab_cdef,
        gid: Gid::from_ipv4([127, 0, 0, 1]),
        mtu: PathMtu::Mtu4096,
        limits: ReadLimits { inbound: 16, outbound: 8 },
        private_data: b"hi".to_vec(),
    }
}

/// The form itself, byte by byte: another process may have been built from another version of this code.
#[test]
fn the_form_on_the_wire() {
    let mut expected = b"NDcm\x01\x01\x00\x26".to_vec();
    expected.extend_from_slice(b"\x00\x12\x34\x56\x00\xab\xcd\xef");
    expected.extend_from_slice(b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01");
    expected.extend_from_slice(b"\x00\x00\x00\x10\x00\x00\x00\x08\x00\x00\x00\x05hi");
    assert_eq!(bytes_of(&Message::Request(offer())), expected);
    assert_eq!(bytes_of(&Message::Reject(Reason::Busy, Vec::new())), b"NDcm\x01\x04\x00\x01\x02");
}

#[test]
fn what_is_malformed_is_named() {
    let good = bytes_of(&Message::Request(offer()));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Message::parse(&bytes).expect_err("malformed")
    };
    assert_eq!(Message::parse(b"GET / HTTP/1.1\r\n"), Err(Malformed::Magic));
    assert_eq!(Message::parse(b"G"), Err(Malformed::Magic));
    assert_eq!(with(4, 2), Malformed::Version(2));
    assert_eq!(with(4, 2).reason(), Reason::Version);
    assert_eq!(with(5, 9), Malformed::Type(9));
    assert_eq!(with(5, READY), Malformed::Length(READY, 38));
    assert_eq!(with(6, 0xff), Malformed::Length(REQUEST, 0xff26));
    assert_eq!(with(7, 35), Malformed::Length(REQUEST, 35));
    assert_eq!(with(8, 1), Malformed::Field("queue pair number"));
    assert_eq!(with(12, 1), Malformed::Field("PSN"));
    assert_eq!(with(43, 6), Malformed::Field("path MTU"));
    assert_eq!(with(43, 6).reason(), Reason::Malformed);
}
