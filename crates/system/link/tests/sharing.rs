//! Several processes on one port: slots, forwarding, steering, death.
//!
//! A child is this test binary started again with one test selected; `CHILD` tells this test to be
//! the child.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use adverb_link::{Config, Route, TxBatch, each};
use adverb_local::{SLOT_SHIFT, Slot};
use common::*;

const CHILD: &str = "ADVERB_LINK_TEST_CHILD";

/// Sends from its own address to the group at 127.0.0.1.
fn sender(port: u16) -> Sender {
    let from = "127.0.0.9".parse().unwrap();
    Sender::at(config(port), from, SocketAddr::new(V4, port))
}

/// Sends to each node until no packet is forwarded.
fn steered(sender: &mut Sender, nodes: &[&Member]) {
    let settled = wait(|| {
        nodes.iter().all(|node| {
            node.got.lock().unwrap().clear();
            sender.send(node.slot(), 3);
            assert!(wait(|| node.count() >= 3), "{:?}", node.link.stats());
            !node.got.lock().unwrap().iter().any(|packet| packet.forwarded)
        })
    });
    let stats: Vec<_> = nodes.iter().map(|node| node.link.stats()).collect();
    assert!(settled, "{stats:#?}");
}

#[test]
fn packets_are_forwarded_without_steering() {
    let port = port();
    let config = || Config { steer: false, ..config(port) };
    let nodes: Vec<_> = (0..3).map(|_| Member::at(config(), V4).0).collect();
    let mut sender = sender(port);
    for node in &nodes {
        sender.send(node.slot(), 50);
    }
    let mut from_sender = 0;
    for node in &nodes {
        let got = node.take(50);
        assert_eq!(got.len(), 50);
        assert!(
            got.iter().all(|p| p.bytes[12..]
                == *(0..256).map(|at| pattern(psn(&p.bytes), at)).collect::<Vec<_>>())
        );
        assert!(got.windows(2).all(|w| psn(&w[0].bytes) + 1 == psn(&w[1].bytes)), "in order");
        let src = SocketAddr::new("127.0.0.9".parse().unwrap(), port);
        assert!(got.iter().all(|p| p.src == src));
        from_sender += usize::from(!got[0].forwarded);
    }
    // One sender has one 4-tuple: the hash gives all its packets to one member.
    assert_eq!(from_sender, 1);
    // Counted after the send, when the packet may have arrived already.
    let out = || nodes.iter().map(|node| node.link.stats().local.forwarded_out).sum::<u64>();
    assert!(wait(|| out() == 100), "{}", out());
}

fn psn(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]])
}

#[test]
fn packets_for_nobody_are_counted() {
    let port = port();
    let (a, _) = Member::at(config(port), V4);
    let (b, _) = Member::at(config(port), V4);
    let (free, _name) = (1..=1022).find_map(|s| keep_free(s).map(|name| (s, name))).unwrap();
    let mut sender = sender(port);
    sender.send(free, 10);
    let dropped = || a.link.stats().rx_drop_no_owner + b.link.stats().rx_drop_no_owner;
    assert!(wait(|| dropped() == 10), "{}", dropped());
    // QPN 1 goes to the sink of the receiving process; the multicast QPN only with a group as the
    // IP destination.
    for to in [1, 0xff_ffff] {
        sender.push(to, 0, 8);
    }
    sender.flush();
    let stray = || a.link.stats().rx_drop_not_multicast + b.link.stats().rx_drop_not_multicast;
    assert!(wait(|| a.count() + b.count() == 1 && stray() == 1));
}

/// Whether a process holds the slot.
fn held(slot: Slot) -> bool {
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    names.lines().any(|line| line.ends_with(&format!("-{slot}")))
}

