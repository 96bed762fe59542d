//! The send queue: a ring of work queue elements, with slabs for their lists and inline bytes. All
//! memory is allocated with the queue pair, so that posting allocates nothing.
use crate::attr::AddressVector;
use crate::cause::Cause;
use crate::completion::WcOpcode;
use crate::effects::CqRef;
use crate::qp::QpConfig;
use crate::room::{self, OutOfMemory};
use crate::types::{QpState, QpType};
use crate::wr::{Payload, PostError, SendFlags, SendOp, SendWr, Sge, UdDest};
use alloc::vec::Vec;

/// A send request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) xrc_srqn: u32,
    /// Bytes of the message. A length beyond 32 bits is accepted here and refused when the request
    /// is processed.
    pub(crate) len: u64,
    /// Entries of the scatter/gather list.
    pub(crate) sges: u16,
    /// The bytes are in the inline slab.
    pub(crate) inline: bool,
    /// The request has its PSNs.
    pub(crate) started: bool,
    /// A local operation that is done.
    pub(crate) done: bool,
    /// First PSN, unwrapped (see `Requester`), and the number of PSNs.
    pub(crate) first: u64,
    pub(crate) packets: u32,
    /// Cost of all earlier requests, for the flow window.
    pub(crate) pos: u64,
}

impl Wqe {
    /// The PSN after the last PSN of the request.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }
    /// The CQ for a failure of the request. A rendezvous reports its failure with the READ, on the
    /// CQ of the SRQ.
    pub(crate) fn failure_cq(&self) -> Option<CqRef> {
        if !self.flags.contains(SendFlags::RENDEZVOUS) {
            Some(CqRef::Send)
        } else {
            self.flags.contains(SendFlags::SIGNALED).then_some(CqRef::Recv)
        }
    }
    /// Opcode of the request's completion.
    pub(crate) fn wc_opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => WcOpcode::Send,
            SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::RdmaWrite,
            SendOp::Read(_) if self.flags.contains(SendFlags::RENDEZVOUS) => WcOpcode::TmRecv,
            SendOp::Read(_) => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::AtomicWrite(_) => WcOpcode::AtomicWrite,
            SendOp::Flush { .. } => WcOpcode::Flush,
            SendOp::LocalInv(_) => WcOpcode::LocalInv,
            SendOp::BindMw(_) => WcOpcode::BindMw,
            SendOp::FastReg(_) => WcOpcode::FastReg,
        }
    }
}

const EMPTY: Wqe = Wqe {
    wr_id: 0,
    op: SendOp::Send,
    flags: SendFlags::empty(),
    xrc_srqn: 0,
    len: 0,
    sges: 0,
    inline: false,
    started: false,
    done: false,
    first: 0,
    packets: 0,
    pos: 0,
};

/// Requests are numbered from 0 in the lifetime of the queue; `head <= posted <= staged`.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: Vec<Wqe>,
    sges: Vec<Sge>,
    /// Inline data of all slots. The memory is allocated as a whole, and pages are touched at the
    /// first use of a slot.
    inline: Vec<u8>,
    ud: Vec<UdDest>,
    mask: u64,
    depth: u32,
    max_sge: usize,
    max_inline: usize,
    /// Number of the oldest request not completed.
    pub(crate) head: u64,
    /// Number after the last request committed.
    pub(crate) posted: u64,
    /// Number after the last staged request.
    pub(crate) staged: u64,
}

fn op_name(op: &SendOp) -> &'static str {
    match op {
        SendOp::Send => "SEND",
        SendOp::SendImm(_) => "SEND with immediate",
        SendOp::SendInv(_) => "SEND with invalidate",
        SendOp::Write(_) => "RDMA WRITE",
        SendOp::WriteImm(..) => "RDMA WRITE with immediate",
        SendOp::Read(_) => "RDMA READ",
        SendOp::CompareSwap { .. } => "compare and swap",
        SendOp::FetchAdd { .. } => "fetch and add",
        SendOp::AtomicWrite(_) => "atomic write",
        SendOp::Flush { .. } => "flush",
        SendOp::LocalInv(_) => "local invalidate",
        SendOp::BindMw(_) => "bind memory window",
        SendOp::FastReg(_) => "fast register",
    }
}

