//! Forged packets arrive over real sockets, in floods, while a transfer runs. The receiver drops
//! each packet and counts the reason. The memory of the queue pairs does not change, the resident
//! memory does not grow, and the transfer goes on (TRU-5).
mod common;
use adverb_device::engine::qp::DropReason;
use adverb_device::engine::{PathMtu, QpState, QpType, SendOp, WcStatus};
use adverb_device::node::Node;
use adverb_wire::icrc::{IpMeta, UdpMeta, icrc};
use adverb_wire::{
    Aeth, AtomicEth, Bth, Deth, Headers, MAX_HEADER_LEN, NakCode, Opcode, Operation, Psn,
    ROCE_PORT, Reth, Syndrome, Transport,
};
use common::{PSN, QKEY, QpEnd, SIZE, WIRE, alone, child, pair, pattern, rc};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of forged packets of each kind.
const FLOOD: u64 = 100_000;
/// Number of packets between two checks of the counters. The number is small, so no socket buffer
/// overflows.
const BURST: u64 = 500;

/// Runs a test of this file in a process without host connections, so all queue pairs use the
/// network.
fn by_wire(name: &str) {
    let _alone = alone();
    child::run(name, &[WIRE]);
}

/// A socket that sends arbitrary packets.
struct Forger {
    socket: UdpSocket,
    at: SocketAddr,
}

impl Forger {
    /// A socket with an arbitrary port, as any program can open, at an address of the loopback
    /// network.
    fn any(ip: [u8; 4]) -> Forger {
        let socket = UdpSocket::bind((Ipv4Addr::from(ip), 0)).unwrap();
        Forger { at: socket.local_addr().unwrap(), socket }
    }

    /// The device's own socket (port 4791) at an address. The receiver can tell these packets from
    /// valid packets only by the contents.
    fn new(ip: [u8; 4]) -> Forger {
        let ip = IpAddr::from(ip);
        let node = Node::get().unwrap();
        let index = node.link().udp().unwrap().add_address(ip, 0).unwrap();
        let mut found = None;
        node.link().udp().unwrap().for_each_fd(&mut |at, fd| {
            if at == Some(index) {
                found = Some(fd.try_clone_to_owned().unwrap());
            }
        });
        Forger { at: SocketAddr::new(ip, ROCE_PORT), socket: found.unwrap().into() }
    }

    /// The packet from BTH through ICRC, with a correct ICRC.
    fn packet(&self, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; MAX_HEADER_LEN];
        let n = headers.emit(&mut bytes);
        bytes.truncate(n);
        bytes.extend_from_slice(payload);
        self.sealed(bytes)
    }

    fn sealed(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let SocketAddr::V4(from) = self.at else { panic!("an IPv4 address") };
        let (src, dst) = (from.ip().octets(), [127, 0, 0, 1]);
        let len = (bytes.len() + 12) as u16;
        let udp = UdpMeta { src_port: from.port(), dst_port: ROCE_PORT, len };
        let sum = icrc(&IpMeta::V4 { src, dst, id: 0, dont_fragment: true }, &udp, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, (Ipv4Addr::LOCALHOST, ROCE_PORT)).unwrap();
    }
}

/// [`write`] with a wrong key.
fn write_by_wrong_key(end: &QpEnd, transport: Transport, psn: u32) -> Headers {
    let mut h = write(end, transport, psn);
    h.reth = h.reth.map(|r| Reth { rkey: r.rkey ^ 0x5500, ..r });
    h
}

/// A datagram for an end, without its payload.
fn datagram(end: &QpEnd, qkey: u32) -> Headers {
    let send = Opcode::new(Transport::Ud, Operation::SendOnly).unwrap();
    let mut h = Headers::new(Bth::new(send, end.qp.number(), Psn::ZERO));
    h.deth = Some(Deth { qkey, src_qpn: 1 });
    h
}

fn counters(end: &QpEnd) -> BTreeMap<&'static str, u64> {
    end.context.node().named_counters().into_iter().collect()
}

/// Sends a packet until the counter `reason` has grown by [`FLOOD`]. The counter is the queue
/// pair's if the queue pair has a counter of this name. The test sends more packets than [`FLOOD`],
/// because packets are lost while another process joins or leaves port 4791.
fn flood(end: &QpEnd, forger: &Forger, bytes: &[u8], reason: &str) {
    flood_some(end, forger, bytes, reason, FLOOD);
}

