//! The requested faults, and their text form.
use crate::async_event::AsyncEvent;
use adverb_cm::{MadKind, RejectReason};
use adverb_engine::WcStatus;
use adverb_link::faults::{DelayQp, DropPsn, FaultTarget, PacketFaults, Rate};
use nix::errno::Errno;
use std::fmt;
use std::time::Duration;

/// Nanoseconds of the units of time, smallest first.
pub(super) const UNITS: [(u64, &str); 4] =
    [(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")];

/// A call that can be made to fail. Its name is the verb without `ibv_`.
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
    PostSend,
    PostRecv,
    PostSrqRecv,
    PollCq,
    ReqNotifyCq,
}

impl Call {
    /// All calls.
    pub const ALL: [Call; 17] = [
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
        Call::PostSend,
        Call::PostRecv,
        Call::PostSrqRecv,
        Call::PollCq,
        Call::ReqNotifyCq,
    ];

    /// The name in a specification.
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
            Call::PostSend => "post_send",
            Call::PostRecv => "post_recv",
            Call::PostSrqRecv => "post_srq_recv",
            Call::PollCq => "poll_cq",
            Call::ReqNotifyCq => "req_notify_cq",
        }
    }
}

/// Fails a single call. Each posted request counts as a call, also in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailCall {
    /// The call.
    pub call: Call,
    /// Number of the call in the process, from 1.
    pub at: u64,
    /// The error. `poll_cq` has no error of its own, and fails as with an overflowed queue.
    pub errno: Errno,
}

/// Errors for failing calls, and their names.
pub const ERRNOS: [(Errno, &str); 12] = [
    (Errno::ENOMEM, "ENOMEM"),
    (Errno::EINVAL, "EINVAL"),
    (Errno::EIO, "EIO"),
    (Errno::EAGAIN, "EAGAIN"),
    (Errno::EPERM, "EPERM"),
    (Errno::EACCES, "EACCES"),
    (Errno::ENODEV, "ENODEV"),
    (Errno::EBUSY, "EBUSY"),
    (Errno::ENOSPC, "ENOSPC"),
    (Errno::EOPNOTSUPP, "EOPNOTSUPP"),
    (Errno::EFAULT, "EFAULT"),
    (Errno::EINTR, "EINTR"),
];

/// Statuses for the request under way, and their names.
pub const STATUSES: [(WcStatus, &str); 13] = [
    (WcStatus::LocLenErr, "loc_len_err"),
    (WcStatus::LocQpOpErr, "loc_qp_op_err"),
    (WcStatus::LocProtErr, "loc_prot_err"),
    (WcStatus::MwBindErr, "mw_bind_err"),
    (WcStatus::BadRespErr, "bad_resp_err"),
    (WcStatus::RemInvReqErr, "rem_inv_req_err"),
    (WcStatus::RemAccessErr, "rem_access_err"),
    (WcStatus::RemOpErr, "rem_op_err"),
    (WcStatus::RetryExcErr, "retry_exc_err"),
    (WcStatus::RnrRetryExcErr, "rnr_retry_exc_err"),
    (WcStatus::FatalErr, "fatal_err"),
    (WcStatus::RespTimeoutErr, "resp_timeout_err"),
    (WcStatus::GeneralErr, "general_err"),
];

/// Asynchronous events that can be raised, and their names: first about the queue pair, then about
/// its port and device.
pub const EVENTS: [(AsyncEvent, &str); 16] = [
    (AsyncEvent::QpFatal, "qp_fatal"),
    (AsyncEvent::QpReqErr, "qp_req_err"),
    (AsyncEvent::QpAccessErr, "qp_access_err"),
    (AsyncEvent::CommEst, "comm_est"),
    (AsyncEvent::SqDrained, "sq_drained"),
    (AsyncEvent::PathMig, "path_mig"),
    (AsyncEvent::PathMigErr, "path_mig_err"),
    (AsyncEvent::QpLastWqeReached, "last_wqe"),
    (AsyncEvent::DeviceFatal, "device_fatal"),
    (AsyncEvent::PortActive, "port_active"),
    (AsyncEvent::PortErr, "port_err"),
    (AsyncEvent::LidChange, "lid_change"),
    (AsyncEvent::PkeyChange, "pkey_change"),
    (AsyncEvent::SmChange, "sm_change"),
    (AsyncEvent::ClientReregister, "client_reregister"),
    (AsyncEvent::GidChange, "gid_change"),
];

