//! A page as bytes.
//!
//! Numbers are in little-endian order. A text is its length (16 bits) and UTF-8. A record is its
//! length (16 bits) and its fields. A reader skips what follows the known fields of a record, so
//! that a later version may add fields at the end. Other changes need another [`VERSION`].
use super::{Arm, PacketPath, Page, Pair, Process, Queue};
use adverb_engine::Gid;
use std::fmt;

/// The version of the format.
const VERSION: u16 = 2;
/// Most bytes of a page that a process fills.
pub const PAGE: usize = 24 << 10;
/// The longest text in bytes. A longer text is cut.
const TEXT: usize = 1000;
/// Most counters of a page.
const COUNTERS: usize = 400;

/// Why bytes are no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Another version of the format.
    Version(u16),
    /// Cut, or not as the format says.
    Malformed,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Version(version) => {
                write!(f, "its Adverb answers in format {version}, not in {VERSION}")
            }
            Bad::Malformed => write!(f, "its answer cannot be read"),
        }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT)];
        self.u16(text.len() as u16);
        self.0.extend_from_slice(text.as_bytes());
    }
    fn record(&mut self, fill: impl FnOnce(&mut Writer)) {
        let at = self.0.len();
        self.u16(0);
        fill(self);
        let len = (self.0.len() - at - 2) as u16;
        self.0[at..at + 2].copy_from_slice(&len.to_le_bytes());
    }
    fn records<T>(&mut self, all: &[T], fill: impl Fn(&T, &mut Writer)) {
        self.u16(all.len() as u16);
        for one in all {
            self.record(|writer| fill(one, writer));
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Bad::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        self.bytes(N)?.try_into().map_err(|_| Bad::Malformed)
    }
    fn u8(&mut self) -> Result<u8, Bad> {
        Ok(self.array::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, Bad> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn u32(&mut self) -> Result<u32, Bad> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, Bad> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    fn text(&mut self) -> Result<String, Bad> {
        let len = usize::from(self.u16()?);
        if len > TEXT {
            return Err(Bad::Malformed);
        }
        let text = std::str::from_utf8(self.bytes(len)?).map_err(|_| Bad::Malformed)?;
        Ok(text.to_owned())
    }
    fn record<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Bad>,
    ) -> Result<T, Bad> {
        let len = usize::from(self.u16()?);
        read(&mut Reader(self.bytes(len)?))
    }
    /// The count is not trusted: no memory is reserved for it, and each record takes bytes.
    fn records<T>(
        &mut self,
        read: impl Fn(&mut Reader<'a>) -> Result<T, Bad>,
    ) -> Result<Vec<T>, Bad> {
        let count = self.u16()?;
        (0..count).map(|_| self.record(&read)).collect()
    }
}

impl Page {
    /// The page as bytes.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(PAGE / 4));
        out.u16(VERSION);
        out.u32(self.next.unwrap_or(0));
        out.record(|out| self.process.emit(out));
        let counters = &self.counters[..self.counters.len().min(COUNTERS)];
        out.records(counters, |(name, value), out| {
            out.text(name);
            out.u64(*value);
        });
        out.records(&self.queues, Queue::emit);
        out.records(&self.queue_pairs, Pair::emit);
        out.records(&self.objects, |line, out| out.text(line));
        out.0
    }

    /// Reads a page from bytes of another process.
    ///
    /// # Errors
    /// The bytes are no page of this version.
    pub fn parse(bytes: &[u8]) -> Result<Page, Bad> {
        let mut bytes = Reader(bytes);
        let version = bytes.u16()?;
        if version != VERSION {
            return Err(Bad::Version(version));
        }
        let next = Some(bytes.u32()?).filter(|next| *next != 0);
        let process = bytes.record(Process::read)?;
        let counters = bytes.records(|record| Ok((record.text()?, record.u64()?)))?;
        let queues = bytes.records(Queue::read)?;
        let queue_pairs = bytes.records(Pair::read)?;
        let objects = bytes.records(Reader::text)?;
        Ok(Page { next, process, counters, queues, queue_pairs, objects })
    }
}

impl Process {
    fn emit(&self, out: &mut Writer) {
        out.u32(self.pid);
        out.u16(self.slot);
        out.u64(self.at);
        out.text(&self.name);
        out.text(&self.version);
        out.u32(self.contexts);
        out.u32(self.queue_pairs);
    }

    fn read(from: &mut Reader<'_>) -> Result<Process, Bad> {
        Ok(Process {
            pid: from.u32()?,
            slot: from.u16()?,
            at: from.u64()?,
            name: from.text()?,
            version: from.text()?,
            contexts: from.u32()?,
            queue_pairs: from.u32()?,
        })
    }
}

const BUSY: u8 = 1;
const RETRYING: u8 = 2;
const SHARED: u8 = 4;

impl Pair {
    /// Most bytes of the record.
    pub(crate) const LONGEST: usize = 200 + 2 * TEXT;

    fn emit(&self, out: &mut Writer) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.u32(self.number);
        out.u8(self.qp_type);
        out.u8(self.state);
        out.u8(flag(self.busy, BUSY) | flag(self.retrying, RETRYING) | flag(self.shared, SHARED));
        out.u8(match self.way {
            PacketPath::Network => 0,
            PacketPath::Memory => 1,
            PacketPath::Frames => 2,
        });
        out.u32(self.peer_pid);
        out.u32(self.dest);
        out.0.extend_from_slice(&self.own_gid.0);
        out.0.extend_from_slice(&self.peer_gid.0);
        for value in [self.send_cq, self.recv_cq, self.depth, self.open, self.receives] {
            out.u32(value);
        }
        for value in
            [self.posted, self.sent_bytes, self.read_bytes, self.received, self.received_bytes]
        {
            out.u64(value);
        }
        for value in [self.retransmitted, self.timeouts, self.rnr_naks, self.seq_naks] {
            out.u64(value);
        }
        out.u64(self.drops);
        out.u64(self.refused);
        out.text(&self.error);
        out.text(&self.unfit);
        out.u32(self.srq);
        out.u32(self.unknown_key);
    }

    fn read(from: &mut Reader<'_>) -> Result<Pair, Bad> {
        let (number, qp_type, state, flags) = (from.u32()?, from.u8()?, from.u8()?, from.u8()?);
        Ok(Pair {
            number,
            qp_type,
            state,
            busy: flags & BUSY != 0,
            retrying: flags & RETRYING != 0,
            shared: flags & SHARED != 0,
            way: match from.u8()? {
                0 => PacketPath::Network,
                1 => PacketPath::Memory,
                2 => PacketPath::Frames,
                _ => return Err(Bad::Malformed),
            },
            peer_pid: from.u32()?,
            dest: from.u32()?,
            own_gid: Gid(from.array()?),
            peer_gid: Gid(from.array()?),
            send_cq: from.u32()?,
            recv_cq: from.u32()?,
            depth: from.u32()?,
            open: from.u32()?,
            receives: from.u32()?,
            posted: from.u64()?,
            sent_bytes: from.u64()?,
            read_bytes: from.u64()?,
            received: from.u64()?,
            received_bytes: from.u64()?,
            retransmitted: from.u64()?,
            timeouts: from.u64()?,
            rnr_naks: from.u64()?,
            seq_naks: from.u64()?,
            drops: from.u64()?,
            refused: from.u64()?,
            error: from.text()?,
            // A page of an earlier build ends here.
            unfit: from.text().unwrap_or_default(),
            srq: from.u32().unwrap_or_default(),
            unknown_key: from.u32().unwrap_or_default(),
        })
    }
}

