//! One end of a pair of queue pairs: the requests posted here, and the messages due from the peer.
use crate::rng::pattern;
use crate::verdict::{Check, Violation, ensure};
use adverb_device::Qp;
use adverb_device::buffer::Buffer;
use adverb_engine::wr::Remote;
use adverb_engine::{Completion, QpType, Sge, WcOpcode, WcStatus};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a message slot.
pub(super) const SLOT: usize = 2048;
pub(super) const SENDS: usize = 32;
pub(super) const RECVS: usize = 64;
/// Bytes of the GRH in front of a received datagram.
const GRH: usize = 40;
const RECV: usize = SLOT + 64;
const RECV_AT: usize = SENDS * SLOT;
const REMOTE_AT: usize = RECV_AT + RECVS * RECV;
const SOURCE_AT: usize = REMOTE_AT + SENDS * SLOT;
const WORDS_AT: usize = SOURCE_AT + SLOT;
pub(super) const WORDS: usize = 4;
/// Memory of an end.
pub(super) const AREA: usize = WORDS_AT + 64;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Write,
    Read {
        from: usize,
    },
    /// Atomic on a word, with the expected old value.
    Atomic {
        swap: bool,
        old: u64,
    },
}

/// A request, not yet retired.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) seq: u64,
    pub(super) verb: Verb,
    pub(super) signaled: bool,
    pub(super) len: usize,
    pub(super) imm: Option<u32>,
}

/// A message that consumes a receive at the peer.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) seq: u64,
    pub(super) write: bool,
    pub(super) len: usize,
    pub(super) imm: Option<u32>,
    pub(super) solicited: bool,
    pub(super) epoch: u32,
    /// How often the message arrived.
    came: u32,
    /// The connection of this message has been broken.
    pub(super) void: bool,
}

impl Message {
    pub(super) fn new(op: &Op, solicited: bool, epoch: u32) -> Message {
        let Op { seq, len, imm, .. } = *op;
        let write = op.verb == Verb::Write;
        Message { seq, write, len, imm, solicited, epoch, came: 0, void: false }
    }

    pub(super) fn is_due(&self) -> bool {
        self.came == 0 && !self.void
    }
}

/// An end.
pub(super) struct NodeEnd {
    pub(super) number: usize,
    pub(super) node: usize,
    pub(super) qp_type: QpType,
    /// Every message arrives once, in order.
    pub(super) exact: bool,
    /// Offset of this end's memory in the node's buffer.
    pub(super) area: usize,
    /// Indices of the world's queues: for sends and for receives.
    pub(super) queues: [usize; 2],
    pub(super) qp: Option<Arc<Qp>>,
    pub(super) connected: bool,
    pub(super) epoch: u32,
    pub(super) psn: u32,
    pub(super) seq: u64,
    pub(super) left: u64,
    pub(super) outstanding: VecDeque<Op>,
    pub(super) unsignaled: u32,
    pub(super) recvs: VecDeque<u64>,
    pub(super) next_recv: u64,
    /// Receives to post again.
    pub(super) owed: u64,
    pub(super) words: [u64; WORDS],
    /// Messages from the peer for this end's receives.
    pub(super) due: Vec<Message>,
}

/// What a completion says.
pub(super) enum Told {
    /// Retired requests.
    Retired(Vec<Op>),
    /// A receive is to be posted again.
    Received,
}

/// The bytes of request `seq` of an end.
pub(super) fn bytes_of(end: usize, seq: u64, len: usize) -> Vec<u8> {
    pattern((end as u64 + 1) << 40 | seq, len)
}

impl NodeEnd {
    pub(super) fn send_at(&self, seq: u64) -> usize {
        self.area + seq as usize % SENDS * SLOT
    }
    pub(super) fn recv_at(&self, n: u64) -> usize {
        self.area + RECV_AT + n as usize % RECVS * RECV
    }
    pub(super) fn remote_at(&self, seq: u64) -> usize {
        self.area + REMOTE_AT + seq as usize % SENDS * SLOT
    }
    pub(super) fn source_at(&self) -> usize {
        self.area + SOURCE_AT
    }
    pub(super) fn word_at(&self, word: usize) -> usize {
        self.area + WORDS_AT + word * 8
    }
    pub(super) fn remote(&self, buffer: &Buffer, at: usize) -> Remote {
        Remote { va: buffer.addr() + at as u64, rkey: buffer.key() }
    }
    pub(super) fn recv_sge(&self, buffer: &Buffer, n: u64) -> Sge {
        buffer.sge(self.recv_at(n), RECV)
    }

    /// May this end post now? A slot must be free. A message without acknowledgement (UC, UD) also
    /// needs a connected peer.
    pub(super) fn may_post(&self, peer_is_connected: bool) -> bool {
        self.left > 0
            && self.connected
            && self.outstanding.len() < SENDS - 4
            && (self.qp_type == QpType::Rc || peer_is_connected)
    }

