//! The events of a world in virtual time.
use super::net::{Flying, host_of};
use super::process::{DATAGRAMS, PREFIX_BITS, Process, SERVICE};
use super::program::mad_words;
use super::world::World;
use crate::report::{Report, caught};
use crate::verdict::{Check, Violation, ensure};
use adverb_cm::{MAD_LEN, Path, Route, Time, answer_for_nobody, route};
use std::time::Duration;

/// At this time the network heals, and programs end their connections.
const WINDING_UP: Time = Time(200_000_000_000);
/// Longer than the protocol's longest wait, which includes seven retries of the longest service
/// timeout.
const END: Duration = Duration::from_secs(3600);
/// Limit of events. More events mean that the world never comes to rest.
const MAX_EVENTS: u64 = 200_000;

impl World {
    /// Runs to the end and judges the result.
    #[must_use]
    pub fn run(mut self) -> Report {
        let result = caught(|| self.run_all());
        let now = self.now.0;
        let result = result.map_err(|Violation(why)| Violation(format!("{now} ns: {why}")));
        let made = self.attempts.iter().filter(|a| a.was_made()).count() as u64;
        self.record.report(result, &[("connections", made), ("MADs", self.net.mads)])
    }

    fn run_all(&mut self) -> Check {
        self.run_until(WINDING_UP)?;
        self.note(|| "winding up".to_owned());
        self.winding_up = true;
        self.net.heal();
        for who in 0..self.processes.len() {
            self.wind_up(who)?;
        }
        self.run_until(self.now + END)?;
        for who in 0..self.processes.len() {
            self.process_is_empty(who)?;
        }
        for attempt in &self.attempts {
            attempt.judge()?;
        }
        Ok(())
    }

    fn next(&self) -> Option<Time> {
        let timers =
            self.processes.iter().filter(|p| p.alive).filter_map(|p| p.endpoint.poll_timeout());
        timers.chain(self.plans.keys().next().map(|key| key.0)).chain(self.net.next()).min()
    }

    fn run_until(&mut self, until: Time) -> Check {
        for events in 0.. {
            ensure!(events < MAX_EVENTS, "it never comes to rest");
            let Some(next) = self.next().filter(|at| *at <= until) else { break };
            self.now = self.now.max(next);
            self.step()?;
        }
        self.now = until;
        Ok(())
    }

    fn step(&mut self) -> Check {
        let now = self.now;
        if self.net.next().is_some_and(|at| at <= now) {
            return match self.net.arrive() {
                Some(Flying::Mad(path, mad)) => self.deliver(path, &mad),
                Some(Flying::Data { to, qpn, attempt }) => self.meet(to, qpn, attempt),
                None => Ok(()),
            };
        }
        if let Some(entry) = self.plans.first_entry()
            && entry.key().0 <= now
        {
            let (who, plan) = entry.remove();
            return self.perform(who, plan);
        }
        for who in 0..self.processes.len() {
            let process = &mut self.processes[who];
            if process.alive && process.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                process.endpoint.handle_timeout(now);
                self.settle(who)?;
            }
        }
        Ok(())
    }

    /// Gives a MAD to the process that owns its id or offers its service. If there is none, the
    /// host answers.
    fn deliver(&mut self, path: Path, mad: &[u8; MAD_LEN]) -> Check {
        let host = host_of(path.local);
        let way = route(mad).map_err(|e| Violation(format!("a MAD that is none: {e}")))?;
        let is_owner = |p: &Process| match way {
            Route::Id(id) => p.endpoint_prefix() == id.0 >> (32 - u32::from(PREFIX_BITS)),
            Route::Service(service) => [SERVICE, DATAGRAMS].contains(&service),
            Route::All => true,
        };
        let owner = self.processes.iter().position(|p| p.alive && p.host == host && is_owner(p));
        self.note(|| {
            let whom = owner
                .map_or_else(|| format!("host {host}, nobody"), |who| format!("process {who}"));
            format!("{} comes to {whom}", mad_words(mad))
        });
        let Some(who) = owner else {
            if let Some(answer) = answer_for_nobody(mad) {
                self.net.send(self.now, path, &answer);
            }
            return Ok(());
        };
        let taken = self.processes[who].endpoint.handle_mad(self.now, path, mad);
        taken.map_err(|e| Violation(format!("a MAD of our own is refused: {e}")))?;
        self.settle(who)
    }

    /// A packet of a connection arrives. Its queue pair must belong to the same connection, or be
    /// unused.
    fn meet(&mut self, host: usize, qpn: u32, attempt: usize) -> Check {
        let users = self.processes.iter().filter(|p| p.alive && p.host == host);
        let user = users.filter_map(|p| p.users.get(&qpn)).next().copied();
        self.record.mix(self.now, u64::from(qpn) << 32 | user.map_or(0, |n| n as u64 + 1));
        if let Some(other) = user.filter(|&other| other != attempt) {
            let torn = self.attempts[attempt].is_torn();
            ensure!(
                torn,
                "queue pair {qpn:#x} of host {host} is of connection {other}, and a packet of {attempt} came: {:?}",
                self.attempts[attempt]
            );
        }
        Ok(())
    }
}
