//! Entering an object without an atomic read-modify-write, for the thread that uses the object
//! most.
//!
//! A slot gets an owner when a single thread has used the slot for a while. The owner counts its
//! pins in a word that only the owner writes, with plain loads and stores. The destroying thread
//! provides the ordering that an atomic operation would give:
//!
//! 1. The destroying thread marks the object dead.
//! 2. It calls membarrier(2), so that every thread of the process passes a full barrier.
//! 3. Then either the owner's count shows that the owner is inside, or the owner's next look shows
//!    that the object is dead.
//!
//! The thread pointer identifies a thread. An ended thread is not inside, so a later thread with
//! the same pointer may continue as the owner.
use super::this_thread;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

/// Uses in a row after which a thread becomes the owner.
const STREAK: u32 = 64;

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

/// The kernel has the barrier, and the process has registered for it.
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);

fn membarrier(command: c_int) -> bool {
    // SAFETY: plain integers; the call touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers for the barrier, once. Fast while the process has one thread.
pub(super) fn prepare() {
    HAS_BARRIER.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED), Ordering::Relaxed);
}

/// Makes every thread of the process pass a full barrier before the return; false if the kernel
/// refuses.
pub(super) fn barrier() -> bool {
    // In a process made by a fork some kernels require a new registration.
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
}

/// The owner of a slot, and the number of the owner's pins.
#[derive(Default)]
pub(super) struct Bias {
    /// The owner's thread pointer; 0 without an owner.
    owner: AtomicUsize,
    /// Number of the owner's pins, including nested pins in its signal handlers. Only the owner
    /// writes this word.
    inside: AtomicU32,
    /// The last thread here, and its number of uses in a row. Both are hints.
    last: AtomicUsize,
    streak: AtomicU32,
}

impl Bias {
    /// Does the slot have an owner? The owner stays for all objects made in the slot, so that no
    /// other thread ever writes the owner's count.
    pub(super) fn has_owner(&self) -> bool {
        self.owner.load(Ordering::Acquire) != 0
    }
    /// Does the slot belong to this thread?
    #[inline]
    pub(super) fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }
    /// The owner is about to check whether the object lives.
    #[inline]
    pub(super) fn enter(&self) {
        self.inside.store(self.inside.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // The check comes after the store. For the processor the barrier of the destroying thread
        // guarantees the order.
        compiler_fence(Ordering::SeqCst);
    }
    /// The owner leaves, and checks again whether the object lives.
    #[inline]
    pub(super) fn leave(&self) {
        // The owner's accesses come before, for a thread that sees this store and drops the object.
        self.inside.store(self.inside.load(Ordering::Relaxed) - 1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
    /// Is the owner inside? Certain after the caller has passed [`barrier`] since the object died.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire) != 0
    }
    /// Another use by a thread that is not the owner. Should this thread become the owner?
    #[inline]
    pub(super) fn earns(&self) -> bool {
        if self.owner.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let me = this_thread();
        if self.last.load(Ordering::Relaxed) != me {
            self.last.store(me, Ordering::Relaxed);
            self.streak.store(0, Ordering::Relaxed);
            return false;
        }
        let streak = self.streak.load(Ordering::Relaxed) + 1;
        self.streak.store(streak, Ordering::Relaxed);
        streak == STREAK && HAS_BARRIER.load(Ordering::Relaxed)
    }
    /// Makes this thread the owner. Called once, by the thread that set the `OWNED` bit.
    pub(super) fn give(&self) {
        self.owner.store(this_thread(), Ordering::Release);
    }
}
