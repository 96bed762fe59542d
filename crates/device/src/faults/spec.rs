//! What faults are asked for, and how that is written.
use adverb_link::faults::{DropPsn, PacketFaults, Rate, Target};
use std::fmt;
use std::time::Duration;

/// A call of the interface that can be made to fail, by its name in verbs without `ibv_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    OpenDevice,
    AllocPd,
    RegMr,
    ReregMr,
    AllocMw,
    AllocDm,
    CreateCompChannel,
    CreateCq,
    CreateSrq,
    CreateQp,
    ModifyQp,
    OpenXrcd,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 12] = [
        Call::OpenDevice,
        Call::AllocPd,
        Call::RegMr,
        Call::ReregMr,
        Call::AllocMw,
        Call::AllocDm,
        Call::CreateCompChannel,
        Call::CreateCq,
        Call::CreateSrq,
        Call::CreateQp,
        Call::ModifyQp,
        Call::OpenXrcd,
    ];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Call::OpenDevice => "open_device",
            Call::AllocPd => "alloc_pd",
            Call::RegMr => "reg_mr",
            Call::ReregMr => "rereg_mr",
            Call::AllocMw => "alloc_mw",
            Call::AllocDm => "alloc_dm",
            Call::CreateCompChannel => "create_comp_channel",
            Call::CreateCq => "create_cq",
            Call::CreateSrq => "create_srq",
            Call::CreateQp => "create_qp",
            Call::ModifyQp => "modify_qp",
            Call::OpenXrcd => "open_xrcd",
        }
    }
}

/// Fails one call with ENOMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailCall {
    /// Which.
    pub call: Call,
    /// The how manieth of the process, from 1.
    pub at: u64,
}

/// Moves a queue pair to the error state, as a failure of the device would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillQp {
    /// The how manieth that the process created, from 1.
    pub nth: u32,
    /// Messages that it carries before: requests handed over, and requests of its peer that began
    /// to arrive.
    pub after: u64,
}

/// Faults on demand.
///
/// Written as `ADVERB_FAULT` and `adverb run --fault` take it, a list with commas:
///
/// | item | what it does |
/// |---|---|
/// | `drop=1%` | drops packets that arrive, that share of them |
/// | `dup=1%` | delivers packets twice |
/// | `reorder=5%` | holds packets until one to three later ones of the queue pair have passed, or 2 ms |
/// | `corrupt=0.1%` | flips a bit before the ICRC check, which drops the packet |
/// | `delay=2ms±1ms` | holds every packet for 1 to 3 ms, keeping their order; `delay=2ms` for 2 ms; `+-` is `±` |
/// | `rnr=50ms` | receives of a reliable queue pair look absent for that long from the first message that needs one |
/// | `kill-qp=2@after=100` | moves the second queue pair created to the error state after 100 messages |
/// | `fail=create_cq@3` | fails the third call of a verb with ENOMEM |
/// | `first=200` | all of these end with the 200th request and the 200th response that reach a queue pair |
/// | `drop-psn=7@#2` | drops the first packet with PSN 7 that reaches the second queue pair created; `@0x12345` names one by its number, none means each |
/// | `seed=7` | other draws of the same shares |
///
/// Shares have up to seven digits after the point; times are in ns, us, ms or s. `drop-psn`,
/// `kill-qp` and `fail` may stand more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Faults of packets.
    pub packets: PacketFaults,
    /// For how long receives look absent.
    pub rnr: Option<Duration>,
    /// Queue pairs that fail.
    pub kill_qp: Vec<KillQp>,
    /// Calls that fail.
    pub fail: Vec<FailCall>,
}

impl Spec {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.packets.is_none() && self.rnr.is_none() && self.kill_qp.is_empty() && self.fail.is_empty()
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets = &self.packets;
        let mut items = Vec::new();
        for (name, rate) in [
            ("drop", packets.drop),
            ("dup", packets.dup),
            ("reorder", packets.reorder),
            ("corrupt", packets.corrupt),
        ] {
            if rate != Rate::NEVER {
                items.push(format!("{name}={}", Share(rate)));
            }
        }
        if let Some(delay) = &packets.delay {
            let spread = match delay.spread {
                Duration::ZERO => String::new(),
                spread => format!("±{}", Time(spread)),
            };
            items.push(format!("delay={}{spread}", Time(delay.mean)));
        }
        items.extend(packets.first.map(|first| format!("first={first}")));
        for DropPsn { psn, at } in &packets.drop_psn {
            let at = match at {
                None => String::new(),
                Some(Target::Qpn(number)) => format!("@{number:#x}"),
                Some(Target::Nth(nth)) => format!("@#{nth}"),
            };
            items.push(format!("drop-psn={psn}{at}"));
        }
        items.extend(self.rnr.map(|time| format!("rnr={}", Time(time))));
        items.extend(self.kill_qp.iter().map(|k| format!("kill-qp={}@after={}", k.nth, k.after)));
        items.extend(self.fail.iter().map(|x| format!("fail={}@{}", x.call.name(), x.at)));
        if packets.seed != 0 {
            items.push(format!("seed={}", packets.seed));
        }
        f.write_str(&items.join(","))
    }
}

/// A share in percent, exact.
struct Share(Rate);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PERCENT: u32 = 10_000_000;
        let (whole, rest) = (self.0.get() / PERCENT, self.0.get() % PERCENT);
        let digits = format!("{rest:07}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            digits => write!(f, "{whole}.{digits}%"),
        }
    }
}

/// A time in the largest unit that needs no fraction.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, name) = super::parse::UNITS
            .into_iter()
            .rev()
            .find(|(unit, _)| nanos.is_multiple_of(u128::from(*unit)))
            .unwrap_or(super::parse::UNITS[0]);
        write!(f, "{}{name}", nanos / u128::from(unit))
    }
}
