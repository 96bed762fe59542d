//! RAW-3, RAW-4: fields, rules and hashes, tested with published numbers and by properties.
use crate::frame::Network;
use crate::{Fields, Frame, Hash, Heard, Kind, Match, Rule, Spec, Table, Transport};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

/// The key of Microsoft's page "Verifying the RSS hash calculation".
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
const ADDRESSES: u64 = 0b1111;
const TCP_PORTS: u64 = 0b11_0000;
const TCP: u8 = 6;
const UDP: u8 = 17;

fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    out.extend(ether_type.to_be_bytes());
    out.extend(rest);
    out
}

fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0x28, 0, 0, 0, 0];
    header.extend(fragment.to_be_bytes());
    header.extend([64, proto, 0, 0]);
    header.extend(src.octets());
    header.extend(dst.octets());
    header.extend(rest);
    ethernet(0x0800, &header)
}

fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x6a, 0xb1, 0x23, 0x45, 0, 0, next, 63];
    header.extend(src.octets());
    header.extend(dst.octets());
    header.extend(rest);
    ethernet(0x86dd, &header)
}

fn ports(src: u16, dst: u16) -> Vec<u8> {
    [src.to_be_bytes(), dst.to_be_bytes()].concat()
}

fn parsed(bytes: &[u8]) -> Frame {
    Frame::parse(bytes).expect("a whole header")
}

/// RAW-4: Microsoft's published hashes for IPv4 and IPv6, without and with ports.
#[test]
fn raw_4_toeplitz_gives_the_published_hashes() {
    let v4 = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
    ];
    let v6 = [
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];
    let of = |fields| Hash::toeplitz(&KEY, Fields(fields)).unwrap();
    let both = [of(ADDRESSES), of(ADDRESSES | TCP_PORTS)];
    for (dst, dport, src, sport, plain, with_ports) in v4.into_iter().chain(v6) {
        let bytes = match (src.parse::<Ipv4Addr>(), dst.parse::<Ipv4Addr>()) {
            (Ok(src), Ok(dst)) => ipv4(src, dst, TCP, 0, &ports(sport, dport)),
            _ => ipv6(src.parse().unwrap(), dst.parse().unwrap(), TCP, &ports(sport, dport)),
        };
        let frame = parsed(&bytes);
        assert_eq!(both.map(|h| h.of(&frame)), [plain, with_ports], "{src} to {dst}");
    }
    assert!(Hash::toeplitz(&KEY[1..], Fields::ALL).is_err(), "a key of 39 bytes");
}

/// RAW-4: ports count only for their own protocol. Ports of fragments do not count, so that all
/// fragments go to the same queue.
#[test]
fn raw_4_what_a_frame_has_not_is_not_hashed() {
    let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let hash = Hash::toeplitz(&KEY, Fields(ADDRESSES | TCP_PORTS)).unwrap();
    let plain = hash.of(&parsed(&ipv4(a, b, 1, 0, &[])));
    assert_ne!(hash.of(&parsed(&ipv4(a, b, TCP, 0, &ports(1, 2)))), plain);
    assert_eq!(hash.of(&parsed(&ipv4(a, b, UDP, 0, &ports(1, 2)))), plain);
    for fragment in [0x2000, 0x0001, 0x3fff] {
        assert_eq!(
            hash.of(&parsed(&ipv4(a, b, TCP, fragment, &ports(1, 2)))),
            plain,
            "{fragment:#x}"
        );
    }
    assert_eq!(hash.of(&parsed(&ethernet(0x0806, &[1; 40]))), 0);
    let xor = Hash::xor(Fields(0b11));
    assert_eq!(xor.of(&parsed(&ipv4(a, b, TCP, 0, &[]))), 1 ^ 2, "10.0.0.1 and 10.0.0.2");
}

/// RAW-3: fields after tags and extension headers are found.
#[test]
fn raw_3_fields_are_read_where_they_are() {
    let (src, dst) = ("fe80::1".parse().unwrap(), "ff02::2".parse().unwrap());
    // Sixteen bytes of destination options before the ports.
    let mut rest = vec![UDP, 1];
    rest.resize(16, 0);
    rest.extend(ports(53, 4791));
    let frame = parsed(&ipv6(src, dst, 60, &rest));
    assert_eq!(
        frame.network,
        Network::Ipv6 {
            src: src.octets(),
            dst: dst.octets(),
            flow_label: [0, 1, 0x23, 0x45],
            next_header: 60,
            traffic_class: 0xab,
            hop_limit: 63,
        }
    );
    let found = frame.ports.expect("ports behind an extension header");
    assert_eq!((found.transport, found.dst), (Transport::Udp, 4791_u16.to_be_bytes()));

    let inner = ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), UDP, 0x4000, &ports(7, 9));
    let mut tagged = inner[..12].to_vec();
    tagged.extend([0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x60, 0x07]);
    tagged.extend(&inner[12..]);
    let frame = parsed(&tagged);
    assert_eq!((frame.vlan, frame.ether_type), (Some([0, 5]), [8, 0]));
    assert!(matches!(frame.network, Network::Ipv4 { flags: 2, tos: 0x28, ttl: 64, .. }));
    assert!(frame.ports.is_some());
}

