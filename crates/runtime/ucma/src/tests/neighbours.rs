//! UCM-13: neighbours that answer at once, late, and never.
use super::flows::two;
use super::program::{PARAM, pass};
use super::{Network, Program};
use crate::event::EventKind::*;
use adverb_cm::ip::PS_TCP;
use nix::errno::Errno;
use std::net::IpAddr;
use std::rc::Rc;

const THERE: &str = "10.0.0.2:70";

fn there() -> IpAddr {
    "10.0.0.2".parse().unwrap()
}

/// A program that resolves an address with a silent neighbour, for up to two seconds.
fn asking() -> (Rc<Network>, Program, u32) {
    let n = Network::new(5);
    let (mut a, _) = two(&n);
    n.silent.borrow_mut().insert(there(), 0);
    let id = a.tcp(1);
    a.resolve_addr(id, THERE).unwrap();
    (n, a, id)
}

fn finish(n: &Rc<Network>, mut a: Program) {
    a.close();
    pass(n, &mut [&mut a], 100_000);
    assert_eq!(a.world.census(), [0; 9]);
    n.assert_clean();
}

#[test]
fn ucm_13_a_silent_neighbour_is_an_error_of_the_address() {
    let (n, mut a, id) = asking();
    pass(&n, &mut [&mut a], 1_990);
    assert!(a.event().is_none(), "the program's time is not over");
    assert!(a.world.awaits_answer());
    pass(&n, &mut [&mut a], 20);
    assert_eq!(a.expect(AddrError).status, -(Errno::ETIMEDOUT as i32));
    assert!(a.world.next_timeout().is_none(), "nothing is waited for any more");
    assert!(!a.world.awaits_answer());
    // The id is bound and may resolve again.
    assert_eq!(a.resolve_route(id), Err(Errno::EINVAL));
    n.silent.borrow_mut().clear();
    a.resolve_addr(id, THERE).unwrap();
    assert_eq!(a.expect(AddrResolved).status, 0);
    finish(&n, a);
}

#[test]
fn ucm_13_a_late_neighbour_resolves_the_address() {
    let (n, mut a, id) = asking();
    pass(&n, &mut [&mut a], 1_000);
    assert!(a.event().is_none());
    assert_eq!(n.silent.borrow()[&there()], 1, "asked once: the kernel asks again by itself");
    n.silent.borrow_mut().clear();
    pass(&n, &mut [&mut a], 60);
    assert_eq!(a.expect(AddrResolved).status, 0);
    a.resolve_route(id).unwrap();
    assert_eq!(a.expect(RouteResolved).status, 0);
    a.connect(id, &PARAM).unwrap();
    pass(&n, &mut [&mut a], 10_000);
    assert!(a.event().is_none_or(|e| !e.is(AddrError)), "its time does not come back");
    a.destroy(id).unwrap();
    finish(&n, a);
}

#[test]
fn ucm_13_an_id_that_waits_for_a_neighbour_takes_no_other_command() {
    let (n, mut a, id) = asking();
    assert_eq!(a.resolve_addr(id, THERE), Err(Errno::EINVAL));
    assert_eq!(a.resolve_route(id), Err(Errno::EINVAL));
    assert_eq!(a.connect(id, &PARAM), Err(Errno::EINVAL));
    assert_eq!(a.bind(id, "10.0.0.1:9"), Err(Errno::EINVAL));
    assert_eq!(a.listen(id, 1), Err(Errno::EINVAL));
    a.destroy(id).unwrap();
    pass(&n, &mut [&mut a], 5_000);
    assert!(a.event().is_none(), "an id that is gone hears nothing");
    finish(&n, a);
}

#[test]
fn ucm_13_who_waits_longer_than_the_kernel_asks_has_it_ask_again() {
    let (n, mut a, id) = asking();
    a.destroy(id).unwrap();
    let ids: Vec<u32> = (0..2).map(|uid| a.create(uid + 5, PS_TCP)).collect();
    a.resolve_for(ids[0], THERE, 10_000).unwrap();
    a.resolve_for(ids[1], THERE, 0).unwrap();
    pass(&n, &mut [&mut a], 1);
    assert_eq!(a.expect(AddrError).id, ids[1]);
    pass(&n, &mut [&mut a], 9_000);
    assert!(a.event().is_none());
    // One discovery request of each id, and two more of the id that still waits.
    assert_eq!(n.silent.borrow()[&there()], 3 + 2);
    pass(&n, &mut [&mut a], 1_100);
    assert_eq!(a.expect(AddrError).id, ids[0]);
    finish(&n, a);
}
