//! The owner's side: publishing, and marking what its threads use of others.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Weak};

use adverb_sync::Mutex;

use super::layout::{self, Identity, KeyEntry, MARKS, QPS, QpEntry, VACANT, WAYS};
use super::marks::{self, Mark, Use};
use super::memory::{self, Memory};
use super::offers::Offers;
use crate::sync::full_barrier;
use crate::{ShmError, segment};

/// What this process publishes.
///
/// Writers ([`set_qp`](Self::set_qp), [`remove_qp`](Self::remove_qp), [`set_key`](Self::set_key),
/// [`remove_key`](Self::remove_key), [`set_sleeping`](Self::set_sleeping)) take turns by a lock of
/// their caller's.
pub struct Published {
    inner: Arc<Inner>,
}

struct Inner {
    memory: Memory,
    identity: Identity,
    /// Tells these tables from all others this process ever had.
    id: u64,
    /// Which marks some thread has.
    claimed: Mutex<[bool; MARKS]>,
    /// Which places for offers are taken, a bit each.
    places: Mutex<[u64; QPS / 64]>,
}

impl Published {
    /// Empty tables, and a descriptor for peers. Through it they can read and not write.
    pub fn create() -> Result<(Published, OwnedFd), ShmError> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let identity =
            Identity { pid: std::process::id(), start_time: start_time(), nonce: segment::random() };
        let (memory, fd) = Memory::create(identity)?;
        let inner = Inner {
            memory,
            identity,
            id: IDS.fetch_add(1, Relaxed),
            claimed: Mutex::new([false; MARKS]),
            places: Mutex::new([0; QPS / 64]),
        };
        Ok((Published { inner: Arc::new(inner) }, fd))
    }

    /// Which process this is, as its peers read it.
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// In the child of a fork, which is to hold nothing of its parent. Only `fstat` and `close` are
    /// called.
    pub fn close_after_fork(&self) {
        self.inner.memory.close_after_fork();
    }

    /// Says which thread lives as long as this program, and no longer than that: an `exec` ends it
    /// before it replaces the program.
    pub fn set_thread(&self, thread: u32) {
        self.inner.memory.thread().store(thread.into(), Relaxed);
    }

    /// Publishes a queue pair under the low 14 bits of its number. False: there is no memory for
    /// it, or another with the same low bits is published, and it is not published.
    pub fn set_qp(&self, entry: &QpEntry) -> bool {
        let slot = layout::qp_index(entry.qpn);
        let memory = &self.inner.memory;
        if !memory.is_allocated(slot) || self.other_qp(slot, entry.qpn) {
            return false;
        }
        memory.entry(slot).write(&entry.to_words());
        true
    }

    /// Takes a queue pair back.
    pub fn remove_qp(&self, qpn: u32) {
        let slot = layout::qp_index(qpn);
        let memory = &self.inner.memory;
        if memory.is_allocated(slot) && !self.other_qp(slot, qpn) {
            memory.entry(slot).write(&VACANT);
        }
    }

    fn other_qp(&self, slot: usize, qpn: u32) -> bool {
        QpEntry::from_words(&self.inner.memory.entry(slot).own()).is_some_and(|entry| entry.qpn != qpn)
    }

    /// A place for the offers of a queue pair, which is empty; 0 if there is none, or no memory for
    /// it. The lowest that is free, so that places take memory for as many queue pairs as there are
    /// at one time.
    pub fn take_place(&self) -> u16 {
        let mut places = self.inner.places.lock();
        let Some(word) = places.iter().position(|word| *word != u64::MAX) else { return 0 };
        let bit = places[word].trailing_ones();
        let place = (word as u32 * u64::BITS + bit + 1) as u16;
        let Some(offers) = self.offers(place) else { return 0 };
        // Those of the queue pair before.
        offers.clear();
        places[word] |= 1 << bit;
        place
    }

    /// The place is free again. No entry names it any more.
    pub fn give_place_back(&self, place: u16) {
        if let Some(index) = u32::from(place).checked_sub(1) {
            let mut places = self.inner.places.lock();
            places[(index / u64::BITS) as usize] &= !(1 << (index % u64::BITS));
        }
    }

    /// The offers at a place that was taken.
    #[inline]
    pub fn offers(&self, place: u16) -> Option<&Offers> {
        self.inner.memory.offers(place)
    }

    /// The generation of offers.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.inner.memory.generation().load(Relaxed)
    }

    /// A key is about to be taken back: all offers so far are void.
    pub fn begin_generation(&self) {
        self.inner.memory.generation().fetch_add(1, SeqCst);
    }

    /// Publishes a key, or what has become of it. False: its bucket is full, or there is no memory,
    /// and it is not published.
    pub fn set_key(&self, entry: &KeyEntry) -> bool {
        let Some(slot) = self.find(entry.key, true) else { return false };
        self.inner.memory.entry(slot).write(&entry.to_words());
        true
    }

    /// Takes a key back; `false` if it was not published. A thread that uses it already goes on:
    /// see [`PeerTables::inside`](super::PeerTables::inside).
    pub fn remove_key(&self, key: u32) -> bool {
        let found = self.find(key, false);
        if let Some(slot) = found {
            self.inner.memory.entry(slot).write(&VACANT);
        }
        found.is_some()
    }

    /// Where a key is; or, if it is nowhere, a `vacant` place for it.
    fn find(&self, key: u32, vacant: bool) -> Option<usize> {
        let memory = &self.inner.memory;
        let start = QPS + layout::bucket(key);
        if !memory.is_allocated(start) {
            return None;
        }
        let mut free = None;
        for slot in start..start + WAYS {
            match KeyEntry::from_words(&memory.entry(slot).own()) {
                Some(entry) if entry.key == key => return Some(slot),
                None if vacant => free = free.or(Some(slot)),
                _ => {}
            }
        }
        free
    }

    /// Says whether the process sleeps and must be woken; gives back the new sequence, odd while it
    /// sleeps. Said again while it sleeps, it is a new announcement, for which peers wake it once
    /// more.
    ///
    /// Whoever has said that it sleeps looks once more whether something has come, and then sleeps:
    /// either it finds what a peer has sent, or that peer finds it asleep
    /// ([`PeerTables::sleeping`](super::PeerTables::sleeping)).
    pub fn set_sleeping(&self, on: bool) -> u32 {
        let word = self.inner.memory.sleeping();
        let mut sequence = word.load(Relaxed);
        if on || sequence % 2 == 1 {
            sequence = sequence.wrapping_add(if on && sequence % 2 == 1 { 2 } else { 1 });
            word.store(sequence, Relaxed);
        }
        full_barrier();
        sequence
    }

    /// Writes any word of the tables, as a hostile owner may.
    pub(crate) fn overwrite(&self, word: usize, value: u64) {
        self.inner.memory.any_word(word).store(value, Relaxed);
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> &Memory {
        &self.inner.memory
    }

    /// What the end of the calling thread does.
    #[cfg(test)]
    pub(super) fn end_thread(&self) {
        CLAIMS.with(|claims| {
            claims.last.set((0, 0));
            claims.all.borrow_mut().clear();
        });
    }

    /// Marks that the calling thread makes the use `at` of tables or memory of others, until the
    /// result is dropped. Entries that it looks at behind this, and finds valid, stay usable that
    /// long. `None`: the thread has its mark set already, or as many threads as there are marks
    /// have one.
    #[inline]
    pub fn enter(&self, at: &Use) -> Option<Busy<'_>> {
        let mark = self.mark()?;
        mark.enter(at);
        Some(Busy { mark, thread: PhantomData })
    }

    /// As [`enter`](Self::enter), for the use that the thread's mark named last, and runs `step`
    /// behind it, which gives the barrier: it makes an atomic change that reads what it changes, as
    /// taking a lock does. So a thread that takes a lock anyway pays for one such change instead of
    /// two. The result is of use if it [`names`](Busy::names) what the caller wants.
    #[inline]
    pub fn enter_by<R>(&self, step: impl FnOnce() -> R) -> (Option<Busy<'_>>, R) {
        match self.mark() {
            Some(mark) => {
                let result = mark.enter_by(step);
                (Some(Busy { mark, thread: PhantomData }), result)
            }
            None => (None, step()),
        }
    }

    /// The mark of the calling thread, if it has one and has not set it.
    #[inline]
    fn mark(&self) -> Option<&Mark> {
        let index = CLAIMS.try_with(|claims| claims.index(&self.inner)).ok()??;
        let mark = &self.inner.memory.marks()[index];
        (!mark.is_set()).then_some(mark)
    }

    /// Waits until every thread of this process that was within [`enter`](Self::enter) at the call
    /// has left it. The barrier stands behind what the caller wrote before: a thread that enters
    /// later sees that.
    pub fn wait_quiet(&self) {
        let memory = &self.inner.memory;
        let pause = |looks| {
            marks::pause(looks);
            true
        };
        marks::quiet(memory.used(), memory.marks(), pause);
    }
}