/// Supported operations by the table of `ibv_post_send(3)`. UC has no opcode for SEND with
/// invalidate.
fn is_supported(qp_type: QpType, op: &SendOp) -> bool {
    match qp_type {
        QpType::Rc | QpType::XrcSend => true,
        QpType::Uc => !op.needs_response() && !matches!(op, SendOp::SendInv(_)),
        QpType::Ud => matches!(op, SendOp::Send | SendOp::SendImm(_)),
        QpType::RawPacket => matches!(op, SendOp::Send),
        QpType::XrcRecv => false,
    }
}

fn type_name(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Rc => "an RC queue pair",
        QpType::Uc => "a UC queue pair",
        QpType::Ud => "a UD queue pair",
        QpType::XrcSend => "an XRC send queue pair",
        QpType::XrcRecv => "an XRC receive queue pair",
        QpType::RawPacket => "a raw packet queue pair",
    }
}

impl SendQueue {
    pub(crate) fn new(config: &QpConfig) -> Result<Self, OutOfMemory> {
        let depth = config.cap.max_send_wr;
        let slots = if depth == 0 { 0 } else { depth.next_power_of_two() as usize };
        let max_sge = config.cap.max_send_sge as usize;
        // The eight bytes of an atomic write are always copied at the post, so there is always room
        // for them.
        let max_inline = (config.cap.max_inline_data as usize).max(8);
        let dests = if config.qp_type == QpType::Ud { slots } else { 0 };
        let no_dest = UdDest { av: AddressVector::default(), qpn: 0, qkey: 0 };
        Ok(SendQueue {
            wqes: room::filled(slots, EMPTY)?,
            sges: room::filled(slots * max_sge, Sge::default())?,
            inline: room::list(slots * max_inline)?,
            ud: room::filled(dests, no_dest)?,
            mask: (slots as u64).wrapping_sub(1),
            depth,
            max_sge,
            max_inline,
            head: 0,
            posted: 0,
            staged: 0,
        })
    }

    fn slot(&self, idx: u64) -> usize {
        (idx & self.mask) as usize
    }
    pub(crate) fn wqe(&self, idx: u64) -> &Wqe {
        &self.wqes[self.slot(idx)]
    }
    pub(crate) fn wqe_mut(&mut self, idx: u64) -> &mut Wqe {
        let slot = self.slot(idx);
        &mut self.wqes[slot]
    }
    pub(crate) fn sges(&self, idx: u64) -> &[Sge] {
        let slot = self.slot(idx);
        let at = slot * self.max_sge;
        &self.sges[at..at + usize::from(self.wqes[slot].sges)]
    }
    /// Inline bytes `at..at + len` of a message.
    pub(crate) fn inline(&self, idx: u64, at: usize, len: usize) -> &[u8] {
        let base = self.slot(idx) * self.max_inline + at;
        &self.inline[base..base + len]
    }
    pub(crate) fn dest(&self, idx: u64) -> &UdDest {
        &self.ud[self.slot(idx)]
    }

