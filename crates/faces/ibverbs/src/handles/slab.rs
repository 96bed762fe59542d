//! The memory for objects of a kind, and the word that says whether an object lives.
use super::bias::{self, Bias};
use super::chunks::{self, CHUNK};
use super::{FileId, Kind, Origin, this_thread};
use adverb_device::{Errno, Error};
use adverb_sync::Mutex;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// This many objects of a kind are destroyed before the memory of the first serves a new object.
pub(super) const QUARANTINE: usize = 4096;

/// The program may use the object.
const LIVE: u64 = 1 << 63;
/// A thread is destroying the object.
const ENDING: u64 = 1 << 62;
/// The slot has an owner thread ([`Bias`]).
const OWNED: u64 = 1 << 61;
/// The library's part of the dead object is being dropped, or was dropped.
const ENDED: u64 = 1 << 60;
/// Number of counted pins: threads inside other than the owner, and an open chain or poll.
const PINS: u64 = ENDED - 1;

/// Memory for an object. A slot stays a slot for objects of this kind until the process ends. So
/// the word and the visible part can be read through any pointer that the program ever had. A slot
/// of zeros was never used.
#[repr(C)]
pub(super) struct Slot<K: Kind> {
    /// The part visible to the program. Read and written only through raw pointers, because the
    /// program may access it at any time.
    visible: UnsafeCell<MaybeUninit<K::Visible>>,
    state: SlotState,
    /// The library's part. Valid while the object lives or a thread is inside.
    inner: UnsafeCell<MaybeUninit<K>>,
}

/// A pin, which keeps an object, and how to remove the pin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pin {
    /// A pin of the owner thread, which removes the pin itself.
    Owner,
    /// A pin counted in the word.
    Counted,
}

/// A separate cache line: programs read the visible part from many threads.
#[repr(C, align(64))]
struct SlotState {
    /// [`LIVE`], [`ENDING`], [`OWNED`], [`ENDED`] and the count of pins.
    word: AtomicU64,
    /// The owner thread of this slot.
    bias: Bias,
    /// The holder of an open chain of requests or poll, which has a pin; 0 without a holder.
    session: AtomicUsize,
    /// The next slot in the list of this slot; 0 for none.
    next: AtomicUsize,
    /// The origin of the object: the fields of the visible part when the object was made.
    context: AtomicPtr<crate::abi::ibv_context>,
    file: AtomicUsize,
    handle: AtomicU32,
}

// SAFETY: the atomics are for all threads. `inner` is a `Sync` value that is shared under pins. It
// is moved in and out by a single thread: the thread that fills the slot, or the thread that
// removes the last pin. `visible` is accessed only through raw pointers.
unsafe impl<K: Kind> Sync for Slot<K> {}

impl<K: Kind> Slot<K> {
    const STRIDE: usize = size_of::<Self>().next_multiple_of(64);
    const COUNT: usize = CHUNK / Self::STRIDE;

