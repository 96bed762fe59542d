//! Input from the sockets: datagrams from the wire, and messages from processes of this host.
use crate::input::Input;
use adverb_link::faults::{Delay, PacketFaults, Rate};
use adverb_link::fuzzing::{Fed, steering_test_again};
use adverb_link::{AddrIndex, Config, LinkStats, RxBuffers, each};
use adverb_local::fuzzing::message_again;
use adverb_local::{MAD_QPN, MULTICAST_QPN, SLOT_SHIFT, slot_of_qpn};
use adverb_wire::icrc::{IpMeta, UdpMeta, icrc};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The queue pair with faults.
const FAULTY_QP: u32 = 5;
/// Limit of a datagram's bytes.
const DATAGRAM: usize = 1 << 16;

/// A link with its receive buffers.
pub(crate) struct FedLink {
    pub(crate) fed: Fed,
    buffers: RxBuffers,
    addresses: Vec<(AddrIndex, IpAddr)>,
}

impl FedLink {
    fn new(faults: PacketFaults) -> FedLink {
        let v4: IpAddr = Ipv4Addr::LOCALHOST.into();
        let v6: IpAddr = Ipv6Addr::LOCALHOST.into();
        let config = Config { faults, ..Config::default() };
        // Some machines have no IPv6.
        let fed = Fed::new(config.clone(), &[v4, v6]).or_else(|_| Fed::new(config, &[v4]));
        let fed = fed.expect("a link at the loopback address");
        let open = |ip| Some((fed.link().add_address(ip, 0).ok()?, ip));
        let addresses = [v4, v6].into_iter().filter_map(open).collect();
        fed.link().tap().add_qp(own_qpn(&fed, FAULTY_QP), 1);
        FedLink { fed, buffers: RxBuffers::new(1), addresses }
    }
}

fn own_qpn(fed: &Fed, low: u32) -> u32 {
    u32::from(fed.link().local().slots()[0]) << SLOT_SHIFT | low
}

pub(crate) fn plain() -> MutexGuard<'static, FedLink> {
    static END: LazyLock<Mutex<FedLink>> =
        LazyLock::new(|| Mutex::new(FedLink::new(PacketFaults::default())));
    END.lock().unwrap_or_else(PoisonError::into_inner)
}

fn faulty() -> MutexGuard<'static, FedLink> {
    static END: LazyLock<Mutex<FedLink>> = LazyLock::new(|| {
        let rate = Rate::per_billion(200_000_000).expect("a fifth");
        let delay = Delay { mean: Duration::from_micros(20), spread: Duration::from_micros(20) };
        let faults = PacketFaults {
            drop: rate,
            dup: rate,
            reorder: rate,
            corrupt: rate,
            delay: Some(delay),
            ..PacketFaults::default()
        };
        Mutex::new(FedLink::new(faults))
    });
    END.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every packet is counted once: delivered, handed on, answered, or dropped for a reason.
fn accounted(s: &LinkStats) -> u64 {
    s.rx_packets
        + s.local.forwarded_out
        + s.local.forwarded_drop_full
        + s.steering_tests_answered
        + s.rx_drop_icrc
        + s.rx_drop_runt
        + s.rx_drop_oversize
        + s.rx_drop_no_owner
        + s.rx_drop_steering_test
        + s.rx_drop_not_multicast
}

/// Makes a packet valid where a fuzzer cannot: queue pair numbers of slot 0 become the link's own,
/// and the ICRC is right.
fn seal(fed: &Fed, packet: &mut [u8], (src, dst): (SocketAddr, IpAddr), id: u16) {
    if packet.len() < 16 {
        return;
    }
    let qpn = u32::from_be_bytes([0, packet[5], packet[6], packet[7]]);
    if qpn >> SLOT_SHIFT == 0 && qpn > 1 {
        packet[5..8].copy_from_slice(&own_qpn(fed, qpn).to_be_bytes()[1..]);
    }
    if packet.len() == 40 && packet[12..20] == *b"AdverbPr" && packet[32..36] == [0; 4] {
        packet[32..36].copy_from_slice(&fed.uid().to_le_bytes());
    }
    let (body, sum) = packet.split_at_mut(packet.len() - 4);
    let ip = match (src.ip(), dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            IpMeta::V4 { src: src.octets(), dst: dst.octets(), id, dont_fragment: true }
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpMeta::V6 { src: src.octets(), dst: dst.octets() },
        _ => return,
    };
    let udp = UdpMeta {
        src_port: src.port(),
        dst_port: fed.link().port(),
        len: (8 + body.len() + sum.len()) as u16,
    };
    sum.copy_from_slice(&icrc(&ip, &udp, body).to_le_bytes());
}

