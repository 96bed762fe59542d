//! States, errors and answers of single commands.
use super::flows::{A, PORT, two};
use super::program::PARAM;
use super::{Network, Program};
use crate::Command;
use crate::address::Address;
use crate::event::EventKind::*;
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
    assert_eq!(a.write_to(closed, Command::GetEvent, &[0; 8], 336), Err(Errno::EBADF));
}

#[test]
fn ucm_1_too_little_room_and_memory_that_is_not_there() {
    let mut a = one();
    let id = a.tcp(1);
    assert_eq!(a.write(Command::CreateId, &[0; 24], 3), Err(Errno::ENOSPC));
    let body = [&[0; 16][..], &PS_TCP.to_ne_bytes(), &[0; 6]].concat();
    assert_eq!(a.write(Command::CreateId, &body, 4), Err(Errno::EFAULT));
    assert_eq!(a.tcp(2), 1, "the failed one has left no number");
    a.resolve_addr(id, PORT).unwrap();
    assert_eq!(a.write(Command::GetEvent, &[0; 8], 323), Err(Errno::ENOSPC));
    a.ram.gone.set(true);
    assert_eq!(a.write(Command::GetEvent, &0x1000_u64.to_ne_bytes(), 336), Err(Errno::EFAULT));
    a.ram.gone.set(false);
    a.expect(AddrResolved);
    assert!(a.event().is_none());
    let short = a.write(Command::GetEvent, &0x1000_u64.to_ne_bytes(), 336);
    assert_eq!(short, Err(Errno::EAGAIN));
    let unknown = [&[0; 16][..], &7_u16.to_ne_bytes(), &[0; 6]].concat();
    assert_eq!(a.write(Command::CreateId, &unknown, 4), Err(Errno::EINVAL), "no such port space");
}

#[test]
fn ucm_3_a_loopback_address_is_the_loopback_devices() {
    let mut a = Program::new(&Network::new(1), 1, &["127.0.0.1"]);
    let id = a.tcp(1);
    assert_eq!(a.bind(id, "127.0.0.2:5"), Err(Errno::EADDRNOTAVAIL));
    a.bind(id, "127.0.0.1:5").unwrap();
    let guid =
        |a: &mut Program, id| u64::from_be_bytes(a.query(id, 0, 280).unwrap()[..8].try_into().unwrap());
    assert_ne!(guid(&mut a, id), 0);
    a.listen(id, 1).unwrap();
    let own = a.ready(2, PS_TCP, "127.0.0.1:5");
    assert_ne!(guid(&mut a, own), 0);
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
    assert_eq!(a.bind_old(other, "10.0.0.1:0"), Ok(()));
    let addresses = a.query(other, 0, 280).unwrap();
    let Some(own) = Address::read(&addresses[16..]) else { panic!("no address") };
    assert!(crate::ports::EPHEMERAL.contains(&own.port()), "{own:?}");
    assert_eq!(u64::from_be_bytes(addresses[..8].try_into().unwrap()), 0x1001, "the node's GUID");
    assert_eq!((addresses[8], u32::from_ne_bytes(addresses[272..276].try_into().unwrap())), (1, 3));
    assert_eq!((addresses[12], addresses[14]), (16, 0), "no destination yet");
    assert_eq!(a.query(other, 0, 272).unwrap().len(), 272, "an older library");
    assert_eq!(a.query(other, 0, 271), Err(Errno::ENOSPC));
    assert_eq!(a.query(other, 9, 280), Err(Errno::ENOSYS));
    // librdmacm asks in this way whether addresses of InfiniBand are known.
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
        p.set_option(id, 0, 1, &1_i32.to_ne_bytes()).unwrap();
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
    let n = Network::new(3);
    let (mut a, _b) = two(&n);
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
    assert_eq!(a.resolve_addr(id, "[fd00::2]:1"), Err(Errno::EINVAL), "bound to the other family by now");
    a.resolve_old(id, PORT).unwrap();
    a.expect(AddrResolved);
    assert_eq!(a.resolve_addr(id, PORT), Err(Errno::EINVAL), "once");
    assert_eq!(a.listen(id, 1), Err(Errno::EINVAL));
    let attr = a.attr(id, 1).unwrap();
    assert_eq!(u32::from_ne_bytes(attr[..4].try_into().unwrap()), 0x39, "state, access, P_Key, port");
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
        let body = [&id.to_ne_bytes()[..], &[0; 4], &[0; 72], &1_u32.to_ne_bytes(), &[0; 4]].concat();
        self.write(Command::ResolveIbService, &body, 0).map(drop)
    }
    fn user_event(&mut self, id: u32, kind: u32) -> Result<(), Errno> {
        let words = [id, 0, kind, -7_i32 as u32].map(u32::to_ne_bytes).concat();
        let body = [&words[..], &0x1122_3344_5566_7788_u64.to_ne_bytes(), &[0; 296]].concat();
        self.write(Command::WriteCmEvent, &body, 0).map(drop)
    }
}

