//! The memory of the objects of one kind, and the word that says whether an object lives.
use super::bias::{self, Bias};
use super::chunks::{self, CHUNK};
use super::{Kind, Origin, this_thread};
use adverb_device::{Errno, Error};
use adverb_sync::Mutex;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// So many objects of a kind are destroyed before the memory of the first of them serves another.
pub(super) const QUARANTINE: usize = 4096;

/// The program may use the object.
const LIVE: u64 = 1 << 63;
/// Somebody is destroying it.
const ENDING: u64 = 1 << 62;
/// The place belongs to a thread ([`Bias`]).
const OWNED: u64 = 1 << 61;
/// Our part of a dead object is being ended, or has been.
const ENDED: u64 = 1 << 60;
/// Threads that are inside beside the owner, and an open chain or poll.
const PINS: u64 = ENDED - 1;

/// Place for an object. It stays a place for objects of this kind until the process ends, so that
/// the word and the visible part can be read through any pointer the program ever had. All zeros
/// are a place nobody used.
#[repr(C)]
pub(super) struct Slot<K: Kind> {
    /// What the program sees. Read and written through raw pointers only: it is the program's at
    /// any time.
    visible: UnsafeCell<MaybeUninit<K::Visible>>,
    life: Life,
    /// Our part. It is there while the object lives or somebody is inside.
    inner: UnsafeCell<MaybeUninit<K>>,
}

/// What keeps an object, and how it is taken off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pin {
    /// A stay of the thread that the object belongs to, which ends it itself.
    Owner,
    /// One in the word.
    Counted,
}

/// A line of its own: programs read the visible part from many threads.
#[repr(C, align(64))]
struct Life {
    /// [`LIVE`], [`ENDING`], [`OWNED`], [`ENDED`] and the count of pins.
    word: AtomicU64,
    /// The thread that this place belongs to.
    bias: Bias,
    /// Who has a chain of requests or a poll open, which holds a pin; 0: nobody.
    session: AtomicUsize,
    /// The next slot in the list that this one is in; 0: none.
    next: AtomicUsize,
    /// Where it comes from: what the visible part said when it was made.
    context: AtomicPtr<crate::abi::ibv_context>,
    file: AtomicUsize,
    handle: AtomicU32,
}

// SAFETY: the atomics are for all threads; `inner` is a `Sync` value that is shared under pins, and
// moved in and out by the one thread that fills the slot or takes the last pin off; `visible` is
// touched through raw pointers.
unsafe impl<K: Kind> Sync for Slot<K> {}

impl<K: Kind> Slot<K> {
    const STRIDE: usize = size_of::<Self>().next_multiple_of(64);
    const COUNT: usize = CHUNK / Self::STRIDE;

