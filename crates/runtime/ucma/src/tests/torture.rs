//! Two programs send random commands, valid or not, over a bad network. Nothing may be left behind,
//! and events and tokens must agree at every step.
use super::flows::{A, B};
use super::program::{PARAM, Param, pass};
use super::{Network, Program};
use crate::event::EventKind::*;
use crate::request::{OptionValue, Question};
use adverb_cm::ip::{PS_IB, PS_TCP, PS_UDP};
use std::net::SocketAddr;
use std::rc::Rc;

const QUESTIONS: [Question; 5] =
    [Question::Addresses, Question::Path, Question::Gids, Question::Services, Question::Unknown];
const SILENT: &str = "10.0.0.3:70";
const ADDRESSES: [&str; 7] =
    ["10.0.0.1:70", "10.0.0.2:70", "0.0.0.0:70", "[::]:70", "10.0.0.2:0", "10.0.0.1:71", SILENT];

fn step(n: &Rc<Network>, p: &mut Program, known: &mut Vec<u32>) {
    let id = known.get(n.draw(known.len() as u32) as usize).copied().unwrap_or(n.draw(8));
    let address = ADDRESSES[n.draw(7) as usize];
    let param = Param { qpn: n.draw(1 << 24), responder_resources: n.draw(256) as u8, ..PARAM };
    let uid = u64::from(n.draw(100));
    // The result of the command does not matter here, only the state that it leaves.
    match n.draw(20) {
        0..=2 if known.len() < 40 => {
            let space = [PS_TCP, PS_TCP, PS_UDP, PS_IB][n.draw(4) as usize];
            known.push(p.create(uid, space));
        }
        3 => drop(p.bind(id, address)),
        4..=5 => drop(p.resolve_addr(id, address)),
        6..=7 => drop(p.resolve_route(id)),
        8..=9 => drop(p.connect(id, &param)),
        10..=11 => drop(p.listen(id, n.draw(4))),
        12 => drop(p.accept(id, uid, &param)),
        13 => drop(p.establish(id)),
        14 => drop(p.reject(id, 0, b"no")),
        15 => drop(p.disconnect(id)),
        16 => {
            let _ = p
                .join(id, uid, "239.0.0.1:0")
                .map(|group| if n.draw(2) == 0 { p.leave(group) } else { Ok(0) });
        }
        17 => {
            let values = [
                OptionValue::Tos(1),
                OptionValue::ReuseAddr(true),
                OptionValue::FamilyOnly(true),
                OptionValue::AckTimeout(1),
            ];
            let _ = p.set_option(id, values[n.draw(4) as usize]);
        }
        18 => {
            if p.destroy(id).is_ok() {
                known.retain(|&k| k != id);
            }
        }
        _ => {
            let _ = p.notify(id, n.draw(6));
            let _ = p.attr(id, n.draw(5));
            let _ = p.query(id, QUESTIONS[n.draw(5) as usize]);
        }
    }
    while n.draw(3) > 0
        && let Some(event) = p.event()
    {
        if event.is(ConnectRequest) {
            known.push(event.id);
            if n.draw(3) > 0 {
                let _ = p.accept(event.id, uid + 1, &Param { qpn: n.draw(1 << 24), ..PARAM });
            }
        } else if event.is(ConnectResponse) && n.draw(4) > 0 {
            let _ = p.establish(event.id);
        }
    }
}

#[test]
fn ucm_10_random_programs_leave_nothing_behind() {
    for seed in 0..60 {
        let n = Network::new(seed + 100);
        let mut a = Program::new(&n, 1, &[A]);
        let mut b = Program::new(&n, 9, &[B]);
        let mut known = [Vec::new(), Vec::new()];
        n.faults.set([n.draw(30), n.draw(30), n.draw(60)]);
        n.silent.borrow_mut().insert(SILENT.parse::<SocketAddr>().unwrap().ip(), 0);
        for _ in 0..600 {
            let [of_a, of_b] = &mut known;
            if n.draw(2) == 0 {
                step(&n, &mut a, of_a)
            } else {
                step(&n, &mut b, of_b)
            }
            if n.draw(3) == 0 {
                let millis = [1, 20, 500, 5000][n.draw(4) as usize];
                pass(&n, &mut [&mut a, &mut b], millis);
            }
            for p in [&a, &b] {
                assert_eq!(
                    p.count.0.get(),
                    p.world.waiting_events() as i64,
                    "a token for each event"
                );
                p.world.check();
            }
        }
        a.close();
        b.close();
        assert_eq!(a.world.census()[..6], [0; 6], "seed {seed}");
        n.faults.set([0; 3]);
        pass(&n, &mut [&mut a, &mut b], 2_000_000);
        assert_eq!((a.world.census(), b.world.census()), ([0; 9], [0; 9]), "seed {seed}");
        n.assert_clean();
    }
}
