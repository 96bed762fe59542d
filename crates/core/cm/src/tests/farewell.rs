//! CM-9. The farewells of a killed process, as its peer gets them.
use super::pair::*;
use crate::mad::SidrStatus;
use crate::{Ending, Event, Id, RejectReason, State};
use std::format;
use std::string::String;

/// The process that is killed.
#[derive(Clone, Copy, PartialEq)]
enum Dead {
    A,
    B,
}

fn words(event: Option<(Id, Event)>) -> String {
    match event.map(|(_, event)| event) {
        None => "nothing".into(),
        Some(Event::Rejected(rejection)) => format!("rejected {}", rejection.reason.0),
        Some(Event::Disconnected(Ending::Rejected(rejection))) => {
            format!("rejected {}", rejection.reason.0)
        }
        Some(Event::Disconnected(Ending::Peer(_))) => "disconnected".into(),
        Some(Event::Disconnected(Ending::Confirmed(_))) => "confirmed".into(),
        Some(Event::SidrReply(rep)) => format!("status {}", rep.status),
        Some(other) => format!("{other:?}"),
    }
}

/// The reasons are those of Linux: 4 from the side that requested, 28 from the side that was asked
/// or has a reply. MADs sent before the death arrive first.
#[test]
fn a_killed_peer_is_told_of_in_every_state() {
    type Reach = fn(&mut Pair) -> (Id, Option<Id>);
    let states: [(&str, Reach, Dead, &str); 12] = [
        ("asked", |p| some(p.requested(&request(path()))), Dead::A, "rejected 4"),
        ("asked, and told to wait", |p| some(delayed(p)), Dead::A, "rejected 4"),
        ("asked", |p| some(p.requested(&request(path()))), Dead::B, "rejected 28"),
        ("asked, and told to wait", |p| some(delayed(p)), Dead::B, "rejected 28"),
        ("answered", |p| some(p.replied()), Dead::A, "rejected 28"),
        ("answered", |p| some(p.replied()), Dead::B, "rejected 28"),
        ("established", |p| some(p.established()), Dead::A, "disconnected"),
        ("established", |p| some(p.established()), Dead::B, "disconnected"),
        (
            "established, the RTU is lost",
            |p| {
                let (a, b) = p.replied();
                p.a.established(a).unwrap();
                p.sent_by_a();
                (a, Some(b))
            },
            Dead::A,
            "disconnected",
        ),
        (
            "disconnecting, the DREQ is lost",
            |p| {
                let (a, b) = p.established();
                p.a.disconnect(p.now, a, &[]).unwrap();
                p.sent_by_a();
                (a, Some(b))
            },
            Dead::A,
            "disconnected",
        ),
        (
            "disconnected by the peer",
            |p| {
                let (a, b) = p.established();
                p.a.disconnect(p.now, a, &[]).unwrap();
                p.carry();
                (a, Some(b))
            },
            Dead::B,
            "confirmed",
        ),
        (
            "a lookup",
            |p| {
                let a = p.a.sidr_request(p.now, &lookup(path())).unwrap();
                p.carry();
                (a, p.b.poll_event().map(|(b, _)| b))
            },
            Dead::B,
            "status 2",
        ),
    ];
    for (name, reach, dead, heard) in states {
        let mut pair = Pair::new();
        let (a, b) = reach(&mut pair);
        let event = match (dead, b) {
            (Dead::A, _) => {
                let farewell = pair.a.farewell(a).expect(name);
                assert_eq!(farewell.path, path());
                pair.give_b(&farewell.mad);
                pair.b.poll_event()
            }
            (Dead::B, Some(b)) => {
                let farewell = pair.b.farewell(b).expect(name);
                assert_eq!(farewell.path, path().reversed());
                pair.give_a(&farewell.mad);
                pair.a.poll_event()
            }
            (Dead::B, None) => panic!("nobody to kill"),
        };
        assert_eq!(words(event), heard, "{name}");
    }
    assert_eq!((RejectReason::TIMEOUT.0, RejectReason::CONSUMER_DEFINED.0), (4, 28));
    assert_eq!(SidrStatus::REJECT.0, 2);
}

fn some((a, b): (Id, Id)) -> (Id, Option<Id>) {
    (a, Some(b))
}

fn delayed(p: &mut Pair) -> (Id, Id) {
    let (a, b) = p.requested(&request(path()));
    p.b.delay(b).unwrap();
    p.carry();
    assert!(matches!(p.a.poll_event(), Some((_, Event::Delayed(_)))));
    assert_eq!(p.a.state(a), Some(State::MraReqReceived));
    (a, b)
}

#[test]
fn over_is_over() {
    let mut pair = Pair::new();
    let (a, b) = pair.established();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.carry();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    assert_eq!((pair.a.farewell(a), pair.b.farewell(b)), (None, None), "in time-wait");
    let mut pair = Pair::new();
    let (_, b) = pair.requested(&request(path()));
    pair.b.reject(b, RejectReason::CONSUMER_DEFINED, &[], &[]).unwrap();
    assert_eq!(pair.b.farewell(b), None, "refused");
    assert_eq!(pair.b.farewell(Id(1)), None, "no such id");
}

/// A peer that got an MRA learns at once of the end of the process that decides.
#[test]
fn a_process_of_the_host_that_ends_while_it_decides_is_known() {
    let mut pair = Pair::new();
    let (a, _) = delayed(&mut pair);
    pair.a.config.prefix_bits = 10;
    pair.a.peer_ended(pair.now, 1, |_| true);
    assert_eq!(pair.a.poll_event(), None, "another process");
    pair.a.peer_ended(pair.now, 0, |_| true);
    assert_eq!(words(pair.a.poll_event()), "rejected 28");
    assert_eq!(pair.a.state(a), Some(State::Idle));
    let wrong = pair.b.delay(Id(77));
    assert!(wrong.is_err(), "{wrong:?}");
}