    /// The slot that a handle points to, if it is an address that this kind's handles can have.
    /// Reads nothing there.
    #[inline]
    pub(super) fn at(handle: usize) -> Option<&'static Self> {
        let address = handle.wrapping_sub(K::AT);
        let (base, kind) = chunks::find(address)?;
        let offset = address - base;
        if kind != K::KIND || !offset.is_multiple_of(Self::STRIDE) || offset / Self::STRIDE >= Self::COUNT {
            return None;
        }
        // SAFETY: a chunk of this kind is an array of slots with this stride, is never unmapped,
        // and began as zeros, which are a slot.
        Some(unsafe { &*(address as *const Self) })
    }
    pub(super) fn visible(&self) -> *mut K::Visible {
        self.visible.get().cast()
    }
    /// Adds a pin if the object lives: the owner's, or a counted one.
    #[inline]
    pub(super) fn pin(&'static self) -> Option<Pin> {
        let Life { word, bias, .. } = &self.life;
        if bias.is_own() {
            bias.enter();
            if word.load(Ordering::Acquire) & LIVE != 0 {
                return Some(Pin::Owner);
            }
            // SAFETY: this stay.
            unsafe { self.unpin(Pin::Owner) };
            return None;
        }
        self.pin_counted().then_some(Pin::Counted)
    }
    /// Adds a counted pin.
    fn pin_counted(&self) -> bool {
        let Life { word, bias, .. } = &self.life;
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
    /// Adds a counted pin to one that the caller has, alive or not. Another thread may take it off.
    pub(super) fn pin_again(&self) {
        self.life.word.fetch_add(1, Ordering::Relaxed);
    }
    /// Gives the place to this thread, which has a pin, unless the object is dead or the place
    /// another's.
    #[cold]
    fn own(&self) {
        let Life { word, bias, .. } = &self.life;
        // Not after its death: who destroys it has to know whether it has an owner.
        let first = |now| (now & LIVE != 0 && now & OWNED == 0).then_some(now | OWNED);
        if word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, first).is_ok() {
            bias.give();
        }
    }
    /// Takes a pin off; the last one off a dead object ends our part.
    ///
    /// # Safety
    /// The caller's own pin, which it does not use any more.
    #[inline]
    pub(super) unsafe fn unpin(&'static self, pin: Pin) {
        let word = &self.life.word;
        let left = match pin {
            Pin::Owner => {
                self.life.bias.leave();
                word.load(Ordering::Acquire)
            }
            Pin::Counted => word.fetch_sub(1, Ordering::AcqRel) - 1,
        };
        if left & LIVE == 0 {
            self.try_end();
        }
    }
    /// Ends our part of a dead object if nobody is inside. Everybody who leaves such an object
    /// comes here, so the last one does.
    #[cold]
    fn try_end(&'static self) {
        let Life { word, bias, .. } = &self.life;
        let now = word.load(Ordering::Acquire);
        // With an owner, a thread is here after `kill` has passed its barrier, as that one holds a
        // pin until then; or is the owner itself.
        let free = now & (LIVE | ENDED | PINS) == 0 && !bias.is_inside();
        if free && word.compare_exchange(now, now | ENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // SAFETY: the object is dead, so no pin is added any more, and there is none; only one
            // thread sets the bit.
            unsafe { (*self.inner.get()).assume_init_drop() };
            K::slab().retire(self);
        }
    }
    /// Claims the end of the object: false if somebody else has.
    pub(super) fn claim(&self) -> bool {
        self.life.word.fetch_or(ENDING, Ordering::AcqRel) & (ENDING | LIVE) == LIVE
    }
    pub(super) fn unclaim(&self) {
        self.life.word.fetch_and(!ENDING, Ordering::AcqRel);
    }
    /// The object is dead from here on. The caller has a pin and the claim.
    pub(super) fn kill(&self) {
        let before = self.life.word.fetch_and(!(LIVE | ENDING), Ordering::AcqRel);
        if before & OWNED != 0 && !self.life.bias.is_own() && !bias::barrier() {
            // Without the barrier nobody knows whether the owner is inside: our part stays for
            // ever.
            self.life.word.fetch_or(ENDED, Ordering::AcqRel);
        }
    }
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.life.word.load(Ordering::Acquire) & LIVE != 0
    }
    /// It was an object once.
    pub(super) fn was_used(&self) -> bool {
        !self.life.context.load(Ordering::Relaxed).is_null()
    }
    pub(super) fn session(&self) -> &AtomicUsize {
        &self.life.session
    }
    pub(super) fn origin(&self) -> Origin {
        Origin {
            context: self.life.context.load(Ordering::Relaxed),
            file: self.life.file.load(Ordering::Relaxed),
            handle: self.life.handle.load(Ordering::Relaxed),
        }
    }
    /// Our part.
    ///
    /// # Safety
    /// A pin is held as long as the answer is used.
    #[inline]
    pub(super) unsafe fn inner(&self) -> &K {
        // SAFETY: filled before the object came to life; ended after the last pin is off.
        unsafe { (*self.inner.get()).assume_init_ref() }
    }
}

/// A slot taken for an object that is being made. Dropped without [`Reserved::fill`], it is free
/// again.
pub struct Reserved<K: Kind> {
    slot: &'static Slot<K>,
}

