//! The segment of tables as mapped in one process, which is the owner or a peer.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use adverb_os::sys::{Fd, FdTable};
use libc::c_int;

use super::entry::TableEntry;
use super::hazards::Hazard;
use super::layout::{HAZARDS, Identity, KEYS, QPS};
use crate::ShmError;
use crate::segment::{self, Mapping, READ_WRITE};

/// The first word of tables of this version.
const MAGIC: u64 = u64::from_be_bytes(*b"ADVTABL\x05");
const GRANULE: usize = 4096;
/// Bytes before the entries.
const FIXED: usize = 5 * GRANULE;
const SLOTS: usize = QPS + KEYS;
const PER_GRANULE: usize = GRANULE / size_of::<TableEntry>();
const LEN: usize = FIXED + SLOTS * size_of::<TableEntry>();
/// No huge page size divides the length, so a file on hugetlbfs cannot have this length. Huge pages
/// can run out, and then an access raises SIGBUS.
const _: () = assert!(!LEN.is_multiple_of(segment::SMALLEST_HUGE_PAGE));
const _: () = assert!(
    size_of::<Fixed>() <= FIXED && size_of::<TableEntry>() == 64 && SLOTS.is_multiple_of(64)
);

#[repr(C, align(64))]
struct Line<T>(T);

/// The part of the segment used by every process.
#[repr(C)]
struct Fixed {
    head: Line<Head>,
    sleeping: Line<AtomicU32>,
    used: Line<AtomicU64>,
    hazards: [Hazard; HAZARDS],
}

/// Indexes of the words outside of the entries, to be overwritten by fuzzing and tests.
pub(super) const SLEEPING_WORD: usize = std::mem::offset_of!(Fixed, sleeping) / 8;
pub(super) const USED_WORD: usize = std::mem::offset_of!(Fixed, used) / 8;
pub(super) const HAZARD_WORDS: usize = std::mem::offset_of!(Fixed, hazards) / 8;

#[repr(C)]
struct Head {
    magic: AtomicU64,
    nonce: AtomicU64,
    pid: AtomicU64,
    start_time: AtomicU64,
    thread: AtomicU64,
}

