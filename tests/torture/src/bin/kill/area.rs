//! Memory of one end. For each queue pair there are parts to send, to receive, to read and to be
//! written, with guards between them that must not change.

use std::sync::Arc;

use adverb_bench::Result;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, Sge};
use adverb_device::{Mapping, Mr, Pd};
use adverb_memory::{Pages, SharedFile};

use super::failed;

/// Bytes of the longest message: more than a packet of a lane.
pub const LONGEST: usize = 100_000;
/// Outstanding requests of a queue pair, and number of posted receives.
pub const SLOTS: usize = 4;

const ROOM: usize = 104 << 10;
const GUARD: usize = 4096;
/// Parts of a queue pair. Each slot has the payload to send or write, the result of a read, and a
/// receive. Then follow the target of the peer's writes, the source of its reads, and a counter.
const PARTS: usize = 3 * SLOTS + 3;
const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// A part of the memory of a queue pair.
#[derive(Clone, Copy, Debug)]
pub enum MemoryPart {
    Out(usize),
    Into(usize),
    Receive(usize),
    Target,
    Source,
    Counter,
}

impl MemoryPart {
    fn number(self) -> usize {
        match self {
            MemoryPart::Out(slot) => slot,
            MemoryPart::Into(slot) => SLOTS + slot,
            MemoryPart::Receive(slot) => 2 * SLOTS + slot,
            MemoryPart::Target => 3 * SLOTS,
            MemoryPart::Source => 3 * SLOTS + 1,
            MemoryPart::Counter => 3 * SLOTS + 2,
        }
    }
    fn offset(self, qp: usize) -> usize {
        GUARD + (qp * PARTS + self.number()) * (ROOM + GUARD)
    }
}

/// The way in which the memory is shared with the peer.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Pages allocated by the device.
    Shared,
    /// A page-aligned allocation of the program.
    Block,
    /// Any other memory of the program.
    Private,
}

pub const KINDS: [Kind; 3] = [Kind::Shared, Kind::Block, Kind::Private];

/// Registered memory for some queue pairs.
pub struct Area {
    memory: Mapping,
    mr: Arc<Mr>,
    qps: usize,
}

/// A word with the identity of owner, message and place in the message.
#[must_use]
pub fn word(id: u64, qp: usize, seq: u32, place: usize) -> u64 {
    let mixed = (id ^ ((qp as u64) << 48) ^ u64::from(seq)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_left(23).wrapping_add(place as u64)
}

/// A whole message.
#[must_use]
pub fn message(id: u64, qp: usize, seq: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|place| word(id, qp, seq, place).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Sequence number of the source of reads, which stays constant while the process lives.
pub const CONSTANT: u32 = u32::MAX;

/// A word to write: the upper half identifies the writer.
#[must_use]
pub fn mark(id: u64, seq: u32) -> u64 {
    (id & !u64::from(u32::MAX)) | u64::from(seq)
}

fn guard(n: usize) -> Vec<u8> {
    message(0x6a09_e667_f3bc_c908, n, 7, GUARD)
}

impl Area {
    /// Registers memory of a kind.
    ///
    /// # Errors
    /// The refusal of the device or the system, in words.
    pub fn new(pd: &Arc<Pd>, qps: usize, kind: Kind, id: u64) -> Result<Self> {
        let len = GUARD + qps * PARTS * (ROOM + GUARD);
        let memory = match kind {
            Kind::Shared => Mapping::alloc(len).map_err(failed("memory"))?,
            Kind::Block | Kind::Private => {
                let file = SharedFile::of_process().map_err(failed("shared file"))?;
                let file = matches!(kind, Kind::Block).then_some(file);
                let (pages, _) = Pages::of_program(len, file).map_err(failed("pages"))?;
                Mapping::pages(Arc::new(pages))
            }
        };
        let mr = pd
            .reg_mapping(&memory, 0, len as u64, memory.addr(), ACCESS)
            .map_err(failed("register"))?;
        let area = Area { memory, mr, qps };
        for n in 0..=qps * PARTS {
            area.put(n * (ROOM + GUARD), &guard(n))?;
        }
        for qp in 0..qps {
            area.fill(qp, MemoryPart::Source, &message(id, qp, CONSTANT, LONGEST))?;
        }
        Ok(area)
    }

    fn put(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        if self.memory.write_at(offset, bytes) { Ok(()) } else { Err("a write outside".into()) }
    }

    fn get(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if self.memory.read_at(offset, &mut bytes) {
            Ok(bytes)
        } else {
            Err("a read outside".into())
        }
    }

    /// Writes the beginning of a part.
    pub fn fill(&self, qp: usize, part: MemoryPart, bytes: &[u8]) -> Result<()> {
        self.put(part.offset(qp), bytes)
    }

    /// Reads the beginning of a part.
    pub fn bytes(&self, qp: usize, part: MemoryPart, len: usize) -> Result<Vec<u8>> {
        self.get(part.offset(qp), len)
    }

    /// The first word of a part.
    pub fn word(&self, qp: usize, part: MemoryPart) -> Result<u64> {
        let bytes = self.bytes(qp, part, 8)?;
        Ok(bytes.try_into().map_or(0, u64::from_ne_bytes))
    }

    pub fn sge(&self, qp: usize, part: MemoryPart, len: usize) -> Sge {
        let addr = self.memory.addr() + part.offset(qp) as u64;
        Sge { addr, length: len as u32, lkey: self.mr.key() }
    }

    /// Address and key of the memory.
    pub fn remote(&self) -> Remote {
        Remote { va: self.memory.addr(), rkey: self.mr.key() }
    }

    /// A part of the other end's memory, which has the same layout.
    pub fn part_of(other: Remote, qp: usize, part: MemoryPart) -> Remote {
        Remote { va: other.va + part.offset(qp) as u64, ..other }
    }

    /// Checks the guards and the source of reads, which must be unchanged, and the targets, which
    /// only the peer may write.
    ///
    /// # Errors
    /// A forbidden change.
    pub fn verify(&self, id: u64, peer: u64) -> Result<()> {
        for n in 0..=self.qps * PARTS {
            if self.get(n * (ROOM + GUARD), GUARD)? != guard(n) {
                return Err(format!("guard {n} of {} was written to", self.qps * PARTS));
            }
        }
        for qp in 0..self.qps {
            if self.bytes(qp, MemoryPart::Source, LONGEST)? != message(id, qp, CONSTANT, LONGEST) {
                return Err(format!("what is only read was written to, queue pair {qp}"));
            }
            for (at, word) in
                self.bytes(qp, MemoryPart::Target, LONGEST)?.chunks_exact(8).enumerate()
            {
                let word =
                    u64::from_ne_bytes(word.try_into().map_err(|_| "a word of eight bytes")?);
                if word != 0 && word >> 32 != peer >> 32 {
                    return Err(format!(
                        "word {at} of what queue pair {qp} is written is {word:#x}"
                    ));
                }
            }
            if self.bytes(qp, MemoryPart::Target, ROOM)?[LONGEST..].iter().any(|b| *b != 0) {
                return Err(format!("bytes behind what queue pair {qp} is written"));
            }
        }
        Ok(())
    }

    /// Ends the registration.
    pub fn end(&self) -> Result<()> {
        self.mr.dereg().map_err(failed("deregister"))
    }
}