/// A thread that uses what others have published; until it is dropped, they leave it where it is.
pub struct Busy<'a> {
    mark: &'a Mark,
    /// The mark is the thread's.
    thread: PhantomData<*const ()>,
}

impl Busy<'_> {
    /// Does the thread's mark name this use?
    #[inline]
    pub fn names(&self, at: &Use) -> bool {
        self.mark.names(at)
    }
}

impl Drop for Busy<'_> {
    #[inline]
    fn drop(&mut self) {
        self.mark.leave();
    }
}

impl Inner {
    fn claim(&self) -> Option<usize> {
        let mut claimed = self.claimed.lock();
        let index = claimed.iter().position(|claimed| !claimed)?;
        claimed[index] = true;
        // Before the mark is set for the first time, and ordered with it by the barrier there.
        let used = self.memory.used();
        used.store(used.load(Relaxed).max(index as u64 + 1), Relaxed);
        self.memory.marks()[index].belongs_to(memory::thread_number());
        Some(index)
    }

    /// The thread that had the mark ends.
    fn release(&self, index: usize) {
        if !self.memory.is_ours() {
            return;
        }
        let mark = &self.memory.marks()[index];
        if mark.is_set() {
            mark.leave(); // a `Busy` was forgotten
        }
        self.claimed.lock()[index] = false;
    }
}

