//! Connections over a network that loses, repeats and reorders MADs.
use super::flows::{PORT, two};
use super::program::{PARAM, Param, pass};
use super::{Network, Program};
use crate::event::EventKind::{self, *};
use adverb_cm::ip::PS_TCP;
use std::rc::Rc;

/// Connects and disconnects `count` times. Every attempt ends as without faults, but later.
fn all_connect(n: &Rc<Network>, a: &mut Program, b: &mut Program, count: u64) {
    b.listener(100, PS_TCP, PORT, 64);
    let ids: Vec<u32> = (1..=count).map(|uid| a.ready(uid, PS_TCP, PORT)).collect();
    for (n, &id) in ids.iter().enumerate() {
        a.connect(id, &Param { qpn: n as u32 + 1, ..PARAM }).unwrap();
    }
    let mut seen = std::collections::BTreeMap::<(bool, EventKindNumber), u64>::new();
    for _ in 0..8000 {
        pass(n, &mut [a, b], 500);
        while let Some(event) = b.event() {
            *seen.entry((true, event.kind as u32)).or_default() += 1;
            if event.is(ConnectRequest) {
                b.accept(
                    event.id,
                    1000 + u64::from(event.id),
                    &Param { qpn: event.param().qpn + 0x1000, ..PARAM },
                )
                .unwrap();
            } else if event.is(Disconnected) {
                b.destroy(event.id).unwrap();
            }
        }
        while let Some(event) = a.event() {
            *seen.entry((false, event.kind as u32)).or_default() += 1;
            if event.is(ConnectResponse) {
                a.establish(event.id).unwrap();
            }
        }
        let established = seen.get(&(true, Established as u32)).copied().unwrap_or(0);
        if established == count && !seen.contains_key(&(false, Disconnected as u32)) {
            ids.iter().for_each(|&id| a.disconnect(id).unwrap());
        }
        if seen.get(&(true, Disconnected as u32)) == Some(&count)
            && seen.get(&(false, TimewaitExit as u32)) == Some(&count)
        {
            break;
        }
    }
    let times = |at_b, kind: EventKind| seen.get(&(at_b, kind as u32)).copied().unwrap_or(0);
    let all = [
        (true, ConnectRequest),
        (true, Established),
        (true, Disconnected),
        (false, ConnectResponse),
        (false, Disconnected),
        (false, TimewaitExit),
    ];
    for (at_b, kind) in all {
        assert_eq!(times(at_b, kind), count, "{kind:?}, of {seen:?}");
    }
    a.close();
    b.close();
    n.faults.set([0; 3]);
    pass(n, &mut [a, b], 200_000);
    assert_eq!((a.world.census(), b.world.census()), ([0; 9], [0; 9]));
    n.assert_clean();
}

type EventKindNumber = u32;

#[test]
fn ucm_10_loss_repetition_and_reordering_change_no_outcome() {
    for (seed, faults) in
        [(1, [0, 0, 0]), (2, [30, 0, 0]), (3, [0, 60, 60]), (4, [20, 40, 80]), (5, [25, 50, 50])]
    {
        let n = Network::new(seed);
        let (mut a, mut b) = two(&n);
        n.faults.set(faults);
        all_connect(&n, &mut a, &mut b, 40);
    }
}
