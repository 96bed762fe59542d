//! The oracle: what each end of a link must do, computed anew and in a naive way. The oracle knows
//! the requests in order of posting. From these follow every packet, write to memory and
//! completion.
use adverb_engine::{QpType, SendFlags, SendOp, Sge, Time, WcOpcode, WcStatus};
use std::collections::VecDeque;
use std::ops::Range;

mod completions;
pub(crate) mod cq;
pub(crate) mod keys;
mod request;
pub(crate) mod responder;
mod response;

pub(crate) use crate::verdict::{Check, Violation, ensure};
use keys::Pieces;

/// A send request.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    /// Payload for the peer.
    pub(crate) data: Vec<u8>,
    /// Local memory, without the empty entries.
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline: bool,
    pub(crate) len: u64,
    pub(crate) xrc_srqn: u32,
    /// UD: destination queue pair and Q_Key.
    pub(crate) ud: Option<(usize, u32)>,
    /// PSN of the first packet, counted from the start of the connection, and the number of
    /// packets.
    pub(crate) first: u64,
    pub(crate) packets: u64,
    /// PSNs sent at least once, and how often the first PSN was sent.
    pub(crate) emitted: u64,
    pub(crate) tries: u32,
    /// When a packet of this request was sent last.
    pub(crate) sent_at: Time,
    /// The responder executed the whole request, and at which step.
    pub(crate) executed: bool,
    pub(crate) executed_at: u64,
    /// READ: the source of the bytes.
    pub(crate) sources: Pieces,
    /// READ: the PSNs requested again.
    pub(crate) again: Vec<Range<u64>>,
    /// Atomics: old value.
    pub(crate) result: Option<u64>,
    /// Placed bytes of the answer.
    pub(crate) placed: u64,
    /// The responder refused the request; the expected status.
    pub(crate) refused: Option<WcStatus>,
    /// A packet met a hole in the request's memory.
    pub(crate) fault: bool,
    /// Local operations: success or failure, once performed.
    pub(crate) key_result: Option<bool>,
    /// The local key may be revoked while the request runs.
    pub(crate) shaky: bool,
}

impl Op {
    /// A new request without bytes.
    pub(crate) fn new(id: u64, op: SendOp, now: Time) -> Op {
        Op {
            id,
            op,
            flags: SendFlags::empty(),
            data: Vec::new(),
            sges: Vec::new(),
            inline: false,
            len: 0,
            xrc_srqn: 0,
            ud: None,
            first: 0,
            packets: 0,
            emitted: 0,
            tries: 0,
            sent_at: now,
            executed: false,
            executed_at: 0,
            sources: Vec::new(),
            again: Vec::new(),
            result: None,
            placed: 0,
            refused: None,
            fault: false,
            key_result: None,
            shaky: false,
        }
    }
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.op, SendOp::LocalInv(_) | SendOp::BindMw(_) | SendOp::FastReg(_))
    }
    /// READs, atomics and other requests with an answer. A fence waits for these.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(
            self.op,
            SendOp::Read(_)
                | SendOp::CompareSwap { .. }
                | SendOp::FetchAdd { .. }
                | SendOp::AtomicWrite(_)
                | SendOp::Flush { .. }
        )
    }
    /// Success makes no completion.
    pub(crate) fn is_silent(&self) -> bool {
        !self.flags.contains(SendFlags::SIGNALED)
    }
    /// The whole request has happened, so success is possible.
    pub(crate) fn is_finished(&self, reliable: bool) -> bool {
        if self.is_local() {
            return self.key_result == Some(true);
        }
        if !reliable {
            return self.packets > 0 && self.emitted == self.packets;
        }
        match self.op {
            SendOp::Read(_) => self.executed && self.placed == self.len,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                self.executed && self.placed == 8
            }
            _ => self.executed,
        }
    }
    pub(crate) fn opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => WcOpcode::Send,
            SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::RdmaWrite,
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

/// The requests of one direction of a connection, in order.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// First PSN.
    pub(crate) base: u32,
    /// First unsent PSN, counted from `base`.
    pub(crate) high: u64,
    pub(crate) ops: Vec<Op>,
    /// Numbers of requests handed over, begun, and known to be completed.
    pub(crate) committed: usize,
    pub(crate) started: usize,
    pub(crate) head: usize,
    /// Number of requests before the last move from SQE to RTS. The rest of a message from before
    /// that move is not sent.
    pub(crate) resumed: usize,
    /// A request failed, so the rest is flushed.
    pub(crate) failed: bool,
    /// A first packet was sent in SQD.
    pub(crate) began_in_sqd: bool,
    /// RNR NAKs received.
    pub(crate) rnr_naks: u32,
}

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Recv {
    pub(crate) id: u64,
    pub(crate) sges: Vec<Sge>,
}

impl Recv {
    pub(crate) fn capacity(&self) -> u64 {
        self.sges.iter().map(|s| u64::from(s.length)).sum()
    }
}

/// The receiving half.
#[derive(Debug, Default)]
pub(crate) struct Rx {
    /// PSN of the next request, counted from the start of the peer's flow (reliable transports).
    pub(crate) next: u64,
    /// A gap before `next`, or a missing receive, asks for a NAK; and whether a NAK was sent.
    pub(crate) nak_due: bool,
    pub(crate) nak_sent: bool,
    pub(crate) recvs: VecDeque<Recv>,
    /// The current receive, being filled or held, and the number of filled bytes.
    pub(crate) active: Option<Recv>,
    pub(crate) filled: u64,
    /// UC: the current message and the next PSN.
    pub(crate) under_way: Option<(usize, u64)>,
}

/// The part of a scatter list for `len` bytes from byte `from` on.
pub(crate) fn slice_sges(sges: &[Sge], from: u64, len: u64) -> Vec<Sge> {
    let (mut at, mut parts) = (0, Vec::new());
    for s in sges {
        let (start, end) = (from.max(at), (from + len).min(at + u64::from(s.length)));
        if start < end {
            parts.push(Sge {
                addr: s.addr + (start - at),
                length: (end - start) as u32,
                lkey: s.lkey,
            });
        }
        at += u64::from(s.length);
    }
    parts
}

/// Joins writes to adjacent memory.
pub(crate) fn merged(writes: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Vec<(u64, Vec<u8>)> {
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    for (addr, data) in writes {
        match out.last_mut() {
            Some((at, before)) if *at + before.len() as u64 == addr => {
                before.extend_from_slice(&data)
            }
            _ if data.is_empty() => {}
            _ => out.push((addr, data)),
        }
    }
    out
}

/// Spreads bytes over pieces of memory.
pub(crate) fn spread(pieces: &[(u64, u32)], data: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut rest = data;
    let mut out = Vec::new();
    for (addr, len) in pieces {
        let (now, later) = rest.split_at((*len as usize).min(rest.len()));
        out.push((*addr, now.to_vec()));
        rest = later;
    }
    out
}

pub(crate) fn is_supported(kind: QpType, op: &SendOp) -> bool {
    use SendOp as S;
    match kind {
        QpType::Rc | QpType::XrcSend => true,
        QpType::XrcRecv => false,
        QpType::RawPacket => matches!(op, S::Send),
        QpType::Ud => matches!(op, S::Send | S::SendImm(_)),
        QpType::Uc => !matches!(
            op,
            S::SendInv(_)
                | S::Read(_)
                | S::CompareSwap { .. }
                | S::FetchAdd { .. }
                | S::AtomicWrite(_)
                | S::Flush { .. }
        ),
    }
}