/// Raises an asynchronous event. Nothing else happens to the queue pair or the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaiseEvent {
    /// The event.
    pub event: AsyncEvent,
    /// Number of the queue pair in the process's order of creation, from 1. The event is about this
    /// queue pair or its port.
    pub nth: u32,
    /// Raised when the queue pair has carried this many messages, at least one.
    pub after: u64,
}

/// Loses a message of the connection manager sent by the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropMad {
    /// The kind of message.
    pub kind: MadKind,
    /// Number of the message among its kind, from 1.
    pub at: u64,
}

/// Refuses a request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Number of the request among those that reach the process, from 1.
    pub at: u64,
    /// The reason.
    pub reason: RejectReason,
}

/// Moves a queue pair to the error state, like a failure of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillQp {
    /// Number of the queue pair in the process's order of creation, from 1.
    pub nth: u32,
    /// Messages carried before: requests committed, and requests of the peer that began to
    /// arrive.
    pub after: u64,
    /// Status of the oldest send request under way. Without a status this request is flushed like
    /// all others.
    pub status: Option<WcStatus>,
}

/// What stops working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageKind {
    /// The link of a device.
    LinkDown,
    /// The device, for good.
    DeviceFatal,
}

/// A device or its link stops working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The name of the device.
    pub device: String,
    /// What stops working.
    pub kind: OutageKind,
    /// The time from the first open of the device in the process.
    pub after: Duration,
    /// How long the link is down. `None`: for good.
    pub lasts: Option<Duration>,
}

/// Faults on demand.
///
/// Written in the form of `ADVERB_FAULT` and `adverb run --fault`, as a list with commas:
///
/// | item | what it does |
/// |---|---|
/// | `drop=1%` | drops this share of the arriving packets |
/// | `dup=1%` | delivers this share of the packets twice |
/// | `reorder=5%` | holds this share of the packets until one to three later packets of the same queue pair have passed, or for 2 ms |
/// | `corrupt=0.1%` | flips a bit in this share of the packets before the ICRC check, which then drops the packet; UDP packets only |
/// | `delay=2ms±1ms` | holds every packet for 1 to 3 ms and keeps the order; `delay=2ms` holds for 2 ms; `+-` also stands for `±` |
/// | `rnr=50ms` | makes receives of a reliable queue pair look absent for 50 ms, from the first message that needs a receive |
/// | `kill-qp=2@after=100` | moves the second queue pair that was created to the error state after 100 messages |
/// | `kill-qp=2@after=100@status=retry_exc_err` | does the same, and completes the oldest send request under way with this status |
/// | `fail=create_cq@3` | fails the third call of a verb with ENOMEM |
/// | `fail=post_send@7=EIO` | fails the seventh call of a verb with another error; each posted request counts as a call |
/// | `delay-qp=2@5ms` | holds every packet that reaches the second queue pair, so acknowledged requests complete equally late |
/// | `ecn=5%` | marks this share of the packets that allow a mark, like a switch with a long queue; UDP packets only |
/// | `event=port_err@1@after=20` | raises an asynchronous event when the first queue pair has carried 20 messages |
/// | `cm-drop=rep@1` | loses the first REP that the process sends; every message of the connection manager can be lost |
/// | `cm-reject=1@reason=3` | refuses the first request for a connection with this reason; without a reason, with 28 (the program's own) |
/// | `link-down=adverb0@5s+2s` | takes the link of a device down for 2 s, 5 s after the process has opened the device; without `@5s`, at once; without `+2s`, for good |
/// | `device-fatal=adverb0@5s` | has the device fail for good, 5 s after the process has opened the device; without `@5s`, at once |
/// | `first=200` | ends the faults of packets, except `drop-psn`, for each queue pair after the first 200 requests and the first 200 responses that reach it |
/// | `drop-psn=7@#2` | drops the first packet with PSN 7 that reaches the second queue pair; `@0x12345` selects a queue pair by number; without `@`, the rule holds for each queue pair |
/// | `seed=7` | starts the random draws from another seed; the shares stay the same |
///
/// Packets of every path obey: UDP, connections between processes, rings. A one-sided request
/// performed in shared memory obeys the rules of the initiator's process for the answer that would
/// arrive there. Such a request waits (`delay`, `delay-qp`), or goes as packets with a lost answer
/// (`drop`, `drop-psn`). Duplication and reordering would have no effect.
///
/// Shares have up to seven digits after the point. Times are in ns, us, ms or s. Items for a
/// packet, a queue pair, a call, an event or a message may occur more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Faults of packets.
    pub packets: PacketFaults,
    /// How long receives look absent.
    pub rnr: Option<Duration>,
    /// Queue pairs that fail.
    pub kill_qp: Vec<KillQp>,
    /// Calls that fail.
    pub fail: Vec<FailCall>,
    /// Asynchronous events.
    pub events: Vec<RaiseEvent>,
    /// Messages of the connection manager that are lost.
    pub drop_mad: Vec<DropMad>,
    /// Requests for a connection that are refused.
    pub refuse: Vec<Refuse>,
    /// Links that go down, and devices that fail.
    pub outages: Vec<Outage>,
}

