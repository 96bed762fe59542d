//! The size of a terminal.
use std::os::fd::{AsRawFd, BorrowedFd};

/// Columns and rows of a terminal. `None` for other files, and for a terminal without a size.
#[must_use]
pub fn terminal_size(fd: BorrowedFd<'_>) -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes to `size`, which lives through the call.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (rc == 0 && size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