/// The kernel's number of the calling thread.
pub(super) fn thread_number() -> u32 {
    // SAFETY: no preconditions. By number, because older C libraries have no function for this
    // call.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

pub(super) struct Memory {
    map: Mapping,
    /// The owner's descriptor, in a table that the child of a fork closes. A peer has none: opening
    /// the tables maps the segment.
    owned: Option<(Arc<FdTable>, Fd)>,
    /// One bit for each granule of entries with pages known to be allocated. The seals keep any
    /// process from freeing the pages again.
    allocated: Box<[AtomicU64]>,
}

impl Memory {
    fn new(fd: &OwnedFd, access: c_int) -> Result<Memory, ShmError> {
        segment::allocate(fd.as_fd(), 0..FIXED)?;
        let map = Mapping::new(fd.as_fd(), LEN, access)?;
        let words = ((LEN - FIXED) / GRANULE).div_ceil(64);
        let allocated = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(Memory { map, owned: None, allocated })
    }

    /// Creates tables, and a read-only descriptor for peers.
    pub(super) fn create(identity: Identity) -> Result<(Memory, OwnedFd), ShmError> {
        let fd = segment::create(LEN)?;
        let failed = |doing| move |source| ShmError::Os { doing, source };
        let theirs = fd.try_clone().map_err(failed("duplicate a descriptor"))?;
        let mut memory = Memory::new(&fd, READ_WRITE)?;
        segment::seal(fd.as_fd(), segment::READ_ONLY)?;
        let table = FdTable::with_room(1);
        let kept = table.register(fd.into_raw_fd()).map_err(failed("keep a descriptor"))?;
        memory.owned = Some((table, kept));
        let head = &memory.fixed().head.0;
        head.nonce.store(identity.nonce, Relaxed);
        head.pid.store(u64::from(identity.pid), Relaxed);
        head.start_time.store(identity.start_time, Relaxed);
        head.magic.store(MAGIC, Relaxed);
        Ok((memory, theirs))
    }

    /// Opens tables of another process; returns also the claimed identity of the process.
    pub(super) fn open(fd: OwnedFd) -> Result<(Memory, Identity), ShmError> {
        segment::verify(fd.as_fd(), LEN, segment::READ_ONLY)?;
        let memory = Memory::new(&fd, libc::PROT_READ)?;
        let head = &memory.fixed().head.0;
        let found = head.magic.load(Relaxed);
        if found != MAGIC {
            return Err(ShmError::WrongFormat { expected: MAGIC, found });
        }
        let identity = Identity {
            pid: head.pid.load(Relaxed) as u32,
            start_time: head.start_time.load(Relaxed),
            nonce: head.nonce.load(Relaxed),
        };
        Ok((memory, identity))
    }

    #[inline]
    fn fixed(&self) -> &Fixed {
        // SAFETY: the mapping begins with `Fixed`, is aligned to a page and is large enough
        // (asserted above). All fields are atomics, so any bytes are a valid value, and other
        // processes may change them.
        unsafe { &*self.map.as_ptr().cast::<Fixed>() }
    }

    /// Whether the entry may be accessed: its page is allocated, already or by this call.
    pub(super) fn is_allocated(&self, slot: usize) -> bool {
        let granule = slot / PER_GRANULE;
        let (word, bit) = (&self.allocated[granule / 64], 1 << (granule % 64));
        if word.load(Relaxed) & bit != 0 {
            return true;
        }
        let start = FIXED + granule * GRANULE;
        let done = match &self.owned {
            Some((_, fd)) => {
                fd.borrow().is_some_and(|fd| segment::allocate(fd, start..start + GRANULE).is_ok())
            }
            // The owner allocates the page before publishing anything there.
            None => self.map.is_there(start..start + GRANULE),
        };
        if done {
            word.fetch_or(bit, Relaxed);
        }
        done
    }

    /// An entry. The caller knows that its page is allocated
    /// ([`is_allocated`](Self::is_allocated)).
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> &TableEntry {
        assert!(slot < SLOTS);
        // SAFETY: within the mapping and aligned, because the mapping and `FIXED` are aligned. All
        // fields are atomics.
        unsafe { &*self.map.as_ptr().add(FIXED).cast::<TableEntry>().add(slot) }
    }

    #[inline]
    pub(super) fn hazards(&self) -> &[Hazard; HAZARDS] {
        &self.fixed().hazards
    }

    /// The number of hazards ever used.
    #[inline]
    pub(super) fn used(&self) -> &AtomicU64 {
        &self.fixed().used.0
    }

    pub(super) fn thread(&self) -> &AtomicU64 {
        &self.fixed().head.0.thread
    }

    #[inline]
    pub(super) fn sleeping(&self) -> &AtomicU32 {
        &self.fixed().sleeping.0
    }

    /// Any word of the segment, as reachable for a hostile owner. For the owner only, because peers
    /// cannot write.
    pub(super) fn any_word(&self, index: usize) -> &AtomicU64 {
        let index = index % (LEN / 8);
        // SAFETY: within the mapping and aligned; all words are atomics. The owner has mapped the
        // segment for writing.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().cast::<u64>().add(index)) }
    }

    /// The index of the first word of an entry.
    pub(super) const fn word_of_entry(slot: usize) -> usize {
        (FIXED + slot * size_of::<TableEntry>()) / 8
    }

    /// For a peer: removes the mapping of the owner's segment. From then on every word reads as
    /// zero, which is an empty table.
    pub(super) fn let_go(&self) {
        if self.owned.is_none() {
            self.map.let_go();
        }
    }

    /// For the owner: closes the descriptor in the child of a fork. Calls only `fstat` and `close`.
    pub(super) fn close_after_fork(&self) {
        if let Some((table, _)) = &self.owned {
            table.close_all();
        }
    }

    /// Whether the calling process made the mapping; false in a forked child.
    pub(super) fn is_ours(&self) -> bool {
        self.map.is_ours()
    }
}
