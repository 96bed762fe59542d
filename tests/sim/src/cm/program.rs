//! A program that takes the usual steps of a connection, and sometimes other steps.
use super::net::{address, host_of};
use super::oracle::{Attempt, AttemptEnd, EndOutcome};
use super::process::{LOOKED_UP, Mine, NOBODY, Plan, SERVICE};
use super::world::World;
use crate::verdict::{Check, Violation, ensure};
use adverb_cm::mad::{Rep, SidrStatus};
use adverb_cm::{
    Accept, ConnectRequest, Data, Ece, Ending, Event, Id, MAD_LEN, MadKind, Path, QpKind,
    RejectReason, State, Timing,
};
use std::time::Duration;

fn words(attempt: usize, side: usize) -> Vec<u8> {
    format!("farewell {side} of {attempt}").into_bytes()
}

pub(super) fn data<const N: usize>(attempt: usize) -> Data<N> {
    Data::new(&(attempt as u64 + 1).to_be_bytes()).unwrap_or(Data::EMPTY)
}

fn attempt_of(bytes: &[u8]) -> Result<usize, Violation> {
    let number = bytes.first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
    number
        .checked_sub(1)
        .map(|n| n as usize)
        .ok_or_else(|| Violation("private data that nobody sent".into()))
}

pub(super) fn refused(e: adverb_cm::CommandError) -> Violation {
    Violation(format!("a command is refused: {e}"))
}

impl World {
    /// Draws whether the program does something unusual: `wild` is in thousandths. Never while the
    /// world winds up.
    pub(super) fn wild(&mut self) -> bool {
        let rate = self.config.wild;
        !self.winding_up && self.rng.chance(rate)
    }

    fn soon(&mut self) -> u64 {
        if self.winding_up {
            return 1000;
        }
        let most = self.rng.pick(&[1, 1000, 100_000, 12_000_000]);
        self.rng.below(most)
    }

    fn plan_soon(&mut self, who: usize, plan: Plan) {
        let us = self.soon();
        self.plan_within(who, us, plan);
    }

    /// Sends an endpoint's MADs and handles its events.
    pub(super) fn settle(&mut self, who: usize) -> Check {
        loop {
            while let Some(transmit) = self.processes[who].endpoint.poll_transmit() {
                let host = self.processes[who].host;
                ensure!(transmit.path.local == address(host), "a MAD from another host's address");
                self.record.mix(self.now, u64::from(transmit.mad[17]) << 8 | who as u64);
                self.note(|| format!("process {who} sends {}", mad_words(&transmit.mad)));
                let carried = self.net.send(self.now, transmit.path, &transmit.mad);
                self.count_last_words(who, &transmit.mad, carried);
            }
            while let Some(id) = self.processes[who].endpoint.poll_forgotten() {
                ensure!(
                    self.processes[who].endpoint.remote(id).is_none(),
                    "{id:?} is not forgotten"
                );
            }
            let Some((id, event)) = self.processes[who].endpoint.poll_event() else {
                return Ok(());
            };
            self.note(|| format!("process {who}: {id:?} {}", short(&event)));
            self.on_event(who, id, event)?;
        }
    }

    /// Records, for an end that leaves, whether the network carries its DREQ or REJ.
    fn count_last_words(&mut self, who: usize, mad: &[u8; MAD_LEN], carried: bool) {
        let local_id = u32::from_be_bytes(std::array::from_fn(|n| mad[24 + n]));
        let leaving = self.leaving.get(&(who, Id(local_id)));
        let (Some(kind @ (MadKind::Dreq | MadKind::Rej)), Some(mine)) = (MadKind::of(mad), leaving)
        else {
            return;
        };
        let end = mine.end(&mut self.attempts);
        end.word_carried |= carried;
        match kind {
            MadKind::Dreq => end.dreqs_lost += u32::from(!carried),
            _ => end.rejs_lost += u32::from(!carried),
        }
    }