thread_local! {
    static CLAIMS: Claims = const { Claims { last: Cell::new((0, 0)), all: RefCell::new(Vec::new()) } };
}

/// The marks of a thread, one for each tables of its process: nearly always one.
struct Claims {
    /// The id of the tables used last, and the mark in them.
    last: Cell<(u64, usize)>,
    all: RefCell<Vec<Claim>>,
}

struct Claim {
    tables: Weak<Inner>,
    id: u64,
    index: usize,
}

impl Claims {
    #[inline]
    fn index(&self, tables: &Arc<Inner>) -> Option<usize> {
        let (id, index) = self.last.get();
        if id == tables.id { Some(index) } else { self.claim(tables) }
    }

    #[cold]
    fn claim(&self, tables: &Arc<Inner>) -> Option<usize> {
        let mut all = self.all.borrow_mut();
        all.retain(|claim| claim.tables.strong_count() > 0);
        let known = all.iter().find(|claim| claim.id == tables.id).map(|claim| claim.index);
        let index = match known {
            Some(index) => index,
            None => {
                let index = tables.claim()?;
                all.push(Claim { tables: Arc::downgrade(tables), id: tables.id, index });
                index
            }
        };
        self.last.set((tables.id, index));
        Some(index)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(tables) = self.tables.upgrade() {
            tables.release(self.index);
        }
    }
}

/// When this process started; 0 if the system does not say.
fn start_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Field 22; the second is a name in parentheses, which may have anything in it.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0)
}
