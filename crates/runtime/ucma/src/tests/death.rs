//! Events after a peer was killed, in each state of a connection, on one host and on two.
use super::flows::{A, B, deliver_now};
use super::program::{PARAM, Param, pass};
use super::{Network, Program};
use crate::event::EventKind::{self, *};
use adverb_cm::ip::{PS_TCP, PS_UDP};
use nix::errno::Errno;
use std::rc::Rc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    /// The request waits unread at the server.
    Asked,
    /// The server has accepted, and the client has not read the reply.
    Answered,
    Established,
    /// The living end has disconnected and gets no answer.
    Disconnecting,
    /// The living end has disconnected, and the other program has read the event.
    Asking,
}

/// A client and a server, on one host or on two, at a stage of a connection.
struct Scene {
    n: Rc<Network>,
    a: Program,
    b: Program,
    id: u32,
    child: u32,
}

impl Scene {
    fn reach(stage: Stage, hosts: u32, dead: char) -> Scene {
        let n = Network::new(3);
        let a = Program::new(&n, 1, &[A]);
        let (b, to) = match hosts {
            1 => (Program::new(&n, 2, &[A]), "10.0.0.1:7471"),
            _ => (Program::new(&n, 9, &[B]), "10.0.0.2:7471"),
        };
        let mut scene = Scene { n, a, b, id: 0, child: 0 };
        scene.b.listener(100, PS_TCP, to, 5);
        scene.id = scene.a.asks(1, PS_TCP, to);
        scene.pass();
        if stage == Stage::Asked {
            return scene;
        }
        scene.child = scene.b.expect(ConnectRequest).id;
        scene.b.accept(scene.child, 200, &Param { qpn: 0x456, ..PARAM }).unwrap();
        scene.pass();
        if stage == Stage::Answered {
            return scene;
        }
        scene.a.expect(ConnectResponse);
        scene.a.establish(scene.id).unwrap();
        scene.pass();
        scene.b.expect(Established);
        if stage == Stage::Established {
            return scene;
        }
        let unheard = if stage == Stage::Disconnecting { [100, 0, 0] } else { [0; 3] };
        scene.n.faults.set(unheard);
        match dead {
            'a' => scene.b.disconnect(scene.child).unwrap(),
            _ => scene.a.disconnect(scene.id).unwrap(),
        }
        scene.n.faults.set([0; 3]);
        if stage == Stage::Asking {
            scene.pass();
            if dead == 'a' { &mut scene.a } else { &mut scene.b }.expect(Disconnected);
        }
        scene
    }

    fn pass(&mut self) {
        deliver_now(&self.n, &mut self.a, &mut self.b);
    }

    /// Kills one end. On two hosts the survivor sends the farewell; on one host the host reports
    /// the end.
    fn kill(&mut self, dead: char) {
        let (dead, live) =
            if dead == 'a' { (&self.a, &mut self.b) } else { (&self.b, &mut self.a) };
        let process = dead.process;
        let all = self.n.entrusted.borrow().clone();
        let farewells: Vec<_> = all.iter().filter(|(key, _)| key.0 == process).collect();
        self.n.dead.borrow_mut().insert(process);
        self.n.forget(process);
        if dead.world.host.addresses == live.world.host.addresses {
            assert!(farewells.is_empty(), "on one host nobody needs to speak for others");
            live.world.peer_ended(self.n.now.get(), process);
        } else {
            assert_eq!(farewells.len(), 1, "one connection is one farewell");
            // The survivor sends each farewell more than once.
            for _ in 0..2 {
                for (_, farewell) in &farewells {
                    live.world.mad(self.n.now.get(), farewell.path.reversed(), 0, &farewell.mad);
                }
            }
        }
        pass(&self.n, &mut [live], 1);
    }
}

#[test]
fn ucm_12_ucm_7_a_killed_peer_is_told_of_in_each_state() {
    type Heard = &'static [(EventKind, i32)];
    let rows: [(Stage, char, Heard); 9] = [
        (Stage::Asked, 'b', &[(Rejected, 28)]),
        (Stage::Answered, 'b', &[(ConnectResponse, 0), (Rejected, 28)]),
        (Stage::Answered, 'a', &[(Rejected, 28)]),
        (Stage::Established, 'a', &[(Disconnected, 0)]),
        (Stage::Established, 'b', &[(Disconnected, 0)]),
        (Stage::Disconnecting, 'a', &[(Disconnected, 0)]),
        (Stage::Disconnecting, 'b', &[(Disconnected, 0)]),
        (Stage::Asking, 'a', &[(Disconnected, 0)]),
        (Stage::Asking, 'b', &[(Disconnected, 0)]),
    ];
    for hosts in [1, 2] {
        for (stage, dead, heard) in rows {
            let mut scene = Scene::reach(stage, hosts, dead);
            scene.kill(dead);
            let live = if dead == 'a' { &mut scene.b } else { &mut scene.a };
            let got: Vec<_> =
                std::iter::from_fn(|| live.event()).map(|e| (e.kind, e.status)).collect();
            assert_eq!(got, heard, "{hosts} hosts, {stage:?}, {dead} is killed");
            if stage == Stage::Answered && dead == 'b' {
                assert_eq!(scene.a.establish(scene.id), Err(Errno::EINVAL), "it is over");
            }
        }
    }
}