    pub(super) fn perform(&mut self, who: usize, plan: Plan) -> Check {
        if !self.processes[who].alive {
            return Ok(());
        }
        self.record.mix(self.now, who as u64);
        match plan {
            Plan::Connect | Plan::Lookup if self.winding_up => {}
            Plan::Connect => self.connect(who)?,
            Plan::Lookup => self.lookup(who)?,
            Plan::Answer(id) => self.answer(who, id)?,
            Plan::AnswerLookup(id) => self.answer_lookup(who, id)?,
            Plan::Confirm(id) => self.confirm(who, id)?,
            Plan::Heard(id) => self.heard(who, id)?,
            Plan::Data(id) => self.send_data(who, id),
            Plan::HangUp(id) => self.hang_up(who, id)?,
            Plan::LetGo(id) => self.let_go(who, id)?,
            Plan::Die => self.die(who)?,
            Plan::Part => {
                let (a, b) = (self.rng.index(self.config.hosts), self.rng.index(self.config.hosts));
                self.net.part(self.now, a, b);
            }
        }
        self.settle(who)
    }

    /// The path to another host.
    pub(super) fn elsewhere(&mut self, who: usize) -> Path {
        let host = self.processes[who].host;
        let to = (host + 1 + self.rng.index(self.config.hosts - 1)) % self.config.hosts;
        Path { local: address(host), remote: address(to) }
    }

    fn connect(&mut self, who: usize) -> Check {
        let (host, path) = (self.processes[who].host, self.elsewhere(who));
        let (number, hasty) = (self.attempts.len(), self.config.hasty);
        let Some(qpn) = self.processes[who].number(hasty, number) else {
            // All numbers are taken: the program tries later.
            self.plan_soon(who, Plan::Connect);
            return Ok(());
        };
        self.attempts
            .push(Attempt { farewell: [words(number, 0), words(number, 1)], ..Attempt::default() });
        let nobody = self.wild() && self.rng.chance(300);
        let request = request(path, if nobody { NOBODY } else { SERVICE }, host, qpn, number);
        let now = self.now;
        let id = self.processes[who].endpoint.connect(now, &request).map_err(refused)?;
        ensure!(self.ids.insert(id), "{id:?} is given out twice");
        self.note(|| {
            format!(
                "process {who}: {id:?} is connection {number}, queue pair {qpn:#x}, to {}",
                path.remote
            )
        });
        let mine = Mine { attempt: number, passive: None, qpn: Some(qpn), peer: None };
        self.processes[who].mine.insert(id, mine);
        if self.wild() {
            self.plan_soon(who, Plan::LetGo(id));
        }
        Ok(())
    }

    fn on_event(&mut self, who: usize, id: Id, event: Event) -> Check {
        match event {
            Event::Request { path, req, .. } => {
                let peer = Some((host_of(path.remote), req.qpn));
                return self.on_request(who, id, &req.private_data.0, peer, Plan::Answer(id));
            }
            Event::SidrRequest { req, .. } => {
                let plan = Plan::AnswerLookup(id);
                return self.on_request(who, id, &req.private_data.0, None, plan);
            }
            Event::Delayed(_) => return Ok(()),
            _ => {}
        }
        let Some(mine) = self.processes[who].mine.get(&id).cloned() else {
            return Err(Violation(format!(
                "an event of {id:?}, which nobody has: {}",
                short(&event)
            )));
        };
        let end = mine.end(&mut self.attempts);
        let outcome = match event {
            Event::Reply(rep) => return self.on_reply(who, id, &mine, &rep),
            Event::Established => {
                ensure!(
                    end.agreed && !end.made && end.outcome.is_none(),
                    "established, but {end:?}"
                );
                end.made = true;
                self.stands(who, id);
                return Ok(());
            }
            Event::TimewaitExit => {
                let ended = end.outcome.is_some() && !std::mem::replace(&mut end.rested, true);
                ensure!(ended, "time-wait of a connection that stands, or twice: {end:?}");
                return Ok(());
            }
            Event::Rejected(_) => EndOutcome::Rejected,
            Event::Unanswered { .. } => EndOutcome::Unanswered,
            Event::SidrReply(rep) => {
                let right = rep.status() != SidrStatus::SUCCESS || (rep.qpn, rep.qkey) == LOOKED_UP;
                ensure!(right, "an answer that nobody gave: {rep:?}");
                EndOutcome::LookedUp
            }
            Event::Disconnected(ending) => {
                // A DREQ may overtake the RTU, and a refusal ends an accepted request.
                ensure!(
                    end.made || end.agreed || mine.passive.is_none(),
                    "an end of what was not made: {end:?}"
                );
                if matches!(ending, Ending::Peer(_) | Ending::Confirmed(_))
                    && mine.passive.is_some()
                {
                    end.made = true;
                }
                EndOutcome::Ended(ending)
            }
            other => return Err(Violation(format!("an event of another kind: {}", short(&other)))),
        };
        end.over(outcome)?;
        self.quiet(who, id);
        self.plan_soon(who, Plan::LetGo(id));
        Ok(())
    }

