//! The segment of tables as mapped in one process, its owner's or a peer's.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use adverb_os::sys::{Fd, FdTable};

use super::entry::Entry;
use super::layout::{Identity, KEYS, MARKS, QPS};
use super::marks::Mark;
use super::offers::Offers;
use crate::ShmError;
use crate::segment::{self, Access, Mapping};

/// The first word of tables of this version.
const MAGIC: u64 = u64::from_be_bytes(*b"ADVTABL\x04");
const GRANULE: usize = 4096;
/// Bytes before the entries.
const FIXED: usize = 5 * GRANULE;
const SLOTS: usize = QPS + KEYS;
const PER_GRANULE: usize = GRANULE / size_of::<Entry>();
/// Where the offers of the queue pairs begin.
const OFFERS: usize = FIXED + SLOTS * size_of::<Entry>();
/// Bytes from the offers of one queue pair to those of the next, so that none lies in two granules.
const STRIDE: usize = 1024;
const LEN: usize = OFFERS + QPS * STRIDE;
/// No huge page divides the size, so that no file of huge pages has it: those can run out, which is
/// a signal.
const _: () = assert!(!LEN.is_multiple_of(segment::SMALLEST_HUGE_PAGE));
const _: () = assert!(size_of::<Fixed>() <= FIXED && size_of::<Entry>() == 64 && SLOTS.is_multiple_of(64));
const _: () = assert!(
    size_of::<Offers>() <= STRIDE && GRANULE.is_multiple_of(STRIDE) && OFFERS.is_multiple_of(GRANULE)
);

#[repr(C, align(64))]
struct Line<T>(T);

/// What every process uses.
#[repr(C)]
struct Fixed {
    head: Line<Head>,
    sleeping: Line<AtomicU32>,
    used: Line<AtomicU64>,
    generation: Line<AtomicU64>,
    marks: [Mark; MARKS],
}

/// Where the words are that are no entries, for those who write them by force.
pub(super) const SLEEPING_WORD: usize = std::mem::offset_of!(Fixed, sleeping) / 8;
pub(super) const USED_WORD: usize = std::mem::offset_of!(Fixed, used) / 8;
pub(super) const MARK_WORDS: usize = std::mem::offset_of!(Fixed, marks) / 8;

#[repr(C)]
struct Head {
    magic: AtomicU64,
    nonce: AtomicU64,
    pid: AtomicU64,
    start_time: AtomicU64,
    thread: AtomicU64,
}

/// The number of the calling thread.
pub(super) fn thread_number() -> u32 {
    // SAFETY: no preconditions. By its number, as C libraries have no such function of old.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

pub(super) struct Memory {
    map: Mapping,
    /// The owner's descriptor. A peer has none: it maps the segment when it opens it.
    owned: Option<Owned>,
    /// A bit for each granule of entries that is known to have its pages. The seals let nobody take
    /// them away again.
    allocated: Box<[AtomicU64]>,
}

/// A descriptor that the child of a fork closes.
struct Owned {
    table: Arc<FdTable>,
    fd: Fd,
}

impl Owned {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        let table = FdTable::with_room(1);
        Ok(Owned { fd: table.register(fd.into_raw_fd())?, table })
    }
}

