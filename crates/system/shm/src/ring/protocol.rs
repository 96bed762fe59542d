//! The accesses of the producer and the consumer to the cells of a ring. The cells are in a
//! segment, or in the memory of a model checker.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::Broken;
use crate::sync::{AtomicU64, load_acquire};

/// Bytes of a cell: one cache line.
pub(super) const CELL: usize = 64;
/// Bytes of a header word.
pub(super) const HEADER: usize = 8;
/// Bits of a tag.
const TAG_BITS: u32 = 24;
/// Bits 56 and up of a header word are the kind of the cell's content; 0 is none.
const RECORD: u64 = 1;
const SKIP: u64 = 2;
/// Header words cleared in advance at one time. With 1 instead of 8, a record going to and fro is
/// 10 % faster, and a stream of short records runs at half the speed. Stores to successive lines
/// proceed in parallel, and stores to lines going to and fro do not.
const AHEAD: u64 = 8;

/// The memory of a ring. Positions count cells since the creation of the ring. An index is a
/// position modulo `count`.
pub trait Cells {
    /// The number of cells, a power of two.
    fn count(&self) -> u64;
    /// The header word of a cell.
    fn header(&self, index: u64) -> &AtomicU64;
    /// The position up to which the consumer has read.
    fn consumed(&self) -> &AtomicU64;
    /// Gives `fill` the body of the record at `index` for writing. The body ends within the ring.
    fn write<R>(&mut self, index: u64, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;
    /// Gives `f` the body for reading.
    fn read<R>(&self, index: u64, len: usize, f: impl FnOnce(&[u8]) -> R) -> R;
}

/// The number of cells for a record with a body of `len` bytes.
#[inline]
fn cells_for(len: usize) -> u64 {
    (len + HEADER).div_ceil(CELL) as u64
}

/// The longest body in a ring of `count` cells. Even at the worst index such a record fits into an
/// empty ring, together with the skip and the cleared cell behind the record.
pub(super) const fn max_body(count: u64) -> usize {
    (count as usize / 2) * CELL - HEADER
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The consumer can take the record.
    Done,
    /// There is no room now.
    Full,
    /// `fill` returned false, or no ring can hold the record: the body is longer than
    /// `Producer::MAX_BODY`, or the tag has more than 24 bits.
    Refused,
}

/// The producer's end of a ring. Threads sharing it need a lock.
pub struct Writer<M> {
    cells: M,
    /// The position of the next record.
    head: u64,
    /// The header words from `head` up to this position are known to be 0.
    clean: u64,
    /// The consumer's position at the last read of it.
    consumed: u64,
    broken: bool,
}

impl<M: Cells> Writer<M> {
    /// The writer of an unused ring: all zeros.
    pub(super) fn new(cells: M) -> Self {
        Writer { cells, head: 0, clean: 1, consumed: 0, broken: false }
    }

    #[inline]
    fn free(&self) -> u64 {
        self.cells.count() - (self.head - self.consumed)
    }

    /// Reads the consumer's position. A position that the consumer cannot have reached breaks the
    /// ring.
    #[cold]
    fn look(&mut self) -> Result<(), Broken> {
        if self.broken {
            return Err(Broken);
        }
        let consumed = load_acquire(self.cells.consumed());
        if consumed < self.consumed || consumed > self.head {
            self.broken = true;
            return Err(Broken);
        }
        self.consumed = consumed;
        Ok(())
    }

    /// Finds room for a body of `len` bytes and for the cleared header behind the record: the cells
    /// to skip at the end of the ring, and the cells of the record behind them.
    #[inline]
    fn place(&mut self, len: usize) -> Result<Option<(u64, u64)>, Broken> {
        if self.broken {
            return Err(Broken);
        }
        let cells = cells_for(len);
        let count = self.cells.count();
        let left = count - (self.head & (count - 1));
        let skip = if cells > left { left } else { 0 };
        let needed = skip + cells + 1;
        if self.free() < needed {
            self.look()?;
            if self.free() < needed {
                return Ok(None);
            }
        }
        Ok(Some((skip, cells)))
    }

    /// The position behind all records pushed so far.
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Whether the consumer has read all records before `position`. The consumer publishes its
    /// position when it finds the ring empty, or after every eighth of the ring. Also true for a
    /// broken ring, because its consumer reads nothing more.
    pub fn has_read(&mut self, position: u64) -> bool {
        if self.consumed >= position {
            return true;
        }
        self.look().is_err() || self.consumed >= position
    }

    /// Whether the consumer has read all records. The consumer publishes this when it finds the
    /// ring empty.
    pub fn is_read(&mut self) -> bool {
        self.look().is_ok() && self.consumed == self.head
    }

    /// Whether a record with a body of `len` bytes would find room. `Err`: as for
    /// [`push`](Self::push).
    #[inline]
    pub fn has_room(&mut self, len: usize) -> Result<bool, Broken> {
        Ok(len <= max_body(self.cells.count()) && self.place(len)?.is_some())
    }

