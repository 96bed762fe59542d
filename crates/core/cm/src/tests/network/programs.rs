//! The programs of the simulation: plans, answers to events, ends.
use super::{DATAGRAMS, Known, NOBODY, Plan, SERVICE, World, address};
use crate::tests::pair;
use crate::types::{Accept, ConnectRequest, Ending, Event, SidrAnswer, SidrRequest};
use crate::{Data, Id, Path, RejectReason, SidrStatus, State, Timing};
use core::time::Duration;

impl World {
    pub(super) fn connect(&mut self, who: usize) {
        let host = self.processes[who].host;
        let path = Path { local: address(host), remote: address(1 - host) };
        let qpn = self.qpn();
        let nobody = self.setting.wild && self.dice.percent(5);
        let request = ConnectRequest {
            path,
            service_id: if nobody { NOBODY } else { SERVICE },
            ca_guid: host as u64 + 1,
            qpn,
            psn: qpn ^ 0x55,
            private_data: Data::new(&qpn.to_be_bytes()).unwrap(),
            ..pair::request(path)
        };
        let id = self.processes[who].endpoint.connect(self.now, &request).unwrap();
        let known = Known { connecting: true, qpn, ..Known::default() };
        assert!(
            self.processes[who].known.insert(id, known).is_none(),
            "{id:?} was given out twice"
        );
        if self.setting.wild && self.dice.percent(5) {
            let after = self.dice.wait(6_000);
            self.plan(who, after, Plan::Release(id));
        }
    }

    pub(super) fn lookup(&mut self, who: usize) {
        let host = self.processes[who].host;
        let request = SidrRequest {
            path: Path { local: address(host), remote: address(1 - host) },
            service_id: if self.dice.percent(20) { NOBODY } else { DATAGRAMS },
            pkey: 0xffff,
            timing: Timing::LINUX,
            private_data: Data::EMPTY,
        };
        let id = self.processes[who].endpoint.sidr_request(self.now, &request).unwrap();
        let known = Known { connecting: true, datagram: true, ..Known::default() };
        assert!(self.processes[who].known.insert(id, known).is_none());
    }

    pub(super) fn on_event(&mut self, who: usize, id: Id, event: Event) {
        let hurry = self.dice.percent(70);
        let soon = if hurry { self.dice.wait(20) } else { self.dice.wait(12_000) };
        match event {
            Event::Request { req, .. } => {
                let receiver = self.processes[who].endpoint.config.prefix;
                *self.requests.entry((receiver, req.qpn)).or_default() += 1;
                assert_eq!(req.private_data[..4], req.qpn.to_be_bytes());
                assert_eq!(req.psn, req.qpn ^ 0x55);
                let known = Known { passive: true, ..Known::default() };
                assert!(self.processes[who].known.insert(id, known).is_none());
                self.plan(who, soon, Plan::Answer(id));
            }
            Event::SidrRequest { .. } => {
                let known = Known { passive: true, datagram: true, ..Known::default() };
                assert!(self.processes[who].known.insert(id, known).is_none());
                self.plan(who, soon, Plan::AnswerLookup(id));
            }
            Event::Reply(rep) => {
                assert_eq!(rep.private_data[..4], rep.qpn.to_be_bytes());
                let known = self.known(who, id);
                assert!(core::mem::take(&mut known.connecting) && !known.datagram, "{known:?}");
                // A connection that ends before this end confirms the reply ends with
                // `Disconnected`, so it counts as standing.
                known.standing = true;
                self.plan(who, soon, Plan::Confirm(id));
            }
            Event::Established => {
                let known = self.known(who, id);
                assert!(core::mem::take(&mut known.accepting) && known.passive, "{known:?}");
                known.standing = true;
                let qpn = known.qpn;
                self.processes[who].confirmed.insert(qpn);
                self.hang_later(who, id, soon);
            }
            Event::Rejected(_) | Event::Unanswered { .. } => {
                let known = self.known(who, id);
                let waited =
                    core::mem::take(&mut known.connecting) || core::mem::take(&mut known.accepting);
                // A request may end before the program has answered it.
                assert!(
                    waited || known.passive && !known.standing && !known.ended,
                    "{event:?} {known:?}"
                );
                known.ended = true;
                self.plan(who, soon, Plan::Release(id));
            }
            Event::Disconnected(how) => {
                assert!(how != Ending::Stale, "no queue pair is used twice here");
                let known = self.known(who, id);
                let accepting = core::mem::take(&mut known.accepting);
                assert!(core::mem::take(&mut known.standing) || accepting, "{how:?} {known:?}");
                known.ended = true;
                self.plan(who, soon, Plan::Release(id));
            }
            Event::SidrReply(rep) => {
                let known = self.known(who, id);
                assert!(core::mem::take(&mut known.connecting) && known.datagram);
                if rep.status() == SidrStatus::SUCCESS {
                    assert_eq!((rep.qpn, rep.qkey), (7, 8));
                }
                self.plan(who, soon, Plan::Release(id));
            }
            Event::TimewaitExit => {
                let known = self.known(who, id);
                assert!(known.ended && !known.timewait_over, "{known:?}");
                known.timewait_over = true;
            }
            Event::Delayed(_) => {}
        }
    }

