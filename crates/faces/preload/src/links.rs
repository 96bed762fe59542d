//! `rdma link add` and `rdma link delete`. The command `adverb` makes the new directory of files;
//! this module starts the command and waits for its end.

use core::ffi::{CStr, c_char, c_int, c_void};

use adverb_nldev::LinkChange;

use crate::exec::{List, environ};
use crate::path::{Buffer, root};
use crate::real::{errno, real, reals, set_errno};

reals! {
    SPAWN = c"posix_spawn";
    WAITPID = c"waitpid";
}

/// The link to the command, in the prepared directory.
const COMMAND: &[u8] = b"/command";
/// Room for a name: `IB_DEVICE_NAME_MAX`, the longest of the names.
const ROOM: usize = 64;

/// A name as a string. `None` if the name is too long.
struct Name([u8; ROOM]);

impl Name {
    fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; ROOM];
        if name.len() >= ROOM {
            return None;
        }
        bytes.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        Some(Name(bytes))
    }

    fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

/// Changes the devices of the run. Returns 0, or the errno for `rdma`.
pub fn change(change: LinkChange<'_>) -> c_int {
    let before = errno();
    let (verb, names) = match change {
        LinkChange::Add { name, driver, interface } => (c"add", [name, driver, interface]),
        LinkChange::Delete { name } => (c"delete", [name, b"", b""]),
    };
    let [Some(a), Some(b), Some(c)] = names.map(Name::new) else { return libc::EINVAL };
    let status = command(verb, [a.as_ptr(), b.as_ptr(), c.as_ptr()]);
    set_errno(before);
    status
}

/// Runs the command. Its exit status is the result.
fn command(verb: &CStr, names: [*const c_char; 3]) -> c_int {
    let mut buffer = Buffer::new();
    let Some(path) = root().and_then(|root| buffer.join(root, COMMAND)) else {
        return libc::EOPNOTSUPP;
    };
    let [name, driver, interface] = names;
    let ours = [c"adverb".as_ptr(), c"rdma-link".as_ptr(), verb.as_ptr()];
    let [command, link, verb] = ours;
    let arguments = [command, link, verb, name, driver, interface, core::ptr::null()];
    let (Some(spawn), Some(wait)) = (
        real!(SPAWN: fn(*mut c_int, *const c_char, *const c_void, *const c_void, List, List) -> c_int),
        real!(WAITPID: fn(c_int, *mut c_int, c_int) -> c_int),
    ) else {
        return libc::ENOSYS;
    };
    let (none, mut pid, mut status) = (core::ptr::null(), 0, 0);
    // SAFETY: strings, a list with a null at its end, and the C library's view of the environment.
    let failed = unsafe { spawn(&raw mut pid, path, none, none, arguments.as_ptr(), environ) };
    if failed != 0 {
        return failed;
    }
    loop {
        // SAFETY: our own child, and our own place for the status.
        let ended = unsafe { wait(pid, &raw mut status, 0) };
        if ended == pid {
            return if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { libc::EIO };
        }
        if errno() != libc::EINTR {
            return errno();
        }
    }
}