impl<K: Kind> Reserved<K> {
    /// The handle that the object will have.
    pub fn handle(&self) -> *mut K::Visible {
        self.slot.visible()
    }
    /// Brings the object to life.
    pub fn fill(self, visible: K::Visible, inner: K, origin: Origin) -> *mut K::Visible {
        let slot = self.slot;
        core::mem::forget(self);
        let life = &slot.life;
        // SAFETY: the slot is in no list, dead and without pins: only this thread writes these
        // parts.
        unsafe {
            slot.visible().write(visible);
            (*slot.inner.get()).write(inner);
        }
        life.session.store(0, Ordering::Relaxed);
        life.context.store(origin.context, Ordering::Relaxed);
        life.file.store(origin.file, Ordering::Relaxed);
        life.handle.store(origin.handle, Ordering::Relaxed);
        let owned = if life.bias.has_owner() { OWNED } else { 0 };
        life.word.store(LIVE | owned, Ordering::Release);
        slot.visible()
    }
}

impl<K: Kind> Drop for Reserved<K> {
    fn drop(&mut self) {
        let _no_fork = NO_FORK.lock();
        K::slab().lists.lock().spare.push(self.slot);
    }
}

/// Held while a list is changed, and by who forks: the child finds no list locked by a thread that
/// it does not have.
static NO_FORK: Mutex<()> = Mutex::new(());

/// The thread that forks, between the handlers below; 0: none.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Before the first object: has forks wait for [`NO_FORK`], and looks for a leak checker. Nobody
/// gets past it before that is done.
fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    /// A lock for each process of a line: a child does not wait for a thread of its parent, but
    /// prepares once more.
    static PREPARING: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
    // Registered twice, where a process forked while it prepared, they lock and unlock once all the
    // same.
    extern "C" fn before() {
        if FORKING.load(Ordering::Relaxed) != this_thread() {
            core::mem::forget(NO_FORK.lock());
            FORKING.store(this_thread(), Ordering::Relaxed);
        }
    }
    extern "C" fn after() {
        if FORKING.load(Ordering::Relaxed) == this_thread() {
            FORKING.store(0, Ordering::Relaxed);
            // SAFETY: locked by `before`, in the thread that forks, which is this one in parent and
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
    // SAFETY: functions that may run around any fork: they take and release a lock.
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
    /// Dead ones, in the order of their end.
    dead: Queue<K>,
    /// Reserved once and not needed.
    spare: Queue<K>,
    /// Slots of the newest chunk that were never used: the next one, and their end.
    fresh: (usize, usize),
}

/// Slots in a row, each of which names the next: nothing is allocated under the locks, for which a
/// fork waits with the locks of the allocator.
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
        slot.life.next.store(0, Ordering::Relaxed);
        match self.last.replace(slot) {
            Some(last) => last.life.next.store(core::ptr::from_ref(slot) as usize, Ordering::Relaxed),
            None => self.first = Some(slot),
        }
        self.len += 1;
    }
    fn pop(&mut self) -> Option<&'static Slot<K>> {
        let slot = self.first?;
        let next = slot.life.next.load(Ordering::Relaxed) as *const Slot<K>;
        // SAFETY: null, or a slot, which are never unmapped.
        self.first = unsafe { next.as_ref() };
        if self.first.is_none() {
            self.last = None;
        }
        self.len -= 1;
        Some(slot)
    }
}

impl<K: Kind> Slab<K> {
    /// Without any.
    pub const fn new() -> Self {
        Slab { lists: Mutex::new(Lists { dead: Queue::new(), spare: Queue::new(), fresh: (0, 0) }) }
    }
    /// Takes a slot.
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
        let address = {
            if lists.fresh.0 == lists.fresh.1 {
                let base = chunks::add(K::KIND)?;
                lists.fresh = (base, base + Slot::<K>::COUNT * Slot::<K>::STRIDE);
            }
            let next = lists.fresh.0;
            lists.fresh.0 += Slot::<K>::STRIDE;
            next
        };
        // SAFETY: the address of a slot of this kind (see `Slot::at`); all lists hold only such.
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