/// The program still gets the request of a killed client, as in Linux, and cannot accept it.
#[test]
fn ucm_12_ucm_7_a_request_of_a_killed_client_is_void() {
    for hosts in [1, 2] {
        let mut scene = Scene::reach(Stage::Asked, hosts, 'a');
        scene.kill('a');
        let child = scene.b.expect(ConnectRequest).id;
        assert!(scene.b.event().is_none());
        assert_eq!(scene.b.accept(child, 200, &PARAM), Err(Errno::EINVAL), "{hosts} hosts");
    }
}

#[test]
fn ucm_7_the_port_of_a_killed_server_is_nobodys() {
    let mut scene = Scene::reach(Stage::Established, 1, 'b');
    scene.kill('b');
    scene.a.expect(Disconnected);
    scene.a.asks(2, PS_TCP, "10.0.0.1:7471");
    pass(&scene.n, &mut [&mut scene.a], 10);
    assert_eq!(scene.a.expect(Rejected).status, 8);
}

/// UCM-14. The passive side never calls `rdma_disconnect`: no event comes at either end, until the
/// program destroys its id or closes its file. Only a side with a DREP has a time-wait.
#[test]
fn ucm_14_the_program_answers_a_disconnect() {
    for hosts in [1, 2] {
        for closes in [false, true] {
            let mut scene = Scene::reach(Stage::Established, hosts, 'a');
            scene.a.disconnect(scene.id).unwrap();
            pass(&scene.n, &mut [&mut scene.a, &mut scene.b], 20_000);
            assert!(scene.a.event().is_none(), "{hosts} hosts: the peer's program answers");
            scene.b.expect(Disconnected);
            assert!(scene.b.event().is_none(), "{hosts} hosts: no time-wait has begun");
            if closes {
                scene.b.close();
            } else {
                scene.b.destroy(scene.child).unwrap();
            }
            scene.pass();
            assert_eq!(scene.a.expect(Disconnected).status, 0);
            pass(&scene.n, &mut [&mut scene.a], 2000);
            scene.a.expect(TimewaitExit);
            assert!(scene.a.event().is_none());
        }
    }
}

/// UCM-14. Disconnects that cross: each end has its event, and the time-wait begins when an end
/// disconnects again or is destroyed.
#[test]
fn ucm_14_disconnects_may_cross() {
    for hosts in [1, 2] {
        let mut scene = Scene::reach(Stage::Established, hosts, 'a');
        scene.a.disconnect(scene.id).unwrap();
        scene.b.disconnect(scene.child).unwrap();
        pass(&scene.n, &mut [&mut scene.a, &mut scene.b], 20_000);
        for end in [&mut scene.a, &mut scene.b] {
            assert_eq!(end.expect(Disconnected).status, 0);
            assert!(end.event().is_none(), "{hosts} hosts");
        }
        scene.a.disconnect(scene.id).unwrap();
        pass(&scene.n, &mut [&mut scene.a, &mut scene.b], 2000);
        scene.a.expect(TimewaitExit);
        scene.b.expect(TimewaitExit);
    }
}

/// UCM-14. The other end has forgotten its connection, and its host rejects. The event is REJECTED,
/// and the time-wait ends without an event, as in Linux.
#[test]
fn ucm_14_no_time_wait_is_told_without_a_disconnect() {
    let mut scene = Scene::reach(Stage::Established, 2, 'a');
    let end = scene.b.world.ids[&scene.child].conn.unwrap().0;
    let remote = scene.b.world.cm.remote(end).unwrap();
    let rej = adverb_cm::mad::Rej {
        local_id: remote.remote_id,
        remote_id: end.0,
        message: 1,
        reason: 10,
        ..adverb_cm::mad::Rej::default()
    };
    let mad = adverb_cm::Message::from(rej).emit(1);
    scene.b.world.mad(scene.n.now.get(), remote.path, 0, &mad);
    pass(&scene.n, &mut [&mut scene.b], 5000);
    assert_eq!(scene.b.expect(Rejected).status, 10);
    assert!(scene.b.event().is_none());
}

/// A connection that is over leaves no farewell with the survivor, however it ended.
#[test]
fn ucm_12_what_is_over_is_taken_back() {
    let mut scene = Scene::reach(Stage::Asked, 2, 'a');
    assert_eq!(scene.n.entrusted.borrow().len(), 2);
    scene.child = scene.b.expect(ConnectRequest).id;
    scene.b.reject(scene.child, 28, b"no").unwrap();
    assert_eq!(scene.n.entrusted.borrow().len(), 1, "who refuses has said it");
    scene.pass();
    scene.a.expect(Rejected);
    assert!(scene.n.entrusted.borrow().is_empty());
    // A lookup that is accepted, and a lookup that is rejected.
    scene.b.listener(300, PS_UDP, "10.0.0.2:7472", 5);
    for accepted in [true, false] {
        scene.a.asks(5, PS_UDP, "10.0.0.2:7472");
        scene.pass();
        let request = scene.b.expect(ConnectRequest).id;
        assert_eq!(scene.n.entrusted.borrow().len(), 1);
        match accepted {
            true => scene.b.accept(request, 301, &PARAM).unwrap(),
            false => scene.b.reject(request, 28, b"").unwrap(),
        }
        assert!(scene.n.entrusted.borrow().is_empty());
        scene.pass();
        scene.a.expect(if accepted { Established } else { Unreachable });
    }
    for mut scene in [Scene::reach(Stage::Asked, 2, 'a'), Scene::reach(Stage::Answered, 2, 'a')] {
        scene.a.close();
        scene.b.close();
        pass(&scene.n, &mut [&mut scene.a, &mut scene.b], 100_000);
        assert!(scene.n.entrusted.borrow().is_empty());
    }
}
