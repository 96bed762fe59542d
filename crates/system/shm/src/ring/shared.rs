//! The cells of a ring in a segment, and the two ends of the ring.

use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::protocol::{self, CELL, Cells, HEADER, Pushed, Reader, Writer, max_body};
use crate::segment::{self, Access, Mapping};
use crate::{Broken, ShmError};

/// The first word of a ring of this version.
const MAGIC: u64 = u64::from_be_bytes(*b"ADVRING\x01");
/// Offset of the consumer's position.
const CONSUMED: usize = 64;
/// Offset of the cells.
pub(super) const DATA: usize = 4096;
/// Cells of a ring: 256 KiB, which stays in a processor's cache beside the working set of the
/// program.
const COUNT: u64 = 4096;

/// The memory of a ring of `N` cells in this process.
pub(super) struct Shared<const N: u64> {
    map: Mapping,
}

impl<const N: u64> Shared<N> {
    const LEN: usize = {
        let len = DATA + N as usize * CELL;
        // So a file on hugetlbfs cannot have this length. Huge pages can run out, and then an
        // access raises SIGBUS.
        assert!(!len.is_multiple_of(segment::SMALLEST_HUGE_PAGE));
        len
    };

    pub(super) fn create() -> Result<(Self, OwnedFd), ShmError> {
        let fd = segment::create(Self::LEN)?;
        segment::allocate(fd.as_fd(), 0..Self::LEN)?;
        segment::seal(fd.as_fd(), segment::FIXED)?;
        let shared = Self::map(&fd)?;
        shared.word(0).store(MAGIC, Relaxed);
        Ok((shared, fd))
    }

    pub(super) fn open(fd: &OwnedFd) -> Result<Self, ShmError> {
        segment::verify(fd.as_fd(), Self::LEN, segment::FIXED)?;
        // The creator should have allocated all pages; then this call is quick.
        segment::allocate(fd.as_fd(), 0..Self::LEN)?;
        let shared = Self::map(fd)?;
        let found = shared.word(0).load(Relaxed);
        if found == MAGIC {
            Ok(shared)
        } else {
            Err(ShmError::WrongFormat { expected: MAGIC, found })
        }
    }

    fn map(fd: &OwnedFd) -> Result<Self, ShmError> {
        let map = Mapping::new(fd.as_fd(), Self::LEN, Access::Write)?;
        map.populate(Access::Write);
        Ok(Shared { map })
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at <= Self::LEN - 8);
        // SAFETY: within the mapping and aligned (asserted). While the reference lives, this
        // process accesses the word only by atomics: `write` and `read` are the only functions
        // lending bodies, and they need `&mut self` or the single reader.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().add(at).cast()) }
    }

    /// The address of a record's body.
    #[inline]
    fn body(&self, index: u64, len: usize) -> *mut u8 {
        assert!(index < N);
        let start = DATA + index as usize * CELL + HEADER;
        assert!(len <= Self::LEN - start);
        // SAFETY: `start` is within the mapping, by the first assertion.
        unsafe { self.map.as_ptr().add(start) }
    }
}

impl<const N: u64> Cells for Shared<N> {
    #[inline]
    fn count(&self) -> u64 {
        N
    }

    #[inline]
    fn header(&self, index: u64) -> &AtomicU64 {
        self.word(DATA + (index % N) as usize * CELL)
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        self.word(CONSUMED)
    }

    #[inline]
    fn write<R>(&mut self, index: u64, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let at = self.body(index, len);
        // SAFETY: `len` bytes of the mapping (asserted in `body`). This process has no other
        // reference into the mapping while `self` is borrowed. The consumer does not read the body
        // before the record is published. A peer breaking the protocol can change bytes during the
        // write, but `fill` only writes, and no code here reads them back.
        fill(unsafe { slice::from_raw_parts_mut(at, len) })
    }

