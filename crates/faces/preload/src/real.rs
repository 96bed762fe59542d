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

    /// The address of the function. `None` if this C library has no such function, or while the
    /// lookup is under way: the lookup frees the text of an earlier error, so `free` re-enters
    /// here. Keeps `errno`.
    pub fn get(&self) -> Option<*mut c_void> {
        const LOOKING: *mut c_void = core::ptr::without_provenance_mut(1);
        let known = self.address.load(Ordering::Relaxed);
        if known > LOOKING {
            return Some(known);
        }
        let null = core::ptr::null_mut();
        if self
            .address
            .compare_exchange(null, LOOKING, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return None;
        }
        let before = errno();
        // SAFETY: a string. `RTLD_NEXT` finds the function after this object, which an interposed
        // function has to call.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        set_errno(before);
        self.address.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// Defines the C library's functions that a module calls, and a list of these functions.
macro_rules! reals {
    ($($id:ident = $name:literal;)*) => {
        $( pub static $id: $crate::real::Real = $crate::real::Real::new($name); )*
        pub static REALS: &[&$crate::real::Real] = &[$(&$id),*];
    };
}
pub(crate) use reals;

/// A function of the C library, with the given type.
macro_rules! real {
    ($id:ident: fn($($arg:ty),*) $(-> $ret:ty)?) => {
        $id.get().map(|at| {
            // SAFETY: the C library's function of this name has this signature.
            unsafe { core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(at) }
        })
    };
}
pub(crate) use real;

/// Calls a function of the C library. Fails with ENOSYS if this C library has no such function.
macro_rules! call {
    ($id:ident: fn($($arg:expr => $type:ty),* $(,)?) -> $ret:ty) => {
        match $crate::real::real!($id: fn($($type),*) -> $ret) {
            // SAFETY: the caller's arguments, or values that live through the call.
            Some(real) => unsafe { real($($arg),*) },
            None => $crate::real::result(libc::ENOSYS) as $ret,
        }
    };
}
pub(crate) use call;

/// Defines functions of this object with their ABI: each gives its own answer, or, if this is
/// `None`, calls the C library's function with its arguments.
macro_rules! replaced {
    ($(
        $(#[$doc:meta])*
        $abi:literal $symbol:ident = $real:ident($($arg:ident: $type:ty),*) -> $ret:ty,
        $own:expr;
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern $abi fn $symbol($($arg: $type),*) -> $ret {
            match $own {
                Some(answer) => answer,
                None => $crate::real::call!($real: fn($($arg => $type),*) -> $ret),
            }
        }
    )*};
}
pub(crate) use replaced;

/// This thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the C library returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Calls `look`, and restores `errno`.
pub fn keeping_errno<T>(look: impl FnOnce() -> T) -> T {
    let before = errno();
    let seen = look();
    set_errno(before);
    seen
}

/// Looks up functions. Called before the program runs.
pub fn look_up(reals: &[&Real]) {
    for real in reals {
        real.get();
    }
}

/// Converts an errno value to the return value of a C library function: 0, or -1 with `errno` set.
pub fn result(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    set_errno(error);
    -1
}