#[test]
fn steering_follows_members_that_join_and_leave() {
    let port = port();
    let mut sender = sender(port);
    let (a, _) = Member::at(config(port), V4);
    steered(&mut sender, &[&a]);
    // Joining alone settles the steering: no packet is forwarded. On a loaded machine a member may
    // answer late; then another member joins instead.
    let joined = (0..10).find_map(|_| {
        let before = a.link.stats().local.forwarded_out;
        let (b, index) = Member::at(config(port), V4);
        steered(&mut sender, &[&a, &b]);
        (a.link.stats().local.forwarded_out + b.link.stats().local.forwarded_out == before)
            .then_some((b, index))
    });
    let (b, b_index) = joined.expect("joining alone does not settle it");
    let (c, _) = Member::at(config(port), V4);
    let (d, _) = Member::at(config(port), V4);
    steered(&mut sender, &[&a, &b, &c, &d]);
    // The last member moves into the gap.
    b.link.remove_address(b_index);
    steered(&mut sender, &[&a, &c, &d]);
    let b_index = b.link.add_address(V4, 0).unwrap();
    steered(&mut sender, &[&a, &b, &c, &d]);
    b.link.remove_address(b_index);
    drop(a);
    steered(&mut sender, &[&c, &d]);
    drop(c);
    steered(&mut sender, &[&d]);
}

#[test]
fn a_second_slot_is_steered() {
    let port = port();
    let mut sender = sender(port);
    let (a, _) = Member::at(config(port), V4);
    let (b, _) = Member::at(config(port), V4);
    let second = a.link.local().claim_slot().unwrap();
    assert_eq!(a.link.local().slots().len(), 2);
    let settled = wait(|| {
        a.got.lock().unwrap().clear();
        sender.send(second, 3);
        assert!(wait(|| a.count() >= 3), "{:?} {:?}", a.link.stats(), b.link.stats());
        !a.got.lock().unwrap().iter().any(|packet| packet.forwarded)
    });
    assert!(settled);
}

#[test]
fn steering_over_ipv6() {
    let (port, from) = (port(), port());
    let (a, _) = Member::at(config(port), V6);
    let (b, _) = Member::at(config(port), V6);
    let mut sender = Sender::at(config(from), V6, SocketAddr::new(V6, port));
    for node in [&a, &b] {
        (0..20).for_each(|n| sender.push(qpn(node.slot(), 1), n, 64));
    }
    sender.flush();
    assert_eq!(a.take(20).len(), 20);
    assert_eq!(b.take(20).len(), 20);
    assert!(a.link.stats().resteers + b.link.stats().resteers >= 2);
}

/// Starts this test again as a child; returns the child and its slot.
fn child(test: &str, port: u16) -> (Child, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, port.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines
        .into_iter()
        .find_map(|line| line.split_once("SAYS ").map(|(_, s)| s.to_owned()))
        .expect("the child speaks");
    (child, said)
}

fn say(what: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    writeln!(out, "SAYS {what}").unwrap();
    out.flush().unwrap();
}

/// The port of the child, if this process is one.
fn as_child() -> Option<u16> {
    std::env::var(CHILD).ok().map(|port| port.parse().unwrap())
}

