//! The program's allocator, with the `free` function given by the preload.
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The `free` of the program's allocator.
pub(super) static FREE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Gives the memory of a former block back to its allocator. Tests have no allocator, and unmap it.
pub(super) fn free(start: u64, len: u64) {
    let free = FREE.load(Ordering::Acquire);
    if free.is_null() {
        // SAFETY: the program has given the memory up.
        let _ = unsafe { crate::sys::unmap(start, len) };
        return;
    }
    // SAFETY: the preload returned a function of this signature.
    let free = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(free) };
    free(start as *mut c_void);
}
