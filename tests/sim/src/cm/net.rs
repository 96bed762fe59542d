//! Packets between hosts: MADs, which suffer every fault, and packets of connections, which are
//! delayed at most.
use super::Config;
use crate::rng::Rng;
use adverb_cm::{MAD_LEN, Path, Time};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The longest lifetime of a packet: code 16, as in [`adverb_cm::Timing::LINUX`], which is 268 ms.
const LIFETIME_US: u64 = 268_000;
const LATE_US: u64 = 3_000_000;
/// Longest time for which two hosts are parted. Some of these times outlast all retries of a MAD.
const PARTED_US: u64 = 120_000_000;

#[derive(Clone, Debug)]
pub(super) enum Flying {
    /// With the receiver's path.
    Mad(Path, Box<[u8; MAD_LEN]>),
    /// To a host, with queue pair and connection.
    Data { to: usize, qpn: u32, attempt: usize },
}

pub(super) fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1).into()
}

pub(super) fn host_of(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(v4) => usize::from(v4.octets()[3]) - 1,
        IpAddr::V6(_) => unreachable!("hosts have IPv4 addresses"),
    }
}

pub(super) struct Net {
    config: Config,
    rng: Rng,
    flying: BTreeMap<(Time, u64), Flying>,
    serial: u64,
    /// End of the partition, for each pair (from host, to host).
    parted: BTreeMap<(usize, usize), Time>,
    pub calm: bool,
    pub mads: u64,
}

impl Net {
    pub fn new(config: &Config) -> Net {
        let rng = Rng::new(config.seed ^ 0x3e7);
        let config = config.clone();
        Net {
            config,
            rng,
            flying: BTreeMap::new(),
            serial: 0,
            parted: BTreeMap::new(),
            calm: false,
            mads: 0,
        }
    }

    fn launch(&mut self, at: Time, what: Flying) {
        self.serial += 1;
        self.flying.insert((at, self.serial), what);
    }

    /// From now on no fault happens.
    pub fn heal(&mut self) {
        self.calm = true;
        self.parted.clear();
    }

    /// Parts two hosts for a while, in one direction or both.
    pub fn part(&mut self, now: Time, a: usize, b: usize) {
        let until = now + Duration::from_micros(self.rng.below(PARTED_US));
        self.parted.insert((a, b), until);
        if self.rng.chance(500) {
            self.parted.insert((b, a), until);
        }
    }

    fn is_parted(&self, now: Time, from: usize, to: usize) -> bool {
        self.parted.get(&(from, to)).is_some_and(|until| now < *until)
    }

    /// Sends a MAD by the sender's path, and returns whether it will arrive.
    pub fn send(&mut self, now: Time, path: Path, mad: &[u8; MAD_LEN]) -> bool {
        self.mads += 1;
        let parted = self.is_parted(now, host_of(path.local), host_of(path.remote));
        if !self.calm && (parted || self.rng.chance(self.config.loss)) {
            return false;
        }
        let copies = 1 + u64::from(!self.calm && self.rng.chance(self.config.duplicate));
        for _ in 0..copies {
            let late = !self.calm && self.rng.chance(self.config.late);
            let most = if late { LATE_US } else { self.config.delay };
            let at = now + Duration::from_micros(1 + self.rng.below(most));
            self.launch(at, Flying::Mad(path.reversed(), Box::new(*mad)));
        }
        true
    }

    /// Sends a packet of a connection.
    pub fn send_data(&mut self, now: Time, from: usize, to: usize, qpn: u32, attempt: usize) {
        if !self.is_parted(now, from, to) {
            let at = now + Duration::from_micros(1 + self.rng.below(LIFETIME_US));
            self.launch(at, Flying::Data { to, qpn, attempt });
        }
    }

    pub fn next(&self) -> Option<Time> {
        self.flying.keys().next().map(|(at, _)| *at)
    }

    pub fn arrive(&mut self) -> Option<Flying> {
        self.flying.pop_first().map(|(_, flying)| flying)
    }
}