/// A UDP datagram, perhaps of several packets joined by the kernel (GRO).
pub fn datagram(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let mut end = if flags & 1 == 0 { plain() } else { faulty() };
    let FedLink { fed, buffers, addresses } = &mut *end;
    let (to, dst) = addresses[usize::from(flags >> 1 & 1) % addresses.len()];
    let near = flags & 4 == 0;
    let src = match dst {
        _ if near => dst,
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let src = SocketAddr::new(src, input.u16());
    let stride = usize::from(input.u16()).max(1);
    let id = input.u16();
    let mut bytes = input.take(DATAGRAM).to_vec();
    if flags & 8 == 0 {
        for (i, packet) in bytes.chunks_mut(stride).enumerate() {
            seal(fed, packet, (src, dst), id.wrapping_add(i as u16));
        }
    }
    let before = fed.link().stats();
    let link = fed.link();
    let mut given = 0;
    let mut sink = each(|packet| {
        given += 1;
        assert!(packet.bytes.len() >= 12, "{packet:?}");
        let slot = slot_of_qpn(packet.dest_qpn());
        assert!(slot.is_none_or(|slot| link.local().owns(slot)), "{packet:?}");
        // A delayed packet may have been sent to the other address.
        assert!(packet.dst == dst && !packet.proof.is_forwarded() || flags & 1 != 0, "{packet:?}");
    });
    let got = fed.datagram(to, src, stride, &bytes, buffers, &mut sink);
    drop(sink);
    assert_eq!(given, got);
    if flags & 1 == 0 {
        let packets = bytes.chunks(stride).count().max(1) as u64;
        assert_eq!(accounted(&link.stats()), accounted(&before) + packets);
        assert!(given as u64 <= packets);
    }
}

/// A message of another process of this user, or a probe.
pub fn hand_over(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let mut bytes = input.take(DATAGRAM).to_vec();
    if flags & 2 != 0 {
        // The magic bytes, which a fuzzer need not find.
        bytes.splice(..0, *b"Adverb\0\x01");
    }
    if let Some(written) = message_again(&bytes) {
        // Padding and odd bytes at the end are not kept, and may differ.
        assert!(written.len() <= bytes.len().max(56), "{} of {}", written.len(), bytes.len());
        assert_eq!(message_again(&written).as_ref(), Some(&written));
    }
    if let Some(written) = steering_test_again(&bytes) {
        assert_eq!(steering_test_again(&written), Some(written));
    }
    let end = if flags & 1 == 0 { plain() } else { faulty() };
    let link = end.fed.link();
    if flags & 4 == 0 {
        own_packets(&end.fed, &mut bytes);
    }
    let before = link.stats();
    let mut given = 0;
    let mut sink = each(|packet| {
        given += 1;
        assert!(packet.bytes.len() >= 12 && packet.proof.is_forwarded(), "{packet:?}");
        let slot = slot_of_qpn(packet.dest_qpn());
        let shared = match packet.dest_qpn() {
            MAD_QPN => true,
            MULTICAST_QPN => packet.dst.is_multicast(),
            _ => false,
        };
        assert!(shared || slot.is_some_and(|slot| link.local().owns(slot)), "{packet:?}");
    });
    let got = end.fed.message(&bytes, &mut sink);
    drop(sink);
    assert_eq!(given, got);
    let after = link.stats();
    assert!((after.forwarded_in - before.forwarded_in) as usize <= bytes.len() / 14);
    if flags & 1 == 0 {
        assert_eq!(after.forwarded_in - before.forwarded_in, given as u64);
    }
}

/// Replaces queue pair numbers of slot 0 in a message of packets by the link's own.
fn own_packets(fed: &Fed, bytes: &mut [u8]) {
    let mut at = 56;
    while let Some(&[low, high]) = bytes.get(at..at + 2) {
        let len = usize::from(u16::from_le_bytes([low, high]));
        let Some(qpn) = bytes.get_mut(at + 7..at + 10).filter(|_| len >= 12) else { break };
        let number = u32::from_be_bytes([0, qpn[0], qpn[1], qpn[2]]);
        if number >> SLOT_SHIFT == 0 && number > 1 {
            qpn.copy_from_slice(&own_qpn(fed, number).to_be_bytes()[1..]);
        }
        at += 2 + len;
    }
}
