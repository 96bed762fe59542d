//! What two programs see of each other's connections.
use super::program::{PARAM, Param, deliver, pass};
use super::{Network, Program, Seen};
use crate::event::EventKind::*;
use adverb_cm::Time;
use adverb_cm::ip::{PS_TCP, PS_UDP};
use nix::errno::Errno;
use std::rc::Rc;

pub const A: &str = "10.0.0.1";
pub const B: &str = "10.0.0.2";
pub const PORT: &str = "10.0.0.2:7471";

/// A network with two programs on two hosts.
pub fn pair(seed: u64) -> (Rc<Network>, Program, Program) {
    let n = Network::new(seed);
    let (a, b) = two(&n);
    (n, a, b)
}

/// Two programs on two hosts.
pub fn two(network: &Rc<Network>) -> (Program, Program) {
    (
        Program::new(network, 1, &[A, "fe80::1", "fd00::1"]),
        Program::new(network, 9, &[B, "fe80::2", "fd00::2"]),
    )
}

/// `b` listens on `at` and `a` connects. Returns the id of `a`, the id of the request at `b`, and
/// the event.
pub fn asked(
    n: &Rc<Network>,
    a: &mut Program,
    b: &mut Program,
    at: &str,
    p: &Param<'_>,
) -> (u32, u32, Seen) {
    b.listener(100, PS_TCP, at, 5);
    let id = a.ready(1, PS_TCP, at);
    a.connect(id, p).unwrap();
    deliver_now(n, a, b);
    let request = b.expect(ConnectRequest);
    assert_eq!(request.uid, 100, "a request comes as its listener's event");
    (id, request.id, request)
}

pub fn deliver_now(n: &Rc<Network>, a: &mut Program, b: &mut Program) {
    n.now.set(n.now.get() + std::time::Duration::from_millis(1));
    deliver(n, &mut [a, b]);
    pass(n, &mut [a, b], 10);
}

/// An established connection.
pub fn connected(n: &Rc<Network>, a: &mut Program, b: &mut Program) -> (u32, u32) {
    let (id, child, _) = asked(n, a, b, PORT, &PARAM);
    b.accept(child, 200, &Param { qpn: 0x456, ..PARAM }).unwrap();
    deliver_now(n, a, b);
    a.expect(ConnectResponse);
    a.establish(id).unwrap();
    deliver_now(n, a, b);
    assert_eq!(b.expect(Established).uid, 200);
    (id, child)
}

#[test]
fn ucm_4_a_connection_from_end_to_end() {
    let (n, mut a, mut b) = pair(1);
    let (id, child, request) =
        asked(&n, &mut a, &mut b, PORT, &Param { private_data: b"hello", ..PARAM });
    // What the peer sends at one time is what this end answers, and the other way round.
    let said = request.param();
    assert_eq!((said.responder_resources, said.initiator_depth), (2, 4));
    assert_eq!((said.retry_count, said.rnr_retry_count), (6, 5), "retries");
    assert_eq!((said.qpn, &request.data()[..5], request.data().len()), (0x123, &b"hello"[..], 56));
    assert_eq!(request.ece(), (7, 9), "ECE");
    let theirs = b.attr(child, 2).unwrap();
    assert_eq!(
        (theirs.dest_qp_num, theirs.path_mtu),
        (0x123, 3),
        "the peer's queue pair, the path MTU"
    );
    let answer = Param {
        qpn: 0x456,
        private_data: b"yes",
        responder_resources: 1,
        initiator_depth: 3,
        ..PARAM
    };
    b.accept(child, 200, &answer).unwrap();
    deliver_now(&n, &mut a, &mut b);
    let response = a.expect(ConnectResponse);
    assert_eq!((response.uid, response.id, response.status), (1, id, 0));
    let said = response.param();
    assert_eq!((said.qpn, &response.data()[..3], response.data().len()), (0x456, &b"yes"[..], 196));
    assert_eq!((said.responder_resources, said.initiator_depth), (3, 1));
    assert_eq!(response.ece(), (7, 10));
    // Each end sends from the PSN that the other end expects.
    let [rtr_a, rts_a] = [2, 3].map(|state| a.attr(id, state).unwrap());
    let [rtr_b, rts_b] = [2, 3].map(|state| b.attr(child, state).unwrap());
    assert_eq!(rtr_a.rq_psn, rts_b.sq_psn);
    assert_eq!(rtr_b.rq_psn, rts_a.sq_psn);
    let depths = (rtr_a.max_dest_rd_atomic, rts_a.max_rd_atomic);
    assert_eq!((rtr_a.dest_qp_num, depths), (0x456, (3, 1)), "queue pair, depths");
    assert_eq!((rts_a.timeout, rts_a.retry_cnt, rts_a.rnr_retry), (17, 6, 5), "timeout, retries");
    assert_eq!((rts_b.timeout, rts_b.retry_cnt, rts_b.rnr_retry), (17, 6, 5));
    let to = rtr_a.ah.unwrap().dgid.octets();
    assert_eq!(&to[10..], [0xff, 0xff, 10, 0, 0, 2], "the GID of the peer");
    a.establish(id).unwrap();
    deliver_now(&n, &mut a, &mut b);
    let established = b.expect(Established);
    assert_eq!((established.uid, established.id), (200, child));
    a.disconnect(id).unwrap();
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(b.expect(Disconnected).status, 0);
    assert!(a.event().is_none(), "the peer's program answers");
    b.disconnect(child).unwrap();
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Disconnected).status, 0);
    assert_eq!(n.reserved.borrow().len(), 2, "the queue pairs' numbers are kept in time-wait");
    pass(&n, &mut [&mut a, &mut b], 2000);
    a.expect(TimewaitExit);
    b.expect(TimewaitExit);
    assert!(n.reserved.borrow().is_empty());
    // Events read: two of resolving, response, disconnected, time-wait exit.
    assert_eq!(a.destroy(id), Ok(5));
    assert_eq!(b.destroy(child), Ok(3), "the request is its listener's event");
    assert_eq!(b.destroy(0), Ok(1));
    a.close();
    b.close();
    assert_eq!((a.world.census(), b.world.census()), ([0; 9], [0; 9]));
    n.assert_clean();
}

