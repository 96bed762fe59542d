//! The functions behind the private names: commands to a kernel driver that does not exist.
//!
//! Each function serves names with different parameters, and takes no parameters itself. The C
//! calling convention of the supported machines allows this, because the caller passes and removes
//! the parameters.

use core::ffi::{c_int, c_uint, c_void};

use crate::errno;

/// For functions that return an errno value.
pub extern "C" fn unsupported() -> c_int {
    errno::set(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// For functions that return -1 and set `errno`.
pub extern "C" fn minus_one() -> c_int {
    errno::minus_one(libc::EOPNOTSUPP)
}

/// For functions that return a pointer.
pub extern "C" fn null() -> *mut c_void {
    errno::null(libc::EOPNOTSUPP)
}

/// For functions that return a count.
pub extern "C" fn zero() -> c_uint {
    0
}

/// For functions that return nothing, such as the registration of a provider, which has no hardware
/// to drive here.
pub extern "C" fn nothing() {}

/// Registration of a provider in version 1.1, empty since rdma-core 15.
pub extern "C" fn ibv_register_driver() {}
