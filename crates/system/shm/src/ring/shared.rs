//! The cells of a ring in a segment, and the two ends that processes hold.

use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::protocol::{self, CELL, Cells, HEADER, Pushed, Reader, Writer, max_body};
use crate::segment::{self, Access, Mapping};
use crate::{Broken, ShmError};

/// The first word of a ring of this version.
const MAGIC: u64 = u64::from_be_bytes(*b"ADVRING\x01");
/// Where the consumer's line is.
const CONSUMED: usize = 64;
/// Where the cells begin.
pub(super) const DATA: usize = 4096;
/// Cells of a ring: with 256 KiB it stays in a processor's cache with all that the program has
/// there.
const COUNT: u64 = 4096;

/// The memory of a ring of `N` cells in this process.
pub(super) struct Shared<const N: u64> {
    map: Mapping,
}

impl<const N: u64> Shared<N> {
    const LEN: usize = {
        let len = DATA + N as usize * CELL;
        // Thus no file of huge pages has it: those can run out, which is a signal.
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
        // Whoever made it should have; then this is quick.
        segment::allocate(fd.as_fd(), 0..Self::LEN)?;
        let shared = Self::map(fd)?;
        let found = shared.word(0).load(Relaxed);
        if found == MAGIC { Ok(shared) } else { Err(ShmError::WrongFormat { expected: MAGIC, found }) }
    }

    fn map(fd: &OwnedFd) -> Result<Self, ShmError> {
        let map = Mapping::new(fd.as_fd(), Self::LEN, Access::Write)?;
        map.populate(Access::Write);
        Ok(Shared { map })
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at <= Self::LEN - 8);
        // SAFETY: within the mapping and aligned (asserted); while the reference lives nobody of
        // this process accesses the word but by atomics: bodies are lent by `write` and `read`
        // only, from `&mut self` or to the one reader.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().add(at).cast()) }
    }

    /// Where the body of a record is.
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
        // reference into the mapping while `self` is borrowed. The consumer does not read there
        // before the record is published. A peer that breaks the rules changes bytes while they are
        // written: `fill` only writes, and nothing reads them back here.
        fill(unsafe { slice::from_raw_parts_mut(at, len) })
    }

    #[inline]
    fn read<R>(&self, index: u64, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let at = self.body(index, len);
        // SAFETY: `len` bytes of the mapping (asserted in `body`), which this process never writes.
        // The producer does not write there before they are released. A peer that breaks the rules
        // changes bytes while they are read: where they are and how many was decided from a copy of
        // the header, no decision here rests on them, and `f` is told to take them out by one copy
        // (`Consumer::take`).
        f(unsafe { slice::from_raw_parts(at, len) })
    }
}

/// The end of a ring that messages are put into. Who shares it among threads has a lock for it.
pub struct Producer(Writer<Shared<COUNT>>);

impl Producer {
    /// Longest body of a record.
    pub const MAX_BODY: usize = max_body(COUNT);

    /// Takes the producer's end of a ring that another process made. Nobody else may have taken it.
    pub fn open(fd: OwnedFd) -> Result<Producer, ShmError> {
        Ok(Producer(Writer::new(Shared::open(&fd)?)))
    }

    /// Puts a record in: `fill` writes all of the body's `len` bytes, or gives false, and nothing
    /// was put in.
    ///
    /// What `fill` leaves unwritten are bytes of older records. Err: the consumer published what it
    /// cannot have read; the ring is of no use any more.
    #[inline]
    pub fn push(
        &mut self,
        tag: u32,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<Pushed, Broken> {
        self.0.push(tag, len, fill)
    }

    /// A place behind all records put in so far.
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// Has the consumer read all records before such a place? It says so when it finds the ring
    /// empty, or has read much.
    pub fn has_read(&mut self, position: u64) -> bool {
        self.0.has_read(position)
    }

    /// Has the consumer read all that was written? It says so when it finds the ring empty.
    pub fn is_read(&mut self) -> bool {
        self.0.is_read()
    }

    /// Whether a record with a body of `len` bytes would find room. Err: as from
    /// [`push`](Producer::push).
    #[inline]
    pub fn has_room(&mut self, len: usize) -> Result<bool, Broken> {
        self.0.has_room(len)
    }
}

/// The records behind one that is being taken. They stay in the ring, and are taken later.
pub struct Behind<'a>(protocol::Behind<'a, Shared<COUNT>>);

impl Behind<'_> {
    /// Shows the next of them to `f`: its tag and its body, as [`Consumer::take`] does. `None`:
    /// nothing has come behind the last one, or the producer broke the ring. A hostile producer may
    /// change the record before it is taken.
    pub fn next<R>(&mut self, f: impl FnOnce(u32, &[u8]) -> R) -> Option<R> {
        self.0.next(f)
    }
}

/// The end of a ring that messages are taken from. Who shares it among threads has a lock for it.
pub struct Consumer(Reader<Shared<COUNT>>);

impl Consumer {
    /// Makes a ring, and a descriptor for the process that is to be its producer.
    pub fn create() -> Result<(Consumer, OwnedFd), ShmError> {
        let (shared, fd) = Shared::create()?;
        Ok((Consumer(Reader::new(shared)), fd))
    }

    /// Whether nothing has come: one load of a line that stays in this processor's cache until
    /// something comes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives the next record to `f`: its tag and its body.
    ///
    /// The body lies in the ring, and a hostile producer may change it at any time. So `f` copies
    /// out what it decides on, and decides on the copy. Err: the producer broke the ring; it is of
    /// no use any more.
    #[inline]
    pub fn take<R>(&mut self, f: impl FnOnce(u32, &[u8]) -> R) -> Result<Option<R>, Broken> {
        self.0.take(|tag, body, _| f(tag, body))
    }

    /// As [`take`](Consumer::take), for an `f` that may look at the records behind the one that it
    /// is given.
    #[inline]
    pub fn take_and_look<R>(
        &mut self,
        f: impl FnOnce(u32, &[u8], Behind<'_>) -> R,
    ) -> Result<Option<R>, Broken> {
        self.0.take(|tag, body, behind| f(tag, body, Behind(behind)))
    }

    /// Tells the producer of all that was read. It is told by itself every eighth of the ring, and
    /// when [`take`](Consumer::take) finds nothing.
    #[inline]
    pub fn release(&mut self) {
        self.0.release();
    }
}
