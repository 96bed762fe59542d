//! Programs: lists of actions, drawn from a seed. An action names its objects by numbers, taken
//! modulo the number of objects. An action that makes no sense in the current state does nothing.
//! So any sublist of a program is a program, and a failing program can be made shorter.
use crate::config::{Config, Service};
use crate::rng::Rng;
use adverb_engine::cq::arm::ArmKind;

/// The operation of a posted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    LocalInv,
    Bind,
    FastReg,
}

/// A remote or local key. Windows, fast-registered regions and volatile regions come and go while
/// the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum KeyChoice {
    /// All rights.
    Good,
    /// Read access only.
    ReadOnly,
    Window(u8),
    Fast(u8),
    /// A region that [`Action::Revoke`] deregisters.
    Volatile,
    /// A region with a hole.
    OnDemand,
    /// A region of another protection domain.
    OtherPd,
    /// A key without a region.
    Bogus,
}

/// A request to post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Queue pair.
    pub qp: u8,
    /// Operation.
    pub verb: Verb,
    /// Bytes.
    pub len: u32,
    /// Scatter/gather entries.
    pub sges: u8,
    /// Inline: the payload is copied at the post.
    pub inline: bool,
    /// Signaled: success makes a completion.
    pub signaled: bool,
    /// Asks for a solicited event.
    pub solicited: bool,
    /// Waits for READs and atomics.
    pub fence: bool,
    /// Leaves the request staged; a later post or commit hands it over.
    pub chain: bool,
    /// Remote key; for [`Verb::LocalInv`], [`Verb::Bind`] and [`Verb::FastReg`] the local object.
    pub key: KeyChoice,
    /// The local key is bad.
    pub bad_local: bool,
    /// Offset in the shared area. An odd offset misaligns an atomic, and a large one leaves the
    /// region.
    pub at: u32,
    /// The address is beyond the range of the key, and the request is posted unchanged. Without
    /// this flag the present state of the key is checked. A request that would fail is then
    /// replaced by another request.
    pub beyond: bool,
    /// UD: another destination than the other end of the link, or a wrong Q_Key. XRC: a wrong SRQ
    /// number.
    pub astray: bool,
}

/// A step of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Action {
    /// Virtual time passes.
    Run {
        ns: u64,
    },
    Post(Box<Post>),
    /// Hands over the staged requests.
    Commit {
        qp: u8,
    },
    /// Drops the staged requests.
    Abort {
        qp: u8,
    },
    /// Posts a receive, to the SRQ if the queue pair has an SRQ.
    Recv {
        qp: u8,
        len: u32,
        sges: u8,
        bad_local: bool,
    },
    Poll {
        cq: u8,
        max: u8,
    },
    Arm {
        cq: u8,
        kind: ArmKind,
        persistent: bool,
    },
    /// Arms as NDKPI does.
    ArmFresh {
        cq: u8,
        kind: ArmKind,
    },
    Disarm {
        cq: u8,
    },
    /// The callback of NDKPI runs.
    Notified {
        cq: u8,
    },
    Moderate {
        cq: u8,
        count: u32,
        ns: u64,
    },
    SrqLimit {
        srq: u8,
        limit: u32,
    },
    /// The consumer moves the queue pair to ERR.
    Fail {
        qp: u8,
    },
    /// SQE to RTS, SQD to RTS.
    Resume {
        qp: u8,
    },
    /// RTS to SQD.
    Drain {
        qp: u8,
    },
    /// Moves both ends to RESET and back to RTS, the second end later.
    Reconnect {
        link: u8,
        gap: u64,
    },
    /// Reconnects links that have an end in ERR.
    Mend,
    /// Deregisters the volatile region of a device, or registers a new one.
    Revoke {
        device: u8,
    },
    Partition {
        a: u8,
        b: u8,
    },
    Heal,
    /// Packets from `a` to `b` wait.
    Clog {
        a: u8,
        b: u8,
        ns: u64,
    },
}

/// A world and its actions.
#[derive(Clone, Debug)]
pub struct Program {
    /// The world.
    pub config: Config,
    /// Actions in order.
    pub actions: Vec<Action>,
}

/// The features of a seed, in thousandths of the posts or actions.
struct Features {
    verbs: Vec<Verb>,
    keys: Vec<KeyChoice>,
    bad_local: u32,
    beyond: u32,
    astray: u32,
    misalign: u32,
    inline: u32,
    signaled: u32,
    solicited: u32,
    fence: u32,
    chain: u32,
    longest: u32,
    /// Receives posted for each send, in percent.
    receives: u64,
    short_receives: u32,
    network: bool,
    lifecycle: bool,
    arms: bool,
    wait: u64,
}