impl OutageKind {
    /// Its name in [`Spec`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OutageKind::LinkDown => "link-down",
            OutageKind::DeviceFatal => "device-fatal",
        }
    }
}

impl Spec {
    /// Is no fault requested?
    #[must_use]
    pub fn is_none(&self) -> bool {
        let none = Spec { packets: self.packets.clone(), ..Spec::default() };
        self.packets.is_none() && *self == none
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
            ("ecn", packets.ecn),
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
        for DelayQp { nth, time } in &packets.delay_qp {
            items.push(format!("delay-qp={nth}@{}", Time(*time)));
        }
        items.extend(packets.first.map(|first| format!("first={first}")));
        for DropPsn { psn, at } in &packets.drop_psn {
            let at = match at {
                None => String::new(),
                Some(FaultTarget::Qpn(number)) => format!("@{number:#x}"),
                Some(FaultTarget::Nth(nth)) => format!("@#{nth}"),
            };
            items.push(format!("drop-psn={psn}{at}"));
        }
        items.extend(self.rnr.map(|time| format!("rnr={}", Time(time))));
        for KillQp { nth, after, status } in &self.kill_qp {
            let named = STATUSES.into_iter().find(|(of, _)| Some(*of) == *status);
            let status = named.map_or(String::new(), |(_, name)| format!("@status={name}"));
            items.push(format!("kill-qp={nth}@after={after}{status}"));
        }
        for FailCall { call, at, errno } in &self.fail {
            let named = ERRNOS.into_iter().find(|(of, _)| of == errno && *of != Errno::ENOMEM);
            let errno = named.map_or(String::new(), |(_, name)| format!("={name}"));
            items.push(format!("fail={}@{at}{errno}", call.name()));
        }
        for RaiseEvent { event, nth, after } in &self.events {
            let name = EVENTS.into_iter().find(|(of, _)| of == event).map_or("", |(_, name)| name);
            items.push(format!("event={name}@{nth}@after={after}"));
        }
        for DropMad { kind, at } in &self.drop_mad {
            items.push(format!("cm-drop={}@{at}", kind.to_string().to_lowercase()));
        }
        for Refuse { at, reason } in &self.refuse {
            items.push(format!("cm-reject={at}@reason={}", reason.0));
        }
        for Outage { device, kind, after, lasts } in &self.outages {
            let lasts = lasts.map_or(String::new(), |lasts| format!("+{}", Time(lasts)));
            items.push(format!("{}={device}@{}{lasts}", kind.name(), Time(*after)));
        }
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
        let (unit, name) = UNITS
            .into_iter()
            .rev()
            .find(|(unit, _)| nanos.is_multiple_of(u128::from(*unit)))
            .unwrap_or(UNITS[0]);
        write!(f, "{}{name}", nanos / u128::from(unit))
    }
}