    /// The connection of this end is broken.
    pub(super) fn forget(&mut self) {
        self.connected = false;
        self.outstanding.clear();
        self.unsignaled = 0;
        self.owed += self.recvs.len() as u64;
        self.recvs.clear();
    }

    /// Checks a polled completion of this end.
    pub(super) fn completes(
        &mut self,
        c: &Completion,
        buffer: &Buffer,
        peer: usize,
    ) -> Check<Told> {
        let id = self.number;
        ensure!(
            c.status == WcStatus::Success,
            "end {id}: {:?} ({:?}): {:?}",
            c.status,
            c.opcode,
            c.cause
        );
        if c.wr_id & 1 == 1 {
            self.receives(c, buffer, peer)?;
            return Ok(Told::Received);
        }
        let seq = c.wr_id >> 1;
        let mut retired = Vec::new();
        while let Some(op) = self.outstanding.pop_front() {
            let last = op.seq == seq;
            ensure!(last || !op.signaled, "end {id}: request {} completes before {}", seq, op.seq);
            retired.push(op);
            if last {
                return Ok(Told::Retired(retired));
            }
        }
        Err(Violation(format!("end {id}: request {seq} completes, which is not outstanding")))
    }

    fn receives(&mut self, c: &Completion, buffer: &Buffer, peer: usize) -> Check {
        let id = self.number;
        let n = c.wr_id >> 1;
        let first = self.recvs.pop_front();
        ensure!(first == Some(n), "end {id}: receive {n} completes, and {first:?} is the oldest");
        let write = c.opcode == WcOpcode::RecvRdmaWithImm;
        let skip = if self.qp_type == QpType::Ud { GRH } else { 0 };
        let len = c.byte_len as usize - skip;
        let mut bytes = vec![0; if write { 0 } else { len }];
        ensure!(buffer.read_at(self.recv_at(n) + skip, &mut bytes), "a receive leaves the buffer");
        let imm = c.flags.contains(adverb_engine::WcFlags::WITH_IMM).then_some(c.imm);
        let (epoch, is_rc) = (self.epoch, self.qp_type == QpType::Rc);
        let is_it = |m: &Message| {
            m.write == write
                && m.len == len
                && m.imm == imm
                && m.solicited == c.solicited
                && (write || bytes == bytes_of(peer, m.seq, len))
                && (!is_rc || m.epoch == epoch)
        };
        if self.exact {
            // This is the next message; messages of a broken connection may have been lost.
            let found = self.due.iter().position(|m| m.came == 0 && is_it(m));
            let Some(at) = found else {
                return Err(Violation(format!(
                    "end {id}: {c:?} was not posted; due {:?}",
                    self.due.iter().find(|m| m.is_due())
                )));
            };
            let before = self.due[..at].iter().find(|m| m.is_due());
            ensure!(
                before.is_none(),
                "end {id}: message {} comes before {:?}",
                self.due[at].seq,
                before
            );
            self.due[at].came = 1;
        } else {
            let found = self.due.iter_mut().filter(|m| is_it(m)).min_by_key(|m| m.came);
            let Some(found) = found else {
                return Err(Violation(format!("end {id}: {c:?} was not posted")));
            };
            found.came += 1;
        }
        Ok(())
    }

    /// A request of this end has retired, so the bytes must be in place. `buffers` are the buffers
    /// of this end and of the peer.
    pub(super) fn check_retired(&self, op: &Op, buffers: [&Buffer; 2], peer: &NodeEnd) -> Check {
        let id = self.number;
        if self.qp_type != QpType::Rc {
            return Ok(());
        }
        let read = |buffer: &Buffer, at: usize, len: usize| {
            let mut bytes = vec![0; len];
            let _ = buffer.read_at(at, &mut bytes);
            bytes
        };
        match op.verb {
            Verb::Send => {}
            Verb::Write => {
                let there = read(buffers[1], peer.remote_at(op.seq), op.len);
                ensure!(
                    there == bytes_of(id, op.seq, op.len),
                    "end {id}: WRITE {} is not in place",
                    op.seq
                );
            }
            Verb::Read { from } => {
                let here = read(buffers[0], self.send_at(op.seq), op.len);
                let there = bytes_of(peer.number, 1 << 30, SLOT);
                ensure!(
                    here == there[from..from + op.len],
                    "end {id}: READ {} brought other bytes",
                    op.seq
                );
            }
            Verb::Atomic { old, .. } => {
                let here = read(buffers[0], self.send_at(op.seq), 8);
                let here = here.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                ensure!(here == old, "end {id}: atomic {} brought {here}, not {old}", op.seq);
            }
        }
        Ok(())
    }
}