#[test]
fn ucm_4_nobody_listens() {
    let (n, mut a, mut b) = pair(2);
    a.asks(1, PS_TCP, PORT);
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Rejected).status, 8, "no such service");
    // A listener on another address does not count.
    b.listener(100, PS_TCP, "[fd00::2]:7471", 5);
    a.asks(1, PS_TCP, PORT);
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Rejected).status, 8);
    assert!(b.event().is_none());
}

#[test]
fn ucm_4_a_refusal_carries_its_reason_and_data() {
    let (n, mut a, mut b) = pair(3);
    let (id, child, _) = asked(&n, &mut a, &mut b, PORT, &PARAM);
    assert_eq!(b.reject(child, 9, b""), Err(Errno::EINVAL), "no reason for programs");
    assert_eq!(b.reject(child, 0, &[1; 149]), Err(Errno::EINVAL), "148 bytes fit");
    b.reject(child, 0, &[1; 148]).unwrap();
    deliver_now(&n, &mut a, &mut b);
    let rejected = a.expect(Rejected);
    assert_eq!((rejected.id, rejected.status, rejected.data()), (id, 28, &[1; 148][..]));
    assert_eq!(b.destroy(child), Ok(0));
    a.asks(2, PS_TCP, PORT);
    deliver_now(&n, &mut a, &mut b);
    let child = b.expect(ConnectRequest).id;
    b.reject(child, 35, b"ece").unwrap();
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Rejected).status, 35);
}

#[test]
fn ucm_4_destroying_a_request_refuses_it() {
    let (n, mut a, mut b) = pair(4);
    let (_, child, _) = asked(&n, &mut a, &mut b, PORT, &PARAM);
    b.destroy(child).unwrap();
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Rejected).status, 28);
    // An unread request ends with its listener.
    a.asks(2, PS_TCP, PORT);
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(b.destroy(0), Ok(1));
    assert!(b.event().is_none());
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Rejected).status, 28);
    assert_eq!(b.count.0.get(), 0, "no token without an event");
}

#[test]
fn ucm_4_limits_of_private_data() {
    let (n, mut a, mut b) = pair(5);
    let long = |len: usize| vec![3; len];
    let id = a.ready(1, PS_TCP, PORT);
    assert_eq!(a.connect(id, &Param { private_data: &long(57), ..PARAM }), Err(Errno::EINVAL));
    let (_, child, request) =
        asked(&n, &mut a, &mut b, PORT, &Param { private_data: &long(56), ..PARAM });
    assert_eq!(request.data(), &long(56)[..]);
    assert_eq!(
        b.accept(child, 1, &Param { private_data: &long(197), ..PARAM }),
        Err(Errno::EINVAL)
    );
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Rejected).status, 28, "a failed accept refuses");
    let id = a.ready(1, PS_UDP, PORT);
    assert_eq!(a.connect(id, &Param { private_data: &long(181), ..PARAM }), Err(Errno::EINVAL));
    a.connect(id, &Param { private_data: &long(180), ..PARAM }).unwrap();
}