    pub(super) fn hang_later(&mut self, who: usize, id: Id, soon: Duration) {
        if self.setting.hangs {
            self.plan(who, soon, Plan::Hang(id));
        }
    }

    pub(super) fn run_plan(&mut self, who: usize, plan: Plan) {
        let now = self.now;
        match plan {
            Plan::Connect => self.connect(who),
            Plan::Lookup => self.lookup(who),
            Plan::Answer(id) => self.answer(who, id),
            Plan::AnswerLookup(id) => {
                let answer = SidrAnswer { qpn: 7, qkey: 8, ..SidrAnswer::default() };
                let wild = self.setting.wild && self.dice.percent(20);
                let endpoint = &mut self.processes[who].endpoint;
                if wild {
                    endpoint.drop_request(id).unwrap();
                } else {
                    endpoint.sidr_reply(id, &answer).unwrap();
                    endpoint.release(now, id).unwrap();
                }
                self.processes[who].known.remove(&id);
            }
            Plan::Confirm(id) => self.confirm(who, id),
            Plan::Hang(id) => {
                if self.setting.wild && self.dice.percent(30) {
                    self.release(who, id);
                } else {
                    // Both ends disconnect at any time, so the other end may have been first and
                    // the id may no longer exist.
                    let endpoint = &mut self.processes[who].endpoint;
                    let state = endpoint.state(id);
                    let done = endpoint.disconnect(now, id, b"bye");
                    let over =
                        [State::Established, State::DreqSent, State::DreqReceived, State::Timewait];
                    assert_eq!(done.is_ok(), state.is_some_and(|s| over.contains(&s)), "{done:?}");
                }
            }
            Plan::Release(id) => self.release(who, id),
        }
        self.settle(who);
    }

    pub(super) fn answer(&mut self, who: usize, id: Id) {
        let now = self.now;
        let wild = if self.setting.wild { self.dice.below(10) } else { 9 };
        let qpn = self.qpn();
        let after = self.dice.wait(9_000);
        let process = &mut self.processes[who];
        let Some(known) = process.known.get_mut(&id) else { return };
        if process.endpoint.state(id) != Some(State::ReqReceived) {
            assert!(known.ended, "{known:?}");
            return;
        }
        match wild {
            0 => {
                process.endpoint.reject(id, RejectReason::CONSUMER_DEFINED, b"i", b"no").unwrap();
                self.plan(who, after, Plan::Release(id));
            }
            1 => {
                process.endpoint.drop_request(id).unwrap();
                process.known.remove(&id);
                self.dropped += 1;
            }
            2 => self.release(who, id),
            _ => {
                let accept = Accept {
                    qpn,
                    psn: 5,
                    ca_guid: process.host as u64 + 1,
                    private_data: Data::new(&qpn.to_be_bytes()).unwrap(),
                    ..Accept::default()
                };
                process.endpoint.accept(now, id, &accept).unwrap();
                known.accepting = true;
                known.qpn = qpn;
                if wild == 3 {
                    self.plan(who, after, Plan::Release(id));
                }
            }
        }
    }

    pub(super) fn confirm(&mut self, who: usize, id: Id) {
        let wild = if self.setting.wild { self.dice.below(10) } else { 9 };
        let after = self.dice.wait(9_000);
        let process = &mut self.processes[who];
        let Some(known) = process.known.get_mut(&id) else { return };
        if process.endpoint.state(id) != Some(State::RepReceived) {
            assert!(known.ended || known.released, "{known:?}");
            return;
        }
        match wild {
            0 => {
                process.endpoint.reject(id, RejectReason::CONSUMER_DEFINED, b"", b"no").unwrap();
                known.standing = false;
                self.plan(who, after, Plan::Release(id));
            }
            1 => self.release(who, id),
            _ => {
                process.endpoint.established(id).unwrap();
                let qpn = known.qpn;
                process.confirmed.insert(qpn);
                self.hang_later(who, id, after);
            }
        }
    }

    pub(super) fn release(&mut self, who: usize, id: Id) {
        let now = self.now;
        let process = &mut self.processes[who];
        if process.known.remove(&id).is_some() {
            process.endpoint.release(now, id).unwrap();
            assert_eq!(process.endpoint.state(id), None);
            assert!(process.endpoint.release(now, id).is_err());
        }
    }
}
