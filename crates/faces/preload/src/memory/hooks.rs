//! The hooks that the device registers.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::functions::FREE;

/// The hooks of the device. The device's own definition must be identical.
#[repr(C)]
pub struct Hooks {
    /// Version of this structure.
    pub version: u32,
    /// The program asks for an allocation of whole pages. Returns 0: the allocator makes an
    /// ordinary allocation. 1: the allocation may become a block. Otherwise: the address of a
    /// pooled block, which serves the allocation.
    pub plan: extern "C" fn(align: u64, len: u64) -> u64,
    /// The allocator has made new memory of whole pages, which may become a block.
    pub share: extern "C" fn(start: u64, len: u64),
    /// Size in bytes of the block that begins at `start`; 0 if there is none.
    pub block: extern "C" fn(start: u64) -> u64,
    /// The block at `start` is about to be freed; the allocator reports `usable` bytes for it.
    /// Returns 0: do not free the block now, because the device keeps it or frees it later.
    pub release: extern "C" fn(start: u64, usable: u64) -> c_int,
    /// `madvise`: returns the errno, 0 for success.
    pub advise: extern "C" fn(addr: u64, len: usize, advice: c_int) -> c_int,
    /// `process_madvise` on this process: returns the number of advised bytes, or a negative errno.
    pub advise_many: extern "C" fn(*const libc::iovec, usize, c_int) -> isize,
    /// `mremap`: returns the address, or a negative errno.
    pub remap: extern "C" fn(addr: u64, old: u64, new: u64, flags: c_int, to: u64) -> i64,
    /// A thread or child will run on this memory. The range may also be a single byte of the
    /// memory. The memory is no longer a block afterwards, and keeps its contents.
    pub run_on: extern "C" fn(start: u64, len: u64),
    /// Copies the beginning of a block to new memory. Pages that were never touched take no memory
    /// in the copy either.
    pub copy: extern "C" fn(start: u64, to: u64, len: u64),
    /// Returns 1 if the address lies in a registered block. Code that runs on such a stack must
    /// fork on another stack.
    pub is_held: extern "C" fn(addr: u64) -> c_int,
    /// May the process fork? Returns the errno if not, else 0.
    pub may_fork: extern "C" fn() -> c_int,
    /// Runs before a fork that calls no handlers. The next two run after the fork in the parent and
    /// in the child.
    pub before_fork: extern "C" fn(),
    /// See `before_fork`.
    pub after_fork_parent: extern "C" fn(),
    /// See `before_fork`.
    pub after_fork_child: extern "C" fn(),
}

/// Version of [`Hooks`].
pub const VERSION: u32 = 5;

pub static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Page size in bytes.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// The registered hooks.
pub fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null, or a structure that stays valid as long as the process, because its library is
    // never unloaded.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// Registers hooks, once. Returns the allocator's `free`, or null if the version differs.
///
/// # Safety
/// The structure and its functions stay valid as long as the process. The functions may be called
/// at any time, in any thread, and under any lock of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_adverb_memory_hooks(hooks: *const Hooks) -> *mut c_void {
    // SAFETY: the caller's promise; every version begins with its number.
    if unsafe { (*hooks).version } != VERSION {
        return core::ptr::null_mut();
    }
    let Some(free) = FREE.get() else { return core::ptr::null_mut() };
    // SAFETY: the call only reads a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
    HOOKS.store(hooks.cast_mut(), Ordering::Release);
    free
}

/// Page size in bytes; 0 while there are no hooks.
pub fn page() -> usize {
    PAGE.load(Ordering::Relaxed)
}