#[test]
fn ucm_4_datagram_services_are_looked_up() {
    let (n, mut a, mut b) = pair(6);
    b.listener(100, PS_UDP, "0.0.0.0:7471", 0);
    let id = a.ready(1, PS_UDP, PORT);
    a.connect(id, &Param { private_data: b"who", ..PARAM }).unwrap();
    deliver_now(&n, &mut a, &mut b);
    let request = b.expect(ConnectRequest);
    assert_eq!((&request.data()[..3], request.data().len()), (&b"who"[..], 180));
    assert_eq!(b.attr(request.id, 1).unwrap().qkey, 0x0123_4567, "the Q_Key");
    b.accept(request.id, 200, &Param { qpn: 0x77, private_data: b"me", ..PARAM }).unwrap();
    deliver_now(&n, &mut a, &mut b);
    let found = a.expect(Established);
    let (qpn, qkey, to) = found.datagram();
    assert_eq!((qpn, qkey), (0x77, 0x0123_4567), "queue pair and Q_Key");
    assert_eq!(&to.unwrap().0[10..], [0xff, 0xff, 10, 0, 0, 2]);
    assert_eq!((&found.data()[..2], found.data().len()), (&b"me"[..], 136));
    // A refusal is "unreachable", with the status of the answer.
    a.asks(2, PS_UDP, PORT);
    deliver_now(&n, &mut a, &mut b);
    let request = b.expect(ConnectRequest);
    b.reject(request.id, 0, b"").unwrap();
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Unreachable).status, 2);
}

#[test]
fn ucm_4_a_wildcard_listener_of_ipv6_serves_both_families() {
    let (n, mut a, mut b) = pair(7);
    let listener = b.listener(100, PS_TCP, "[::]:7471", 5);
    for to in [PORT, "[fd00::2]:7471", "[fe80::2%7]:7471"] {
        a.asks(1, PS_TCP, to);
        deliver_now(&n, &mut a, &mut b);
        let request = b.expect(ConnectRequest);
        let (own, peer) = (b.addresses(request.id).source, b.addresses(request.id).destination);
        let asked = crate::address::Address::Ip(to.parse().unwrap());
        assert_eq!(own, Some(asked), "where it was asked");
        assert!(peer.is_some_and(|peer| peer.same_family(&asked)));
    }
    b.destroy(listener).unwrap();
    let only = b.tcp(101);
    b.set_option(only, crate::request::OptionValue::FamilyOnly(true)).unwrap();
    b.bind(only, "[::]:7471").unwrap();
    b.listen(only, 5).unwrap();
    a.asks(1, PS_TCP, PORT);
    deliver_now(&n, &mut a, &mut b);
    while let Some(seen) = a.event() {
        assert!(seen.is(Rejected), "{seen:?}");
    }
    assert!(b.event().is_none());
}

#[test]
fn ucm_6_the_backlog_holds_so_many_requests_and_others_come_again() {
    let (n, mut a, mut b) = pair(8);
    b.listener(100, PS_TCP, PORT, 2);
    for uid in 1..=3 {
        let id = a.ready(uid, PS_TCP, PORT);
        a.connect(id, &Param { qpn: uid as u32, ..PARAM }).unwrap();
    }
    deliver_now(&n, &mut a, &mut b);
    let first = b.expect(ConnectRequest);
    b.expect(ConnectRequest);
    assert!(b.event().is_none(), "the third was left alone");
    b.accept(first.id, 200, &PARAM).unwrap();
    pass(&n, &mut [&mut a, &mut b], 6000);
    assert_eq!(b.expect(ConnectRequest).param().qpn, 3, "it has come again");
}

