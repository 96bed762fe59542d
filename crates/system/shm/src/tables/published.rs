//! The owner's side of the tables: publishing, and marking which published objects of other
//! processes its threads use.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use adverb_sync::Mutex;

use super::hazards::{self, Hazard, Use};
use super::layout::{self, Failure, HAZARDS, Identity, KeyEntry, QPS, QpEntry, VACANT, WAYS};
use super::memory::{self, Memory};
use crate::sync::full_barrier;
use crate::{ShmError, segment};

/// The tables published by this process.
///
/// Writers ([`set_qp`](Self::set_qp), [`remove_qp`](Self::remove_qp),
/// [`set_failure`](Self::set_failure), [`set_key`](Self::set_key),
/// [`remove_key`](Self::remove_key), [`set_sleeping`](Self::set_sleeping)) must take turns. The
/// caller has a lock for them.
pub struct Published {
    inner: Arc<Inner>,
}

struct Inner {
    memory: Memory,
    identity: Identity,
    /// The number of these tables, unique in this process.
    id: u64,
    /// Which hazards belong to a thread.
    claimed: Mutex<[bool; HAZARDS]>,
}

impl Published {
    /// Creates empty tables, and a descriptor for peers. The descriptor allows reads only.
    pub fn create() -> Result<(Published, OwnedFd), ShmError> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let (pid, nonce) = (std::process::id(), segment::random());
        // 0 if the system does not say.
        let start_time = adverb_os::ProcessStat::of("self").map_or(0, |stat| stat.start);
        let identity = Identity { pid, start_time, nonce };
        let (memory, fd) = Memory::create(identity)?;
        let (id, claimed) = (IDS.fetch_add(1, Relaxed), Mutex::new([false; HAZARDS]));
        let inner = Inner { memory, identity, id, claimed };
        Ok((Published { inner: Arc::new(inner) }, fd))
    }

    /// The identity of this process, as its peers read it.
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// Closes the descriptor in the child of a fork, which must hold nothing of its parent. Calls
    /// only `fstat` and `close`.
    pub fn close_after_fork(&self) {
        self.inner.memory.close_after_fork();
    }

    /// Publishes the number of a thread living exactly as long as this program: an `exec` ends the
    /// thread before the new program replaces this program.
    pub fn set_thread(&self, thread: u32) {
        self.inner.memory.thread().store(thread.into(), Relaxed);
    }

    /// Publishes a queue pair under the low 14 bits of its number. Returns `false`, and publishes
    /// nothing, if there is no memory, or if another queue pair with the same low bits is
    /// published.
    pub fn set_qp(&self, entry: &QpEntry) -> bool {
        let slot = layout::qp_index(entry.qpn);
        let memory = &self.inner.memory;
        if !memory.is_allocated(slot) || self.other_qp(slot, entry.qpn) {
            return false;
        }
        memory.entry(slot).write(&entry.to_words());
        true
    }

    /// Removes a queue pair from the table.
    pub fn remove_qp(&self, qpn: u32) {
        let slot = layout::qp_index(qpn);
        let memory = &self.inner.memory;
        if memory.is_allocated(slot) && !self.other_qp(slot, qpn) {
            memory.entry(slot).write(&VACANT);
        }
    }

    /// Publishes why a removed queue pair has failed, until its entry gets another use.
    pub fn set_failure(&self, qpn: u32, failure: Failure) {
        let slot = layout::qp_index(qpn);
        let memory = &self.inner.memory;
        if memory.is_allocated(slot) && QpEntry::from_words(&memory.entry(slot).own()).is_none() {
            memory.entry(slot).write(&layout::failure_words(qpn, failure));
        }
    }

    fn other_qp(&self, slot: usize, qpn: u32) -> bool {
        QpEntry::from_words(&self.inner.memory.entry(slot).own())
            .is_some_and(|entry| entry.qpn != qpn)
    }

    /// Publishes a key or a change of the key. Returns `false`, and publishes nothing, if the
    /// bucket is full or there is no memory.
    pub fn set_key(&self, entry: &KeyEntry) -> bool {
        let Some(slot) = self.find(entry.key, true) else { return false };
        self.inner.memory.entry(slot).write(&entry.to_words());
        true
    }

    /// Removes a key from the table; returns `false` if the key was not published. A thread already
    /// using the key continues: see [`PeerTables::inside`](super::PeerTables::inside).
    pub fn remove_key(&self, key: u32) -> bool {
        let found = self.find(key, false);
        if let Some(slot) = found {
            self.inner.memory.entry(slot).write(&VACANT);
        }
        found.is_some()
    }

    /// The entry of a key. If the key has none and `vacant` is set, a free entry of the key's
    /// bucket.
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

    /// Announces whether the process sleeps and needs a wake-up. Returns the new sequence, which is
    /// odd while the process sleeps. A second call with `true` is a new announcement: peers wake
    /// the process once more.
    ///
    /// After the announcement of sleep, the caller looks for work once more and then sleeps. Either
    /// the caller finds what a peer has sent, or the peer finds the process asleep
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
    pub(super) fn overwrite(&self, word: usize, value: u64) {
        self.inner.memory.any_word(word).store(value, Relaxed);
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> &Memory {
        &self.inner.memory
    }

    /// Does what the end of the calling thread does.
    #[cfg(test)]
    pub(super) fn end_thread(&self) {
        CLAIMS.with(|claims| {
            claims.last.set((0, 0));
            claims.all.borrow_mut().clear();
        });
    }

    /// Sets the calling thread's hazard for the use `at` of another process's tables or memory,
    /// until the result is dropped. Entries found valid after this call stay usable until then.
    /// `None`: the thread has set its hazard already, or other threads have all the hazards.
    #[inline]
    pub fn enter(&self, at: &Use) -> Option<Busy<'_>> {
        let hazard = self.hazard()?;
        hazard.enter(at);
        Some(Busy { hazard, thread: PhantomData })
    }

    /// As [`enter`](Self::enter), for the use last named by the thread's hazard. Runs `step` after
    /// setting the hazard. `step` supplies the barrier by an atomic read-modify-write, such as
    /// taking a lock. So a thread taking a lock anyway pays for one such operation instead of two.
    /// The caller must check that the result [`names`](Busy::names) the wanted use.
    #[inline]
    pub fn enter_by<R>(&self, step: impl FnOnce() -> R) -> (Option<Busy<'_>>, R) {
        match self.hazard() {
            Some(hazard) => {
                let result = hazard.enter_by(step);
                (Some(Busy { hazard, thread: PhantomData }), result)
            }
            None => (None, step()),
        }
    }

    /// The hazard of the calling thread, if the thread has a hazard and the hazard is clear.
    #[inline]
    fn hazard(&self) -> Option<&Hazard> {
        let index = CLAIMS.try_with(|claims| claims.index(&self.inner)).ok()??;
        let hazard = &self.inner.memory.hazards()[index];
        (!hazard.is_set()).then_some(hazard)
    }

    /// Waits until every thread of this process inside [`enter`](Self::enter) at the call has left.
    /// The call contains a full barrier: a thread entering later sees the caller's earlier writes.
    pub fn wait_quiet(&self) {
        let memory = &self.inner.memory;
        let pause = |looks| {
            hazards::pause(looks);
            true
        };
        hazards::quiet(memory.used(), memory.hazards(), pause);
    }
}

