//! Layouts of headers that no capture contains, with hand-made bytes; and the small pure functions.
use adverb_wire::*;
use std::time::Duration;

fn headers(transport: Transport, operation: Operation) -> Headers {
    let opcode = Opcode::new(transport, operation).unwrap();
    Headers::new(Bth::new(opcode, 0x00_1234, Psn::new(0xab_cdef)))
}

fn emitted(h: &Headers) -> Vec<u8> {
    let mut out = vec![0; h.len()];
    assert_eq!(h.emit(&mut out), out.len());
    out
}

#[test]
fn bth_bits() {
    let mut bth = headers(Transport::Rc, Operation::SendOnly).bth;
    assert_eq!(bth.to_bytes(), [4, 0, 0xff, 0xff, 0, 0, 0x12, 0x34, 0, 0xab, 0xcd, 0xef]);
    bth = Bth {
        solicited: true,
        mig_req: true,
        pad: 3,
        pkey: 0x8001,
        fecn: true,
        becn: true,
        ack_req: true,
        ..bth
    };
    let bytes = [4, 0xf0, 0x80, 1, 0xc0, 0, 0x12, 0x34, 0x80, 0xab, 0xcd, 0xef];
    assert_eq!(bth.to_bytes(), bytes);
    assert_eq!(Bth::parse(&bytes), Ok(bth));
    // Values that are too wide do not change neighbouring fields.
    let wide = Bth { dest_qpn: 0xff00_1234, pad: 7, ..bth };
    assert_eq!(wide.to_bytes(), bytes);
}

#[test]
fn reserved_bits_are_tolerated() {
    let h = Headers {
        aeth: Some(Aeth { syndrome: Syndrome::ACK_NO_CREDITS, msn: 5 }),
        ..headers(Transport::Rc, Operation::Acknowledge)
    };
    let mut bytes = emitted(&h);
    bytes[4] |= 0x3f;
    bytes[8] |= 0x7f;
    bytes[12] |= 0x80;
    assert_eq!(Headers::parse(&bytes), Ok((h, &[][..])));
}

/// `parse_front` splits a whole packet like `parse`. For the beginning of a packet, the headers are
/// enough.
#[test]
fn headers_split_off_the_front() {
    for byte in 0..=255 {
        let Some(opcode) = Opcode::from_u8(byte) else {
            assert_eq!(Headers::parse_front(&[byte; 64]), Err(ParseError::UnknownOpcode(byte)));
            continue;
        };
        let mut bytes = vec![0x11; 128];
        let mut bth = Bth::new(opcode, 0x00_1234, Psn::new(7));
        bth.pad = 3;
        bytes[..12].copy_from_slice(&bth.to_bytes());
        let need = opcode.header_len();
        let (headers, rest) = Headers::parse_front(&bytes).unwrap();
        assert!(headers.is_consistent() && headers.len() == need);
        assert_eq!(rest, &bytes[need..], "{opcode}: the pad is not taken off");
        let whole = &bytes[..need + 8];
        assert_eq!(Headers::parse(whole), Ok((headers, &whole[need..need + 5])));
        for end in [need, need + 1, need + 3] {
            assert_eq!(
                Headers::parse_front(&bytes[..end]),
                Ok((headers, &bytes[need..end])),
                "{opcode}"
            );
            assert!(Headers::parse(&bytes[..end]).is_err(), "{opcode}: no whole packet");
        }
        for got in [12, need - 1] {
            if got < need {
                let short = Err(ParseError::TooShort { need, got });
                assert_eq!(Headers::parse_front(&bytes[..got]), short, "{opcode}");
            }
        }
        bytes[1] |= 5;
        assert_eq!(Headers::parse_front(&bytes), Err(ParseError::BadTransportVersion(5)));
    }
    assert_eq!(Headers::parse_front(&[4; 11]), Err(ParseError::TooShort { need: 12, got: 11 }));
}

#[test]
fn xrceth_comes_first_and_immediate_last() {
    let h = Headers {
        xrceth: Some(XrcEth { srqn: 0x11_2233 }),
        reth: Some(Reth { va: 0x0102_0304_0506_0708, rkey: 0x0a0b_0c0d, len: 0x10 }),
        imm: Some(ImmDt(u32::from_ne_bytes([9, 8, 7, 6]))),
        ..headers(Transport::Xrc, Operation::WriteOnlyImm)
    };
    let bytes = emitted(&h);
    let tail =
        [0, 0x11, 0x22, 0x33, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 0, 0, 0, 0x10, 9, 8, 7, 6];
    assert_eq!(bytes[12..], tail);
    assert_eq!(Headers::parse(&bytes), Ok((h, &[][..])));
}