/// Waits until the parent closes the pipe.
fn wait_for_parent() {
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn killed_members_hurt_nobody() {
    if let Some(port) = as_child() {
        let (node, _) = Member::at(config(port), V4);
        say(node.slot());
        return wait_for_parent();
    }
    let port = port();
    let mut sender = sender(port);
    let (mut first, slot) = child("killed_members_hurt_nobody", port);
    let dead: Slot = slot.parse().unwrap();
    let (a, _) = Member::at(config(port), V4);
    let (mut second, _) = child("killed_members_hurt_nobody", port);
    let (b, _) = Member::at(config(port), V4);
    steered(&mut sender, &[&a, &b]);
    sender.send(dead, 5);
    first.kill().unwrap();
    first.wait().unwrap();
    // The dead socket's index went to the last member: the next misdirected packets show this.
    steered(&mut sender, &[&a, &b]);
    second.kill().unwrap();
    second.wait().unwrap();
    steered(&mut sender, &[&a, &b]);
    // The slot of the killed process becomes free. This test reserves its name, so that no other
    // test takes the slot. So only `a` and `b` can receive the packets for the dead process.
    let mut name = None;
    assert!(wait(|| {
        name = keep_free(dead);
        name.is_some()
    }));
    let dropped = || a.link.stats().rx_drop_no_owner + b.link.stats().rx_drop_no_owner;
    let before = dropped();
    sender.send(dead, 5);
    assert!(wait(|| dropped() == before + 5), "{before} {}", dropped());
    drop((a, b));
    let (c, _) = Member::at(config(port), V4);
    steered(&mut sender, &[&c]);
}

#[test]
fn malformed_and_circling_messages_are_dropped() {
    let port = port();
    let (a, _) = Member::at(config(port), V4);
    let line = Line::to(&slot_name(a.slot())).unwrap();
    // No version, a truncated header, and a well-formed packet for another process's slot.
    let mut circling = b"Adverb\0\x01\x05\x04\0\0".to_vec();
    circling.resize(24, 0);
    for _ in 0..2 {
        circling.extend_from_slice(&std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
    }
    circling.extend_from_slice(&12u16.to_le_bytes());
    circling.extend_from_slice(&bth(qpn(a.slot() % 1000 + 2, 1), 1));
    for message in [&b"rubbish"[..], b"Adverb\0\x01\x01\x04", &circling] {
        line.send(message).unwrap();
    }
    assert!(wait(|| a.link.stats().local.local_drop_malformed == 3), "{:?}", a.link.stats());
    // Valid except for its length: no packet is that long.
    let at = circling.len() - 12;
    let mut long = circling.clone();
    long[at - 2..].copy_from_slice(
        &[&5000u16.to_le_bytes()[..], &bth(u32::from(a.slot()) << SLOT_SHIFT, 1)].concat(),
    );
    long.resize(at + 5000, 0);
    line.send(&long).unwrap();
    assert!(wait(|| a.link.stats().local.local_drop_malformed == 4), "{:?}", a.link.stats());
    circling[at..].copy_from_slice(&bth(u32::from(a.slot()) << SLOT_SHIFT, 1));
    line.send(&circling).unwrap();
    assert!(a.take(1)[0].forwarded);
}

#[test]
fn a_stopped_reader_costs_a_bounded_wait() {
    let port = port();
    let config = || Config { steer: false, ..config(port) };
    let (a, _) = Member::at(config(), V4);
    let silent = open(config());
    let slot = silent.local().slots()[0];
    let mut sender = sender(port);
    let counted = || a.link.stats().local.forwarded_out + a.link.stats().local.forwarded_drop_full;
    let mut sent = 0;
    let mut round = || {
        let start = std::time::Instant::now();
        for _ in 0..40 {
            sender.send(slot, 100);
            sent += 100;
            assert!(wait(|| counted() == sent), "{:?}", a.link.stats());
        }
        start.elapsed()
    };
    // A loaded machine may be late, but not each time.
    let least = (0..10).map(|_| round()).find(|took| *took < Duration::from_secs(3));
    assert!(least.is_some(), "{:?}", a.link.stats());
    assert!(a.link.stats().local.forwarded_drop_full > 0);
}

#[test]
fn the_child_of_a_fork_can_let_go() {
    // Plays the child: an atfork handler may only close descriptors.
    let port = port();
    let link = open(config(port));
    link.add_address(V4, 0).unwrap();
    let slot = link.local().slots()[0];
    link.local().descriptors().close_all();
    // A child being started by another test has copies until its `exec`.
    assert!(wait(|| !held(slot)));
    assert!(wait(|| std::net::UdpSocket::bind((V4, port)).is_ok()), "the port is not free");
    link.for_each_fd(&mut |_, _| panic!("a descriptor is left"));
    drop(link);
}

#[test]
fn members_send_to_each_other_at_one_address() {
    let port = port();
    let nodes: Vec<_> = (0..12).map(|_| Member::at(config(port), V4)).collect();
    let mut batch = TxBatch::default();
    let settled = wait(|| {
        nodes.iter().for_each(|(node, _)| node.got.lock().unwrap().clear());
        for (from, at) in &nodes {
            let route = Route::new(*at, SocketAddr::new(V4, port));
            for (to, _) in &nodes {
                push(&mut batch, &from.link, &route, qpn(to.slot(), 3), 1, 64);
            }
            batch.flush(&from.link);
        }
        assert!(wait(|| nodes.iter().all(|(node, _)| node.count() >= 12)));
        let from_sender =
            |node: &Member| node.got.lock().unwrap().iter().filter(|p| !p.forwarded).count();
        nodes.iter().all(|(node, _)| from_sender(node) == 12)
    });
    let stats: Vec<_> = nodes.iter().map(|(node, _)| node.link.stats()).collect();
    assert!(settled, "{stats:#?}");
    assert!(
        stats
            .iter()
            .all(|s| s.rx_drop_no_owner + s.rx_drop_icrc + s.local.forwarded_drop_full == 0)
    );
}

#[test]
fn without_a_thread_nothing_is_lost() {
    let port = port();
    let (a, b) = (open(config(port)), open(config(port)));
    a.add_address(V4, 0).unwrap();
    let mut sender = sender(port);
    // Arrives at `a` while `b` joins, and `b` alone answers steering tests.
    sender.send(a.local().slots()[0], 5);
    let start = std::time::Instant::now();
    b.add_address(V4, 0).unwrap();
    // Without answers the measurement ends after some 200 ms.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    sender.send(a.local().slots()[0], 5);
    sender.send(b.local().slots()[0], 10);
    let (mut at_a, mut at_b) = (0, 0);
    let mut buffers = adverb_link::RxBuffers::new(1);
    let all = adverb_link::RxFrom::All;
    let every = adverb_link::RxFrom::Every;
    let done = wait(|| {
        for _ in 0..8 {
            a.recv(all, &mut buffers, 64, &mut each(|_| at_a += 1));
            b.recv(all, &mut buffers, 64, &mut each(|_| at_b += 1));
        }
        // One thread for both: while one measures, both receive.
        let mut receive = || {
            a.recv(every, &mut buffers, 64, &mut each(|_| at_a += 1));
            b.recv(every, &mut buffers, 64, &mut each(|_| at_b += 1));
        };
        a.maintain(&mut receive);
        b.maintain(&mut receive);
        at_a + at_b == 20
    });
    assert!(done && at_a == 10, "{at_a} {at_b} {:?} {:?}", a.stats(), b.stats());
}

/// A call that receives knows an address that was added after it began: the sender of the next
/// packet may know the address already.
#[test]
fn an_address_that_is_added_during_a_receive_counts_for_the_next_message() {
    let port = port();
    let (a, b) = (open(config(port)), open(config(port)));
    let local = a.add_address(V4, 0).unwrap();
    let slot = b.local().slots()[0];
    let route = adverb_link::Route::new(local, std::net::SocketAddr::new(V4, port));
    let mut message = Vec::new();
    adverb_local::add_packet(&mut message, &bth(qpn(slot, 1), 1), 64, 0, |bytes| {
        bytes.fill(7);
        true
    });
    for _ in 0..2 {
        assert_eq!(a.deliver(slot, &route, &message), adverb_local::Delivery::Done);
    }
    let mut buffers = adverb_link::RxBuffers::new(1);
    let mut known = Vec::new();
    let every = adverb_link::RxFrom::Every;
    let done = wait(|| {
        let mut sink = each(|p| {
            known.push(p.local.is_some());
            // Another thread, because the receiver may not add an address.
            std::thread::scope(|scope| {
                scope.spawn(|| b.add_address(V4, 0).unwrap());
            });
        });
        b.recv(every, &mut buffers, 64, &mut sink);
        drop(sink);
        known.len() == 2
    });
    assert!(done && known == [false, true], "{known:?}");
}
