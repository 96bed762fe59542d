//! The hooks that the device registers.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use adverb_hooks::memory::{Hooks, VERSION};

use super::functions::FREE;

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
