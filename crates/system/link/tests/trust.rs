//! Trust on one host: only processes of the own user, proved by their connections. Run as root,
//! because the strangers are other users.
//!
//! A stranger is this test binary started again as another user; `ROLE` is its role.

mod common;
mod other;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use std::process::Command;

use adverb_link::{
    Config, LinkError, LocalPorts, Route, RxBuffers, RxFrom, TxBatch, UdpLink, each,
};
use adverb_local::{
    ConnectionId, DELIVERY, Delivery, HandshakeMessage, Local, Slot, SlotClaim, add_packet,
};
use common::*;
use nix::sys::socket::SockType;
use other::{Other, ROLE, asked, say};

const STRANGER: u32 = 65533;
const VICTIM: u32 = 65532;
/// A third user, because the slots of [`VICTIM`] are taken.
const MEASURER: u32 = 65531;

struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        WARNINGS.lock().unwrap().push(record.args().to_string());
    }
    fn flush(&self) {}
}

static WARNINGS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

#[test]
#[ignore = "the process of another user, started by the tests"]
fn the_other() {
    let role = std::env::var(ROLE).expect("a role");
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["listen", name] => listens(name),
        ["hold", name] => {
            // The last owner may not have quite ended, as in `line_at`.
            let mut held = None;
            assert!(wait(|| {
                held = Line::holding(name, SockType::SeqPacket).ok();
                held.is_some()
            }));
            say("held");
            while asked().is_some() {}
        }
        ["squat", uid, from, to] => {
            let range: std::ops::Range<u16> = from.parse().unwrap()..to.parse().unwrap();
            let held: Vec<_> =
                range.map(|slot| Line::at(&format!("adverb-{uid}-{slot}"))).collect();
            say(held.iter().filter(|held| held.is_ok()).count());
            while asked().is_some() {}
        }
        ["connect", name] => connects(name),
        ["link", port] => {
            let config = Config { port: port.parse().unwrap(), ..Config::default() };
            match Local::new(0).map(|local| UdpLink::new(config, local).add_address(V4, 0)) {
                Ok(Ok(_)) => say("fine"),
                Ok(Err(error)) => say(error),
                Err(error) => say(error),
            }
        }
        ["steered", port] => steered(port.parse().unwrap()),
        _ => panic!("{role}"),
    }
}

/// Accepts connections at a name, and prints the numbers of connections and of bytes.
fn listens(name: &str) {
    let line = line_at(name);
    say("listens");
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while asked().is_some() {
        lines.extend(std::iter::from_fn(|| line.taken()));
        for line in &lines {
            bytes += std::iter::from_fn(|| line.received().filter(|n| *n > 0)).sum::<usize>();
        }
        say(format_args!("{} {bytes}", lines.len()));
    }
}

/// Sends messages of a stranger to the owner of a name.
fn connects(name: &str) {
    let null = std::fs::File::open("/dev/null").unwrap();
    for _ in 0..20 {
        let line = Line::to(name).unwrap();
        // The owner may have refused the connection already.
        let _ = line.send(b"Adverb\0\x01rubbish");
        let _ = line.send_fds(&handshake(), &[null.as_raw_fd(); 5]);
    }
    say("connected");
    while asked().is_some() {}
}

/// A handshake message as on the wire: magic, kind, version, an answer is wanted, MTU, nonce, one
/// slot.
fn handshake() -> Vec<u8> {
    let mut bytes = b"Adverb\0\x01\x04\x02\x01\0".to_vec();
    bytes.extend_from_slice(&4096u32.to_le_bytes());
    bytes.extend_from_slice(&77u64.to_le_bytes());
    bytes.extend_from_slice(&9u16.to_le_bytes());
    bytes
}

/// Two members of a group measure the group while another user holds the name of the steering lock.
fn steered(port: u16) {
    log::set_logger(&Log).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let (a, _) = Member::at(config(port), V4);
    let (b, _) = Member::at(config(port), V4);
    let from = "127.0.0.9".parse().unwrap();
    let mut sender = Sender::at(config(port), from, SocketAddr::new(V4, port));
    let settled = wait(|| {
        [&a, &b].iter().all(|node| {
            node.got.lock().unwrap().clear();
            sender.push(qpn(node.slot(), 1), 0, 8);
            sender.flush();
            wait(|| node.count() >= 1) && !node.got.lock().unwrap()[0].forwarded
        })
    });
    say(format_args!("{settled} {}", WARNINGS.lock().unwrap().join("; ")));
}

