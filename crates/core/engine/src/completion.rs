//! Work completions.
use crate::cause::Cause;
use crate::types::Qpn;
use adverb_wire::Time;
use alloc::sync::Arc;

/// Status of a work completion; discriminants of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum WcStatus {
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocEecOpErr = 3,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    LocRddViolErr = 14,
    RemInvRdReqErr = 15,
    RemAbortErr = 16,
    InvEecnErr = 17,
    InvEecStateErr = 18,
    FatalErr = 19,
    RespTimeoutErr = 20,
    GeneralErr = 21,
    TmErr = 22,
    TmRndvIncomplete = 23,
}

/// Operation of a work completion; discriminants of `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum WcOpcode {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInv = 6,
    Flush = 8,
    AtomicWrite = 9,
    /// Fast registration. libibverbs has no code for this opcode, and no request of its API makes
    /// one.
    FastReg = 64,
    Recv = 128,
    RecvRdmaWithImm = 129,
    TmAdd = 130,
    TmDel = 131,
    TmSync = 132,
    TmRecv = 133,
    TmNoTag = 134,
}

bitflags::bitflags! {
    /// Flags of a work completion, with the bits of `ibv_wc_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct WcFlags: u32 {
        /// The first 40 bytes hold a GRH (or the IP header).
        const GRH = 1 << 0;
        /// Immediate data is valid.
        const WITH_IMM = 1 << 1;
        /// The key in `imm` was invalidated.
        const WITH_INV = 1 << 3;
        /// The program does not know of all unexpected messages of the tag-matching SRQ.
        const TM_SYNC_REQ = 1 << 4;
        /// A tag was matched.
        const TM_MATCH = 1 << 5;
        /// All data of the matched message has arrived.
        const TM_DATA_VALID = 1 << 6;
    }
}

/// A work completion with all values of the extended polling API.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The consumer's id.
    pub wr_id: u64,
    /// Outcome.
    pub status: WcStatus,
    /// Operation.
    pub opcode: WcOpcode,
    /// Detail of a failure ([`Cause::vendor_err`]).
    pub vendor_err: u32,
    /// Bytes received, read, or (atomics) 8.
    pub byte_len: u32,
    /// Immediate data as in memory (`__be32`), or the invalidated key.
    pub imm: u32,
    /// Flags.
    pub flags: WcFlags,
    /// Local queue pair (XRC receive: the target QP).
    pub qpn: Qpn,
    /// Sender's queue pair (UD).
    pub src_qpn: Qpn,
    /// For a datagram, the kind of header in the first 40 bytes: 0xa for IPv4, 0x9 for IPv6. mlx5
    /// puts this value into the service level, which RoCE does not have (annex A17.4.5.1).
    pub sl: u8,
    /// A receive completion, and the sender of the message asked for a solicited event (CQN-2).
    pub solicited: bool,
    /// When the completion was added to the CQ.
    pub timestamp: Time,
    /// Why the request failed.
    pub cause: Option<Arc<Cause>>,
}

impl Completion {
    /// A successful completion; all other fields are zero.
    #[inline]
    #[must_use]
    pub fn success(wr_id: u64, qpn: Qpn, opcode: WcOpcode) -> Self {
        Completion {
            wr_id,
            status: WcStatus::Success,
            opcode,
            vendor_err: 0,
            byte_len: 0,
            imm: 0,
            flags: WcFlags::empty(),
            qpn,
            src_qpn: 0,
            sl: 0,
            solicited: false,
            timestamp: Time::ZERO,
            cause: None,
        }
    }
    /// Stores tag and application word of a matched message. The values take fields that a
    /// successful receive on a connection does not use: `src_qpn`, `imm` and `vendor_err`.
    pub fn set_tag(&mut self, tag: u64, app_ctx: u32) {
        (self.src_qpn, self.imm, self.vendor_err) = ((tag >> 32) as u32, tag as u32, app_ctx);
    }
    /// Tag and application word of a matched message; zero for all other messages.
    #[must_use]
    pub fn tag(&self) -> (u64, u32) {
        if self.opcode != WcOpcode::TmRecv || self.status != WcStatus::Success {
            return (0, 0);
        }
        (u64::from(self.src_qpn) << 32 | u64::from(self.imm), self.vendor_err)
    }
    /// A failed completion.
    #[must_use]
    pub fn failure(
        wr_id: u64,
        qpn: Qpn,
        opcode: WcOpcode,
        status: WcStatus,
        cause: Arc<Cause>,
    ) -> Self {
        Completion {
            status,
            vendor_err: cause.vendor_err(),
            cause: Some(cause),
            ..Completion::success(wr_id, qpn, opcode)
        }
    }
}