    /// A request or a lookup of an attempt, which the private data names.
    fn on_request(
        &mut self,
        who: usize,
        id: Id,
        private_data: &[u8],
        peer: Option<(usize, u32)>,
        plan: Plan,
    ) -> Check {
        ensure!(self.ids.insert(id), "{id:?} is given out twice");
        let attempt = attempt_of(private_data)?;
        ensure!(attempt < self.attempts.len(), "a request of nobody's");
        let passive = self.attempts[attempt].passive.len();
        self.attempts[attempt].passive.push(AttemptEnd::default());
        let mine = Mine { attempt, passive: Some(passive), qpn: None, peer };
        self.processes[who].mine.insert(id, mine);
        self.plan_soon(who, plan);
        Ok(())
    }

    fn on_reply(&mut self, who: usize, id: Id, mine: &Mine, rep: &Rep) -> Check {
        ensure!(attempt_of(&rep.private_data.0)? == mine.attempt, "a reply to another request");
        let end = mine.end(&mut self.attempts);
        ensure!(!end.agreed && end.outcome.is_none(), "a reply to {end:?}");
        end.agreed = true;
        let to = self.processes[who].endpoint.path(id).map(|path| host_of(path.remote));
        if let Some(mine) = self.processes[who].mine.get_mut(&id) {
            mine.peer = to.map(|to| (to, rep.qpn));
        }
        self.plan_soon(who, Plan::Confirm(id));
        Ok(())
    }

    fn answer(&mut self, who: usize, id: Id) -> Check {
        let now = self.now;
        let Some(mine) = self.processes[who].mine.get(&id).cloned() else { return Ok(()) };
        if self.processes[who].endpoint.state(id) != Some(State::ReqReceived) {
            ensure!(
                mine.end(&mut self.attempts).outcome.is_some(),
                "a request has gone without a word"
            );
            return Ok(());
        }
        if self.wild() {
            return self.refuse(who, id, &mine);
        }
        let hasty = self.config.hasty;
        let Some(qpn) = self.processes[who].number(hasty, mine.attempt) else {
            return self.refuse(who, id, &mine);
        };
        let host = self.processes[who].host;
        let accept = Accept {
            qpn,
            ca_guid: host as u64 + 1,
            private_data: data(mine.attempt),
            ..Accept::default()
        };
        if let Some(mine) = self.processes[who].mine.get_mut(&id) {
            mine.qpn = Some(qpn);
        }
        self.processes[who].endpoint.accept(now, id, &accept).map_err(refused)?;
        let end = mine.end(&mut self.attempts);
        end.agreed = true;
        end.queue_pair = Some((host, qpn));
        self.note(|| {
            format!(
                "process {who}: {id:?} accepts connection {}, queue pair {qpn:#x}",
                mine.attempt
            )
        });
        if self.wild() {
            self.plan_soon(who, Plan::LetGo(id));
        } else if self.rng.chance(200) {
            self.plan_soon(who, Plan::Heard(id));
        }
        Ok(())
    }

