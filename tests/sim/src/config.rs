//! The configuration of a world. Each seed draws which features and which faults are on (swarm
//! testing). A run with everything on reaches little, because one fault hides another.
use crate::rng::Rng;
use adverb_engine::{PathMtu, QpConfig};

/// The transport service of a [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Service {
    Rc,
    Uc,
    Ud,
    /// End 0 is the initiator, end 1 the target.
    Xrc,
}

/// Two connected queue pairs.
#[derive(Clone, Debug)]
pub struct Link {
    /// Transport.
    pub service: Service,
    /// Devices of the two ends.
    pub devices: [usize; 2],
    /// Path MTU.
    pub mtu: PathMtu,
    /// Send and receive work requests a queue holds.
    pub depth: [u32; 2],
    /// Scatter/gather entries of a request.
    pub sges: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// Every send is signaled.
    pub signal_all: bool,
    /// Receives come from the device's shared receive queue.
    pub srq: bool,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs; 7 means without limit.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub rnr_timer: u8,
    /// READs and atomics outstanding.
    pub rd_atomic: u8,
    /// Limit of unacknowledged bytes.
    pub max_inflight: u32,
    /// First PSN of each direction.
    pub psn: [u32; 2],
    /// Send and receive CQ of each end, as indices of the CQs of its device.
    pub cqs: [[usize; 2]; 2],
    /// Largest packet in bytes, if both ends are on one host and their packets cross no network.
    pub lane: Option<u32>,
}

/// What the network does to packets; rates are in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Shortest delay, in nanoseconds.
    pub delay: u64,
    /// Random part of the delay, in nanoseconds; packets overtake each other.
    pub jitter: u64,
    /// Packets lost.
    pub loss: u32,
    /// Packets delivered twice.
    pub duplicate: u32,
    /// Packets held back for long.
    pub late: u32,
    /// Packets with flipped bits; the ICRC finds them.
    pub corrupt: u32,
    /// Share of ECN-capable packets to mark.
    pub mark: u32,
}

/// A world: devices, queue pairs, network.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed for the draws of the network and the hosts.
    pub seed: u64,
    /// Number of devices.
    pub devices: usize,
    /// Entries of each CQ of every device.
    pub cqs: Vec<u32>,
    /// Entries of the shared receive queues.
    pub srq_depth: u32,
    /// Queue pairs.
    pub links: Vec<Link>,
    /// Network.
    pub faults: Faults,
    /// Longest time, in nanoseconds, until a host looks at a queue pair with work.
    pub pump_delay: u64,
    /// How often a host delays a plain ACK, in thousandths.
    pub hold_ack: u32,
}

const LONGEST_DELAY: u64 = 2_000_000;

impl Config {
    /// The world of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Config {
        let rng = &mut Rng::new(seed ^ 0xc0f1);
        let devices = rng.pick(&[2, 2, 2, 3, 4]);
        let tiny = rng.chance(120);
        let cqs = (0..rng.range(1, 3))
            .map(|_| if tiny { rng.range(1, 12) as u32 } else { 4096 })
            .collect();
        let mut config = Config {
            seed,
            devices,
            cqs,
            srq_depth: rng.pick(&[1, 3, 16, 64]),
            links: Vec::new(),
            faults: draw_faults(rng),
            pump_delay: rng.pick(&[0, 0, 200, 20_000, 300_000]),
            hold_ack: rng.pick(&[0, 0, 300, 800]),
        };
        let services = match rng.below(8) {
            0..=2 => vec![Service::Rc],
            3 => vec![Service::Uc],
            4 => vec![Service::Ud],
            5 => vec![Service::Xrc],
            _ => vec![Service::Rc, Service::Uc, Service::Ud, Service::Xrc],
        };
        for _ in 0..rng.pick(&[1, 1, 2, 3, 4]) {
            let service = rng.pick(&services);
            let link = draw_link(rng, &config, service);
            config.links.push(link);
        }
        // A separate generator leaves worlds without lanes unchanged.
        let rng = &mut Rng::new(seed ^ 0x1a9e);
        for link in
            config.links.iter_mut().filter(|l| matches!(l.service, Service::Rc | Service::Xrc))
        {
            link.lane = rng.chance(150).then(|| rng.pick(&[1000, 6000, 65_536]));
        }
        config
    }

    /// No packet is lost, damaged, or late enough for a timer.
    pub(crate) fn is_lossless(&self) -> bool {
        let f = &self.faults;
        f.loss == 0 && f.corrupt == 0 && f.late == 0
    }
}

fn draw_faults(rng: &mut Rng) -> Faults {
    let mut on = |rates: &[u32]| if rng.chance(400) { rng.pick(rates) } else { 0 };
    let (loss, duplicate, late, corrupt) =
        (on(&[5, 30, 100, 250]), on(&[10, 50, 200]), on(&[10, 50]), on(&[10, 50]));
    let mark = on(&[20, 300]);
    Faults {
        delay: rng.pick(&[0, 1_000, 20_000, 500_000]),
        jitter: rng.pick(&[0, 0, 500, 30_000, LONGEST_DELAY / 4]),
        loss,
        duplicate,
        late,
        corrupt,
        mark,
    }
}

fn draw_link(rng: &mut Rng, config: &Config, service: Service) -> Link {
    let a = rng.index(config.devices);
    // A queue pair may talk to another queue pair of the same device.
    let b =
        if rng.chance(50) { a } else { (a + 1 + rng.index(config.devices - 1)) % config.devices };
    let psn = |rng: &mut Rng| match rng.below(3) {
        // Where PSNs wrap.
        0 => 0x100_0000 - rng.range(1, 40) as u32,
        1 => 0x80_0000 - rng.range(0, 20) as u32,
        _ => rng.below(1 << 24) as u32,
    };
    let cq = |rng: &mut Rng| rng.index(config.cqs.len());
    let mtu = rng.pick(&[
        PathMtu::Mtu256,
        PathMtu::Mtu256,
        PathMtu::Mtu512,
        PathMtu::Mtu1024,
        PathMtu::Mtu4096,
    ]);
    Link {
        service,
        devices: [a, b],
        mtu,
        depth: [rng.pick(&[1, 4, 16, 64, 64]), rng.pick(&[1, 2, 8, 64, 64])],
        sges: rng.range(1, 5) as u32,
        inline: rng.pick(&[0, 16, 64, 300]),
        signal_all: rng.chance(250),
        srq: matches!(service, Service::Rc | Service::Ud) && rng.chance(300),
        timeout: rng.range(10, 13) as u8,
        retry_cnt: rng.pick(&[0, 1, 3, 7, 7]),
        rnr_retry: rng.pick(&[0, 1, 3, 7, 7]),
        rnr_timer: rng.range(1, 18) as u8,
        rd_atomic: rng.pick(&[1, 1, 2, 4, 16]),
        max_inflight: rng.pick(&[1, 4_000, 20_000, QpConfig::MAX_INFLIGHT]),
        psn: [psn(rng), psn(rng)],
        cqs: [[cq(rng), cq(rng)], [cq(rng), cq(rng)]],
        lane: None,
    }
}
