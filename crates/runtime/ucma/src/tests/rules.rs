//! States, errors and replies of single commands.
use super::flows::{A, PORT, pair};
use super::program::Got;
use super::program::PARAM;
use super::{Network, Program};
use crate::address::Address;
use crate::event::EventKind::{self, *};
use crate::event::Param;
use crate::id::Route;
use crate::request::{OptionName, OptionValue, Question, Request};
use adverb_cm::ip::{PS_TCP, PS_UDP};
use nix::errno::Errno;

fn one() -> Program {
    Program::new(&Network::new(1), 1, &[A, "fe80::1", "fd00::1"])
}

#[test]
fn ucm_2_ids_are_numbers_of_their_file() {
    let mut a = one();
    let (first, second) = (a.tcp(1), a.tcp(2));
    assert_eq!((first, second), (0, 1));
    assert_eq!(a.destroy(first), Ok(0));
    assert_eq!(a.destroy(first), Err(Errno::ENOENT));
    assert_eq!(a.tcp(3), 0, "the lowest number that is free");
    a.file = a.open_another();
    assert_eq!(a.destroy(second), Err(Errno::EINVAL), "another file's");
    let closed = a.file;
    a.close();
    assert_eq!(a.ask_of(closed, Request::GetEvent).err(), Some(Errno::EBADF));
}

#[test]
fn ucm_1_a_reply_that_cannot_be_given_changes_nothing() {
    let mut a = one();
    let id = a.udp(1);
    a.bind(id, "10.0.0.1:0").unwrap();
    for errno in [Errno::ENOSPC, Errno::EFAULT] {
        a.hand.refuses = Some(errno);
        assert_eq!(a.try_create(2, PS_TCP), Err(errno));
        assert_eq!(a.join(id, 5, "239.1.1.1:0"), Err(errno));
        a.hand.refuses = None;
        assert_eq!(a.tcp(3), 1, "the failed one has left no number");
        assert_eq!(a.destroy(1), Ok(0));
        assert_eq!(
            (a.world.census()[1], a.event().is_none()),
            (0, true),
            "no group, and no event of one"
        );
    }
    a.resolve_addr(id, PORT).unwrap();
    a.hand.refuses = Some(Errno::EFAULT);
    assert_eq!(a.ask(Request::GetEvent).err(), Some(Errno::EFAULT));
    a.hand.refuses = None;
    a.expect(AddrResolved);
    assert!(a.event().is_none());
    assert_eq!(a.ask(Request::GetEvent).err(), Some(Errno::EAGAIN));
    assert_eq!(a.try_create(2, 7), Err(Errno::EINVAL), "no such port space");
}

#[test]
fn ucm_3_a_loopback_address_is_the_loopback_devices() {
    let mut a = Program::new(&Network::new(1), 1, &["127.0.0.1"]);
    let id = a.tcp(1);
    assert_eq!(a.bind(id, "127.0.0.2:5"), Err(Errno::EADDRNOTAVAIL));
    a.bind(id, "127.0.0.1:5").unwrap();
    let device = |a: &mut Program, id| a.addresses(id).device;
    assert_ne!(device(&mut a, id), None);
    a.listen(id, 1).unwrap();
    let own = a.ready(2, PS_TCP, "127.0.0.1:5");
    assert_ne!(device(&mut a, own), None);
}