    /// Refuses with a REJ, destroys the id, or leaves the request for its repetition.
    fn refuse(&mut self, who: usize, id: Id, mine: &Mine) -> Check {
        match self.rng.below(3) {
            0 => {
                let reason = RejectReason::CONSUMER_DEFINED;
                self.processes[who].endpoint.reject(id, reason, b"", b"no").map_err(refused)?;
                mine.end(&mut self.attempts).over(EndOutcome::GaveUp)?;
                self.plan_soon(who, Plan::LetGo(id));
                Ok(())
            }
            1 => {
                self.processes[who].endpoint.drop_request(id).map_err(refused)?;
                self.processes[who].mine.remove(&id);
                mine.end(&mut self.attempts).over(EndOutcome::GaveUp)
            }
            _ => self.let_go(who, id),
        }
    }

    fn confirm(&mut self, who: usize, id: Id) -> Check {
        let Some(mine) = self.processes[who].mine.get(&id).cloned() else { return Ok(()) };
        if self.processes[who].endpoint.state(id) != Some(State::RepReceived) {
            ensure!(
                mine.end(&mut self.attempts).outcome.is_some(),
                "a reply has gone without a word"
            );
            return Ok(());
        }
        if self.wild() {
            if self.rng.chance(500) {
                return self.let_go(who, id);
            }
            let reason = RejectReason::CONSUMER_DEFINED;
            self.processes[who].endpoint.reject(id, reason, b"", b"no").map_err(refused)?;
            mine.end(&mut self.attempts).over(EndOutcome::GaveUp)?;
            self.quiet(who, id);
            self.plan_soon(who, Plan::LetGo(id));
            return Ok(());
        }
        self.processes[who].endpoint.established(id).map_err(refused)?;
        mine.end(&mut self.attempts).made = true;
        self.attempts[mine.attempt].confirmed = mine.peer;
        self.stands(who, id);
        Ok(())
    }

    /// Data of the peer arrived before its RTU. So the peer has confirmed, with exactly this queue
    /// pair.
    fn heard(&mut self, who: usize, id: Id) -> Check {
        let process = &self.processes[who];
        let Some(mine) = process.mine.get(&id) else { return Ok(()) };
        let queue_pair = mine.qpn.map(|qpn| (process.host, qpn));
        let confirmed = queue_pair.is_some() && queue_pair == self.attempts[mine.attempt].confirmed;
        if confirmed && self.processes[who].endpoint.state(id) == Some(State::RepSent) {
            self.processes[who].endpoint.established(id).map_err(refused)?;
        }
        Ok(())
    }

    /// The connection is established. The program sends data until a farewell arrives or the
    /// program decides otherwise.
    fn stands(&mut self, who: usize, id: Id) {
        self.plan(who, Duration::from_micros(1), Plan::Data(id));
        if self.rng.chance(if self.winding_up { 1000 } else { 500 }) {
            self.plan_soon(who, Plan::HangUp(id));
        } else if self.wild() {
            self.plan_soon(who, Plan::LetGo(id));
        }
    }

    fn send_data(&mut self, who: usize, id: Id) {
        let process = &self.processes[who];
        let Some(Mine { attempt, peer: Some((to, qpn)), .. }) = process.mine.get(&id).cloned()
        else {
            return;
        };
        self.net.send_data(self.now, process.host, to, qpn, attempt);
        // Rarely, after a while: the last packets are the ones of interest.
        let us = self.rng.pick(&[10_000, 200_000, 5_000_000, 30_000_000]);
        self.plan_within(who, us, Plan::Data(id));
    }

    /// The queue pair fails, or is destroyed, and sends no more packets.
    fn quiet(&mut self, who: usize, id: Id) {
        if let Some(mine) = self.processes[who].mine.get_mut(&id) {
            mine.peer = None;
        }
        self.processes[who].give_back(id);
    }

