//! The names of rsockets, so that programs bound to these names start.
//!
//! Sockets over RDMA are not supported: `rsocket` fails with EOPNOTSUPP and logs the reason. So no
//! descriptor is an rsocket, and calls for an rsocket fail with EBADF. `rpoll` and `rselect` accept
//! any descriptor, as in rdma-core, and wait for plain descriptors.

use core::ffi::{c_int, c_long, c_void};
use std::sync::Once;

use libc::{fd_set, nfds_t, pollfd, timeval};

use crate::error::Errno;

/// Prints once that rsockets are not supported.
fn say() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "adverb: error: rsockets are not supported: rsocket() and the related calls fail; use \
             rdma_cm connections, or plain sockets"
        );
    });
}

/// `rsocket`: -1 with `errno` EOPNOTSUPP.
pub extern "C" fn rsocket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    say();
    Errno(libc::EOPNOTSUPP).set();
    -1
}

/// `repoll_create`: -1 with `errno` EOPNOTSUPP.
pub extern "C" fn repoll_create(_size: c_int) -> c_int {
    say();
    Errno(libc::EOPNOTSUPP).set();
    -1
}

/// Every call on an rsocket, for any other arguments and any width of the result: -1 with `errno`
/// EBADF.
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

/// `riomap`: -1, which is not a valid offset, with `errno` EBADF.
pub extern "C" fn riomap(
    _fd: c_int,
    _buf: *mut c_void,
    _len: usize,
    _prot: c_int,
    _flags: c_int,
    _offset: libc::off_t,
) -> libc::off_t {
    Errno(libc::EBADF).set();
    -1
}
