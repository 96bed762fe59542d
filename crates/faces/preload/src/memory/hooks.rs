//! What the device leaves here, and where.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::functions::FREE;

/// What the device leaves. Its own definition is the same, word for word.
#[repr(C)]
pub struct Hooks {
    /// Of this structure.
    pub version: u32,
    /// An allocation of whole pages is asked for. 0: it is to stay as its allocator makes it; 1: it
    /// may become a block; else the address of a block that was freed before, which it is.
    pub plan: extern "C" fn(align: u64, len: u64) -> u64,
    /// Fresh memory of the allocator's, whole pages: may become a block.
    pub share: extern "C" fn(start: u64, len: u64),
    /// Bytes of the block that begins here, or 0.
    pub block: extern "C" fn(start: u64) -> u64,
    /// The block that begins here is about to be freed; its allocator says that `usable` bytes are
    /// its. 0: it is not to be freed now, the device keeps it or frees it later.
    pub release: extern "C" fn(start: u64, usable: u64) -> c_int,
    /// `madvise`: answers the errno, 0 for success.
    pub advise: extern "C" fn(addr: u64, len: usize, advice: c_int) -> c_int,
    /// `process_madvise` on this process: the bytes advised, or a negative errno.
    pub advise_many: extern "C" fn(*const libc::iovec, usize, c_int) -> isize,
    /// `mremap`: answers the address, or a negative errno.
    pub remap: extern "C" fn(addr: u64, old: u64, new: u64, flags: c_int, to: u64) -> i64,
    /// Memory that a thread or a child is to run on, or a byte of it: is no block any more. Its
    /// contents stay.
    pub run_on: extern "C" fn(start: u64, len: u64),
    /// Copies the beginning of a block to new memory; what was never touched takes no memory there
    /// either.
    pub copy: extern "C" fn(start: u64, to: u64, len: u64),
    /// Is this an address of a block that is registered? What runs there is to fork on another
    /// stack. 1: it is.
    pub is_held: extern "C" fn(addr: u64) -> c_int,
    /// May the process fork? The errno if not.
    pub may_fork: extern "C" fn() -> c_int,
    /// What stands around a fork that calls no handlers: before it, after it in the parent, and in
    /// the child.
    pub before_fork: extern "C" fn(),
    /// See `before_fork`.
    pub after_fork_parent: extern "C" fn(),
    /// See `before_fork`.
    pub after_fork_child: extern "C" fn(),
}

/// Of [`Hooks`].
pub const VERSION: u32 = 5;

pub static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Bytes of a page.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// What the device left.
pub fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null, or a structure that lives as long as the process: its library is never
    // unloaded.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// Leaves hooks, once; answers by the allocator's `free`, or null if they are of another version.
///
/// # Safety
/// The structure and its functions live as long as the process; the functions may be called at any
/// time, in any thread, under any lock of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_adverb_memory_hooks(hooks: *const Hooks) -> *mut c_void {
    // SAFETY: the caller's promise; every version begins with its number.
    if unsafe { (*hooks).version } != VERSION {
        return core::ptr::null_mut();
    }
    let Some(free) = FREE.get() else { return core::ptr::null_mut() };
    // SAFETY: asks.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
    HOOKS.store(hooks.cast_mut(), Ordering::Release);
    free
}

/// Bytes of a page, 0 while there are no hooks.
pub fn page() -> usize {
    PAGE.load(Ordering::Relaxed)
}