/// Packets for [`UdpLink::deliver`].
fn packets(slot: Slot, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    add_packet(&mut out, &bth(qpn(slot, 1), 1), len, 0, |bytes| {
        bytes.fill(7);
        true
    });
    out
}

/// Sends a handshake message with descriptors; answers the connection.
fn shake_hands(link: &UdpLink, slot: Slot, fds: &[OwnedFd; 4]) -> std::io::Result<ConnectionId> {
    let slots = link.local().slots();
    let message = HandshakeMessage { nonce: 5, wants_answer: true, mtu: 4096, slots };
    link.local().send_handshake(slot, &message, &fds.each_ref().map(|fd| fd.as_fd()))
}

/// A sending link, with a route to its own address, and four descriptors to give away.
fn giver() -> (UdpLink, Route, [OwnedFd; 4]) {
    let port = port();
    let link = open(config(port));
    let local = link.add_address(V4, 0).unwrap();
    let null = || std::fs::File::open("/dev/null").unwrap().into();
    (link, Route::new(local, SocketAddr::new(V4, port)), [(); 4].map(|()| null()))
}

/// A free slot.
fn free_slot() -> Slot {
    SlotClaim::claim(u64::from(std::process::id()) << 20 | u64::from(port())).unwrap().slot()
}

/// Another user holding a slot's name gets neither descriptors nor payload, whatever is sent to the
/// slot, and the error names this user.
#[test]
fn tru_1_a_stranger_at_a_slots_name_is_sent_nothing() {
    let (link, route, fds) = giver();
    let slot = free_slot();
    let mut stranger = Other::start(STRANGER, &format!("listen {}", slot_name(slot)));
    assert_eq!(stranger.hear(), "listens");
    for _ in 0..3 {
        assert_eq!(link.deliver(slot, &route, &packets(slot, 64)), Delivery::NoOwner);
        let error = shake_hands(&link, slot, &fds).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("user 65533"), "{error}");
        // A packet over the network for this slot is not forwarded either.
        let mut batch = TxBatch::default();
        push(&mut batch, &link, &route, qpn(slot, 1), 0, 64);
        batch.flush(&link);
        let before = link.stats().rx_drop_no_owner;
        let mut buffers = RxBuffers::new(1);
        assert!(wait(|| {
            link.recv(RxFrom::Every, &mut buffers, 8, &mut each(|p| panic!("{p:?}")));
            link.stats().rx_drop_no_owner > before
        }));
    }
    let heard = stranger.ask("what have you got?");
    assert_eq!(heard, "9 0", "connections and bytes");
    assert_eq!((link.stats().local.local_refused_other_user, link.stats().local.delivered), (9, 0));
}

/// A connection does not change hands. If the owner of a slot has ended and a stranger has its
/// name, the next message is not sent.
#[test]
fn tru_1_a_name_that_changes_hands_between_two_messages_leads_nowhere() {
    let (link, route, fds) = giver();
    let owner = open(config(port()));
    let slot = owner.local().slots()[0];
    assert_eq!(link.deliver(slot, &route, &packets(slot, 64)), Delivery::Done);
    drop(owner);
    let mut stranger = Other::start(STRANGER, &format!("listen {}", slot_name(slot)));
    assert_eq!(stranger.hear(), "listens");
    assert_eq!(link.deliver(slot, &route, &packets(slot, 64)), Delivery::NoOwner);
    shake_hands(&link, slot, &fds).unwrap_err();
    assert_eq!(stranger.ask("what have you got?"), "2 0");
    drop(stranger);
    // If a process of this user has the name again, messages arrive.
    let again = line_at(&slot_name(slot));
    assert_eq!(link.deliver(slot, &route, &packets(slot, 64)), Delivery::Done);
    assert!(again.taken().unwrap().received().is_some_and(|n| n > 64));
}

/// Listens at a name after its owner has ended. A child being started by another test has a copy of
/// the owner's socket for a moment, between `fork` and `exec`.
fn line_at(name: &str) -> Line {
    let mut line = None;
    assert!(wait(|| {
        line = Line::at(name).ok();
        line.is_some()
    }));
    line.unwrap()
}