/// RAW-3: which of several rules a frame matches.
#[test]
fn raw_3_priorities_and_kinds_decide() {
    let frame = parsed(&ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), UDP, 0, &ports(7, 9)));
    let group = parsed(&{
        let mut bytes = ethernet(0x9999, &[]);
        bytes[0] = 0x01;
        bytes
    });
    let to_nine = Spec::Ports {
        transport: Transport::Udp,
        src: Match::ANY,
        dst: Match::exactly(9_u16.to_be_bytes()),
    };
    let chosen = |table: &Table<&'static str>, frame: &Frame, heard| {
        table.choose(frame, heard).map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut table = Table::default();
    table.add(Rule::new(Kind::AllDefault, 0, vec![]), "all");
    table.add(Rule::new(Kind::McDefault, 0, vec![]), "groups");
    assert_eq!(chosen(&table, &frame, Heard::Arrived), ["all"]);
    assert_eq!(chosen(&table, &group, Heard::Arrived), ["all", "groups"]);
    table.add(Rule::new(Kind::Normal, 5, vec![to_nine]), "late");
    let early = table.add(Rule::new(Kind::Normal, 1, vec![to_nine]), "early");
    table.add(Rule::new(Kind::Normal, 1, vec![to_nine]), "as early");
    assert_eq!(chosen(&table, &frame, Heard::Arrived), ["early", "as early"]);
    table.add(Rule::new(Kind::Sniffer, 9, vec![]), "nose");
    assert_eq!(chosen(&table, &group, Heard::Arrived), ["nose", "all", "groups"]);
    assert_eq!(chosen(&table, &frame, Heard::Leaving), ["nose"]);
    table.add(Rule::new(Kind::Normal, 0, vec![]).without_trap(), "passing");
    assert_eq!(chosen(&table, &frame, Heard::Arrived), ["nose", "passing", "early", "as early"]);
    assert_eq!(table.remove(early), Some("early"));
    assert_eq!(table.remove(early), None);
    table.add(Rule::new(Kind::Normal, 1, vec![to_nine]).dropping(), "nobody");
    assert_eq!(chosen(&table, &frame, Heard::Arrived), ["nose", "passing"]);
}

fn any_match() -> impl Strategy<Value = Match<2>> {
    (any::<[u8; 2]>(), any::<[u8; 2]>()).prop_map(|(value, mask)| Match { value, mask })
}

proptest! {
    /// RAW-3: any bytes are read without a panic, and the result does not depend on bytes after the
    /// frame.
    #[test]
    fn raw_3_any_bytes_are_read(
        tags in 0..3_usize,
        kind in prop::sample::select(vec![0x0800_u16, 0x86dd, 0x8100, 0x88a8, 0x0806]),
        bytes in prop::collection::vec(any::<u8>(), 0..160),
        cut in 0..160_usize,
    ) {
        let mut frame = vec![0; 12];
        for _ in 0..tags {
            frame.extend([0x81, 0, 0, 1]);
        }
        frame.extend(kind.to_be_bytes());
        frame.extend(&bytes);
        frame.truncate(cut);
        let read = Frame::parse(&frame);
        prop_assert_eq!(read.is_some(), frame.len() >= crate::HEADER);
        if let Some(read) = read {
            let _ = Hash::xor(Fields::ALL).of(&read);
            if let Some(found) = read.ports {
                prop_assert!(frame.windows(2).any(|w| w == found.dst));
            }
        }
    }

    /// RAW-3: a rule refuses a frame exactly if a bit of the mask differs.
    #[test]
    fn raw_3_masked_bits_decide(port in any::<u16>(), dst in any_match()) {
        let frame = parsed(&ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), UDP, 0, &ports(7, port)));
        let mut table = Table::default();
        table.add(Rule::new(Kind::Normal, 0, vec![Spec::Ports { transport: Transport::Udp, src: Match::ANY, dst }]), ());
        let (value, mask) = (u16::from_be_bytes(dst.value), u16::from_be_bytes(dst.mask));
        let wanted = (0..16).all(|bit| mask >> bit & 1 == 0 || value >> bit & 1 == port >> bit & 1);
        prop_assert_eq!(table.choose(&frame, Heard::Arrived).count(), usize::from(wanted));
    }

    /// RAW-4: the hash is linear in its input, like Toeplitz: the hash of a difference is the
    /// difference of the hashes.
    #[test]
    fn raw_4_toeplitz_is_linear(key in any::<[u8; 32]>(), a in any::<[u8; 4]>(), b in any::<[u8; 4]>()) {
        let mut long = KEY;
        long[..32].copy_from_slice(&key);
        let hash = Hash::toeplitz(&long, Fields(ADDRESSES)).unwrap();
        let of = |src: [u8; 4]| hash.of(&parsed(&ipv4(src.into(), [0; 4].into(), 1, 0, &[])));
        let both: [u8; 4] = std::array::from_fn(|i| a[i] ^ b[i]);
        prop_assert_eq!(of(both), of(a) ^ of(b));
    }
}
