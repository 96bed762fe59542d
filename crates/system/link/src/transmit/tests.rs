use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;

use adverb_local::{Local, SLOT_SHIFT};

use super::*;
use crate::{Config, RxBuffers, RxFrom};

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Ports different from the other tests'.
fn link(offset: u16) -> UdpLink {
    let port = 32000 + (std::process::id() % 80) as u16 * 8 + offset;
    let local_ports = crate::LocalPorts::Any;
    let local = Local::new(u64::from(port)).unwrap();
    UdpLink::new(Config { port, local_ports, ..Config::default() }, local)
}

#[test]
fn a_refused_run_is_sent_packet_by_packet() {
    let (a, b) = (link(0), link(1));
    let local = a.add_address(IP, 0).unwrap();
    let at = b.add_address(IP, 0).unwrap();
    let socket = a.socket(local).unwrap();
    // A socket without checksums cannot segment: the kernel answers UDP_SEGMENT with EINVAL.
    sys::set_option(&socket.fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let route = Route::new(local, SocketAddr::new(IP, b.port()));
    let qpn = (u32::from(b.local().slots()[0]) << SLOT_SHIFT).to_be_bytes();
    let mut batch = TxBatch::default();
    let mut send = |first: u8| {
        for psn in first..first + 5 {
            let bth = [4, 0, 0xff, 0xff, 0, qpn[1], qpn[2], qpn[3], 0, 0, 0, psn];
            batch.push(&a, &route, &bth, 100, 0, |bytes| {
                bytes.fill(psn);
                true
            });
        }
        batch.flush(&a);
    };
    send(0);
    assert!(socket.no_gso.load(Relaxed), "remembered");
    send(5);
    let mut psns = Vec::new();
    let mut buffers = RxBuffers::new(2);
    let mut sink = crate::each(|p| {
        assert!(p.bytes[12..].iter().all(|&byte| byte == p.bytes[11]));
        psns.push(p.bytes[11]);
    });
    // On a loaded machine the packets arrive some time after the send.
    let (mut arrived, until) = (0, std::time::Instant::now() + std::time::Duration::from_secs(30));
    while arrived < 10 && std::time::Instant::now() < until {
        arrived += b.recv(RxFrom::Addr(at), &mut buffers, 100, &mut sink);
    }
    assert_eq!(b.recv(RxFrom::Addr(at), &mut buffers, 100, &mut sink), 0);
    drop(sink);
    assert_eq!(psns, (0..10).collect::<Vec<u8>>());
    let stats = a.stats();
    assert_eq!((stats.tx_packets, stats.tx_runs, stats.tx_syscalls), (10, 0, 11), "{stats:?}");
}

#[test]
fn a_run_with_its_headers_stays_below_64_kib() {
    let a = link(4);
    let local = a.add_address(IP, 0).unwrap();
    let route = Route::new(local, SocketAddr::new(IP, 9));
    let mut batch = TxBatch::default();
    // 46 packets of 1424 bytes are 65,504, which a datagram holds.
    for payload in [1408, 1024, 4096] {
        for _ in 0..64 {
            batch.push(&a, &route, &[0; 12], payload, 0, |_| true);
            assert!(batch.used + 66 < 1 << 16, "{} bytes", batch.used);
        }
        batch.flush(&a);
    }
    assert!(a.stats().tx_runs >= 6);
}

#[test]
fn identifications_count_within_a_run() {
    // The staged bytes of one run, with the ICRC given to each packet.
    let a = link(2);
    let local = a.add_address(IP, 0).unwrap();
    let route = Route::new(local, SocketAddr::new(IP, 9));
    let mut batch = TxBatch::default();
    for _ in 0..3 {
        batch.push(&a, &route, &[0; 12], 8, 0, |bytes| {
            bytes.fill(1);
            true
        });
    }
    let src = SocketAddr::new(IP, a.port());
    for (id, packet) in batch.buffer[..batch.used].chunks(24).enumerate() {
        let (covered, got) = packet.split_at(20);
        assert_eq!(
            got,
            Sums::default().compute(&src, &route.dst, id as u16, covered),
            "packet {id}"
        );
    }
}

#[test]
fn what_may_join_a_run() {
    let a = link(3);
    let local = a.add_address(IP, 0).unwrap();
    let route = Route::new(local, SocketAddr::new(IP, 9));
    let other = Route { traffic_class: 2, ..route };
    let mut batch = TxBatch::default();
    let mut push = |route: &Route, len: usize| {
        batch.push(&a, route, &[0; 12], len, 0, |_| true);
        batch.count
    };
    assert_eq!(push(&route, 100), 1);
    assert_eq!(push(&route, 100), 2);
    assert_eq!(push(&route, 40), 3, "a shorter one ends the run");
    assert_eq!(push(&route, 40), 1);
    assert_eq!(push(&route, 100), 1, "a longer one begins a run");
    assert_eq!(push(&other, 100), 1, "another traffic class");
    for n in 2..=64 {
        assert_eq!(push(&other, 100), n);
    }
    assert_eq!(push(&other, 100), 1, "64 segments");
    assert_eq!(push(&other, 60000), 1);
    assert_eq!(push(&other, 60000), 1, "more than a datagram holds");
    let mut to = |qpn_high: u8| {
        batch.push(&a, &route, &[0, 0, 0, 0, 0, qpn_high, 0, 0, 0, 0, 0, 0], 8, 0, |_| true);
        batch.count
    };
    assert_eq!([to(1), to(1), to(2), to(2), to(1)], [1, 2, 1, 2, 1], "runs go to one slot");
}

#[test]
fn a_packet_whose_payload_cannot_be_had_is_not_sent() {
    let a = link(6);
    let local = a.add_address(IP, 0).unwrap();
    let route = Route::new(local, SocketAddr::new(IP, 9));
    let mut batch = TxBatch::default();
    for had in [false, true, false, true, false] {
        batch.push(&a, &route, &[0; 12], 8, 0, |_| had);
    }
    assert_eq!((batch.count, batch.used), (2, 2 * 24));
    batch.flush(&a);
    assert_eq!(a.stats().tx_packets, 2);
    let mut message = vec![7];
    assert!(!adverb_local::add_packet(&mut message, &[0; 12], 8, 0, |_| false));
    assert_eq!(message, [7]);
    assert!(adverb_local::add_packet(&mut message, &[0; 12], 8, 0, |_| true));
    assert_eq!(message.len(), 1 + 2 + 20);
}
