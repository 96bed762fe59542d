//! Entering an object without an atomic read-modify-write, for the thread that uses it most.
//!
//! A place for objects belongs to one thread once that thread alone has used it for a while. The
//! owner counts its stays in a word that only the owner writes, with plain loads and stores. What
//! an atomic operation would order, whoever destroys the object orders instead: after the object is
//! marked dead, membarrier(2) makes every thread of the process pass a full barrier. Then either
//! the owner's count shows that it is inside, or its next look shows it that the object is dead.
//!
//! A thread is known by its thread pointer. A thread that has ended is not inside, so a later one
//! with the same pointer may go on as the owner.
use super::this_thread;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

/// Stays in a row after which a thread is given a place.
const STREAK: u32 = 64;

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

/// The kernel has the barrier and has been told that it will be asked for.
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);

fn membarrier(command: c_int) -> bool {
    // SAFETY: plain integers; the call touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Asks the kernel for the barrier, once. Quick while the process has one thread.
pub(super) fn prepare() {
    HAS_BARRIER.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED), Ordering::Relaxed);
}

/// Every thread of the process passes a full barrier before this returns; false if the kernel would
/// not.
pub(super) fn barrier() -> bool {
    // In a process that a fork made some kernels ask for the registration anew.
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
}

/// The owner of a place, and how often it is inside.
#[derive(Default)]
pub(super) struct Bias {
    /// The owner's thread pointer; 0: nobody's yet.
    owner: AtomicUsize,
    /// Stays of the owner, nested ones of its signal handlers among them. Only the owner writes it.
    inside: AtomicU32,
    /// Who was here last, and its stays in a row. Both are hints.
    last: AtomicUsize,
    streak: AtomicU32,
}

impl Bias {
    /// Has the place an owner? It stays the owner of all objects that are made there, so that no
    /// other thread ever writes its count.
    pub(super) fn has_owner(&self) -> bool {
        self.owner.load(Ordering::Acquire) != 0
    }
    /// Does the place belong to this thread?
    #[inline]
    pub(super) fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }
    /// The owner is about to look whether the object lives.
    #[inline]
    pub(super) fn enter(&self) {
        self.inside.store(self.inside.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // The look comes after; for the processor the destroyer's barrier sees to that.
        compiler_fence(Ordering::SeqCst);
    }
    /// The owner is out, and looks once more whether the object lives.
    #[inline]
    pub(super) fn leave(&self) {
        // What it did inside comes before, for whoever sees this and ends the object.
        self.inside.store(self.inside.load(Ordering::Relaxed) - 1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
    /// The owner is inside. Certain for who has passed [`barrier`] since the object died.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire) != 0
    }
    /// One more stay of a thread that is not the owner: is the place to be given to it?
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
    /// The place is this thread's from here on. Called once, by who set the bit that says so.
    pub(super) fn give(&self) {
        self.owner.store(this_thread(), Ordering::Release);
    }
}
