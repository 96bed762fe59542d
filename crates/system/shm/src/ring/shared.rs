//! The cells of a ring in a segment, and the two ends of the ring.

use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::protocol::{CELL, Cells, Following, HEADER, Reader, Writer, max_body};
use crate::ShmError;
use crate::segment::{self, Mapping, READ_WRITE};

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
pub struct Shared<const N: u64> {
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
        match shared.word(0).load(Relaxed) {
            MAGIC => Ok(shared),
            found => Err(ShmError::WrongFormat { expected: MAGIC, found }),
        }
    }

    fn map(fd: &OwnedFd) -> Result<Self, ShmError> {
        let map = Mapping::new(fd.as_fd(), Self::LEN, READ_WRITE)?;
        map.populate();
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

/// The producer's end of a ring in shared memory.
pub type Producer = Writer<Shared<COUNT>>;

impl Producer {
    /// The longest body of a record.
    pub const MAX_BODY: usize = max_body(COUNT);

    /// Opens the producer's end of another process's ring. A ring has one producer: no other
    /// process may have opened this end.
    pub fn open(fd: OwnedFd) -> Result<Producer, ShmError> {
        Ok(Writer::new(Shared::open(&fd)?))
    }
}

/// The consumer's end of a ring in shared memory.
pub type Consumer = Reader<Shared<COUNT>>;

impl Consumer {
    /// Creates a ring, and a descriptor for the process of the producer.
    pub fn create() -> Result<(Consumer, OwnedFd), ShmError> {
        let (shared, fd) = Shared::create()?;
        Ok((Reader::new(shared), fd))
    }
}

/// The records behind the record being taken from a ring in shared memory.
pub type Behind<'a> = Following<'a, Shared<COUNT>>;