fn draw_features(rng: &mut Rng, config: &Config) -> Features {
    use KeyChoice as K;
    use Verb as V;
    let mut verbs = Vec::new();
    for (verb, weight) in [
        (V::Send, 6),
        (V::SendImm, 2),
        (V::SendInv, 1),
        (V::Write, 5),
        (V::WriteImm, 2),
        (V::Read, 4),
        (V::CompareSwap, 2),
        (V::FetchAdd, 2),
        (V::AtomicWrite, 1),
        (V::Flush, 1),
        (V::LocalInv, 1),
        (V::Bind, 2),
        (V::FastReg, 2),
    ] {
        if rng.chance(600) {
            verbs.extend([verb].repeat(weight));
        }
    }
    if verbs.is_empty() {
        verbs.push(V::Send);
    }
    let mut keys = vec![K::Good; 20];
    if rng.chance(500) {
        for _ in 0..rng.range(1, 12) {
            keys.push(rng.pick(&[
                K::Window(0),
                K::Window(1),
                K::Fast(0),
                K::Fast(1),
                K::Volatile,
                K::Volatile,
            ]));
        }
    }
    if rng.chance(150) {
        keys.extend([K::ReadOnly, K::OtherPd, K::Bogus, K::OnDemand, K::OnDemand]);
    }
    let mtu = config.links.iter().map(|l| l.mtu.bytes() as u32).max().unwrap_or(256);
    let mut on = |chance, rates: &[u32]| if rng.chance(chance) { rng.pick(rates) } else { 0 };
    let (bad_local, beyond, astray, misalign, short_receives) = (
        on(120, &[10, 40]),
        on(120, &[10, 40]),
        on(150, &[20, 100]),
        on(80, &[30]),
        on(120, &[30, 100]),
    );
    Features {
        verbs,
        keys,
        bad_local,
        beyond,
        astray,
        misalign,
        short_receives,
        inline: rng.pick(&[0, 200, 600]),
        signaled: rng.pick(&[1000, 700, 300, 0]),
        solicited: rng.pick(&[0, 300]),
        fence: rng.pick(&[0, 200, 600]),
        chain: rng.pick(&[0, 0, 300, 800]),
        longest: rng.pick(&[8, mtu, 3 * mtu, 9 * mtu]).min(14_000),
        receives: rng.pick(&[30, 90, 150, 250]),
        network: rng.chance(250),
        lifecycle: rng.chance(350),
        arms: rng.chance(500),
        wait: rng.pick(&[1_000, 50_000, 2_000_000]),
    }
}

impl Program {
    /// The program of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Program {
        let config = Config::draw(seed);
        let rng = &mut Rng::new(seed ^ 0x9406);
        let features = draw_features(rng, &config);
        let mut actions = Vec::new();
        for _ in 0..rng.pick(&[10, 40, 40, 90, 90, 200, 600]) {
            draw_step(rng, &config, &features, &mut actions);
        }
        Program { config, actions }
    }
}

fn draw_len(rng: &mut Rng, longest: u32, mtu: u32) -> u32 {
    let len = match rng.below(6) {
        0 => 0,
        1 => rng.range(1, 64) as u32,
        // Near multiples of the path MTU.
        2 => mtu * rng.range(1, 4) as u32 + rng.below(3) as u32 - 1,
        3 => mtu * rng.range(1, 4) as u32,
        _ => rng.range(0, u64::from(longest)) as u32,
    };
    len.min(longest)
}