#[test]
fn ucm_2_events_of_the_program_itself() {
    let mut a = one();
    let id = a.tcp(5);
    assert_eq!(a.user_event(id, 9), Err(Errno::EINVAL), "the device's own");
    assert_eq!(a.user_event(77, 18), Err(Errno::ENOENT));
    a.user_event(id, 18).unwrap();
    let seen = a.expect(User);
    assert_eq!((seen.uid, seen.status), (5, -7));
    assert_eq!(u64::from_ne_bytes(seen.bytes[20..28].try_into().unwrap()), 0x1122_3344_5566_7788);
    a.user_event(id, 19).unwrap();
    a.expect(Internal);
    assert_eq!(a.destroy(id), Ok(2));
}

#[test]
fn ucm_5_options() {
    let mut a = one();
    let (tcp, udp) = (a.tcp(1), a.udp(2));
    let yes = 1_i32.to_ne_bytes();
    assert_eq!(a.set_option(tcp, 0, 0, &[0x28]), Ok(()));
    assert_eq!(a.set_option(tcp, 0, 0, &yes), Err(Errno::EINVAL), "one byte");
    assert_eq!(a.set_option(tcp, 0, 3, &[20]), Ok(()));
    assert_eq!(a.set_option(tcp, 0, 3, &[32]), Err(Errno::EINVAL));
    assert_eq!(a.set_option(udp, 0, 3, &[20]), Err(Errno::EINVAL), "datagrams are not acknowledged");
    assert_eq!(a.set_option(tcp, 0, 9, &[20]), Err(Errno::ENOSYS));
    assert_eq!(a.set_option(tcp, 2, 0, &[20]), Err(Errno::ENOSYS));
    assert_eq!(a.get_option(tcp, 0, 1), Ok(vec![0x28]));
    assert_eq!(a.get_option(tcp, 3, 1), Ok(vec![20]));
    assert_eq!(a.get_option(tcp, 3, 4), Err(Errno::EINVAL));
    assert_eq!(a.get_option(tcp, 1, 4), Ok(vec![0; 4]));
    a.resolve_addr(tcp, PORT).unwrap();
    a.expect(AddrResolved);
    assert_eq!(a.set_option(tcp, 0, 1, &yes), Err(Errno::EINVAL), "too late");
    assert_eq!(a.set_option(tcp, 0, 2, &yes), Err(Errno::EINVAL), "too late");
    a.resolve_route(tcp).unwrap();
    a.expect(RouteResolved);
    let path = a.query(tcp, 1, 8 + 6 * 72).unwrap();
    assert_eq!((path.len(), path[0], path[8]), (80, 1, 0x2b));
    let record = &path[16..];
    assert_eq!((record[48], record[54], record[56]), (0x28, 0x83, 0x80 | 19), "TOS, MTU, lifetime");
    assert_eq!(&record[8 + 10..8 + 16], [0xff, 0xff, 10, 0, 0, 2]);
    assert_eq!(a.query(tcp, 1, 8).unwrap().len(), 8, "no room but for the number");
    let route = a.query_route(tcp).unwrap();
    assert_eq!((route[192], route[196], &route[8 + 12..8 + 16]), (1, 1, &[10, 0, 0, 2][..]));
    assert_eq!((route[8 + 48], route[8 + 55]), (3, 0x28));
    let gids = a.query(tcp, 2, 280).unwrap();
    assert_eq!((gids[16], gids[12], &gids[16 + 20..16 + 24]), (27, 48, &[10, 0, 0, 1][..]));
    // A program that resolves the route itself.
    let own = a.tcp(3);
    a.resolve_addr(own, PORT).unwrap();
    a.expect(AddrResolved);
    assert_eq!(a.set_option(own, 1, 1, &path[8..79]), Err(Errno::EINVAL));
    assert_eq!(a.set_option(own, 1, 1, &[0; 72]), Err(Errno::EINVAL), "no path among them");
    a.set_option(own, 1, 1, &path[8..]).unwrap();
    a.expect(RouteResolved);
    assert_eq!(a.query(own, 1, 80).unwrap()[16 + 54], 0x83);
    assert_eq!(a.connect(own, &PARAM), Ok(()));
    let datagrams = a.create(9, PS_UDP);
    assert_eq!(a.destroy(datagrams), Ok(0));
}