fn flood_some(end: &QpEnd, forger: &Forger, bytes: &[u8], reason: &str, count: u64) {
    let of_qp = || end.qp.counters().named().find(|(name, _)| *name == reason);
    let now = || of_qp().map_or_else(|| counters(end)[reason], |(_, value)| value);
    // Wait until the packets of an earlier flood are counted.
    let mut before = now();
    loop {
        let quiet = Instant::now() + Duration::from_millis(20);
        while Instant::now() < quiet {
            end.context.node().progress();
        }
        let later = now();
        if std::mem::replace(&mut before, later) == later {
            break;
        }
    }
    let in_all = counters(end)[reason];
    let (mut sent, until) = (0, Instant::now() + Duration::from_secs(60));
    while now() - before < count {
        (0..BURST).for_each(|_| forger.send(bytes));
        sent += BURST;
        let patience = Instant::now() + Duration::from_millis(100);
        while now() - before < sent && Instant::now() < patience {
            end.context.node().progress();
        }
        assert!(
            Instant::now() < until,
            "{reason}: {} of {sent} counted: {:?}",
            now() - before,
            counters(end)
        );
    }
    assert!(now() - before <= sent, "{reason}: {} counted, {sent} sent", now() - before);
    assert!(counters(end)[reason] - in_all >= count, "{reason} in {:?}", counters(end));
}

fn rc_headers(qpn: u32, operation: Operation, psn: u32) -> Headers {
    let opcode = Opcode::new(Transport::Rc, operation).unwrap();
    Headers::new(Bth::new(opcode, qpn, Psn::new(psn)))
}

/// A WRITE of eight bytes to the start of an end's pages. If the receiver executed the WRITE, the
/// pages would change.
fn write(end: &QpEnd, transport: Transport, psn: u32) -> Headers {
    let opcode = Opcode::new(transport, Operation::WriteOnly).unwrap();
    let mut h = Headers::new(Bth::new(opcode, end.qp.number(), Psn::new(psn)));
    h.reth = Some(Reth { va: end.pages.addr(), rkey: end.pages.key(), len: 8 });
    h
}

