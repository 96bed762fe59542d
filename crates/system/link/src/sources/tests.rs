use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};

use super::*;

/// An address of the loopback interface, at which a test has all ports to itself.
fn at(last: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 44, 77, last), 4791).into()
}

fn port(sources: &Sources, chosen: SourcePort) -> Option<u16> {
    sources.get(chosen).map(|(_, local)| local.port())
}

#[test]
fn queue_pairs_spread_over_a_few_ports_of_the_range() {
    let (table, counters) = (FdTable::new(), Counters::default());
    let sources = Sources::default();
    let mut ports = HashSet::new();
    // Ports that differ in few bits, high or low.
    for preferred in (0..64).map(|n| FIRST + n).chain((0..64).map(|n| FIRST + n * 256)) {
        let chosen = sources.choose(&table, &at(1), preferred, &counters);
        assert_eq!(chosen, sources.choose(&table, &at(1), preferred, &counters));
        let port = port(&sources, chosen).expect("a port of its own");
        assert!(port >= FIRST, "{port}");
        ports.insert(port);
    }
    assert_eq!(ports.len(), SOCKETS);
    assert_eq!(counters.snapshot().tx_no_source_port, 0);
    assert_eq!(Sources::default().get(SourcePort::default()).map(|_| ()), None, "the link's own");
}

#[test]
fn the_first_queue_pair_has_its_preferred_port_and_two_processes_share_none() {
    let (table, counters) = (FdTable::new(), Counters::default());
    let (a, b) = (Sources::default(), Sources::default());
    let preferred = 0xd123;
    let [first, second] = [&a, &b].map(|sources| {
        let chosen = sources.choose(&table, &at(2), preferred, &counters);
        port(sources, chosen).expect("a port of its own")
    });
    assert_eq!(first, preferred);
    assert_ne!(second, preferred);
    // No other program may bind the port beside us either.
    assert!(UdpSocket::bind(SocketAddr::new(at(2).ip(), first)).is_err());
}

#[test]
fn without_room_for_a_descriptor_the_links_own_port_is_used() {
    let counters = Counters::default();
    let table = FdTable::with_room(1);
    let sources = Sources::default();
    let same_socket = |preferred| index_of(preferred) == index_of(0xc000);
    let other = (0xc000..=0xffff).find(|port| !same_socket(*port)).unwrap();
    assert_ne!(sources.choose(&table, &at(3), 0xc000, &counters), SourcePort::default());
    for _ in 0..3 {
        assert_eq!(sources.choose(&table, &at(3), other, &counters), SourcePort::default());
    }
    assert_eq!(counters.snapshot().tx_no_source_port, 1, "counted once");
    // No socket can be bound to an address of another machine.
    let sources = Sources::default();
    let far = "192.0.2.77:4791".parse().unwrap();
    assert_eq!(sources.choose(&FdTable::new(), &far, 0xc000, &counters), SourcePort::default());
    assert_eq!(counters.snapshot().tx_no_source_port, 2);
}

/// A packet to a sending socket does not fill its receive buffer.
#[test]
fn a_sending_socket_receives_nothing() {
    let (table, counters) = (FdTable::new(), Counters::default());
    let sources = Sources::default();
    let chosen = sources.choose(&table, &at(4), 0xc777, &counters);
    let (fd, local) = sources.get(chosen).unwrap();
    let sender = UdpSocket::bind((at(4).ip(), 0)).unwrap();
    for _ in 0..10 {
        sender.send_to(b"stray", local).unwrap();
    }
    let ready = sys::poll(&[fd.raw()], libc::POLLIN, std::time::Duration::ZERO).unwrap();
    assert_eq!(ready, 0);
}