#[test]
fn flush_is_feth_then_reth() {
    let h = Headers {
        feth: Some(Feth { placement: 3, selectivity: 1 }),
        reth: Some(Reth { va: 1, rkey: 2, len: 3 }),
        ..headers(Transport::Rc, Operation::Flush)
    };
    let bytes = emitted(&h);
    assert_eq!(bytes[12..], [0, 0, 0, 0x13, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
    assert_eq!(Headers::parse(&bytes), Ok((h, &[][..])));
}

#[test]
fn atomic_write_has_eight_bytes_of_payload() {
    let h = Headers {
        reth: Some(Reth { va: 8, rkey: 2, len: 8 }),
        ..headers(Transport::Rc, Operation::AtomicWrite)
    };
    let bytes = [&emitted(&h)[..], &[1, 2, 3, 4, 5, 6, 7, 8]].concat();
    assert_eq!(Headers::parse(&bytes), Ok((h, &bytes[28..])));
}

#[test]
fn errors_say_expected_and_found() {
    let h = Headers { reth: Some(Reth::default()), ..headers(Transport::Rc, Operation::WriteOnly) };
    let good = emitted(&h);
    assert_eq!(Headers::parse(&good[..11]), Err(ParseError::TooShort { need: 12, got: 11 }));
    assert_eq!(Headers::parse(&good[..27]), Err(ParseError::TooShort { need: 28, got: 27 }));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(Headers::parse(&with(0, 0x15)), Err(ParseError::UnknownOpcode(0x15)));
    assert_eq!(Headers::parse(&with(1, 0x02)), Err(ParseError::BadTransportVersion(2)));
    assert_eq!(Headers::parse(&with(1, 0x10)), Err(ParseError::BadPad { pad: 1, got: 0 }));
    assert_eq!(
        Headers::parse(&[&good[..], &[0; 5]].concat()),
        Err(ParseError::Misaligned { got: 5 })
    );
    let text = ParseError::TooShort { need: 28, got: 27 }.to_string();
    assert_eq!(text, "headers take 28 bytes, the packet has 27");
}

#[test]
fn syndromes() {
    for byte in 0..=255u8 {
        let s = Syndrome::from_u8(byte);
        match s {
            Syndrome::Reserved(b) => assert_eq!(b, byte),
            _ => assert_eq!(s.as_u8(), byte & 0x7f),
        }
    }
    assert_eq!(Syndrome::from_u8(0x2e), Syndrome::RnrNak { timer: 14 });
    assert_eq!(Syndrome::from_u8(0x62), Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(Syndrome::from_u8(0x65), Syndrome::Reserved(0x65));
    assert_eq!(Syndrome::from_u8(0x40), Syndrome::Reserved(0x40));
}

#[test]
fn global_route_header() {
    let grh = Grh {
        traffic_class: 0xb9,
        flow_label: 0xabcde,
        payload_len: 300,
        next_header: 17,
        hop_limit: 64,
        sgid: core::array::from_fn(|i| i as u8),
        dgid: core::array::from_fn(|i| 0xf0 | i as u8),
    };
    let bytes = grh.to_bytes();
    assert_eq!(bytes[..8], [0x6b, 0x9a, 0xbc, 0xde, 1, 44, 17, 64]);
    assert_eq!(bytes[8..], [grh.sgid, grh.dgid].concat());
}

#[test]
fn ipv4_in_the_grh_area() {
    // A header with a checksum from another source (the usual example of RFC 1071).
    let ip = Ipv4InGrh {
        tos: 0,
        total_len: 0x73,
        id: 0,
        dont_fragment: true,
        ttl: 64,
        protocol: 17,
        src: [192, 168, 0, 1],
        dst: [192, 168, 0, 199],
    };
    let bytes = ip.to_bytes();
    assert_eq!(bytes[..20], [0; 20]);
    let header =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 192, 168, 0, 1, 192, 168, 0, 199];
    assert_eq!(bytes[20..], header);
}

#[test]
fn source_ports() {
    assert_eq!(ud_source_port(1), 55410);
    assert_eq!(udp_source_port(0x11, 0x13), 0xc000 | 0x143);
    assert_eq!(udp_source_port(0xabcdef, 0x1234), udp_source_port(0x1234, 0xabcdef));
    // 0xfffffe000001, folded: 0xfffff1ffffe1, 0xfffff1ffff1e; label 0xfff1e; 0x3f1e ^ 0x3f.
    assert_eq!(udp_source_port(0xff_ffff, 0xff_ffff), 0xff21);
    assert_eq!(flow_label_source_port(0xfff1e), 0xff21);
    // The upper six bits are folded into the lower ones; bits above the label do not count.
    assert_eq!(flow_label_source_port(0xc001), 0xc000 | 0x0001 ^ 3);
    assert_eq!(flow_label_source_port(0x10_0001), 0xc001);
}

#[test]
fn timers() {
    assert_eq!(rnr_timer_us(0), 655_360);
    assert_eq!(rnr_timer_us(1), 10);
    assert_eq!(rnr_timer_us(14), 1_280);
    assert_eq!(rnr_timer_us(20), 10_240);
    assert_eq!(rnr_timer_us(31), 491_520);
    assert!((1..31).all(|c| rnr_timer_us(c) < rnr_timer_us(c + 1)), "codes grow");
    // From code 2 on, the time doubles every second code.
    assert!((2..30).all(|c| rnr_timer_us(c + 2) == 2 * rnr_timer_us(c)));
    assert_eq!(ack_timeout_ns(0), None);
    assert_eq!(
        ack_timeout_ns(14).map(Duration::from_nanos),
        Some(Duration::from_nanos(67_108_864))
    );
    assert_eq!(ack_timeout_ns(31), Some(4096 << 31));
}

#[test]
fn padding() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(pad_for), [0, 3, 2, 1, 0, 3]);
}
