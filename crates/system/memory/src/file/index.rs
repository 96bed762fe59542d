//! The start addresses of blocks, for readers without the table's lock. Each `free` of a
//! page-aligned address looks here.
//!
//! Entries are added and removed under the table's lock. A reader always finds the entry of a block
//! not freed by the program: an entry never moves, and was written before the program got the
//! address.
use crate::sys::{self, At, RW};
use nix::errno::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of a bucket: their addresses fill one cache line. A block with a full bucket stays
/// private.
const WAYS: usize = 8;
const BITS: u32 = 10;

/// The block is in the pool: the program has freed it.
pub(super) const POOLED: u64 = 1;
/// The block is registered.
pub(super) const HELD: u64 = 2;
/// When freed, the block goes back to the allocator, because the mapping has been changed.
pub(super) const MARKED: u64 = 4;
/// All flags. The flags fit because lengths are whole pages.
const FLAGS: u64 = 7;

#[repr(C, align(64))]
struct Bucket {
    /// Start addresses of blocks, 0 for none.
    starts: [AtomicU64; WAYS],
    abouts: [About; WAYS],
}

/// The length of a block, and its flags.
#[repr(transparent)]
pub(super) struct About(AtomicU64);

impl About {
    pub fn len(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !FLAGS
    }

    /// Whether one of these flags is set.
    pub fn has(&self, flags: u64) -> bool {
        self.0.load(Ordering::Acquire) & flags != 0
    }

    /// Sets flags; returns whether none of them was set before.
    pub fn set(&self, flags: u64) -> bool {
        self.0.fetch_or(flags, Ordering::AcqRel) & flags == 0
    }

    pub fn clear(&self, flags: u64) {
        self.0.fetch_and(!flags, Ordering::AcqRel);
    }
}

/// All blocks of the program, and the blocks in the pool.
pub(super) struct Index(&'static [Bucket]);

impl Index {
    /// Room for all entries; untouched room costs nothing.
    pub fn new() -> Result<Self, Errno> {
        let bytes = size_of::<Bucket>() << BITS;
        // SAFETY: a new mapping, aligned to a page and kept as long as the process. All zeroes are
        // buckets without entries.
        unsafe {
            let at = sys::map(At::Anywhere, bytes as u64, RW, libc::MAP_PRIVATE, None)?;
            Ok(Index(std::slice::from_raw_parts(at as *const Bucket, 1 << BITS)))
        }
    }

    fn bucket(&self, start: u64) -> &'static Bucket {
        let hash = (start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (u64::BITS - BITS)) as usize]
    }

    /// The block starting at an address.
    pub fn find(&self, start: u64) -> Option<&'static About> {
        let bucket = self.bucket(start);
        let at = bucket.starts.iter().position(|s| s.load(Ordering::Acquire) == start)?;
        (start != 0).then(|| &bucket.abouts[at])
    }

    /// Adds a block. Returns `false` if there is no room. The caller holds the table.
    pub fn add(&self, start: u64, len: u64) -> bool {
        let bucket = self.bucket(start);
        let Some(at) = bucket.starts.iter().position(|s| s.load(Ordering::Relaxed) == 0) else {
            return false;
        };
        bucket.abouts[at].0.store(len, Ordering::Relaxed);
        bucket.starts[at].store(start, Ordering::Release);
        true
    }

    /// Removes a block. The caller holds the table.
    pub fn remove(&self, start: u64) {
        let bucket = self.bucket(start);
        let found = bucket.starts.iter().find(|s| s.load(Ordering::Relaxed) == start);
        if let Some(found) = found {
            found.store(0, Ordering::Release);
        }
    }

    /// Sets a flag of a block, if the index has the block.
    pub fn mark(&self, start: u64, flag: u64) {
        if let Some(about) = self.find(start) {
            about.set(flag);
        }
    }
}
