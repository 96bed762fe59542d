//! The hooks that the device registers.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, Ordering};

use adverb_hooks::waits::{Hooks, VERSION};

use super::handler::may_drive;

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// The registered hooks.
pub fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null, or a structure that stays valid as long as the process, because its library is
    // never unloaded.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// The registered hooks, if the calling thread may drive.
pub fn driving() -> Option<&'static Hooks> {
    let hooks = hooks()?;
    if may_drive() {
        return Some(hooks);
    }
    (hooks.does_not_drive)();
    None
}

/// Registers hooks, once. `false`: the version differs.
///
/// # Safety
/// The structure and its functions stay valid as long as the process. The functions may be called
/// at any time and in any thread.
pub unsafe fn register(hooks: *const Hooks) -> bool {
    // SAFETY: the caller's promise; every version begins with its number.
    let known = unsafe { (*hooks).version } == VERSION;
    if known {
        HOOKS.store(hooks.cast_mut(), Ordering::Release);
    }
    known
}

/// The program has closed a descriptor.
pub fn closed(fd: c_int) {
    if let Some(hooks) = hooks() {
        (hooks.closed)(fd);
    }
}

/// The program has duplicated a descriptor.
pub fn copied(from: c_int, to: c_int) {
    if let Some(hooks) = hooks()
        && to >= 0
        && to != from
    {
        (hooks.copied)(from, to);
    }
}