    /// The slot of a handle, if this kind's handles can have this address. Does not read memory at
    /// the address.
    #[inline]
    pub(super) fn at(handle: usize) -> Option<&'static Self> {
        let address = handle.wrapping_sub(K::AT);
        let (base, kind) = chunks::find(address)?;
        let offset = address - base;
        if kind != K::KIND
            || !offset.is_multiple_of(Self::STRIDE)
            || offset / Self::STRIDE >= Self::COUNT
        {
            return None;
        }
        // SAFETY: a chunk of this kind is an array of slots with this stride. A chunk is never
        // unmapped, and it began as zeros, which are a valid slot.
        Some(unsafe { &*(address as *const Self) })
    }
    pub(super) fn visible(&self) -> *mut K::Visible {
        self.visible.get().cast()
    }
    /// Adds a pin if the object lives: the owner's pin, or a counted pin.
    #[inline]
    pub(super) fn pin(&'static self) -> Option<Pin> {
        let SlotState { word, bias, .. } = &self.state;
        if bias.is_own() {
            bias.enter();
            if word.load(Ordering::Acquire) & LIVE != 0 {
                return Some(Pin::Owner);
            }
            // SAFETY: removes the pin just entered.
            unsafe { self.unpin(Pin::Owner) };
            return None;
        }
        self.pin_counted().then_some(Pin::Counted)
    }
    /// Adds a counted pin.
    fn pin_counted(&self) -> bool {
        let SlotState { word, bias, .. } = &self.state;
        let mut now = word.load(Ordering::Relaxed);
        while now & LIVE != 0 {
            match word.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    if bias.earns() {
                        self.own();
                    }
                    return true;
                }
                Err(other) => now = other,
            }
        }
        false
    }
    /// Adds a counted pin while the caller has a pin, whether the object lives or not. Another
    /// thread may remove the new pin.
    pub(super) fn pin_again(&self) {
        self.state.word.fetch_add(1, Ordering::Relaxed);
    }
    /// Makes this thread, which has a pin, the owner of the slot, unless the object is dead or the
    /// slot has another owner.
    #[cold]
    fn own(&self) {
        let SlotState { word, bias, .. } = &self.state;
        // Only while the object lives: the destroying thread has to know whether there is an owner.
        let first = |now| (now & LIVE != 0 && now & OWNED == 0).then_some(now | OWNED);
        if word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, first).is_ok() {
            bias.give();
        }
    }
    /// Removes a pin. The last pin of a dead object drops the library's part.
    ///
    /// # Safety
    /// The pin belongs to the caller. The caller does not use it any more.
    #[inline]
    pub(super) unsafe fn unpin(&'static self, pin: Pin) {
        let word = &self.state.word;
        let left = match pin {
            Pin::Owner => {
                self.state.bias.leave();
                word.load(Ordering::Acquire)
            }
            Pin::Counted => word.fetch_sub(1, Ordering::AcqRel) - 1,
        };
        if left & LIVE == 0 {
            self.try_end();
        }
    }
    /// Drops the library's part of a dead object if no thread is inside. Every thread that leaves a
    /// dead object calls this, so the last thread does.
    #[cold]
    fn try_end(&'static self) {
        let SlotState { word, bias, .. } = &self.state;
        let now = word.load(Ordering::Acquire);
        // If there is an owner, this thread reached this line after `kill` has passed its barrier,
        // because the destroying thread has a pin until then. Or this thread is the owner.
        let free = now & (LIVE | ENDED | PINS) == 0 && !bias.is_inside();
        if free
            && word.compare_exchange(now, now | ENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            // SAFETY: the object is dead, so no pin is added any more, and there is no pin. Only
            // one thread sets the bit.
            unsafe { (*self.inner.get()).assume_init_drop() };
            K::slab().retire(self);
        }
    }
    /// Claims the end of the object. Answers false if another thread has claimed it.
    pub(super) fn claim(&self) -> bool {
        self.state.word.fetch_or(ENDING, Ordering::AcqRel) & (ENDING | LIVE) == LIVE
    }
    pub(super) fn unclaim(&self) {
        self.state.word.fetch_and(!ENDING, Ordering::AcqRel);
    }
    /// Marks the object dead. The caller has a pin and the claim.
    pub(super) fn kill(&self) {
        let before = self.state.word.fetch_and(!(LIVE | ENDING), Ordering::AcqRel);
        if before & OWNED != 0 && !self.state.bias.is_own() && !bias::barrier() {
            // Without the barrier it is unknown whether the owner is inside. So the library's part
            // is never dropped.
            self.state.word.fetch_or(ENDED, Ordering::AcqRel);
        }
    }
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.state.word.load(Ordering::Acquire) & LIVE != 0
    }
    /// Was an object ever in this slot?
    pub(super) fn was_used(&self) -> bool {
        !self.state.context.load(Ordering::Relaxed).is_null()
    }
    pub(super) fn session(&self) -> &AtomicUsize {
        &self.state.session
    }
    pub(super) fn origin(&self) -> Origin {
        Origin {
            context: self.state.context.load(Ordering::Relaxed),
            file: FileId(self.state.file.load(Ordering::Relaxed)),
            handle: self.state.handle.load(Ordering::Relaxed),
        }
    }
    /// The library's part.
    ///
    /// # Safety
    /// The caller has a pin as long as it uses the answer.
    #[inline]
    pub(super) unsafe fn inner(&self) -> &K {
        // SAFETY: filled before the object became live; dropped only after the last pin was
        // removed.
        unsafe { (*self.inner.get()).assume_init_ref() }
    }
}

/// A slot reserved for an object that is being made. A drop without [`Reserved::fill`] frees the
/// slot.
pub struct Reserved<K: Kind> {
    slot: &'static Slot<K>,
}

impl<K: Kind> Reserved<K> {
    /// The future handle of the object.
    pub fn handle(&self) -> *mut K::Visible {
        self.slot.visible()
    }
    /// Makes the object live.
    pub fn fill(self, visible: K::Visible, inner: K, origin: Origin) -> *mut K::Visible {
        let slot = self.slot;
        core::mem::forget(self);
        let state = &slot.state;
        // SAFETY: the slot is in no list, dead and without pins, so only this thread writes these
        // parts.
        unsafe {
            slot.visible().write(visible);
            (*slot.inner.get()).write(inner);
        }
        state.session.store(0, Ordering::Relaxed);
        state.context.store(origin.context, Ordering::Relaxed);
        state.file.store(origin.file.0, Ordering::Relaxed);
        state.handle.store(origin.handle, Ordering::Relaxed);
        let owned = if state.bias.has_owner() { OWNED } else { 0 };
        state.word.store(LIVE | owned, Ordering::Release);
        slot.visible()
    }
}

