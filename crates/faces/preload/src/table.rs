//! The table of devices, which the launcher writes to the prepared directory.

use crate::file;
use crate::objects::close;
use crate::path::{Buffer, root};
use crate::real::keeping_errno;

/// Name of the table's file.
const FILE: &[u8] = b"/nldev";

/// Opens the table, without the interposed functions; negative if there is no table. Keeps `errno`.
fn open() -> libc::c_long {
    let mut buffer = Buffer::new();
    let Some(path) = root().and_then(|root| buffer.join(root, FILE)) else { return -1 };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a string.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags) })
}

/// Does the table exist?
pub fn is_there() -> bool {
    let fd = open();
    if fd >= 0 {
        close(fd);
    }
    fd >= 0
}

/// Calls `use_it` with the table's text; false if the table cannot be read.
pub fn with(use_it: impl FnOnce(&[u8]) -> bool) -> bool {
    let fd = open();
    if fd < 0 {
        return false;
    }
    let answered = file::with_text(fd, |text| text.is_some_and(use_it));
    close(fd);
    answered
}
