//! The interface of the preload, which replaces functions of the C library.
//!
//! The preload of `adverb run` hands out the program's page-aligned allocations, and sees the
//! program's `free`, `madvise` and `fork`. The preload knows nothing of the file: it calls the
//! functions registered here.
use super::allocator::FREE;
use super::pool::Plan;
use super::{SharedFile, advice, fork, remap};
use adverb_hooks::memory::{Hooks, VERSION};
use std::ffi::{CStr, c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

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
