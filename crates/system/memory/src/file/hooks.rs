//! The interface of the preload, which replaces functions of the C library.
//!
//! The preload of `adverb run` hands out the program's page-aligned allocations, and sees the
//! program's `free`, `madvise` and `fork`. The preload knows nothing of the file: it calls the
//! functions registered here.
use super::allocator::FREE;
use super::pool::Plan;
use super::{SharedFile, advice, fork, remap};
use std::ffi::{CStr, c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The functions called by the preload. The preload defines the same structure; a test compares the
/// two.
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

/// The preload's function that takes the hooks and returns its allocator's `free`; null if the
/// preload does not accept the hooks.
const REGISTER: &CStr = c"adverb_memory_hooks";

static HOOKS: Hooks = Hooks {
    version: VERSION,
    plan,
    share,
    block,
    release,
    advise: advice::advise,
    advise_many: advice::advise_many,
    remap: remap::remap,
    run_on,
    copy,
    is_held,
    may_fork: fork::may_fork,
    before_fork: fork::before,
    after_fork_parent: fork::in_parent,
    after_fork_child: fork::in_child,
};

/// Registers the functions of `fork` for every fork, and after them the functions of `around`:
/// before the fork, and in the child.
///
/// With a preload, the preload calls these functions: its handlers were registered before all
/// others. So the handlers take the table last before a fork, and wait for no other thread while
/// holding the table. A child has the memory before any handler of the program runs.
pub(crate) fn at_fork(around: Option<[extern "C" fn(); 2]>) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if let Some([before, child]) = around {
        fork::call_around(before, child);
    }
    if !open() && !DONE.swap(true, Ordering::SeqCst) {
        // SAFETY: functions that live as long as the library, which is never unloaded. The child's
        // function is async-signal-safe.
        unsafe {
            libc::pthread_atfork(Some(fork::before), Some(fork::in_parent), Some(fork::in_child))
        };
    }
}

/// Registers the hooks with the preload, if there is one and the program calls the preload's
/// functions. Returns whether the hooks are registered.
fn open() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(register) = symbol(REGISTER) else { return };
        // A program with its own allocator, or with a memory checker, keeps its functions.
        let checked = [c"__asan_init", c"__tsan_init", c"__msan_init", c"__hwasan_init"];
        let ours =
            [c"posix_memalign", c"aligned_alloc", c"memalign", c"realloc", c"free", c"madvise"];
        let same = |name: &&CStr| symbol(name).and_then(object) == object(register);
        if checked.iter().any(|name| symbol(name).is_some()) || !ours.iter().all(same) {
            log::debug!("the program has an allocator of its own: its allocations stay private");
            return;
        }
        // SAFETY: the preload's function of this name has this signature.
        let register = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(*const Hooks) -> *mut c_void>(register)
        };
        let free = register(&raw const HOOKS);
        FREE.store(free, Ordering::Release);
        if free.is_null() {
            log::warn!("the preload of adverb run is of another version: allocations stay private");
        }
    });
    !FREE.load(Ordering::Acquire).is_null()
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks a name up.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// The base address of the object that contains an address.
fn object(at: *mut c_void) -> Option<*mut c_void> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the function writes the structure, and all zeroes is a valid value of the structure.
    let (found, info) = unsafe { (libc::dladdr(at, info.as_mut_ptr()), info.assume_init()) };
    (found != 0).then_some(info.dli_fbase)
}

extern "C" fn plan(align: u64, len: u64) -> u64 {
    match SharedFile::outside().map(|file| file.plan(align, len)) {
        None | Some(Plan::Private) => 0,
        Some(Plan::Block) => 1,
        Some(Plan::Pooled(start)) => start,
    }
}

extern "C" fn share(start: u64, len: u64) {
    if let Some(file) = SharedFile::outside() {
        // SAFETY: the preload calls this with memory that it has just allocated. No other code
        // knows of the memory.
        unsafe { file.share_fresh(start, len) };
    }
}

extern "C" fn block(start: u64) -> u64 {
    match SharedFile::outside() {
        Some(file) => file.block_at(start),
        // The allocator must not see memory missing in this child. Any length other than 0 says so.
        None => SharedFile::inherited().is_some_and(|file| file.is_missing(start)).into(),
    }
}

extern "C" fn release(start: u64, usable: u64) -> c_int {
    let free = match SharedFile::outside() {
        Some(file) => !file.keep(start, usable) && file.release(start, usable),
        None => SharedFile::inherited().is_none_or(|file| !file.is_missing(start)),
    };
    free.into()
}

extern "C" fn copy(start: u64, to: u64, len: u64) {
    let done = SharedFile::outside().map_or(0, |file| file.copy_touched(start, to, len));
    let (from, to) = ((start + done) as *const u8, (to + done) as *mut u8);
    // SAFETY: the program's own memory, and new memory of its allocator.
    unsafe { std::ptr::copy_nonoverlapping(from, to, (len - done) as usize) };
}

extern "C" fn is_held(addr: u64) -> c_int {
    SharedFile::outside().is_some_and(|file| file.holds(addr)).into()
}

extern "C" fn run_on(start: u64, len: u64) {
    if let Some(file) = SharedFile::outside() {
        file.run_on(start, len);
    }
}