    /// Does an empty queue have room for a request?
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.depth > 0
    }
    /// A request passes through an empty queue at once. Answers the number of the next request.
    #[inline]
    pub(crate) fn pass(&mut self) -> u64 {
        self.head += 1;
        self.posted = self.head;
        self.staged = self.head;
        self.head
    }

    /// Drops all requests without completions.
    pub(crate) fn clear(&mut self) {
        self.head = 0;
        self.posted = 0;
        self.staged = 0;
    }

    /// Checks a request and copies it behind the requests staged before.
    pub(crate) fn stage(
        &mut self,
        config: &QpConfig,
        state: QpState,
        wr: &SendWr<'_>,
    ) -> Result<(), PostError> {
        self.check(config, state, wr).map_err(PostError::Invalid)?;
        if self.staged - self.head >= u64::from(self.depth) {
            let cause = Cause::QueueFull { queue: "the send queue", depth: self.depth };
            return Err(PostError::QueueFull(cause));
        }
        let slot = self.slot(self.staged);
        let mut wqe =
            Wqe { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, xrc_srqn: wr.xrc_srqn, ..EMPTY };
        if config.signal_all && !wqe.flags.contains(SendFlags::RENDEZVOUS) {
            wqe.flags |= SendFlags::SIGNALED;
        }
        match wr.data {
            _ if wqe.op.is_local() || matches!(wqe.op, SendOp::Flush { .. }) => {}
            Payload::Sges(sges) => {
                let slab = &mut self.sges[slot * self.max_sge..];
                // An entry of no bytes counts as no entry, with any key.
                for sge in sges.iter().filter(|s| s.length != 0) {
                    slab[usize::from(wqe.sges)] = *sge;
                    wqe.sges += 1;
                    wqe.len += u64::from(sge.length);
                }
            }
            Payload::Inline(parts) => {
                let mut at = slot * self.max_inline;
                if self.inline.len() < at + self.max_inline {
                    self.inline.resize(at + self.max_inline, 0);
                }
                for part in parts {
                    self.inline[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                wqe.inline = true;
                wqe.len = (at - slot * self.max_inline) as u64;
            }
        }
        if matches!(wqe.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) {
            // Only the first 8 bytes of a longer buffer are used, and one packet answers.
            wqe.len = wqe.len.min(8);
        }
        if let Some(dest) = wr.ud
            && config.qp_type == QpType::Ud
        {
            self.ud[slot] = dest;
        }
        self.wqes[slot] = wqe;
        self.staged += 1;
        Ok(())
    }

    /// The checks at the post: errors that do not depend on keys. Keys and lengths are checked when
    /// the request is processed, and an error there gives a completion (IBTA 11.4.1.1).
    fn check(&self, config: &QpConfig, state: QpState, wr: &SendWr<'_>) -> Result<(), Cause> {
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(Cause::WrongState { op: "post send", state });
        }
        let unsupported = |op| Err(Cause::OpNotSupported { op, on: type_name(config.qp_type) });
        if !is_supported(config.qp_type, &wr.op) {
            return unsupported(op_name(&wr.op));
        }
        if config.qp_type == QpType::RawPacket && wr.flags.contains(SendFlags::IP_CSUM) {
            return unsupported("filling in checksums (IBV_SEND_IP_CSUM)");
        }
        if config.qp_type == QpType::Ud && wr.ud.is_none() {
            let rule = "a UD send needs an address handle";
            return Err(Cause::BadArgument { what: "address handle", rule });
        }
        match wr.data {
            Payload::Sges(sges) if sges.len() > self.max_sge => Err(Cause::TooManySges {
                given: u32::try_from(sges.len()).unwrap_or(u32::MAX),
                max: config.cap.max_send_sge,
            }),
            Payload::Sges(_) => Ok(()),
            Payload::Inline(parts) => {
                use SendOp::{CompareSwap, FetchAdd, Read};
                if matches!(wr.op, Read(_) | CompareSwap { .. } | FetchAdd { .. }) {
                    let on = "an operation that returns data";
                    return Err(Cause::OpNotSupported { op: "inline data", on });
                }
                let len: usize = parts.iter().map(|p| p.len()).fold(0, usize::saturating_add);
                let max = match wr.op {
                    SendOp::AtomicWrite(_) => config.cap.max_inline_data.max(8),
                    _ => config.cap.max_inline_data,
                };
                if len > max as usize {
                    let given = u32::try_from(len).unwrap_or(u32::MAX);
                    return Err(Cause::TooMuchInline { given, max });
                }
                Ok(())
            }
        }
    }
}
