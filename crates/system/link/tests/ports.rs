//! Source ports, between two hosts: network namespaces joined by a virtual cable.
//!
//! The test starts itself again in a network namespace. There, each thread that unshares its
//! network is a host.

mod common;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::mpsc;

use adverb_link::{Config, Route, SourcePort, TxBatch};
use common::*;
use nix::sched::{CloneFlags, unshare};

const PORT: u16 = 4791;
const HERE: [&str; 2] = ["192.0.2.1", "fd00:77::1"];
const THERE: [&str; 2] = ["192.0.2.2", "fd00:77::2"];

/// SYS-9: packets to another host leave from a port of the queue pair, in the range of RoCEv2, and
/// the receiver finds their ICRC right. Packets to this host leave from port 4791.
#[test]
fn sys_9_queue_pairs_have_source_ports_towards_other_hosts() {
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let mut trial = Command::new("unshare");
    trial.args(command.get_args()).args(["--net", "true"]);
    if !trial.status().is_ok_and(|status| status.success()) {
        // Not captured by the test harness.
        let said = "SKIPPED: `unshare --net` is not allowed here, so there are no two hosts\n";
        std::io::stderr().write_all(said.as_bytes()).unwrap();
        return;
    }
    command.arg("--net").arg(exe).args(["--exact", "two_hosts", "--ignored", "--nocapture"]);
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    assert!(text.contains("both hosts are done"), "{text}");
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().expect("ip (package iproute2)");
    assert!(status.success(), "ip {args}: {status}");
}

/// Makes the calling thread, and its children, a host with its own network. Returns the network's
/// file.
fn become_host() -> String {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    ip("link set lo up");
    format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid())
}

fn config() -> Config {
    Config { port: PORT, ..Config::default() }
}

#[test]
#[ignore = "started by the test, in a network namespace"]
fn two_hosts() {
    let (tell_here, hear_here) = mpsc::channel::<String>();
    let (tell_there, hear_there) = mpsc::channel::<()>();
    let (tell_slot, hear_slot) = mpsc::channel();
    let there = std::thread::spawn(move || {
        tell_here.send(become_host()).unwrap();
        hear_there.recv().unwrap();
        for address in THERE {
            add(address, "there");
        }
        ip("link set there up");
        let host = Member::new(config());
        for address in THERE {
            host.link.add_address(address.parse().unwrap(), 0).unwrap();
        }
        tell_slot.send(host.slot()).unwrap();
        hear_there.recv().unwrap();
        let got = host.take(2 * 64 + 2);
        judge(&got);
        assert_eq!(host.link.stats().rx_drop_icrc, 0);
    });
    let here = std::thread::spawn(move || {
        become_host();
        let far = hear_here.recv().unwrap();
        ip("link add here type veth peer name there");
        ip(&format!("link set there netns {far}"));
        tell_there.send(()).unwrap();
        for address in HERE {
            add(address, "here");
        }
        ip("link set here up");
        let slot = hear_slot.recv().unwrap();
        assert!(wait(carrier_is_up), "the cable is not up");
        send(slot);
        tell_there.send(()).unwrap();
    });
    let ended = [here.join(), there.join()];
    assert!(ended.iter().all(Result::is_ok), "a host failed");
    println!("both hosts are done");
}

fn add(address: &str, device: &str) {
    match address.contains(':') {
        true => ip(&format!("addr add {address}/64 dev {device} nodad")),
        false => ip(&format!("addr add {address}/24 dev {device}")),
    }
}

fn carrier_is_up() -> bool {
    let out = Command::new("ip").args(["link", "show", "here"]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).contains("state UP")
}

/// The preferred port of a queue pair. The lower half of its number says which queue pair it is.
fn preferred(low: u32) -> u16 {
    adverb_wire::udp_source_port(0x700 + low, 0x900 + low)
}

fn send(slot: adverb_local::Slot) {
    let host = Member::new(config());
    let mut batch = TxBatch::default();
    for (from, to) in HERE.into_iter().zip(THERE) {
        let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let local = host.link.add_address(from, 0).unwrap();
        let far = Route::new(local, SocketAddr::new(to, PORT));
        // Runs of two packets, so that GSO is used, by 32 queue pairs.
        for low in 0..32 {
            let source = host.link.source_port(local, to, preferred(low));
            assert_ne!(source, SourcePort::default());
            let route = Route { source, ..far };
            push(&mut batch, &host.link, &route, qpn(slot, low), 0, 64);
            push(&mut batch, &host.link, &route, qpn(slot, low), 1, 64);
            batch.flush(&host.link);
        }
        // From the link's own port.
        push(&mut batch, &host.link, &far, qpn(slot, 99), 0, 64);
        batch.flush(&host.link);
        // To this host.
        let source = host.link.source_port(local, from, preferred(1));
        assert_eq!(source, SourcePort::default(), "{from} is this host's");
        let near = Route { source, ..Route::new(local, SocketAddr::new(from, PORT)) };
        push(&mut batch, &host.link, &near, qpn(host.slot(), 1), 0, 64);
        batch.flush(&host.link);
        assert_eq!(host.take(1)[0].src, SocketAddr::new(from, PORT));
    }
    let group =
        host.link.source_port(Default::default(), "239.1.2.3".parse().unwrap(), preferred(1));
    assert_eq!(group, SourcePort::default(), "this host may be a member of the group");
    let stats = host.link.stats();
    assert_eq!((stats.tx_no_source_port, stats.rx_drop_local_port), (0, 0), "{stats:?}");
}

/// Judges the packets of both address families.
fn judge(got: &[Got]) {
    for from in HERE.map(|from| from.parse::<IpAddr>().unwrap()) {
        let mut ports: HashMap<u32, HashSet<u16>> = HashMap::new();
        for packet in got.iter().filter(|packet| packet.src.ip() == from) {
            let low =
                u32::from_be_bytes([0, packet.bytes[5], packet.bytes[6], packet.bytes[7]]) & 0xff;
            ports.entry(low).or_default().insert(packet.src.port());
        }
        assert_eq!(ports.remove(&99), Some(HashSet::from([PORT])), "{from}");
        assert_eq!(ports.len(), 32, "{from}");
        assert!(
            ports.values().all(|of| of.len() == 1),
            "{from}: one port for each queue pair: {ports:?}"
        );
        let all: HashSet<u16> = ports.values().flatten().copied().collect();
        assert!(all.iter().all(|port| *port >= 0xc000), "{from}: {all:?}");
        assert_eq!(all.len(), 8, "{from}: {all:?}");
    }
}