/// Writes and reads back over a pair of queue pairs until `stop` is set. Counts the rounds in
/// `rounds`.
fn transfer(stop: &AtomicBool, rounds: &AtomicU64) {
    const LEN: usize = 300_000;
    let (a, b) = rc();
    while !stop.load(Ordering::Relaxed) {
        let data = pattern(LEN, rounds.load(Ordering::Relaxed) as u8);
        a.put(0, &data);
        a.send(1, SendOp::Write(b.remote(0)), &[a.sge(0, LEN)]);
        a.send(2, SendOp::Read(b.remote(0)), &[a.sge(LEN, LEN)]);
        let ends = a.wait(2);
        assert!(ends.iter().all(|c| c.status == WcStatus::Success), "{ends:?}");
        assert!(a.get(LEN, LEN) == data && b.get(0, LEN) == data, "bytes differ");
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `attack` while another thread runs a transfer. The transfer must make progress during the
/// attack.
fn beside_a_transfer(attack: impl FnOnce()) {
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let wait_for = |n: u64| {
        let until = Instant::now() + Duration::from_secs(30);
        while rounds.load(Ordering::Relaxed) < n {
            assert!(Instant::now() < until, "the transfer stands still");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        scope.spawn(|| transfer(&stop, &rounds));
        wait_for(1);
        let before = rounds.load(Ordering::Relaxed);
        attack();
        let during = rounds.load(Ordering::Relaxed) - before;
        assert!(during > 0, "no progress during the attack");
        wait_for(before + during + 1);
    });
}

/// Runs `attack`, during which the resident memory of this process must not grow.
fn without_growth(attack: impl FnOnce()) {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    attack();
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 20, "resident memory grew by {grown} bytes");
}

/// Fills the pages of an end, so that [`check`] detects every write.
fn fill(end: &QpEnd) -> Vec<u8> {
    let data = pattern(SIZE, 0x77);
    end.put(0, &data);
    data
}

fn check(end: &QpEnd, data: &[u8]) {
    assert!(end.get(0, data.len()) == data, "memory was touched");
}

/// A packet that fails a check changes no memory. The receiver counts the packet by its reason,
/// also in a flood (TRU-5).
#[test]
fn forged_packets_are_dropped_by_reason_while_others_work() {
    by_wire("inner_forged_packets_are_dropped_by_reason_while_others_work");
}

#[test]
#[ignore = "run by another test, over the network"]
fn inner_forged_packets_are_dropped_by_reason_while_others_work() {
    let _alone = alone();
    let (a, b) = rc();
    let (_c, uc) = pair(QpType::Uc, PathMtu::Mtu1024);
    let (ud, idle) = (QpEnd::datagrams(), QpEnd::new(QpType::Rc));
    let ends = [&a, &b, &uc, &ud, &idle];
    let filled = ends.map(fill);
    let (stranger, peer) = (Forger::new([127, 0, 0, 2]), Forger::new([127, 0, 0, 1]));
    let good = write(&b, Transport::Rc, PSN);
    let bytes = [0xee; 8];

    let nobody = b.qp.number() & !0x3fff | (b.qp.number() + 0x2000) & 0x3fff;
    let wrong = Opcode::new(Transport::Uc, Operation::WriteOnly).unwrap();
    let changed = |bth: Bth| peer.packet(&Headers { bth, ..good }, &bytes);
    let mut late = rc_headers(b.qp.number(), Operation::FetchAdd, PSN - 5000);
    late.atomic =
        Some(AtomicEth { va: b.pages.addr(), rkey: b.pages.key(), swap_add: 1, compare: 0 });
    let mut ghost = rc_headers(a.qp.number(), Operation::Acknowledge, PSN + 77);
    ghost.aeth = Some(Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: 0 });
    let by_key = peer.packet(&write_by_wrong_key(&uc, Transport::Uc, 5), &bytes);
    let strange = |headers: &Headers| stranger.packet(headers, &bytes);
    let mut damaged = strange(&good);
    damaged[20] ^= 4;
    let mut unknown = strange(&good);
    unknown.truncate(unknown.len() - 4);
    unknown[0] = 0x1f;
    let kinds: [(&QpEnd, &str, &Forger, Vec<u8>); 14] = [
        (&b, "qp_drop_source", &stranger, strange(&good)),
        (&b, "no_such_qp", &peer, changed(Bth { dest_qpn: nobody, ..good.bth })),
        (&b, "qp_drop_pkey", &peer, changed(Bth { pkey: 0x1234, ..good.bth })),
        (&b, "qp_drop_transport", &peer, changed(Bth { opcode: wrong, ..good.bth })),
        (&b, "qp_drop_sequence", &peer, peer.packet(&late, &[])),
        (&a, "qp_drop_ghost_response", &peer, peer.packet(&ghost, &[])),
        (&uc, "qp_drop_access", &peer, by_key),
        (&ud, "qp_drop_no_receive", &stranger, strange(&datagram(&ud, QKEY))),
        (&ud, "qp_drop_qkey", &stranger, strange(&datagram(&ud, QKEY + 1))),
        (&idle, "qp_drop_state", &peer, peer.packet(&write(&idle, Transport::Rc, PSN), &bytes)),
        (&b, "rx_drop_icrc", &stranger, damaged),
        (&b, "rx_drop_runt", &stranger, stranger.packet(&good, &[])[..15].to_vec()),
        (&b, "rx_drop_oversize", &stranger, stranger.packet(&good, &[0xee; 5000])),
        (&b, "malformed", &stranger, stranger.sealed(unknown)),
    ];

    beside_a_transfer(|| {
        without_growth(|| {
            for (target, reason, forger, packet) in &kinds {
                flood(target, forger, packet, reason);
            }
        });
    });
    for (end, data) in ends.iter().zip(&filled) {
        check(end, data);
        assert_eq!(end.cq.poll(1, |c| panic!("{c:?}")).unwrap(), 0);
    }
    assert_eq!(b.qp.query().state, QpState::Rts);
    // The attacked connection still works.
    assert_eq!(a.perform(SendOp::Write(b.remote(0)), &[a.sge(64, 8)]), WcStatus::Success);
}

/// An attacker that guesses the PSN of a connection, but not its keys, can end that connection and
/// do no more.
#[test]
fn a_wrong_key_in_the_right_place_ends_that_connection_alone() {
    by_wire("inner_a_wrong_key_in_the_right_place_ends_that_connection_alone");
}

#[test]
#[ignore = "run by another test, over the network"]
fn inner_a_wrong_key_in_the_right_place_ends_that_connection_alone() {
    let _alone = alone();
    let (a, b) = rc();
    let filled = fill(&b);
    let peer = Forger::new([127, 0, 0, 1]);
    let packet = peer.packet(&write_by_wrong_key(&b, Transport::Rc, PSN), &[0xee; 8]);
    beside_a_transfer(|| {
        let until = Instant::now() + Duration::from_secs(20);
        while b.qp.query().state != QpState::Err {
            peer.send(&packet);
            b.context.node().progress();
            assert!(Instant::now() < until);
        }
        // The responder repeats the NAK for each duplicate and stores nothing.
        without_growth(|| flood(&b, &peer, &packet, "qp_duplicates"));
    });
    check(&b, &filled);
    assert_eq!(a.qp.query().state, QpState::Rts, "the NAKs answered nothing that it had asked");
}

