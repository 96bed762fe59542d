//! The preload's door: how its stand-ins for functions of the C library come to be answered here.
//!
//! The preload of `adverb run` hands the program's page-aligned allocations out, and sees its
//! `free`, `madvise` and `fork`. It knows nothing of the file; it calls the functions that are left
//! with it here.
use super::allocator::FREE;
use super::pool::Plan;
use super::{SharedFile, advice, fork, remap};
use std::ffi::{CStr, c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the preload calls. Its own definition is the same, word for word; a test compares them.
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

/// The preload's function that takes the hooks, and answers by its allocator's `free`; null if it
/// does not take them.
const DOOR: &CStr = c"adverb_memory_hooks";

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

/// Has every fork call the functions of `fork`, from the first call on, and after them those of
/// `around`: before the fork, and in the child.
///
/// The preload sees to it where there is one: its handlers were registered before all others. So
/// they take the table last before a fork, and wait for nobody while they have it, and a child has
/// its memory before a handler of the program runs.
pub(crate) fn at_fork(around: Option<[extern "C" fn(); 2]>) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if let Some([before, child]) = around {
        fork::call_around(before, child);
    }
    if !open() && !DONE.swap(true, Ordering::SeqCst) {
        // SAFETY: functions that live as long as the library, which is never unloaded; the child's
        // is async-signal-safe.
        unsafe { libc::pthread_atfork(Some(fork::before), Some(fork::in_parent), Some(fork::in_child)) };
    }
}

/// Leaves the hooks with the preload, if there is one and its functions are those that the program
/// calls; answers whether they are there.
fn open() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(door) = symbol(DOOR) else { return };
        // A program with an allocator of its own, or with a checker of memory, keeps what it has.
        let checked = [c"__asan_init", c"__tsan_init", c"__msan_init", c"__hwasan_init"];
        let ours = [c"posix_memalign", c"aligned_alloc", c"memalign", c"realloc", c"free", c"madvise"];
        let same = |name: &&CStr| symbol(name).and_then(object) == object(door);
        if checked.iter().any(|name| symbol(name).is_some()) || !ours.iter().all(same) {
            log::debug!("the program has an allocator of its own: its allocations stay private");
            return;
        }
        // SAFETY: the preload's function of this name has this signature.
        let door =
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*const Hooks) -> *mut c_void>(door) };
        let free = door(&raw const HOOKS);
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

/// Where the object begins that an address lies in.
fn object(at: *mut c_void) -> Option<*mut c_void> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the function writes the structure, of which all zeroes is a value too.
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
        // SAFETY: the preload calls this with memory that it allocated just now, before anybody
        // else knows of it.
        unsafe { file.share_fresh(start, len) };
    }
}

extern "C" fn block(start: u64) -> u64 {
    match SharedFile::outside() {
        Some(file) => file.block_at(start),
        // What is not there is not to be shown to its allocator, whatever its length.
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
    // SAFETY: the program's own memory, and new memory of its allocator's.
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