#[test]
fn ucm_7_a_peer_that_never_answers() {
    let (n, mut a, mut b) = pair(10);
    let (id, _) = connected(&n, &mut a, &mut b);
    n.dead.borrow_mut().insert(9);
    n.faults.set([100, 0, 0]);
    a.disconnect(id).unwrap();
    pass(&n, &mut [&mut a], 100_000);
    assert_eq!(a.expect(Disconnected).status, -(Errno::ETIMEDOUT as i32));
    a.expect(TimewaitExit);
    a.asks(2, PS_TCP, PORT);
    pass(&n, &mut [&mut a], 100_000);
    assert_eq!(a.expect(Unreachable).status, -(Errno::ETIMEDOUT as i32));
}

#[test]
fn ucm_7_what_cannot_leave_this_machine_ends_at_once() {
    let (n, mut a, mut b) = pair(13);
    n.no_way.set(Some(Errno::EADDRINUSE));
    for space in [PS_TCP, PS_UDP] {
        a.asks(1, space, PORT);
        assert_eq!(a.expect(Unreachable).status, -(Errno::EADDRINUSE as i32));
        assert!(a.event().is_none());
    }
    // The route disappears while the program waits for the peer.
    n.no_way.set(None);
    n.faults.set([100, 0, 0]);
    a.asks(2, PS_TCP, PORT);
    n.faults.set([0; 3]);
    n.no_way.set(Some(Errno::ENETUNREACH));
    pass(&n, &mut [&mut a], 100_000);
    assert_eq!(a.expect(Unreachable).status, -(Errno::ENETUNREACH as i32));
    assert!(a.event().is_none());
    // The same at the passive side.
    n.no_way.set(None);
    let listener = b.listener(100, PS_TCP, PORT, 2);
    let id = a.asks(3, PS_TCP, PORT);
    deliver_now(&n, &mut a, &mut b);
    let request = b.expect(ConnectRequest);
    n.no_way.set(Some(Errno::EPERM));
    b.accept(request.id, 200, &PARAM).unwrap();
    assert_eq!(b.expect(Unreachable).status, -(Errno::EPERM as i32));
    b.destroy(request.id).unwrap();
    a.destroy(id).unwrap();
    // The same with an established connection.
    n.no_way.set(None);
    b.destroy(listener).unwrap();
    let (id, _) = connected(&n, &mut a, &mut b);
    n.no_way.set(Some(Errno::ENETDOWN));
    a.disconnect(id).unwrap();
    assert_eq!(a.expect(Disconnected).status, -(Errno::ETIMEDOUT as i32));
}

#[test]
fn ucm_7_a_closed_file_ends_its_connections() {
    let (n, mut a, mut b) = pair(11);
    let (id, _) = connected(&n, &mut a, &mut b);
    b.close();
    deliver_now(&n, &mut a, &mut b);
    assert_eq!(a.expect(Disconnected).id, id);
    assert_eq!(b.world.census()[..6], [0; 6]);
    pass(&n, &mut [&mut a, &mut b], 2000);
    a.close();
    pass(&n, &mut [&mut a, &mut b], 2000);
    assert_eq!((a.world.census(), b.world.census()), ([0; 9], [0; 9]));
    n.assert_clean();
}

#[test]
fn ucm_7_an_address_and_a_device_that_go() {
    let (n, mut a, mut b) = pair(12);
    let (id, child) = connected(&n, &mut a, &mut b);
    n.lost.borrow_mut().0.insert(A.parse().unwrap());
    pass(&n, &mut [&mut a, &mut b], 5000);
    assert_eq!(a.expect(AddrChange).id, id);
    assert!(a.event().is_none(), "it is told once");
    let removed = |device: &str| n.lost.borrow_mut().1.insert(device.into());
    n.lost.borrow_mut().0.insert(B.parse().unwrap());
    removed("adverb_sim9");
    pass(&n, &mut [&mut a, &mut b], 5000);
    let first = b.expect(DeviceRemoval);
    let second = b.expect(DeviceRemoval);
    assert_eq!((first.uid.min(second.uid), first.uid.max(second.uid)), (100, 200));
    assert_eq!(b.disconnect(child), Err(Errno::EIO), "nothing but to destroy it");
    assert_eq!(b.destroy(child), Ok(2));
    assert_eq!(a.expect(Disconnected).id, id);
    b.close();
    a.close();
    pass(&n, &mut [&mut a, &mut b], 3000);
    assert_eq!((a.world.census(), b.world.census()), ([0; 9], [0; 9]));
    n.assert_clean();
}

