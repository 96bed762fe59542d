//! Properties that hold for all values.
use adverb_wire::icrc::{IcrcFlow, IpMeta, Solver, UdpMeta, icrc};
use adverb_wire::*;
use proptest::prelude::*;

fn opcode() -> impl Strategy<Value = Opcode> {
    let all: Vec<Opcode> = (0..=255).filter_map(Opcode::from_u8).collect();
    prop::sample::select(all)
}

prop_compose! {
    fn bth()(opcode in opcode(), bits in any::<[bool; 5]>(), pkey: u16, qpn in 0..=QPN_MASK, psn: u32) -> Bth {
        let [solicited, mig_req, fecn, becn, ack_req] = bits;
        Bth { solicited, mig_req, fecn, becn, ack_req, pkey, ..Bth::new(opcode, qpn, Psn::new(psn)) }
    }
}

fn syndrome() -> impl Strategy<Value = Syndrome> {
    (0..128u8).prop_map(Syndrome::from_u8)
}

prop_compose! {
    fn headers()(
        bth in bth(), va: u64, key: u32, len: u32, values: [u64; 2], syndrome in syndrome(),
        number in 0..=QPN_MASK, word: u32, placement in 0..16u8, selectivity in 0..4u8,
    ) -> Headers {
        let op = bth.opcode;
        Headers {
            bth,
            xrceth: op.has_xrceth().then_some(XrcEth { srqn: number }),
            deth: op.has_deth().then_some(Deth { qkey: key, src_qpn: number }),
            feth: op.has_feth().then_some(Feth { placement, selectivity }),
            reth: op.has_reth().then_some(Reth { va, rkey: key, len }),
            atomic: op.has_atomic_eth()
                .then_some(AtomicEth { va, rkey: key, swap_add: values[0], compare: values[1] }),
            aeth: op.has_aeth().then_some(Aeth { syndrome, msn: number }),
            atomic_ack: op.has_atomic_ack_eth().then_some(AtomicAckEth { original: values[0] }),
            imm: op.has_imm().then_some(ImmDt(word)),
            ieth: op.has_ieth().then_some(Ieth { rkey: word }),
        }
    }
}

prop_compose! {
    /// A datagram without its ICRC, and its headers.
    fn datagram()(mut headers in headers(), payload in prop::collection::vec(any::<u8>(), 0..300))
        -> (Headers, Vec<u8>, Vec<u8>)
    {
        headers.bth.pad = pad_for(payload.len());
        let mut bytes = vec![0; headers.len()];
        headers.emit(&mut bytes);
        bytes.extend(&payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        (headers, payload, bytes)
    }
}

fn ip() -> impl Strategy<Value = IpMeta> {
    prop_oneof![
        any::<([u8; 4], [u8; 4], u16, bool)>()
            .prop_map(|(src, dst, id, dont_fragment)| IpMeta::V4 { src, dst, id, dont_fragment }),
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| IpMeta::V6 { src, dst }),
    ]
}

fn udp(src_port: u16, datagram: &[u8]) -> UdpMeta {
    UdpMeta { src_port, dst_port: ROCE_PORT, len: (datagram.len() + 12) as u16 }
}

