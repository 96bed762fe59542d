//! Attacks of another user of the machine: packets with source addresses of other hosts,
//! descriptors with a blocking close, names. Run as root, because the strangers are other users.

mod common;
mod other;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;

use adverb_link::{Config, LocalPorts, Route};
use adverb_local::{Delivery, Slot, add_packet};
use adverb_wire::icrc::{IpMeta, UdpMeta, icrc};
use common::*;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind,
    sendmsg, setsockopt, socket, sockopt,
};
use other::{Other, ROLE, asked, say};

const STRANGER: u32 = 65533;

#[test]
#[ignore = "the process of another user, started by the tests"]
fn the_other() {
    let role = std::env::var(ROLE).expect("a role");
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["forge", way, port, qpn] => {
            let (port, qpn) = (port.parse().unwrap(), qpn.parse().unwrap());
            say(forge(way, port, qpn).map_or_else(|e| e.to_string(), |()| "sent".to_owned()));
        }
        ["laden", name] => laden(name),
        ["hold", name] => {
            let _held = Line::holding(name, SockType::SeqPacket).unwrap();
            say("held");
            while asked().is_some() {}
        }
        ["chosen"] => say(adverb_os::chosen(ROLE).is_some()),
        _ => panic!("{role}"),
    }
}

/// TRU-2: a user starting a more privileged program cannot control the program by environment
/// variables, for example the name of a capture file.
#[test]
fn tru_2_variables_choose_nothing_in_privileged_programs() {
    assert_eq!(Other::start(STRANGER, "chosen").hear(), "true");
    assert_eq!(Other::start_as(STRANGER, "chosen", 0o4755).hear(), "false");
}

/// A packet as if from `src`.
fn packet(src: SocketAddr, dst: SocketAddr, qpn: u32) -> Vec<u8> {
    let mut packet = bth(qpn, 7).to_vec();
    packet.resize(12 + 64, 1);
    let len = (packet.len() + 12) as u16;
    let udp = UdpMeta { src_port: src.port(), dst_port: dst.port(), len };
    let ip = match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            IpMeta::V4 { src: src.octets(), dst: dst.octets(), id: 0, dont_fragment: true }
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpMeta::V6 { src: src.octets(), dst: dst.octets() },
        _ => panic!("one family"),
    };
    let sum = icrc(&ip, &udp, &packet);
    packet.extend_from_slice(&sum.to_le_bytes());
    packet
}

/// Sends a packet with a source address at which this user has no socket.
fn forge(way: &str, port: u16, qpn: u32) -> std::io::Result<()> {
    let here = SocketAddr::new(V4, port);
    let here6 = SocketAddr::new(V6, port);
    match way {
        "group" | "broadcast" => {
            let at = if way == "group" { "239.1.2.3" } else { "127.255.255.255" };
            UdpSocket::bind((at, port))?.send_to(&packet(here, here, qpn), here)?;
        }
        "group6" => {
            let at: Ipv6Addr = "ff0e::77".parse().unwrap();
            UdpSocket::bind((at, port))?.send_to(&packet(here6, here6, qpn), here6)?;
        }
        "named" => {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), port))?;
            let bytes = packet(here, here, qpn);
            let info = libc_in_pktinfo(Ipv4Addr::LOCALHOST);
            let to = SockaddrIn::from(std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
            let named = [ControlMessage::Ipv4PacketInfo(&info)];
            let part = [std::io::IoSlice::new(&bytes)];
            sendmsg(socket.as_raw_fd(), &part, &named, MsgFlags::empty(), Some(&to))?;
        }
        // An address of another machine, and not even the right port.
        "far" => {
            let fd = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::empty(), None)?;
            setsockopt(&fd, sockopt::IpFreebind, &true)?;
            let far: Ipv6Addr = "fd00::99".parse().unwrap();
            bind(fd.as_raw_fd(), &SockaddrIn6::from(std::net::SocketAddrV6::new(far, 5555, 0, 0)))?;
            let src = SocketAddr::new(far.into(), 5555);
            UdpSocket::from(fd).send_to(&packet(src, here6, qpn), here6)?;
        }
        _ => panic!("{way}"),
    }
    Ok(())
}

fn libc_in_pktinfo(source: Ipv4Addr) -> nix::libc::in_pktinfo {
    let any = nix::libc::in_addr { s_addr: 0 };
    let spec = nix::libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) };
    nix::libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: spec, ipi_addr: any }
}

