//! Memory: allocations of whole pages, `free`, `madvise`, `mremap` and `fork` of the program.
use core::ffi::c_int;

/// What the preloaded library calls for the program's memory.
#[repr(C)]
pub struct Hooks {
    /// The version of this structure.
    pub version: u32,
    /// Called before an allocation of whole pages. Returns 0 for an ordinary allocation, 1 for an
    /// allocation to be turned into a block, else the address of a freed block to use for the
    /// allocation.
    pub plan: extern "C" fn(align: u64, len: u64) -> u64,
    /// Called with fresh memory of the allocator, whole pages, which may become a block.
    pub share: extern "C" fn(start: u64, len: u64),
    /// The length of the block starting here, or 0.
    pub block: extern "C" fn(start: u64) -> u64,
    /// Called before the block starting here is freed; `usable` is the allocator's size of the
    /// memory. Returns 0 if the preload must not free the block now: the device keeps the block, or
    /// frees the block later.
    pub release: extern "C" fn(start: u64, usable: u64) -> c_int,
    /// `madvise`: returns the errno, 0 for success.
    pub advise: extern "C" fn(addr: u64, len: usize, advice: c_int) -> c_int,
    /// `process_madvise` on this process: returns the bytes advised, or a negative errno.
    pub advise_many: extern "C" fn(*const libc::iovec, usize, c_int) -> isize,
    /// `mremap`: returns the address, or a negative errno.
    pub remap: extern "C" fn(addr: u64, old: u64, new: u64, flags: c_int, to: u64) -> i64,
    /// Called with memory, or one byte of memory, on which a thread or a child is about to run. The
    /// memory is no block any more; the contents stay.
    pub run_on: extern "C" fn(start: u64, len: u64),
    /// Copies the beginning of a block to new memory. Untouched pages take no memory there either.
    pub copy: extern "C" fn(start: u64, to: u64, len: u64),
    /// Returns 1 if the address lies in a registered block. A thread on such a stack must fork on
    /// another stack.
    pub is_held: extern "C" fn(addr: u64) -> c_int,
    /// Whether the process may fork: 0 for yes, else the errno.
    pub may_fork: extern "C" fn() -> c_int,
    /// For a fork without fork handlers: called before the fork, after it in the parent, and in the
    /// child.
    pub before_fork: extern "C" fn(),
    /// See `before_fork`.
    pub after_fork_parent: extern "C" fn(),
    /// See `before_fork`.
    pub after_fork_child: extern "C" fn(),
}

/// The version of [`Hooks`].
pub const VERSION: u32 = 5;
