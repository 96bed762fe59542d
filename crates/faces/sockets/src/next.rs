//! The functions that this object replaces: of librspreload, of the preloaded library or of the C
//! library.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A function by its name, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    /// Whether to use the C library's function and pass over all preloaded objects.
    last: bool,
    at: AtomicPtr<c_void>,
}

impl Next {
    /// The function of the next object.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, last: false, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function of the C library.
    pub(crate) const fn last(name: &'static CStr) -> Self {
        Self { name, last: true, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The address of the function, or null if there is none. Keeps `errno`.
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let before = errno();
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
        // SAFETY: the names are strings. The C library is loaded and stays loaded.
        let found = unsafe {
            let whose = match self.last {
                true => libc::dlopen(c"libc.so.6".as_ptr(), flags),
                false => libc::RTLD_NEXT,
            };
            libc::dlsym(whose, self.name.as_ptr())
        };
        set_errno(before);
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the replaced function. Fails with ENOSYS if there is none.
macro_rules! next {
    ($how:ident $name:literal: fn($($arg:expr => $type:ty),* $(,)?) -> $ret:ty) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::$how($name);
        // SAFETY: the address is null or a function of this name with this signature. The arguments
        // come from the caller or describe memory that lives during the call.
        unsafe {
            match core::mem::transmute::<
                *mut core::ffi::c_void,
                Option<unsafe extern "C-unwind" fn($($type),*) -> $ret>,
            >(NEXT.get()) {
                Some(next) => next($($arg),*),
                None => $crate::next::failed(libc::ENOSYS) as $ret,
            }
        }
    }};
}
pub(crate) use next;

/// Defines functions of this object: each answers by itself if the condition holds, and otherwise
/// calls the replaced function with its arguments.
macro_rules! replaced {
    ($(
        $(#[$doc:meta])*
        $name:literal $symbol:ident($($arg:ident: $type:ty),*) -> $ret:ty,
        if $ours:expr => $answer:expr;
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol($($arg: $type),*) -> $ret {
            if $ours {
                return $answer;
            }
            $crate::next::next!(new $name: fn($($arg => $type),*) -> $ret)
        }
    )*};
}
pub(crate) use replaced;

/// This thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library returns the address of this thread's variable.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the C library returns the address of this thread's variable.
    unsafe { *libc::__errno_location() = value }
}

/// The result of a failed call.
pub(crate) fn failed(error: c_int) -> c_int {
    set_errno(error);
    -1
}
