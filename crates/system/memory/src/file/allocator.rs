//! The program's allocator, whose `free` the preload lends.
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The `free` of the program's allocator.
pub(super) static FREE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Gives memory that was a block back to its allocator; in tests, which have none, to the kernel.
pub(super) fn free(start: u64, len: u64) {
    let free = FREE.load(Ordering::Acquire);
    if free.is_null() {
        // SAFETY: the program gave it up.
        let _ = unsafe { crate::sys::unmap(start, len) };
        return;
    }
    // SAFETY: what the preload answered: a function of this signature.
    let free = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(free) };
    free(start as *mut c_void);
}