    fn hang_up(&mut self, who: usize, id: Id) -> Check {
        let now = self.now;
        let Some(mine) = self.processes[who].mine.get(&id).cloned() else { return Ok(()) };
        if self.processes[who].endpoint.state(id) != Some(State::Established) {
            return Ok(());
        }
        let farewell = words(mine.attempt, usize::from(mine.passive.is_some()));
        self.processes[who].endpoint.disconnect(now, id, &farewell).map_err(refused)?;
        mine.end(&mut self.attempts).hung_up = true;
        self.leaving.insert((who, id), mine);
        if let Some(mine) = self.processes[who].mine.get_mut(&id) {
            mine.peer = None;
        }
        Ok(())
    }

    pub(super) fn let_go(&mut self, who: usize, id: Id) -> Check {
        let now = self.now;
        let Some(mine) = self.processes[who].mine.get(&id).cloned() else { return Ok(()) };
        let end = mine.end(&mut self.attempts);
        if end.outcome.is_none() {
            end.over(if end.made { EndOutcome::LetGo } else { EndOutcome::GaveUp })?;
        }
        self.leaving.insert((who, id), mine);
        self.quiet(who, id);
        self.processes[who].mine.remove(&id);
        self.processes[who].endpoint.release(now, id).map_err(refused)
    }

    /// The end of the run: disconnects established connections, and destroys all other ids.
    pub(super) fn wind_up(&mut self, who: usize) -> Check {
        if !self.processes[who].alive {
            return Ok(());
        }
        let ids: Vec<Id> = self.processes[who].mine.keys().copied().collect();
        for id in ids {
            self.hang_up(who, id)?;
            self.settle(who)?;
        }
        Ok(())
    }

    /// Checks that nothing is left of any connection.
    pub(super) fn process_is_empty(&mut self, who: usize) -> Check {
        let process = &self.processes[who];
        if !process.alive {
            return Ok(());
        }
        ensure!(process.mine.is_empty(), "process {who} still has {:?}", process.mine);
        ensure!(
            process.endpoint.is_empty(),
            "{} connections linger at process {who}",
            process.endpoint.len()
        );
        let resting =
            process.resting.iter().filter(|&&qpn| process.endpoint.reserves_qpn(qpn)).count();
        ensure!(resting == 0 && process.users.is_empty(), "queue pair numbers are held for ever");
        Ok(())
    }
}

fn request(path: Path, service_id: u64, host: usize, qpn: u32, attempt: usize) -> ConnectRequest {
    ConnectRequest {
        path,
        service_id,
        ca_guid: host as u64 + 1,
        qpn,
        psn: 0,
        kind: QpKind::Rc,
        srq: false,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        flow_control: false,
        mtu: 3,
        pkey: 0xffff,
        service_level: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        ack_timeout: None,
        timing: Timing::LINUX,
        private_data: data(attempt),
        ece: Ece::default(),
    }
}

/// Text for a MAD: its kind, the sender's id, the receiver's id, and the transaction.
pub(super) fn mad_words(mad: &[u8; MAD_LEN]) -> String {
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|n| mad[at + n]));
    let (kind, ids) = (MadKind::of(mad), word(24));
    let kind = kind.map_or_else(String::new, |kind| format!("{kind:?}"));
    format!("{kind} {} to {}, {:#x}", ids >> 32, ids as u32, word(8))
}

fn short(event: &Event) -> String {
    match event {
        Event::Request { .. } => "Request".into(),
        Event::Reply(_) => "Reply".into(),
        Event::Rejected(rejection) => format!("Rejected: {}", rejection.reason),
        Event::Disconnected(Ending::Peer(_)) => "Disconnected by the peer".into(),
        Event::Disconnected(Ending::Confirmed(_)) => "Disconnected, confirmed".into(),
        Event::Disconnected(Ending::Rejected(r)) => format!("Disconnected: {}", r.reason),
        other => format!("{other:?}"),
    }
}
