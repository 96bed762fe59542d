//! Packets between links over loopback: sizes, runs, damage, errors.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use adverb_link::{Config, LinkError, LinkStats, Route, RxBuffers, RxFrom, TxBatch, each};
use adverb_local::STEERING_QPN;
use common::*;
use nix::sys::socket::MsgFlags;

fn pair(ip: std::net::IpAddr) -> (Member, Member, Route) {
    let port = port();
    // Two addresses of the loopback network, so that neither shares a reuseport group.
    let (a_ip, b_ip) = if ip.is_ipv4() { ("127.0.0.2".parse().unwrap(), ip) } else { (ip, ip) };
    let b_port = if a_ip == b_ip { common::port() } else { port };
    let (a, index) = Member::at(config(port), a_ip);
    let (b, _) = Member::at(config(b_port), b_ip);
    (a, b, Route::new(index, SocketAddr::new(b_ip, b_port)))
}

#[test]
fn every_size_arrives() {
    [V4, V6].into_iter().for_each(all_sizes);
}

fn all_sizes(ip: std::net::IpAddr) {
    let (a, b, route) = pair(ip);
    let to = qpn(b.slot(), 5);
    let sizes: Vec<usize> = (0..70).chain([255, 256, 1023, 1024, 2048, 4095, 4096, 4097]).collect();
    let mut batch = TxBatch::default();
    for (psn, &len) in sizes.iter().enumerate() {
        push(&mut batch, &a.link, &route, to, psn as u32, len);
    }
    batch.flush(&a.link);
    let got = b.take(sizes.len());
    for (psn, (got, &len)) in got.iter().zip(&sizes).enumerate() {
        assert_eq!(got.bytes, expected(to, psn as u32, len), "{len} bytes");
        assert_eq!(got.src, a.link.source_of(route.local).unwrap());
        assert_eq!((got.dst, got.forwarded), (ip, false));
    }
    assert_eq!(b.link.stats().rx_drop_icrc, 0);
}

fn runs_arrive_in_order(ip: std::net::IpAddr, max_segments: usize) {
    let port_a = port();
    let port_b = port();
    let (a, index) = Member::at(Config { max_segments, ..config(port_a) }, ip);
    let (b, _) = Member::at(config(port_b), ip);
    let route = Route::new(index, SocketAddr::new(ip, port_b));
    let to = qpn(b.slot(), 5);
    let mut batch = TxBatch::default();
    let mut lens = Vec::new();
    // FIRST is longer by a RETH, then equal packets, then a shorter last packet; four times.
    for _ in 0..4 {
        lens.push(1040);
        lens.extend([1024; 90]);
        lens.push(100);
    }
    for (psn, &len) in lens.iter().enumerate() {
        push(&mut batch, &a.link, &route, to, psn as u32, len);
    }
    assert!(!batch.is_empty());
    batch.flush(&a.link);
    assert!(batch.is_empty());
    let got = b.take(lens.len());
    for (psn, (got, &len)) in got.iter().zip(&lens).enumerate() {
        assert_eq!(got.bytes, expected(to, psn as u32, len), "packet {psn}");
    }
    let (sent, received) = (a.link.stats(), b.link.stats());
    assert_eq!(sent.tx_packets, lens.len() as u64);
    assert_eq!(received.rx_packets, lens.len() as u64);
    assert_eq!(received.rx_drop_icrc + received.rx_drop_runt, 0);
    if max_segments > 1 {
        assert!(sent.tx_syscalls <= 16, "{sent:?}");
        assert!(received.rx_datagrams <= 32, "GRO: {received:?}");
    } else {
        assert_eq!(sent.tx_syscalls, lens.len() as u64);
    }
}

#[test]
fn runs_arrive_with_and_without_gso() {
    for (ip, max_segments) in [(V4, 64), (V6, 64), (V4, 1)] {
        runs_arrive_in_order(ip, max_segments);
    }
}

#[test]
fn traffic_class_and_hop_limit_travel() {
    for ip in [V4, V6] {
        let (a, b, mut route) = pair(ip);
        route.traffic_class = 0x68;
        route.hop_limit = 9;
        let mut batch = TxBatch::default();
        push(&mut batch, &a.link, &route, qpn(b.slot(), 1), 1, 8);
        batch.flush(&a.link);
        let got = b.take(1);
        assert_eq!((got[0].traffic_class, got[0].hop_limit), (0x68, 9), "{ip}");
    }
}

#[test]
fn damaged_packets_never_reach_the_sink() {
    for ip in [V4, V6] {
        let port_b = port();
        let (b, _) = Member::at(config(port_b), ip);
        let stranger = UdpSocket::bind((ip, 0)).unwrap();
        let mut packet = expected(qpn(b.slot(), 5), 1, 64);
        packet.extend_from_slice(&[1, 2, 3, 4]);
        for len in [0, 1, 11, 15] {
            stranger.send_to(&packet[..len], (ip, port_b)).unwrap();
        }
        for _ in 0..20 {
            stranger.send_to(&packet, (ip, port_b)).unwrap();
        }
        assert!(wait(|| b.link.stats().rx_drop_icrc >= 20), "{:?}", b.link.stats());
        let stats = b.link.stats();
        assert_eq!((stats.rx_drop_icrc, stats.rx_drop_runt, stats.rx_packets), (20, 4, 0));
        assert_eq!(b.count(), 0);
    }
}