/// If the machine reports interface changes, the world does not poll.
#[test]
fn ucm_7_an_address_that_goes_is_told_of_at_once() {
    let n = Network::new(13);
    n.tells.set(true);
    let (mut a, mut b) = two(&n);
    let (id, _) = connected(&n, &mut a, &mut b);
    assert_eq!(a.world.next_timeout(), None, "nothing is waited for");
    n.lost.borrow_mut().0.insert(A.parse().unwrap());
    pass(&n, &mut [&mut a, &mut b], 5000);
    assert!(a.event().is_none());
    a.world.interfaces_changed(n.now.get());
    assert_eq!(a.expect(AddrChange).id, id);
    a.world.interfaces_changed(n.now.get());
    assert!(a.event().is_none(), "it is told once");
    a.close();
    b.close();
    pass(&n, &mut [&mut a, &mut b], 3000);
    n.assert_clean();
}

#[test]
fn ucm_4_data_before_the_rtu() {
    let (n, mut a, mut b) = pair(13);
    let (_, child, _) = asked(&n, &mut a, &mut b, PORT, &PARAM);
    assert_eq!(b.notify(child, 4), Err(Errno::EINVAL));
    b.accept(child, 200, &PARAM).unwrap();
    assert_eq!(b.notify(child, 5), Err(Errno::EINVAL));
    b.notify(child, 4).unwrap();
    b.expect(Established);
    assert_eq!(b.notify(child, 4), Err(Errno::EISCONN));
}

#[test]
fn ucm_8_groups_are_joined_and_left() {
    let (n, mut a, mut b) = pair(14);
    let id = a.udp(1);
    assert_eq!(a.join(id, 5, "239.1.1.1:0"), Err(Errno::EINVAL), "no device yet");
    a.bind(id, "10.0.0.1:0").unwrap();
    let group = a.join(id, 5, "239.1.1.1:0").unwrap();
    let joined = a.expect(MulticastJoin);
    assert_eq!((joined.uid, joined.id, joined.status), (5, group, 0));
    let (qpn, qkey, to) = joined.datagram();
    assert_eq!((qpn, qkey), (0xff_ffff, 0x0123_4567));
    let (gid, lid) = to.unwrap();
    assert_eq!((&gid[10..], lid), (&[0xff, 0xff, 239, 1, 1, 1][..], 0xc000), "the GID and the LID");
    let other = a.join(id, 6, "[ff12::1]:0").unwrap();
    let wrong = a.join(id, 7, "10.0.0.9:0").unwrap();
    assert_eq!(a.leave(group), Ok(1));
    assert_eq!(a.leave(group), Err(Errno::ENOENT));
    assert_eq!(a.leave(other), Ok(0));
    let failed = a.expect(MulticastError);
    assert_eq!(
        (failed.id, failed.status),
        (wrong, -(Errno::EINVAL as i32)),
        "the unread event went with {other}"
    );
    let last = a.join(id, 8, "239.1.1.2:0").unwrap();
    assert_eq!(n.groups.get(), 1);
    assert_eq!(a.destroy(id), Ok(2), "{last} goes with its id");
    assert_eq!((n.groups.get(), a.event().is_none()), (0, true));
    b.close();
}

#[test]
fn ucm_2_an_id_moves_with_its_events() {
    let (n, mut a, mut b) = pair(15);
    let id = a.tcp(1);
    let (old, new) = (a.file, a.open_another());
    a.resolve_addr(id, PORT).unwrap();
    assert_eq!(a.migrate(new, id, old), Ok(0));
    assert!(a.event().is_none());
    assert_eq!(a.resolve_route(id), Err(Errno::EINVAL), "it is another file's");
    assert!(a.event_of(new).is_some_and(|seen| seen.id == id));
    assert_eq!(a.migrate(old, id, new), Ok(1), "one event was read");
    // Migrating a listener also moves the requests that wait.
    let listener = b.listener(100, PS_TCP, PORT, 5);
    a.resolve_route(id).unwrap();
    a.expect(RouteResolved);
    a.connect(id, &PARAM).unwrap();
    deliver_now(&n, &mut a, &mut b);
    let (old, new) = (b.file, b.open_another());
    assert_eq!(b.migrate(new, listener, old), Ok(0));
    let request = b.event_of(new).unwrap();
    b.file = new;
    b.reject(request.id, 0, b"").unwrap();
    deliver_now(&n, &mut a, &mut b);
    a.expect(Rejected);
    assert!(n.now.get() > Time(0));
}