/// A peer accepts all packets and answers none. The queue pair fails after its retries, and other
/// connections go on.
#[test]
fn a_peer_that_never_acknowledges_costs_its_own_connection() {
    by_wire("inner_a_peer_that_never_acknowledges_costs_its_own_connection");
}

#[test]
#[ignore = "run by another test, over the network"]
fn inner_a_peer_that_never_acknowledges_costs_its_own_connection() {
    let _alone = alone();
    let (a, silent) = (QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc));
    a.connect(&silent.qp, PathMtu::Mtu1024);
    beside_a_transfer(|| {
        without_growth(|| {
            for id in 0..512 {
                a.send(id, SendOp::Write(silent.remote(0)), &[a.sge(0, 1 << 20)]);
            }
            let ends = a.wait(512);
            assert_eq!(ends[0].status, WcStatus::RetryExcErr);
            assert!(ends[1..].iter().all(|c| c.status == WcStatus::WrFlushErr));
        });
        assert!(silent.qp.counters().dropped(DropReason::State) > 0);
    });
    assert_eq!(a.qp.query().state, QpState::Err);
}

/// Packets that any program of this machine can send change nothing. A SEND with every field forged
/// is not delivered, and a scan of the PSN space ends no connection (TRU-2). The only effect is a
/// counter.
#[test]
fn tru_2_packets_of_this_machine_from_another_port_touch_nothing() {
    by_wire("inner_packets_of_this_machine_from_another_port_touch_nothing");
}

#[test]
#[ignore = "run by another test, over the network"]
fn inner_packets_of_this_machine_from_another_port_touch_nothing() {
    let _alone = alone();
    let (a, b) = rc();
    let ud = QpEnd::datagrams();
    let filled = [&a, &b, &ud].map(fill);
    b.recv(1, &[b.sge(0, 64)]);
    ud.recv(1, &[ud.sge(0, 64)]);
    let dropped = |reason| counters(&b)[reason];
    for ip in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 5, 6, 7]] {
        let forger = Forger::any(ip);
        let mut send = rc_headers(b.qp.number(), Operation::SendOnly, PSN);
        send.bth.ack_req = true;
        let exact = forger.packet(&send, &[0xee; 8]);
        flood_some(&b, &forger, &exact, "rx_drop_local_port", 100);
        let exact = forger.packet(&write(&b, Transport::Rc, PSN), &[0xee; 8]);
        flood_some(&b, &forger, &exact, "rx_drop_local_port", 100);
        let datagram = forger.packet(&datagram(&ud, QKEY), &[0xee; 8]);
        flood_some(&b, &forger, &datagram, "rx_drop_local_port", 100);
        // The PSN of the connection does not matter either. Send a wrong key with every 256th PSN.
        let before = dropped("rx_drop_local_port");
        let mut h = write_by_wrong_key(&b, Transport::Rc, 0);
        for psn in (0..1 << 24).step_by(1 << 8) {
            h.bth.psn = Psn::new(PSN.wrapping_add(psn) & 0x00ff_ffff);
            forger.send(&forger.packet(&h, &[0xee; 8]));
            if psn & 0xff00 == 0 {
                b.context.node().progress();
            }
        }
        assert!(dropped("rx_drop_local_port") > before);
    }
    let ends = [&a, &b, &ud];
    for (end, data) in ends.iter().zip(&filled) {
        check(end, data);
        assert_eq!(end.cq.poll(1, |c| panic!("{c:?}")).unwrap(), 0);
        assert_eq!(end.qp.query().state, QpState::Rts);
    }
    assert_eq!(a.perform(SendOp::Send, &[a.sge(64, 8)]), WcStatus::Success);
    assert_eq!(b.wait(1)[0].status, WcStatus::Success);
}

/// A queue pair that shares a ring in each direction with its peer accepts no packet from the
/// network, even from port 4791 (TRU-2).
#[test]
fn tru_2_a_queue_pair_with_rings_takes_nothing_from_the_network() {
    let _alone = alone();
    let (a, b) = rc();
    let filled = fill(&b);
    let forger = Forger::new([127, 0, 0, 1]);
    let good = forger.packet(&write(&b, Transport::Rc, PSN), &[0xee; 8]);
    flood_some(&b, &forger, &good, "rx_drop_not_from_ring", 100);
    let bad = forger.packet(&write_by_wrong_key(&b, Transport::Rc, PSN), &[0xee; 8]);
    flood_some(&b, &forger, &bad, "rx_drop_not_from_ring", 100);
    check(&b, &filled);
    for end in [&a, &b] {
        assert_eq!(end.qp.query().state, QpState::Rts);
    }
    assert_eq!(a.perform(SendOp::Write(b.remote(0)), &[a.sge(64, 8)]), WcStatus::Success);
}