#[test]
fn packets_longer_than_any_and_steering_tests_of_no_process_are_dropped() {
    let (a, b, route) = pair(V4);
    let to = qpn(b.slot(), 5);
    let mut batch = TxBatch::default();
    push(&mut batch, &a.link, &route, to, 0, 9000);
    push(&mut batch, &a.link, &route, STEERING_QPN, 1, 24);
    push(&mut batch, &a.link, &route, to, 2, 4096);
    batch.flush(&a.link);
    assert_eq!(b.take(1)[0].bytes, expected(to, 2, 4096));
    let stats = b.link.stats();
    assert_eq!((stats.rx_drop_oversize, stats.rx_drop_steering_test, stats.rx_packets), (1, 1, 1));
}

#[test]
fn every_flipped_bit_is_found() {
    let (a, b, route) = pair(V6);
    // A relay that damages one bit: receives at a plain socket at the route's destination, flips a
    // bit, and sends from the same port. So only the damage makes the ICRC invalid.
    let (from, to) = (port(), port());
    let relay_in = UdpSocket::bind((V6, to)).unwrap();
    let mut c = Sender::at(config(from), V6, SocketAddr::new(V6, to));
    c.push(qpn(b.slot(), 1), 7, 32);
    c.flush();
    let mut packet = [0; 2048];
    let len = relay_in.recv(&mut packet).unwrap();
    drop(relay_in);
    drop((a, b, c, route));
    // Now a link listens at the destination, and a plain socket sends from the source.
    let (d, _) = Member::at(config(to), V6);
    let sender = UdpSocket::bind((V6, from)).unwrap();
    // The intact packet's slot has no owner, or belongs to this link or to another test's link,
    // which has taken the slot. In all cases the ICRC is valid.
    sender.send_to(&packet[..len], (V6, to)).unwrap();
    let passed = |s: &LinkStats| s.rx_drop_no_owner + s.rx_packets + s.local.forwarded_out == 1;
    assert!(wait(|| passed(&d.link.stats())), "{:?}", d.link.stats());
    let mut damaged = 0;
    for bit in (0..len * 8).filter(|bit| bit / 8 != 4) {
        let mut bad = packet;
        bad[bit / 8] ^= 1 << (bit % 8);
        sender.send_to(&bad[..len], (V6, to)).unwrap();
        damaged += 1;
    }
    assert!(wait(|| d.link.stats().rx_drop_icrc == damaged), "{damaged} {:?}", d.link.stats());
}

#[test]
fn drops_are_counted() {
    let mut sender = Sender::at(config(port()), V4, SocketAddr::new(V4, 9));
    sender.push(1, 0, 65_600);
    assert_eq!(sender.link.stats().tx_drop_too_big, 1);
    sender.link.remove_address(sender.route.local);
    sender.push(1, 0, 8);
    sender.flush();
    assert_eq!(sender.link.stats().tx_drop_other, 1);
}

#[test]
fn addresses_come_and_go() {
    let port = port();
    let link = open(config(port));
    let index = link.add_address(V4, 0).unwrap();
    assert_eq!(link.add_address(V4, 0).unwrap(), index);
    assert_eq!(link.source_of(index), Some(SocketAddr::new(V4, port)));
    assert!(link.receive_buffer(index).unwrap() >= 65536);
    let mut kinds = Vec::new();
    link.for_each_fd(&mut |kind, _| kinds.push(kind));
    assert_eq!(kinds.len(), 2);
    link.remove_address(index);
    assert_eq!(link.source_of(index), None);
    UdpSocket::bind((V4, port)).expect("the port is free again");
    let again = link.add_address(V4, 0).unwrap();
    assert_ne!(again, index);
    let nothing = link.recv(
        RxFrom::Addr(index),
        &mut RxBuffers::new(1),
        1,
        &mut each(|_| panic!("a packet")),
    );
    assert_eq!(nothing, 0);
}

#[test]
fn errors_speak() {
    let port = port();
    let owner = UdpSocket::bind((V4, port)).unwrap();
    let link = open(config(port));
    let error = link.add_address(V4, 0).unwrap_err();
    assert!(
        matches!(error, LinkError::PortTaken { ip, port: p, .. } if ip == V4 && p == port),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("a program of this user that does not share the port"), "{text}");
    assert!(text.contains(&port.to_string()), "{text}");
    drop(owner);
    let strange = "192.0.2.1".parse().unwrap();
    let error = link.add_address(strange, 0).unwrap_err();
    assert!(matches!(error, LinkError::NoSuchAddress { ip } if ip == strange), "{error:?}");
    assert!(link.add_address(V4, 0).is_ok());
}

#[test]
fn every_socket_is_looked_at_after_a_wake_up() {
    let (port, from) = (port(), port());
    let link = open(config(port));
    // The first address is tried first; the packet arrives at the second.
    link.add_address("127.0.0.3".parse().unwrap(), 0).unwrap();
    link.add_address(V4, 0).unwrap();
    let mut sender = Sender::at(config(from), V4, SocketAddr::new(V4, port));
    let mut buffers = RxBuffers::new(1);
    sender.push(qpn(link.local().slots()[0], 1), 0, 8);
    sender.flush();
    // On a loaded machine the packet arrives some time after the send.
    assert!(wait(|| {
        let mut here = false;
        link.for_each_fd(&mut |_, fd| {
            let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
            here |= nix::sys::socket::recv(fd.as_raw_fd(), &mut [0; 64], flags).is_ok();
        });
        here
    }));
    assert_eq!(link.recv(RxFrom::Every, &mut buffers, 8, &mut |_| {}), 1);
}
