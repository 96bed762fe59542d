//! The names of rsockets, so that programs bound to these names start.
//!
//! Sockets over RDMA are not supported: `rsocket` fails with EOPNOTSUPP and logs the reason. So no
//! descriptor is an rsocket, and calls for an rsocket fail with EBADF. `rpoll` and `rselect` accept
//! any descriptor, as in rdma-core, and wait for plain descriptors.

use core::ffi::{c_int, c_long};
use std::sync::Once;

use libc::{fd_set, nfds_t, pollfd, timeval};

use crate::error::Errno;

/// `rsocket` and `repoll_create`, for any arguments: -1 with `errno` EOPNOTSUPP. The first call
/// prints the reason.
pub extern "C" fn rsocket() -> c_int {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "adverb: error: rsockets are not supported: rsocket() and the related calls fail; use \
             rdma_cm connections, or plain sockets"
        );
    });
    Errno(libc::EOPNOTSUPP).set();
    -1
}

/// Every call on an rsocket, for any other arguments and any width of the result: -1 with `errno`
/// EBADF. For `riomap`, -1 is not a valid offset.
pub extern "C" fn no_rsocket(_fd: c_int) -> c_long {
    Errno(libc::EBADF).set();
    -1
}

/// `rpoll`: as `poll`.
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's word.
    unsafe { libc::poll(fds, n, timeout) }
}

/// `rselect`: as `select`.
pub unsafe extern "C" fn rselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { libc::select(n, read, write, except, timeout) }
}