impl<K: Kind> Drop for Reserved<K> {
    fn drop(&mut self) {
        let _no_fork = NO_FORK.lock();
        K::slab().lists.lock().spare.push(self.slot);
    }
}

/// Held while a list is changed, and by a thread that forks. So the child finds no list locked by a
/// thread that does not exist in the child.
static NO_FORK: Mutex<()> = Mutex::new(());

/// The thread that forks, between the handlers below; 0 for none.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Runs before the first object: makes forks wait for [`NO_FORK`], and looks for a leak checker. No
/// thread passes this function before that is done.
fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    /// Locks by process id. The child of a fork does not wait for a thread of its parent, but
    /// prepares again.
    static PREPARING: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
    // If a process forked while it prepared, the handlers are registered twice. They still lock and
    // unlock once.
    extern "C" fn before() {
        if FORKING.load(Ordering::Relaxed) != this_thread() {
            core::mem::forget(NO_FORK.lock());
            FORKING.store(this_thread(), Ordering::Relaxed);
        }
    }
    extern "C" fn after() {
        if FORKING.load(Ordering::Relaxed) == this_thread() {
            FORKING.store(0, Ordering::Relaxed);
            // SAFETY: locked by `before` in the forking thread, which is this thread in parent and
            // child.
            unsafe { NO_FORK.force_unlock() };
        }
    }
    if PREPARED.load(Ordering::Acquire) {
        return;
    }
    let _one = PREPARING[std::process::id() as usize % PREPARING.len()].lock();
    if PREPARED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: these functions may run around any fork: they take and release a lock.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    chunks::find_leak_checker();
    bias::prepare();
    PREPARED.store(true, Ordering::Release);
}

/// The slots of a kind.
pub struct Slab<K: Kind> {
    lists: Mutex<Lists<K>>,
}

struct Lists<K: Kind> {
    /// Dead slots, in the order of their end.
    dead: Queue<K>,
    /// Reserved slots that were not needed.
    spare: Queue<K>,
    /// Addresses of the unused slots of the newest chunk.
    fresh: Range<usize>,
}

/// A linked list of slots. Each slot names the next, so nothing is allocated under the locks. A
/// fork waits for these locks while it holds the locks of the allocator.
struct Queue<K: Kind> {
    first: Option<&'static Slot<K>>,
    last: Option<&'static Slot<K>>,
    len: usize,
}

impl<K: Kind> Queue<K> {
    const fn new() -> Self {
        Queue { first: None, last: None, len: 0 }
    }
    fn push(&mut self, slot: &'static Slot<K>) {
        slot.state.next.store(0, Ordering::Relaxed);
        match self.last.replace(slot) {
            Some(last) => {
                last.state.next.store(core::ptr::from_ref(slot) as usize, Ordering::Relaxed)
            }
            None => self.first = Some(slot),
        }
        self.len += 1;
    }
    fn pop(&mut self) -> Option<&'static Slot<K>> {
        let slot = self.first?;
        let next = slot.state.next.load(Ordering::Relaxed) as *const Slot<K>;
        // SAFETY: null, or a slot; slots are never unmapped.
        self.first = unsafe { next.as_ref() };
        if self.first.is_none() {
            self.last = None;
        }
        self.len -= 1;
        Some(slot)
    }
}

impl<K: Kind> Slab<K> {
    /// An empty slab.
    pub const fn new() -> Self {
        Slab { lists: Mutex::new(Lists { dead: Queue::new(), spare: Queue::new(), fresh: 0..0 }) }
    }
    /// Reserves a slot.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn reserve(&self) -> Result<Reserved<K>, Error> {
        // Every verb that creates an object begins here.
        if !adverb_reserve::is_ready() {
            return Err(Error::new(Errno::ENOMEM, "the process has no memory left"));
        }
        prepare();
        let _no_fork = NO_FORK.lock();
        let mut lists = self.lists.lock();
        let rested = lists.dead.len > QUARANTINE;
        let used = lists.spare.pop().or_else(|| if rested { lists.dead.pop() } else { None });
        if let Some(slot) = used {
            return Ok(Reserved { slot });
        }
        if lists.fresh.is_empty() {
            let base = chunks::add(K::KIND)?;
            lists.fresh = base..base + Slot::<K>::COUNT * Slot::<K>::STRIDE;
        }
        let address = lists.fresh.start;
        lists.fresh.start += Slot::<K>::STRIDE;
        // SAFETY: the address of a slot of this kind (see `Slot::at`); all lists hold only such
        // addresses.
        Ok(Reserved { slot: unsafe { &*(address as *const Slot<K>) } })
    }
    fn retire(&self, slot: &'static Slot<K>) {
        let _no_fork = NO_FORK.lock();
        self.lists.lock().dead.push(slot);
    }
}

impl<K: Kind> Default for Slab<K> {
    fn default() -> Self {
        Self::new()
    }
}