/// The connection to a process is closed at the end of the process, without another message, and
/// the end is reported once.
#[test]
fn connections_to_processes_that_ended_are_closed() {
    let (link, _, fds) = giver();
    let owner = open(config(port()));
    let slot = owner.local().slots()[0];
    let first = shake_hands(&link, slot, &fds).unwrap();
    let mut buffers = RxBuffers::new(1);
    let mut ended = || {
        link.recv(RxFrom::Processes, &mut buffers, 8, &mut each(|p| panic!("{p:?}")));
        link.local().ended()
    };
    assert!(ended().is_empty());
    drop(owner);
    let mut seen = Vec::new();
    assert!(wait(|| {
        seen.extend(ended());
        !seen.is_empty()
    }));
    seen.extend(ended());
    assert_eq!(seen, [first]);
    // The next owner of the slot is another process.
    let next = line_at(&slot_name(slot));
    let second = shake_hands(&link, slot, &fds).unwrap();
    assert!(ended().is_empty());
    // A handshake message to a third process detects this end. The report names the second
    // connection, not the slot.
    drop(next);
    let _third = line_at(&slot_name(slot));
    let third = shake_hands(&link, slot, &fds).unwrap();
    assert_ne!(second, third);
    assert_eq!(ended(), [second]);
}

/// A held name without a listener proves nothing either; the error names its holder.
#[test]
fn tru_1_a_name_that_is_only_held_is_sent_nothing() {
    let (link, route, fds) = giver();
    let slot = free_slot();
    let mut stranger = Other::start(STRANGER, &format!("hold {}", slot_name(slot)));
    assert_eq!(stranger.hear(), "held");
    assert_eq!(link.deliver(slot, &route, &packets(slot, 64)), Delivery::NoOwner);
    let error = shake_hands(&link, slot, &fds).unwrap_err();
    assert!(error.to_string().contains("user 65533"), "{error}");
}

/// A stranger's connections end before anything is read.
#[test]
fn tru_2_connections_of_strangers_are_ended_unread() {
    let (node, _) = Member::at(config(port()), V4);
    let mut stranger = Other::start(STRANGER, &format!("connect {}", slot_name(node.slot())));
    assert_eq!(stranger.hear(), "connected");
    assert!(
        wait(|| node.link.stats().local.local_drop_other_user == 20),
        "{:?}",
        node.link.stats()
    );
    let stats = node.link.stats();
    assert_eq!((stats.local.local_drop_malformed, stats.forwarded_in), (0, 0));
    assert!(node.link.local().handshakes().is_empty());
}

/// Names held by a stranger cost nothing while free names are left. Afterwards the error names the
/// stranger and the remedy.
#[test]
fn tru_4_squatted_slots_are_named_when_none_is_left() {
    let port = port();
    let role = format!("link {port}");
    let mut half = Other::start(STRANGER, &format!("squat {VICTIM} 1 512"));
    assert_eq!(half.hear(), "511");
    assert_eq!(Other::start(VICTIM, &role).hear(), "fine");
    let mut rest = Other::start(STRANGER, &format!("squat {VICTIM} 512 1023"));
    assert_eq!(rest.hear(), "511");
    let error = Other::start(VICTIM, &role).hear();
    assert!(error.contains("1022 of them by user 65533"), "{error}");
    assert!(error.contains("network namespace of your own"), "{error}");
    // The strangers' own slots are free.
    assert_eq!(Other::start(STRANGER, &role).hear(), "fine");
}

/// The steering lock's name is only a hint. A stranger holding the name in any way is named in the
/// log, and not waited for.
#[test]
fn tru_4_who_holds_the_steer_name_is_not_waited_for() {
    for way in ["listen", "hold"] {
        let port = port();
        let mut stranger =
            Other::start(STRANGER, &format!("{way} adverb-{MEASURER}-steer-127.0.0.1:{port}"));
        stranger.hear();
        let said = Other::start(MEASURER, &format!("steered {port}")).hear();
        assert!(said.starts_with("true"), "{said}");
        assert!(said.contains("user 65533") && said.contains("steer"), "{said}");
    }
}