const CHANNEL: u8 = 1;
const BROKEN: u8 = 2;

impl Queue {
    /// Most bytes of the record.
    pub(crate) const LONGEST: usize = 100 + 2 * TEXT;

    fn emit(&self, out: &mut Writer) {
        for value in [self.number, self.capacity, self.waiting, self.unannounced, self.unread] {
            out.u32(value);
        }
        out.u8(match self.arm {
            Arm::None => 0,
            Arm::Next => 1,
            Arm::Solicited => 2,
            Arm::Errors => 3,
        });
        out.u8(if self.channel { CHANNEL } else { 0 } | if self.broken { BROKEN } else { 0 });
        out.u64(self.arms);
        out.u64(self.silent_ms);
        out.text(&self.waiter);
        out.text(&self.stuck);
        out.u32(self.poller);
    }

    fn read(from: &mut Reader<'_>) -> Result<Queue, Bad> {
        let (number, capacity, waiting) = (from.u32()?, from.u32()?, from.u32()?);
        let (unannounced, unread) = (from.u32()?, from.u32()?);
        let arm = match from.u8()? {
            0 => Arm::None,
            1 => Arm::Next,
            2 => Arm::Solicited,
            3 => Arm::Errors,
            _ => return Err(Bad::Malformed),
        };
        let flags = from.u8()?;
        let (channel, broken) = (flags & CHANNEL != 0, flags & BROKEN != 0);
        let (arms, silent_ms) = (from.u64()?, from.u64()?);
        let (waiter, stuck) = (from.text()?, from.text()?);
        // A page of an earlier build ends here.
        let poller = from.u32().unwrap_or_default();
        Ok(Queue {
            number,
            capacity,
            waiting,
            unannounced,
            unread,
            arm,
            channel,
            broken,
            arms,
            silent_ms,
            waiter,
            stuck,
            poller,
        })
    }
}