    #[inline]
    fn read<R>(&self, index: u64, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let at = self.body(index, len);
        // SAFETY: `len` bytes of the mapping (asserted in `body`), which this process never writes.
        // The producer does not write there before the consumer releases the cells. A peer breaking
        // the protocol can change bytes during the read. Address and length come from a checked
        // copy of the header, no decision here depends on the bytes, and `f` must take them out by
        // one copy (`Consumer::take`).
        f(unsafe { slice::from_raw_parts(at, len) })
    }
}

/// The producer's end of a ring. Threads sharing it need a lock.
pub struct Producer(Writer<Shared<COUNT>>);

impl Producer {
    /// The longest body of a record.
    pub const MAX_BODY: usize = max_body(COUNT);

    /// Opens the producer's end of another process's ring. A ring has one producer: no other
    /// process may have opened this end.
    pub fn open(fd: OwnedFd) -> Result<Producer, ShmError> {
        Ok(Producer(Writer::new(Shared::open(&fd)?)))
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
        self.0.push(tag, len, fill)
    }

    /// The position behind all records pushed so far.
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// Whether the consumer has read all records before `position`. The consumer publishes its
    /// position when it finds the ring empty, or after every eighth of the ring.
    pub fn has_read(&mut self, position: u64) -> bool {
        self.0.has_read(position)
    }

    /// Whether the consumer has read all records. The consumer publishes this when it finds the
    /// ring empty.
    pub fn is_read(&mut self) -> bool {
        self.0.is_read()
    }

    /// Whether a record with a body of `len` bytes would find room. `Err`: as for
    /// [`push`](Producer::push).
    #[inline]
    pub fn has_room(&mut self, len: usize) -> Result<bool, Broken> {
        self.0.has_room(len)
    }
}

/// The records behind the record being taken. They stay in the ring, and are taken later.
pub struct Behind<'a>(protocol::Behind<'a, Shared<COUNT>>);

impl Behind<'_> {
    /// Passes the tag and the body of the next record to `f`, as [`Consumer::take`] does. `None`:
    /// there is no further record yet, or the producer broke the ring. A hostile producer may
    /// change the record before the consumer takes it.
    pub fn next<R>(&mut self, f: impl FnOnce(u32, &[u8]) -> R) -> Option<R> {
        self.0.next(f)
    }
}

/// The consumer's end of a ring. Threads sharing it need a lock.
pub struct Consumer(Reader<Shared<COUNT>>);

impl Consumer {
    /// Creates a ring, and a descriptor for the process of the producer.
    pub fn create() -> Result<(Consumer, OwnedFd), ShmError> {
        let (shared, fd) = Shared::create()?;
        Ok((Consumer(Reader::new(shared)), fd))
    }

    /// Whether no record is waiting. Costs one load of a cache line, which stays in this
    /// processor's cache until the next record arrives.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Passes the tag and the body of the next record to `f`.
    ///
    /// The body lies in the ring, and a hostile producer may change it at any time. So `f` copies
    /// every value behind a decision, and decides on the copy. `Err`: the producer broke the ring;
    /// the ring is unusable from then on.
    #[inline]
    pub fn take<R>(&mut self, f: impl FnOnce(u32, &[u8]) -> R) -> Result<Option<R>, Broken> {
        self.0.take(|tag, body, _| f(tag, body))
    }

    /// As [`take`](Consumer::take), for an `f` that may also look at the following records.
    #[inline]
    pub fn take_and_look<R>(
        &mut self,
        f: impl FnOnce(u32, &[u8], Behind<'_>) -> R,
    ) -> Result<Option<R>, Broken> {
        self.0.take(|tag, body, behind| f(tag, body, Behind(behind)))
    }

    /// Publishes to the producer how far the consumer has read. [`take`](Consumer::take) does so by
    /// itself after every eighth of the ring, and when it finds no record.
    #[inline]
    pub fn release(&mut self) {
        self.0.release();
    }
}
