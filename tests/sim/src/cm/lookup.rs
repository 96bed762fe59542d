//! Lookups of datagram services.
use super::oracle::{Attempt, EndOutcome};
use super::process::{DATAGRAMS, LOOKED_UP, Mine, NOBODY};
use super::program::{data, refused};
use super::world::World;
use crate::verdict::{Check, ensure};
use adverb_cm::{Id, SidrAnswer, SidrRequest, Timing};

impl World {
    pub(super) fn lookup(&mut self, who: usize) -> Check {
        let (number, path) = (self.attempts.len(), self.elsewhere(who));
        self.attempts.push(Attempt::default());
        let service_id = if self.rng.chance(200) { NOBODY } else { DATAGRAMS };
        let (pkey, timing, private_data) = (0xffff, Timing::LINUX, data(number));
        let request = SidrRequest { path, service_id, pkey, timing, private_data };
        let id = self.processes[who].endpoint.sidr_request(self.now, &request).map_err(refused)?;
        ensure!(self.ids.insert(id), "{id:?} is given out twice");
        let mine = Mine { attempt: number, passive: None, qpn: None, peer: None };
        self.processes[who].mine.insert(id, mine);
        Ok(())
    }

    /// Answers a lookup, destroys the id, or leaves the request for its repetition.
    pub(super) fn answer_lookup(&mut self, who: usize, id: Id) -> Check {
        let now = self.now;
        let Some(mine) = self.processes[who].mine.get(&id).cloned() else { return Ok(()) };
        let wild = self.wild();
        if wild && self.rng.chance(500) {
            return self.let_go(who, id);
        }
        let endpoint = &mut self.processes[who].endpoint;
        if wild {
            endpoint.drop_request(id).map_err(refused)?;
        } else {
            let answer = SidrAnswer { qpn: LOOKED_UP.0, qkey: LOOKED_UP.1, ..Default::default() };
            endpoint.sidr_reply(id, &answer).map_err(refused)?;
            endpoint.release(now, id).map_err(refused)?;
        }
        self.processes[who].mine.remove(&id);
        mine.end(&mut self.attempts).over(EndOutcome::LookedUp)
    }
}