/// The calling thread uses published objects of other processes. Until this guard is dropped, the
/// owners do not take these objects back.
pub struct Busy<'a> {
    hazard: &'a Hazard,
    /// Only the hazard's own thread may clear the hazard.
    thread: PhantomData<*const ()>,
}

impl Busy<'_> {
    /// Whether the thread's hazard names this use.
    #[inline]
    pub fn names(&self, at: &Use) -> bool {
        self.hazard.names(at)
    }
}

impl Drop for Busy<'_> {
    #[inline]
    fn drop(&mut self) {
        self.hazard.leave();
    }
}

impl Inner {
    fn claim(&self) -> Option<usize> {
        let mut claimed = self.claimed.lock();
        let index = claimed.iter().position(|claimed| !claimed)?;
        claimed[index] = true;
        // Store `used` before the hazard is set for the first time. The barrier in `enter` orders
        // the two.
        let used = self.memory.used();
        used.store(used.load(Relaxed).max(index as u64 + 1), Relaxed);
        self.memory.hazards()[index].belongs_to(memory::thread_number());
        Some(index)
    }

    /// Frees the hazard of an ending thread.
    fn release(&self, index: usize) {
        if !self.memory.is_ours() {
            return;
        }
        let hazard = &self.memory.hazards()[index];
        if hazard.is_set() {
            hazard.leave(); // a `Busy` was forgotten
        }
        self.claimed.lock()[index] = false;
    }
}

thread_local! {
    static CLAIMS: Claims = const { Claims { last: Cell::new((0, 0)), all: RefCell::new(Vec::new()) } };
}

/// The hazards of a thread, one for each set of tables of its process. Nearly every process has one
/// set.
struct Claims {
    /// The id of the tables used last, and the index of the thread's hazard in them.
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