fn draw_step(rng: &mut Rng, config: &Config, f: &Features, actions: &mut Vec<Action>) {
    let qp = rng.index(config.links.len() * 2) as u8;
    let link = &config.links[usize::from(qp / 2)];
    let mtu = link.mtu.bytes() as u32;
    match rng.below(100) {
        0..=54 => {
            let post = draw_post(rng, f, qp, link.service, mtu);
            let mut receives = f.receives / 100 + u64::from(rng.below(100) < f.receives % 100);
            let early = rng.chance(700);
            if !matches!(post.verb, Verb::Send | Verb::SendImm | Verb::SendInv | Verb::WriteImm) {
                receives = 0;
            }
            let mut recvs = Vec::new();
            for _ in 0..receives {
                let short = rng.chance(f.short_receives);
                let len = if short { rng.below(64) as u32 } else { f.longest + 40 };
                let bad_local = rng.chance(f.bad_local / 2);
                recvs.push(Action::Recv {
                    qp: qp ^ 1,
                    len,
                    sges: rng.range(1, 5) as u8,
                    bad_local,
                });
            }
            if early {
                actions.append(&mut recvs);
            }
            actions.push(Action::Post(Box::new(post)));
            actions.append(&mut recvs);
        }
        55..=74 => actions.push(Action::Run { ns: rng.below(f.wait * 2) }),
        75..=82 => actions.push(Action::Poll { cq: rng.next() as u8, max: rng.range(1, 16) as u8 }),
        83 => actions.push(Action::Commit { qp }),
        84 if rng.chance(200) => actions.push(Action::Abort { qp }),
        85..=91 if f.arms => actions.push(draw_arm(rng)),
        92..=94 if f.network => actions.push(draw_network(rng)),
        95..=97 if f.lifecycle => actions.push(draw_lifecycle(rng, qp)),
        97 | 98 if rng.chance(500) => actions.push(Action::Mend),
        98 => actions.push(Action::Revoke { device: rng.next() as u8 }),
        _ => actions.push(Action::Run { ns: rng.below(f.wait) }),
    }
}

fn draw_post(rng: &mut Rng, f: &Features, qp: u8, service: Service, mtu: u32) -> Post {
    use Verb as V;
    let mut verb = rng.pick(&f.verbs);
    // The engine refuses at the post what a transport does not support. A few tries cover this.
    if !rng.chance(20) {
        verb = match (service, verb) {
            (Service::Ud, V::SendImm | V::WriteImm) => V::SendImm,
            (Service::Ud, _) => V::Send,
            (Service::Uc, V::SendInv | V::Read | V::Flush) => V::Send,
            (Service::Uc, V::CompareSwap | V::FetchAdd | V::AtomicWrite) => V::Write,
            (_, verb) => verb,
        };
    }
    let window = KeyChoice::Window(rng.below(2) as u8);
    let fast = KeyChoice::Fast(rng.below(2) as u8);
    let key = match verb {
        V::Bind => window,
        V::FastReg => fast,
        V::LocalInv | V::SendInv => rng.pick(&[window, fast]),
        _ => rng.pick(&f.keys),
    };
    let mut at = rng.below(1 << 14) as u32;
    if matches!(verb, V::CompareSwap | V::FetchAdd | V::AtomicWrite) && !rng.chance(f.misalign) {
        // Only 8 words, to make atomics of several queue pairs meet.
        at = 8 * (at % 8);
    }
    let longest = if service == Service::Ud { f.longest.min(5000) } else { f.longest };
    Post {
        qp,
        verb,
        len: draw_len(rng, longest, mtu),
        sges: rng.range(1, 5) as u8,
        inline: rng.chance(f.inline),
        signaled: rng.chance(f.signaled),
        solicited: rng.chance(f.solicited),
        fence: rng.chance(f.fence),
        chain: rng.chance(f.chain),
        key,
        bad_local: rng.chance(f.bad_local),
        at,
        beyond: rng.chance(f.beyond),
        astray: rng.chance(f.astray),
    }
}

fn draw_arm(rng: &mut Rng) -> Action {
    let cq = rng.next() as u8;
    let kind = rng.pick(&[ArmKind::Next, ArmKind::Solicited, ArmKind::Errors]);
    match rng.below(10) {
        0..=4 => Action::Arm { cq, kind, persistent: rng.chance(250) },
        5 | 6 => Action::ArmFresh { cq, kind },
        7 => Action::Notified { cq },
        8 => Action::Disarm { cq },
        _ => Action::Moderate {
            cq,
            count: rng.below(5) as u32,
            ns: rng.pick(&[0, 30_000, 1_000_000]),
        },
    }
}

fn draw_network(rng: &mut Rng) -> Action {
    let (a, b) = (rng.next() as u8, rng.next() as u8);
    match rng.below(4) {
        0 => Action::Partition { a, b },
        1 => Action::Clog { a, b, ns: rng.below(20_000_000) },
        _ => Action::Heal,
    }
}

fn draw_lifecycle(rng: &mut Rng, qp: u8) -> Action {
    match rng.below(10) {
        0 => Action::Fail { qp },
        1..=3 => Action::Resume { qp },
        4 => Action::Drain { qp },
        5..=7 => Action::Reconnect { link: qp / 2, gap: rng.pick(&[0, 10_000, 3_000_000]) },
        _ => Action::SrqLimit { srq: rng.next() as u8, limit: rng.below(6) as u32 },
    }
}
