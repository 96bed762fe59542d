//! A process: its endpoint, and the ids and queue pairs of its program.
use super::Config;
use super::net::address;
use super::oracle::{Attempt, AttemptEnd};
use crate::rng::Rng;
use adverb_cm::{Endpoint, Id};
use std::collections::{BTreeMap, VecDeque};

/// The services of every process, for connections and for lookups, and a service without a
/// listener.
pub(super) const SERVICE: u64 = 0x0106_1c06;
pub(super) const DATAGRAMS: u64 = 0x0111_1c07;
pub(super) const NOBODY: u64 = 0x0106_0001;
/// Queue pair and Q_Key in the answers to lookups.
pub(super) const LOOKED_UP: (u32, u32) = (7, 8);
/// Bits of the process's prefix in queue pair numbers.
pub(super) const PREFIX_BITS: u8 = 10;

/// A planned action of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    Connect,
    /// Asks for a queue pair of a datagram service.
    Lookup,
    Answer(Id),
    AnswerLookup(Id),
    Confirm(Id),
    /// Data arrived before the RTU.
    Heard(Id),
    Data(Id),
    HangUp(Id),
    LetGo(Id),
    Die,
    Part,
}

/// An id of a program.
#[derive(Clone, Debug)]
pub(super) struct Mine {
    pub attempt: usize,
    /// Index among the attempt's passive ends; `None` on the active side.
    pub passive: Option<usize>,
    pub qpn: Option<u32>,
    /// Destination of its packets, while the program sends any.
    pub peer: Option<(usize, u32)>,
}

impl Mine {
    pub fn end<'a>(&self, attempts: &'a mut [Attempt]) -> &'a mut AttemptEnd {
        let attempt = &mut attempts[self.attempt];
        match self.passive {
            None => &mut attempt.active,
            Some(n) => &mut attempt.passive[n],
        }
    }
}

pub(super) struct Process {
    pub host: usize,
    pub alive: bool,
    prefix: u32,
    pub endpoint: Endpoint,
    pub mine: BTreeMap<Id, Mine>,
    /// Queue pair numbers: free numbers, resting numbers, and used numbers with their connections.
    free: VecDeque<u32>,
    pub resting: Vec<u32>,
    pub users: BTreeMap<u32, usize>,
}

impl Process {
    pub fn new(config: &Config, host: usize, prefix: u32, rng: &mut Rng) -> Process {
        let mut endpoint = Endpoint::new(adverb_cm::Config {
            prefix,
            prefix_bits: PREFIX_BITS,
            first: rng.next() as u32,
            transaction: rng.next() as u32,
            max_requests: config.backlog,
            ..adverb_cm::Config::default()
        });
        // The first listener of a service cannot be refused.
        let _ = (endpoint.listen(SERVICE, None), endpoint.listen(DATAGRAMS, Some(address(host))));
        let free = (0..config.numbers).map(|n| prefix << 14 | n).collect();
        Process {
            host,
            alive: true,
            prefix,
            endpoint,
            mine: BTreeMap::new(),
            free,
            resting: Vec::new(),
            users: BTreeMap::new(),
        }
    }

    pub fn endpoint_prefix(&self) -> u32 {
        self.prefix
    }

    /// A number for a new queue pair, not held by any connection.
    pub fn number(&mut self, hasty: bool, attempt: usize) -> Option<u32> {
        let endpoint = &self.endpoint;
        let (kept, free): (Vec<u32>, Vec<u32>) =
            self.resting.iter().partition(|&&qpn| !hasty && endpoint.reserves_qpn(qpn));
        self.resting = kept;
        self.free.extend(free);
        let qpn = self.free.pop_front()?;
        self.users.insert(qpn, attempt);
        Some(qpn)
    }

    /// The queue pair is destroyed.
    pub fn give_back(&mut self, id: Id) {
        if let Some(qpn) = self.mine.get_mut(&id).and_then(|mine| mine.qpn.take()) {
            self.users.remove(&qpn);
            self.resting.push(qpn);
        }
    }
}
