//! The values of faults, and the words for calls, errors, statuses and events.
use crate::async_event::AsyncEvent;
use adverb_cm::{MadKind, RejectReason};
use adverb_engine::WcStatus;
use nix::errno::Errno;
use std::time::Duration;

macro_rules! calls {
    ($($id:ident = $name:literal,)*) => {
        /// A call that can be made to fail. Its name is the verb without `ibv_`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Call { $($id),* }

        impl Call {
            /// All calls.
            pub const ALL: &[Call] = &[$(Call::$id),*];

            /// The name in a specification.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Call::$id => $name),* }
            }
        }
    };
}

calls! {
    OpenDevice = "open_device",
    AllocPd = "alloc_pd",
    RegMr = "reg_mr",
    ReregMr = "rereg_mr",
    AllocMw = "alloc_mw",
    AllocDm = "alloc_dm",
    CreateCompChannel = "create_comp_channel",
    CreateCq = "create_cq",
    CreateSrq = "create_srq",
    CreateQp = "create_qp",
    ModifyQp = "modify_qp",
    OpenXrcd = "open_xrcd",
    PostSend = "post_send",
    PostRecv = "post_recv",
    PostSrqRecv = "post_srq_recv",
    PollCq = "poll_cq",
    ReqNotifyCq = "req_notify_cq",
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

impl OutageKind {
    /// Its name in [`Spec`](super::Spec).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OutageKind::LinkDown => "link-down",
            OutageKind::DeviceFatal => "device-fatal",
        }
    }
}