/// The ICRC by definition: the whole packet is built, masked, and summed bit by bit.
fn icrc_by_the_book(ip: &IpMeta, udp: &UdpMeta, datagram: &[u8]) -> u32 {
    let mut p = vec![0xff; 8];
    match ip {
        IpMeta::V4 { src, dst, id, dont_fragment } => {
            p.extend([0x45, 0xff]);
            p.extend((udp.len + 20).to_be_bytes());
            p.extend(id.to_be_bytes());
            p.extend([u8::from(*dont_fragment) << 6, 0, 0xff, 17, 0xff, 0xff]);
            p.extend(src.iter().chain(dst));
        }
        IpMeta::V6 { src, dst } => {
            p.extend([0x6f, 0xff, 0xff, 0xff]);
            p.extend(udp.len.to_be_bytes());
            p.extend([17, 0xff]);
            p.extend(src.iter().chain(dst));
        }
    }
    p.extend([udp.src_port, udp.dst_port, udp.len, 0xffff].iter().flat_map(|v| v.to_be_bytes()));
    let bth = p.len();
    p.extend(datagram);
    p[bth + 4] = 0xff;
    let mut crc = !0u32;
    for byte in p {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

proptest! {
    #[test]
    fn a_packet_behind_another_is_read_as_alone(
        (headers, _, before) in datagram(), at in 0..40usize, flips in 0..3usize, by in 1..=255u8,
        psn: u32, other in datagram(), alike: bool,
    ) {
        let mut next = if alike { before.clone() } else { other.2 };
        // Mostly the next packet of the same message, with some other byte changed.
        if alike {
            next[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
        }
        for _ in 0..flips {
            let at = at % next.len();
            next[at] ^= by;
        }
        let mut read = headers;
        let payload = read.parse_after(&before, &next);
        match Headers::parse(&next) {
            Ok(alone) => prop_assert_eq!(Ok(alone), payload.map(|payload| (read, payload))),
            Err(why) => prop_assert_eq!((Err(why), headers), (payload, read)),
        }
    }

    #[test]
    fn parse_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((headers, payload)) = Headers::parse(&bytes) {
            prop_assert_eq!(headers.len() + payload.len() + usize::from(headers.bth.pad), bytes.len());
        }
    }

    /// With a valid BTH in front, arbitrary bytes reach the extension headers.
    #[test]
    fn parse_of_known_opcodes(op in opcode(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = [&[op.as_u8(), 0][..], &bytes].concat();
        bytes.truncate(bytes.len() & !3);
        match Headers::parse(&bytes) {
            Ok((headers, payload)) => {
                prop_assert!(headers.is_consistent());
                prop_assert_eq!(payload.len() + headers.len(), bytes.len());
            }
            Err(e) => {
                let need = if bytes.len() < 12 { 12 } else { op.header_len() };
                prop_assert_eq!(e, ParseError::TooShort { need, got: bytes.len() });
            }
        }
    }

    #[test]
    fn what_is_emitted_parses_the_same((headers, payload, bytes) in datagram()) {
        let (again, rest) = Headers::parse(&bytes).unwrap();
        prop_assert_eq!(again, headers);
        prop_assert_eq!(rest, &payload[..]);
    }

    #[test]
    fn psn_is_a_circle(a in 0..=Psn::MASK, n in 0..1u32 << 23, k: u32) {
        let p = Psn::new(a);
        let q = p + n;
        prop_assert_eq!(q.get(), (a + n) % (1 << 24));
        prop_assert_eq!(q - n, p);
        prop_assert_eq!(q.since(p), n as i32);
        prop_assert_eq!(p.since(q), -(n as i32));
        prop_assert_eq!(p.precedes(q), n > 0);
        prop_assert!(!q.precedes(p));
        prop_assert_eq!(p + k, Psn::new(a.wrapping_add(k)));
        prop_assert_eq!(p.next(), p + 1);
        prop_assert_eq!(p.prev(), p - 1);
    }

    #[test]
    fn icrc_is_by_the_book(ip in ip(), port: u16, (_, _, bytes) in datagram()) {
        let udp = udp(port, &bytes);
        prop_assert_eq!(icrc(&ip, &udp, &bytes), icrc_by_the_book(&ip, &udp, &bytes));
    }

    #[test]
    fn one_flipped_bit_never_verifies(
        ip in ip(), port: u16, (_, _, mut bytes) in datagram(), place in any::<prop::sample::Index>(),
    ) {
        let udp = udp(port, &bytes);
        let sum = icrc(&ip, &udp, &bytes);
        let bit = place.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(icrc(&ip, &udp, &bytes) == sum, bit / 8 == 4, "bit {}; byte 4 is not covered", bit);
    }

    #[test]
    fn any_id_is_solved_at_any_length(
        addresses: ([u8; 4], [u8; 4]), id: u16, hint: u16, port: u16, df: bool,
        bytes in prop::collection::vec(any::<u8>(), 12..=9000),
    ) {
        let (src, dst) = addresses;
        let udp = udp(port, &bytes);
        let with = |id| IpMeta::V4 { src, dst, id, dont_fragment: df };
        let sum = icrc(&with(id), &udp, &bytes).to_le_bytes();
        let mut solver = Solver::new();
        for _ in 0..2 {
            prop_assert_eq!(solver.verify(&IcrcFlow::new(&with(id), &udp), hint, &bytes, sum), Some(id));
        }
    }

    #[test]
    fn v6_is_exact(src: [u8; 16], dst: [u8; 16], port: u16, (_, _, bytes) in datagram(), wrong in 1u32..) {
        let (ip, udp) = (IpMeta::V6 { src, dst }, udp(port, &bytes));
        let sum = icrc(&ip, &udp, &bytes);
        let mut solver = Solver::new();
        let flow = IcrcFlow::new(&ip, &udp);
        prop_assert_eq!(solver.verify(&flow, 0, &bytes, sum.to_le_bytes()), Some(0));
        prop_assert_eq!(solver.verify(&flow, 0, &bytes, (sum ^ wrong).to_le_bytes()), None);
    }
}

/// About one in 65,536 damaged packets passes as a packet with another id, and no more.
#[test]
fn damage_seldom_passes_as_another_id() {
    let bytes: Vec<u8> = (0..1036u32).map(|i| (i * 7) as u8).collect();
    let ip = IpMeta::V4 { src: [10, 0, 0, 1], dst: [10, 0, 0, 2], id: 77, dont_fragment: true };
    let udp = udp(0xc123, &bytes);
    let (flow, sum) = (IcrcFlow::new(&ip, &udp), icrc(&ip, &udp, &bytes));
    let mut solver = Solver::new();
    let mut passed = 0;
    let (mut x, tries) = (1u32, 1 << 19);
    for _ in 0..tries {
        // xorshift: any wrong ICRC represents any damage.
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        passed += u32::from(solver.verify(&flow, 77, &bytes, (sum ^ x).to_le_bytes()).is_some());
    }
    assert!((1..=32).contains(&passed), "{passed} of {tries}, expected about 8");
}