/// TRU-2: whatever a user binds and selects, its forged packets do not count, neither with a source
/// address of this machine nor with a source address of another machine.
#[test]
fn tru_2_no_user_sends_under_anothers_address() {
    let port = port();
    let (node, _) = Member::at(Config { local_ports: LocalPorts::Own, ..config(port) }, V4);
    node.link.add_address(V6, 0).unwrap();
    let qpn = qpn(node.slot(), 1);
    for way in ["group", "broadcast", "group6", "named"] {
        let said = Other::start(STRANGER, &format!("forge {way} {port} {qpn}")).hear();
        assert!(said.contains("in use"), "{way}: {said}");
    }
    let said = Other::start(STRANGER, &format!("forge far {port} {qpn}")).hear();
    assert_eq!(said, "sent");
    let drops = || node.link.stats().rx_kernel_drops;
    assert!(wait(|| drops() == 1 || node.count() > 0), "{:?}", node.link.stats());
    assert_eq!((node.count(), drops()), (0, 1));
    // Packets of the own user arrive.
    let near = open(Config { local_ports: LocalPorts::Own, ..config(port) });
    for at in [V4, V6] {
        let local = near.add_address(at, 0).unwrap();
        let mut batch = adverb_link::TxBatch::default();
        push(&mut batch, &near, &Route::new(local, SocketAddr::new(at, port)), qpn, 3, 64);
        batch.flush(&near);
        assert_eq!(node.take(1)[0].bytes, expected(qpn, 3, 64));
    }
}

/// Connects and leaves descriptors with a blocking last close: once with a byte, and once in an
/// empty message behind another message.
fn laden(name: &str) {
    for texts in [&[&b"x"[..]][..], &[&b""[..], &b""[..]][..]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other_end = listener.accept().unwrap().0;
        full.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &full, &[0; 65536]).is_ok() {}
        let waits = nix::libc::linger { l_onoff: 1, l_linger: 200 };
        setsockopt(&full, sockopt::Linger, &waits).unwrap();
        let line = Line::to(name).unwrap();
        for (i, text) in texts.iter().enumerate() {
            let sent = if i + 1 < texts.len() {
                line.send(text)
            } else {
                line.send_fds(text, &[full.as_raw_fd()])
            };
            sent.unwrap();
        }
        drop((full, line));
        std::mem::forget(other_end);
    }
    say("sent");
    while asked().is_some() {}
}

/// TRU-2: a stranger leaves descriptors with a blocking close in connections; this process
/// continues.
#[test]
fn tru_2_what_strangers_leave_behind_holds_nobody_up() {
    let port = port();
    // No process accepts the connections before they have descriptors.
    let link = open(config(port));
    let slot = link.local().slots()[0];
    let mut stranger = Other::start(STRANGER, &format!("laden {}", slot_name(slot)));
    assert_eq!(stranger.hear(), "sent");
    let local = link.add_address(V4, 0).unwrap();
    let began = std::time::Instant::now();
    let mut buffers = adverb_link::RxBuffers::new(1);
    let mut taken = 0;
    while link.stats().local.local_drop_other_user < 2 {
        taken += link.recv(adverb_link::RxFrom::Every, &mut buffers, 64, &mut |_| {});
    }
    assert_eq!(taken, 0);
    // The connections were not accepted: closing the listener closes the connections, too.
    let second = open(config(port));
    let mut stranger =
        Other::start(STRANGER, &format!("laden {}", slot_name(second.local().slots()[0])));
    assert_eq!(stranger.hear(), "sent");
    drop(second);
    // Each close waits for 200 seconds.
    assert!(began.elapsed().as_secs() < 100, "{:?}", began.elapsed());
    let packets = {
        let mut p = Vec::new();
        add_packet(&mut p, &bth(qpn(slot, 1), 1), 8, 0, |_| true);
        p
    };
    let near = open(config(port));
    near.add_address(V4, 0).unwrap();
    assert_eq!(
        near.deliver(slot, &Route::new(local, SocketAddr::new(V4, port)), &packets),
        Delivery::Done
    );
    let mut got = 0;
    assert!(wait(|| {
        got += link.recv(adverb_link::RxFrom::Every, &mut buffers, 64, &mut |_| {});
        got == 1
    }));
}

/// TRU-2: a name announces a receiver of other processes' frames; the name counts only if the own
/// user holds it.
#[test]
fn tru_2_names_of_strangers_ask_for_no_frames() {
    let link = open(config(port()));
    let slot: Slot = if link.local().slots()[0] == 9 { 8 } else { 9 };
    let uid = nix::unistd::geteuid();
    let mut stranger = Other::start(STRANGER, &format!("hold adverb-{uid}-raw-4242-{slot}+0"));
    assert_eq!(stranger.hear(), "held");
    assert_eq!(link.local().frame_takers(4242), [] as [Slot; 0]);
    let _own =
        Line::holding(&format!("adverb-{uid}-raw-4242-{slot}+1"), SockType::SeqPacket).unwrap();
    assert_eq!(link.local().frame_takers(4242), [slot]);
}
