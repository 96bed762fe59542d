//! The C library's own functions.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up once.
pub struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address, `None` where this C library has no such function. Keeps `errno`.
    pub fn get(&self) -> Option<*mut c_void> {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            let before = errno();
            // SAFETY: a string; "the next one after this object" is what an interposed function has to call.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            set_errno(before);
            // Two threads that come here together store the same address.
            self.address.store(address, Ordering::Relaxed);
        }
        (!address.is_null()).then_some(address)
    }
}

/// This thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the C library returns the address of this thread's variable.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}