    /// Writes a record. `fill` writes all `len` bytes of the body, or returns false; then nothing
    /// is pushed.
    ///
    /// Bytes left unwritten by `fill` are bytes of older records. `Err`: the consumer published a
    /// position that it cannot have reached; the ring is unusable from then on.
    #[inline]
    pub fn push(
        &mut self,
        tag: u32,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<Pushed, Broken> {
        if len > max_body(self.cells.count()) || tag >> TAG_BITS != 0 {
            return Ok(Pushed::Refused);
        }
        let Some((skip, cells)) = self.place(len)? else { return Ok(Pushed::Full) };
        let mask = self.cells.count() - 1;
        let (start, end) = (self.head + skip, self.head + skip + cells);
        let clean = self.clean;
        // A body longer than a cell overwrites header words, even if `fill` gives up or unwinds.
        self.clean = self.head + 1;
        if !self.cells.write(start & mask, len, fill) {
            return Ok(Pushed::Refused);
        }
        if clean <= end {
            self.cells.header(end & mask).store(0, Relaxed);
        }
        let header = RECORD << 56 | u64::from(tag) << 32 | len as u64;
        if skip > 0 {
            self.cells.header(start & mask).store(header, Relaxed);
            self.cells.header(self.head & mask).store(SKIP << 56, Release);
        } else {
            self.cells.header(start & mask).store(header, Release);
        }
        self.head = end;
        self.clean = clean.max(end + 1);
        // Clear the next headers in advance, so that a short record waits for no cache line but its
        // own.
        if self.clean == end + 1 && self.free() > AHEAD {
            for position in end + 1..=end + AHEAD {
                self.cells.header(position & mask).store(0, Relaxed);
            }
            self.clean = end + 1 + AHEAD;
        }
        Ok(Pushed::Done)
    }
}

/// A record ready to be taken.
struct Record {
    /// The index of the header; `end` is the position behind the record.
    index: u64,
    end: u64,
    len: usize,
    tag: u32,
}

impl Record {
    /// The record at a position, or behind a skip there. `None`: no record yet.
    #[inline]
    fn at(cells: &impl Cells, position: u64) -> Result<Option<Self>, Broken> {
        let count = cells.count();
        let mut start = position;
        let mut header = load_acquire(cells.header(start & (count - 1)));
        if header == 0 {
            return Ok(None);
        }
        if header >> 56 == SKIP {
            // The producer stored the record at index 0 before the skip.
            start += count - (start & (count - 1));
            header = load_acquire(cells.header(0));
        }
        let index = start & (count - 1);
        let len = (header & u64::from(u32::MAX)) as usize;
        let tag = (header >> 32) as u32 & ((1 << TAG_BITS) - 1);
        if header >> 56 != RECORD || len > max_body(count) || index + cells_for(len) > count {
            return Err(Broken);
        }
        Ok(Some(Record { index, end: start + cells_for(len), len, tag }))
    }
}

/// The records behind the record being taken. They stay in the ring, and are taken later.
pub struct Following<'a, M> {
    cells: &'a M,
    at: u64,
    /// One ring length behind the record being taken: the end of the search.
    until: u64,
}

impl<M: Cells> Following<'_, M> {
    /// Passes the tag and the body of the next record to `f`, as [`Reader::take`] does. `None`:
    /// there is no further record yet, or the producer broke the ring. A hostile producer may
    /// change the record before the consumer takes it.
    pub fn next<R>(&mut self, f: impl FnOnce(u32, &[u8]) -> R) -> Option<R> {
        if self.at >= self.until {
            return None;
        }
        let Record { index, len, tag, end } = Record::at(self.cells, self.at).ok()??;
        self.at = end;
        (end <= self.until).then(|| self.cells.read(index, len, |body| f(tag, body)))
    }
}

/// The consumer's end of a ring. Threads sharing it need a lock.
pub struct Reader<M> {
    cells: M,
    /// The position of the next record.
    tail: u64,
    /// The position last published to the producer.
    published: u64,
    broken: bool,
}

impl<M: Cells> Reader<M> {
    /// The reader of an unused ring.
    pub(super) fn new(cells: M) -> Self {
        Reader { cells, tail: 0, published: 0, broken: false }
    }

    /// Whether no record is waiting. Costs one load of a cache line, which stays in this
    /// processor's cache until the next record arrives.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cells.header(self.tail & (self.cells.count() - 1)).load(Relaxed) == 0
    }

    /// Passes the tag and the body of the next record to `f`.
    ///
    /// The body lies in the ring, and a hostile producer may change it at any time. So `f` copies
    /// every value behind a decision, and decides on the copy. `Err`: the producer broke the ring;
    /// the ring is unusable from then on.
    #[inline]
    pub fn take<R>(&mut self, f: impl FnOnce(u32, &[u8]) -> R) -> Result<Option<R>, Broken> {
        self.take_and_look(|tag, body, _| f(tag, body))
    }

    /// As [`take`](Self::take), for an `f` that may also look at the following records.
    #[inline]
    pub fn take_and_look<R>(
        &mut self,
        f: impl FnOnce(u32, &[u8], Following<'_, M>) -> R,
    ) -> Result<Option<R>, Broken> {
        if self.broken {
            return Err(Broken);
        }
        let Some(Record { index, len, tag, end }) =
            Record::at(&self.cells, self.tail).inspect_err(|Broken| self.broken = true)?
        else {
            self.release();
            return Ok(None);
        };
        let behind =
            Following { cells: &self.cells, at: end, until: self.tail + self.cells.count() };
        let result = self.cells.read(index, len, |body| f(tag, body, behind));
        self.tail = end;
        if self.tail - self.published >= self.cells.count() / 8 {
            self.release();
        }
        Ok(Some(result))
    }

    /// Publishes to the producer how far the consumer has read. [`take`](Self::take) does so by
    /// itself after every eighth of the ring, and when it finds no record.
    #[inline]
    pub fn release(&mut self) {
        if self.published != self.tail {
            self.cells.consumed().store(self.tail, Release);
            self.published = self.tail;
        }
    }
}