/// A port held by another user: the error names this user and the remedy.
#[test]
fn tru_4_who_holds_the_port_is_named() {
    for held in ["127.0.0.1", "0.0.0.0", "::"] {
        let port = port();
        let _held = UdpSocket::bind((held.parse::<IpAddr>().unwrap(), port)).unwrap();
        let said = Other::start(STRANGER, &format!("link {port}")).hear();
        assert!(said.contains("user 0") && said.contains("of one user"), "{held}: {said}");
        assert!(said.contains("ss -ulpn"), "{held}: {said}");
    }
    // The other way round, with a link.
    let port = port();
    let (_node, _) = Member::at(config(port), V4);
    let said = Other::start(STRANGER, &format!("link {port}")).hear();
    assert!(said.contains("user 0"), "{said}");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Peers of the own user connect and send nothing or rubbish, or send unrequested descriptors.
/// Their cost is bounded, and other peers are served.
#[test]
fn tru_3_noisy_peers_are_borne() {
    // In a separate process, because descriptors are counted.
    if std::env::var(ROLE).as_deref() != Ok("noisy") {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tru_3_noisy_peers_are_borne", "--nocapture"]).env(ROLE, "noisy");
        assert!(command.status().unwrap().success());
        return;
    }
    let (node, _) = Member::at(config(port()), V4);
    let name = slot_name(node.slot());
    let null = std::fs::File::open("/dev/null").unwrap();
    let (honest, route, _) = giver();
    let before = descriptors();
    assert_eq!(honest.deliver(node.slot(), &route, &packets(node.slot(), 8)), Delivery::Done);
    node.take(1);
    let mut kept = Vec::new();
    for n in 0..400u32 {
        let line = Line::to(&name).unwrap();
        match n % 4 {
            0 => {}
            1 => drop(line.send(&[n as u8; 300])),
            2 => drop(line.send_fds(b"Adverb\0\x01\x05\x04", &[null.as_raw_fd(); 200])),
            _ => drop(line.send_fds(&handshake()[..20], &[null.as_raw_fd(); 5])),
        }
        // Half of the connections end, half of them stay.
        kept.extend(Some(line).filter(|_| n % 8 < 4));
        if n % 50 == 49 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    assert!(
        wait(|| node.link.stats().local.local_drop_malformed >= 300),
        "{:?}",
        node.link.stats()
    );
    // Both ends of the connections: no received descriptor is left.
    assert!(wait(|| descriptors() <= before + 2 * kept.len() + 8), "{} {before}", descriptors());
    assert!(node.link.local().handshakes().is_empty());
    let say = |n| {
        assert_eq!(honest.deliver(node.slot(), &route, &packets(node.slot(), n)), Delivery::Done);
        assert_eq!(node.take(1)[0].bytes.len(), 12 + n);
    };
    say(16);
    // More connections than are kept: the idle ones end, and the others still work.
    for _ in 0..400 {
        kept.push(Line::to(&name).unwrap());
        if kept.len() % 50 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    // The honest peer was among the idle ones, and connects again.
    say(20);
    assert!(
        wait(|| descriptors() <= before + kept.len() + 256 + 8),
        "{} {before} {}",
        descriptors(),
        kept.len()
    );
}

/// A peer that takes no messages fills its own connection, and blocks no other peer.
#[test]
fn tru_3_who_never_reads_holds_up_itself() {
    let (link, route, _) = giver();
    let slot = free_slot();
    let _silent = line_at(&slot_name(slot));
    let (other, _) = Member::at(config(port()), V4);
    let message = packets(slot, 4000);
    let full = (0..10_000).find(|_| link.deliver(slot, &route, &message) == Delivery::Full);
    assert!(full.is_some_and(|n| n * message.len() < 4 << 20), "{full:?}");
    assert!(message.len() <= DELIVERY);
    assert_eq!(link.deliver(other.slot(), &route, &packets(other.slot(), 64)), Delivery::Done);
    assert!(other.take(1)[0].forwarded);
}

/// A peer that never stops sending does not block other peers.
#[test]
fn tru_3_a_busy_peer_leaves_room_for_others() {
    let (node, route, _) = giver();
    let (busy, busy_route, _) = giver();
    let (quiet, quiet_route, _) = giver();
    let slot = node.local().slots()[0];
    let long: Vec<u8> = (0..64).flat_map(|_| packets(slot, 64)).collect();
    let mut buffers = RxBuffers::new(1);
    let mut heard = false;
    let deliver =
        |link: &UdpLink, route: &Route, message: &[u8]| link.deliver(slot, route, message);
    while deliver(&busy, &busy_route, &long) == Delivery::Done {}
    node.recv(RxFrom::Processes, &mut buffers, 64, &mut |_| {});
    assert_eq!(deliver(&quiet, &quiet_route, &packets(slot, 16)), Delivery::Done);
    for _ in 0..200 {
        // Its buffer is never empty.
        while deliver(&busy, &busy_route, &long) == Delivery::Done {}
        node.recv(RxFrom::Processes, &mut buffers, 64, &mut each(|p| heard |= p.bytes.len() == 28));
    }
    assert!(heard, "{:?} {route:?}", node.stats());
}

/// Packets from an address of this machine count only from the own port, at an address where this
/// process has a socket. All others are counted as dropped, and are not forwarded.
#[test]
fn tru_2_packets_of_this_machine_count_from_the_own_port_only() {
    let own = |port| Config { local_ports: LocalPorts::Own, ..config(port) };
    for (here, there) in [(V4, "127.0.0.77".parse().unwrap()), (V4, V4), (V6, V6)] {
        let port = port();
        let (node, _) = Member::at(own(port), here);
        let (second, _) = Member::at(own(port), here);
        let dropped =
            || node.link.stats().rx_drop_local_port + second.link.stats().rx_drop_local_port;
        // Another port.
        let to = SocketAddr::new(here, port);
        let mut strange = Sender::at(config(common::port()), there, to);
        for to in [&node, &second] {
            (0..10).for_each(|psn| strange.push(qpn(to.slot(), 1), psn, 64));
        }
        strange.flush();
        assert!(wait(|| dropped() == 20), "{} of 20", dropped());
        if here == there {
            continue;
        }
        // From the port, first without a socket of this process at the address, then with one.
        let mut near = Sender::at(own(port), there, to);
        let mut send = |psn| {
            near.push(qpn(node.slot(), 1), psn, 64);
            near.flush();
        };
        send(1);
        assert!(wait(|| dropped() == 21), "{} of 21", dropped());
        assert_eq!((node.count(), second.count()), (0, 0));
        node.link.add_address(there, 0).unwrap();
        send(2);
        assert_eq!(node.take(1)[0].bytes, expected(qpn(node.slot(), 1), 2, 64));
        let forwarded =
            second.link.stats().local.forwarded_out + node.link.stats().local.forwarded_out;
        assert!(forwarded <= 2, "{forwarded}");
    }
}

/// Packets sent by a stranger from the port at an address, before this user held the port, do not
/// count afterwards.
#[test]
fn tru_2_what_a_stranger_sent_before_the_port_was_ours_does_not_count() {
    let there: IpAddr = "127.0.0.78".parse().unwrap();
    let port = port();
    let link = open(Config { local_ports: LocalPorts::Own, ..config(port) });
    link.add_address(V4, 0).unwrap();
    // No thread reads while the stranger holds the port, and then the stranger closes it. Its user
    // does not matter here.
    let config = Config { steer: false, ..config(port) };
    let mut strange = Sender::at(config, there, SocketAddr::new(V4, port));
    for psn in 0..50 {
        strange.push(qpn(link.local().slots()[0], 1), psn, 64);
        strange.flush();
    }
    drop(strange);
    link.add_address(there, 0).unwrap();
    let mut buffers = RxBuffers::new(1);
    let dropped = || {
        link.recv(RxFrom::Every, &mut buffers, 64, &mut each(|p| panic!("{p:?}")));
        link.stats().rx_drop_local_port == 50
    };
    assert!(wait(dropped), "{:?}", link.stats());
}

/// The basis of these rules: no other user can share the port.
#[test]
fn tru_2_the_port_is_one_users() {
    let port = port();
    let (_node, _) = Member::at(config(port), V4);
    let error = Other::start(STRANGER, &format!("link {port}")).hear();
    assert!(error.contains("is taken"), "{error}");
    let error = LinkError::PortTaken { ip: V4, port, uid: STRANGER, holders: vec![] }.to_string();
    assert!(error.contains("another user"), "{error}");
}