impl Memory {
    fn new(fd: &OwnedFd, access: Access) -> Result<Memory, ShmError> {
        segment::allocate(fd.as_fd(), 0..FIXED)?;
        let map = Mapping::new(fd.as_fd(), LEN, access)?;
        let granules = (LEN - FIXED) / GRANULE;
        Ok(Memory {
            map,
            owned: None,
            allocated: (0..granules.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// New tables, and a descriptor for peers, who can only read them.
    pub(super) fn create(identity: Identity) -> Result<(Memory, OwnedFd), ShmError> {
        let fd = segment::create(LEN)?;
        let theirs =
            fd.try_clone().map_err(|source| ShmError::Os { doing: "duplicate a descriptor", source })?;
        let mut memory = Memory::new(&fd, Access::Write)?;
        segment::seal(fd.as_fd(), segment::READ_ONLY)?;
        let kept = Owned::new(fd).map_err(|source| ShmError::Os { doing: "keep a descriptor", source })?;
        memory.owned = Some(kept);
        let head = &memory.fixed().head.0;
        head.nonce.store(identity.nonce, Relaxed);
        head.pid.store(u64::from(identity.pid), Relaxed);
        head.start_time.store(identity.start_time, Relaxed);
        head.magic.store(MAGIC, Relaxed);
        Ok((memory, theirs))
    }

    /// Tables of another process, and what it says it is.
    pub(super) fn open(fd: OwnedFd) -> Result<(Memory, Identity), ShmError> {
        segment::verify(fd.as_fd(), LEN, segment::READ_ONLY)?;
        let memory = Memory::new(&fd, Access::Read)?;
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
        // SAFETY: the mapping begins with it, aligned to a page and large enough (asserted above);
        // all of it is atomics, so any bytes are a value, and others may change them.
        unsafe { &*self.map.as_ptr().cast::<Fixed>() }
    }

    /// Whether the entry can be touched: it has its page, now or from now on.
    pub(super) fn is_allocated(&self, slot: usize) -> bool {
        self.has_granule(slot / PER_GRANULE)
    }

    /// The same of the offers of a queue pair.
    fn has_granule(&self, granule: usize) -> bool {
        let (word, bit) = (&self.allocated[granule / 64], 1 << (granule % 64));
        if word.load(Relaxed) & bit != 0 {
            return true;
        }
        let start = FIXED + granule * GRANULE;
        let done = match &self.owned {
            Some(Owned { fd, .. }) => {
                fd.borrow().is_some_and(|fd| segment::allocate(fd, start..start + GRANULE).is_ok())
            }
            // What the owner has published has its page.
            None => self.map.is_there(start..start + GRANULE),
        };
        if done {
            word.fetch_or(bit, Relaxed);
        }
        done
    }

    /// An entry, of which the caller knows that it is allocated.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> &Entry {
        assert!(slot < SLOTS);
        // SAFETY: within the mapping and aligned, as the mapping and `FIXED` are; all of it is
        // atomics.
        unsafe { &*self.map.as_ptr().add(FIXED).cast::<Entry>().add(slot) }
    }

    /// The offers at a place, which are counted from 1; `None` if there is no such place, or no
    /// memory for it.
    pub(super) fn offers(&self, place: u16) -> Option<&Offers> {
        let index = usize::from(place).checked_sub(1).filter(|index| *index < QPS)?;
        let at = OFFERS + index * STRIDE;
        // SAFETY: within the mapping and aligned; all of it is atomics.
        self.has_granule((at - FIXED) / GRANULE)
            .then(|| unsafe { &*self.map.as_ptr().add(at).cast::<Offers>() })
    }

    /// Counts the keys taken back.
    #[inline]
    pub(super) fn generation(&self) -> &AtomicU64 {
        &self.fixed().generation.0
    }

    #[inline]
    pub(super) fn marks(&self) -> &[Mark; MARKS] {
        &self.fixed().marks
    }

    /// How many of the marks were ever used.
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

    /// Any word of the segment, as a hostile owner has them at hand. For the owner alone: peers
    /// cannot write.
    pub(super) fn any_word(&self, index: usize) -> &AtomicU64 {
        let index = index % (LEN / 8);
        // SAFETY: within the mapping and aligned; all of it is atomics. The owner has mapped it for
        // writing.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().cast::<u64>().add(index)) }
    }

    /// The first word of an entry.
    pub(super) const fn word_of_entry(slot: usize) -> usize {
        (FIXED + slot * size_of::<Entry>()) / 8
    }

    /// For a peer: takes the mapping of the owner's segment away. From then on every word reads as
    /// zero, which is an empty table.
    pub(super) fn let_go(&self) {
        if self.owned.is_none() {
            self.map.let_go();
        }
    }

    /// For the owner: closes the descriptor in the child of a fork. Only `fstat` and `close` are
    /// called.
    pub(super) fn close_after_fork(&self) {
        if let Some(owned) = &self.owned {
            owned.table.close_all();
        }
    }

    /// Whether this is the process that mapped it, not a child of it.
    pub(super) fn is_ours(&self) -> bool {
        self.map.is_ours()
    }
}
