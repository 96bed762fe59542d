//! A process: its endpoint, and what its program has.
use super::Config;
use super::oracle::{Attempt, End};
use crate::rng::Rng;
use adverb_cm::{Endpoint, Id};
use std::collections::{BTreeMap, VecDeque};

/// The service that every process offers, and one that nobody does.
pub(super) const SERVICE: u64 = 0x0106_1c06;
pub(super) const NOBODY: u64 = 0x0106_0001;
/// Bits of the prefix by which a process is found.
pub(super) const PREFIX_BITS: u8 = 10;

/// What a program means to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    Connect,
    Answer(Id),
    Confirm(Id),
    /// Data came before the RTU.
    Heard(Id),
    Data(Id),
    HangUp(Id),
    LetGo(Id),
    Die,
    Part,
}

/// An id that a program has.
#[derive(Clone, Debug)]
pub(super) struct Mine {
    pub attempt: usize,
    /// Which of the attempt's requests it is; none of the active side.
    pub passive: Option<usize>,
    pub qpn: Option<u32>,
    /// Where its packets go, as long as the program sends any.
    pub peer: Option<(usize, u32)>,
}

impl Mine {
    pub fn end<'a>(&self, attempts: &'a mut [Attempt]) -> &'a mut End {
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
    /// Queue pair numbers: free ones, those that rest, and those in use with the connection they
    /// are used for.
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
        // It is the first.
        let _ = endpoint.listen(SERVICE, None);
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

    /// A number for a new queue pair: one that no connection holds.
    pub fn number(&mut self, hasty: bool, attempt: usize) -> Option<u32> {
        let endpoint = &self.endpoint;
        let (kept, free): (Vec<u32>, Vec<u32>) =
            self.resting.iter().partition(|&&qpn| !hasty && endpoint.holds_qpn(qpn));
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