#[test]
fn ucm_3_binding() {
    let mut a = one();
    let id = a.tcp(1);
    assert_eq!(a.bind(id, "10.9.9.9:5"), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(a.bind(id, "[fe80::1]:5"), Err(Errno::EINVAL), "link-local without an interface");
    assert_eq!(a.bind(id, "[fe80::1%3]:5"), Ok(()));
    assert_eq!(a.bind(id, "10.0.0.1:6"), Err(Errno::EINVAL), "it is bound");
    let other = a.tcp(2);
    assert_eq!(a.bind(other, "[fe80::1%3]:5"), Err(Errno::EADDRINUSE));
    assert_eq!(a.bind(other, "[::]:5"), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(a.bind(other, "10.0.0.1:0"), Ok(()));
    let addresses = a.addresses(other);
    let Some(own) = addresses.source else { panic!("no address") };
    assert!(crate::ports::EPHEMERAL.contains(&own.port()), "{own:?}");
    assert_eq!(addresses.device, Some((0x1001, 3)), "the node's GUID, the device's index");
    assert_eq!(addresses.destination, None, "no destination yet");
    assert_eq!(a.query(other, Question::Unknown).err(), Some(Errno::ENOSYS));
    assert!(matches!(a.query(other, Question::Services), Ok(Got::NoServices)));
    // librdmacm uses this request to find out whether InfiniBand addresses are supported.
    let ib = a.create(3, adverb_cm::ip::PS_IB);
    let any = Address::Ib { gid: "::".parse().unwrap(), sid: 0x0106_0000, mask: !0xffff };
    assert_eq!(a.bind_to(ib, any), Ok(()));
}

#[test]
fn ucm_3_ports_are_shared_among_processes_only_on_purpose() {
    let n = Network::new(2);
    let (mut a, mut b) = (Program::new(&n, 1, &[A]), Program::new(&n, 2, &[A]));
    let (x, y) = (a.tcp(1), b.tcp(1));
    a.bind(x, "10.0.0.1:70").unwrap();
    assert_eq!(b.bind(y, "10.0.0.1:70"), Err(Errno::EADDRINUSE));
    assert_eq!(b.bind(y, "10.0.0.1:71"), Ok(()));
    a.destroy(x).unwrap();
    let z = b.tcp(2);
    assert_eq!(b.bind(z, "10.0.0.1:70"), Ok(()), "free again");
    let reuse = |p: &mut Program, port: &str| {
        let id = p.tcp(9);
        p.set_option(id, OptionValue::ReuseAddr(true)).unwrap();
        (id, p.bind(id, port))
    };
    let (first, ok) = reuse(&mut a, "10.0.0.1:72");
    assert_eq!(ok, Ok(()));
    assert_eq!(reuse(&mut b, "10.0.0.1:72").1, Ok(()));
    let (second, ok) = reuse(&mut a, "10.0.0.1:72");
    assert_eq!(ok, Ok(()));
    assert_eq!(a.listen(first, 1), Err(Errno::EADDRINUSE), "one alone listens");
    a.destroy(second).unwrap();
    assert_eq!(a.listen(first, 1), Ok(()));
    assert_eq!(reuse(&mut a, "10.0.0.1:72").1, Err(Errno::EADDRINUSE), "a listener shares no more");
}

#[test]
fn ucm_2_commands_out_of_turn() {
    let (_n, mut a, _b) = pair(3);
    let id = a.tcp(1);
    assert_eq!(a.resolve_route(id), Err(Errno::EINVAL));
    assert_eq!(a.connect(id, &PARAM), Err(Errno::EINVAL));
    assert_eq!(a.accept(id, 1, &PARAM), Err(Errno::EINVAL));
    assert_eq!(a.reject(id, 0, b""), Err(Errno::EINVAL));
    assert_eq!(a.disconnect(id), Err(Errno::EINVAL));
    assert_eq!(a.notify(id, 4), Err(Errno::EINVAL));
    assert_eq!(a.attr(id, 1), Err(Errno::EINVAL), "no device yet");
    a.resolve_addr(id, "192.0.2.1:1").unwrap();
    assert_eq!(a.expect(AddrError).status, -(Errno::ENETUNREACH as i32));
    assert_eq!(
        a.resolve_addr(id, "[fd00::2]:1"),
        Err(Errno::EINVAL),
        "bound to the other family by now"
    );
    a.resolve_addr(id, PORT).unwrap();
    a.expect(AddrResolved);
    assert_eq!(a.resolve_addr(id, PORT), Err(Errno::EINVAL), "once");
    assert_eq!(a.listen(id, 1), Err(Errno::EINVAL));
    assert_eq!(a.attr(id, 1).unwrap().mask, 0x39, "state, access, P_Key, port");
    assert_eq!(a.attr(id, 7), Err(Errno::EINVAL));
    a.resolve_route(id).unwrap();
    a.expect(RouteResolved);
    let mut none = PARAM;
    none.valid = false;
    assert_eq!(a.connect(id, &none), Err(Errno::EINVAL));
    a.connect(id, &PARAM).unwrap();
    assert_eq!(a.connect(id, &PARAM), Err(Errno::EINVAL), "once");
    assert_eq!(a.attr(id, 2), Err(Errno::EINVAL), "the peer's queue pair is not known");
    assert_eq!(a.resolve_ib(id), Err(Errno::EINVAL));
    let other = a.tcp(2);
    a.resolve_addr(other, PORT).unwrap();
    assert_eq!(a.resolve_ib(other), Err(Errno::EOPNOTSUPP), "Ethernet has no subnet administrator");
}

impl Program {
    fn resolve_ib(&mut self, id: u32) -> Result<(), Errno> {
        self.ask(Request::ResolveIbService { id }).map(drop)
    }
    fn user_event(&mut self, id: u32, kind: EventKind) -> Result<(), Errno> {
        self.ask(Request::WriteEvent { id, kind, status: -7, arg: *b"8 bytes." }).map(drop)
    }
}

#[test]
fn ucm_2_events_of_the_program_itself() {
    let mut a = one();
    let id = a.tcp(5);
    assert_eq!(a.user_event(id, Established), Err(Errno::EINVAL), "the device's own");
    assert_eq!(a.user_event(77, User), Err(Errno::ENOENT));
    a.user_event(id, User).unwrap();
    let seen = a.expect(User);
    assert_eq!((seen.uid, seen.status), (5, -7));
    assert_eq!(seen.event.param, Param::Arg(*b"8 bytes."));
    a.user_event(id, Internal).unwrap();
    a.expect(Internal);
    assert_eq!(a.destroy(id), Ok(2));
}

#[test]
fn ucm_5_options() {
    let mut a = one();
    let (tcp, udp) = (a.tcp(1), a.udp(2));
    let (reuse, only) = (OptionValue::ReuseAddr(true), OptionValue::FamilyOnly(true));
    assert_eq!(a.set_option(tcp, OptionValue::Tos(0x28)), Ok(()));
    assert_eq!(a.set_option(tcp, OptionValue::AckTimeout(20)), Ok(()));
    assert_eq!(a.set_option(tcp, OptionValue::AckTimeout(32)), Err(Errno::EINVAL));
    let of_datagrams = a.set_option(udp, OptionValue::AckTimeout(20));
    assert_eq!(of_datagrams, Err(Errno::EINVAL), "datagrams are not acknowledged");
    assert!(matches!(a.get_option(tcp, OptionName::Tos), Ok(Got::Byte(0x28))));
    assert!(matches!(a.get_option(tcp, OptionName::AckTimeout), Ok(Got::Byte(20))));
    assert!(matches!(a.get_option(tcp, OptionName::ReuseAddr), Ok(Got::Flag(false))));
    assert_eq!(a.get_option(tcp, OptionName::Unknown).err(), Some(Errno::ENOSYS));
    assert_eq!(a.set_option(77, reuse), Err(Errno::ENOENT), "the id counts before the value");
    a.resolve_addr(tcp, PORT).unwrap();
    a.expect(AddrResolved);
    assert_eq!(a.set_option(tcp, reuse), Err(Errno::EINVAL), "too late");
    assert_eq!(a.set_option(tcp, only), Err(Errno::EINVAL), "too late");
    assert_eq!(a.path(tcp).route, None, "no route yet");
    a.resolve_route(tcp).unwrap();
    a.expect(RouteResolved);
    let path = a.path(tcp);
    let route = Route {
        mtu: 3,
        traffic_class: 0x28,
        flow_label: 0,
        hop_limit: 64,
        service_level: 0,
        packet_lifetime: 19,
    };
    assert_eq!(path.route, Some(route), "TOS, MTU, lifetime");
    assert_eq!(&path.destination.octets()[10..], [0xff, 0xff, 10, 0, 0, 2]);
    assert_eq!(a.query_route(tcp), (a.addresses(tcp), path));
    let Ok(Got::Addresses(gids)) = a.query(tcp, Question::Gids) else { panic!() };
    let Some(Address::Ib { gid, .. }) = gids.source else { panic!("{gids:?}") };
    assert_eq!(&gid.octets()[12..], [10, 0, 0, 1]);
    // The program resolves the route itself.
    let own = a.tcp(3);
    assert_eq!(a.set_option(own, OptionValue::Path(route)), Err(Errno::EINVAL), "no address yet");
    a.resolve_addr(own, PORT).unwrap();
    a.expect(AddrResolved);
    let ours = Route { packet_lifetime: 11, ..route };
    a.set_option(own, OptionValue::Path(ours)).unwrap();
    a.expect(RouteResolved);
    assert_eq!(a.path(own).route, Some(ours));
    assert_eq!(a.connect(own, &PARAM), Ok(()));
    let datagrams = a.create(9, PS_UDP);
    assert_eq!(a.destroy(datagrams), Ok(0));
}
