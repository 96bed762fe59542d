//! The contents of the file: data, and holes between.
use crate::sys;
use nix::errno::Errno;
use std::os::fd::RawFd;

/// Copies the data of a file range to fresh memory of the same size, and leaves holes out. Returns
/// `false` if a part could not be read.
pub(super) fn fill(fd: RawFd, start: u64, offset: u64, len: u64) -> bool {
    each_data(fd, offset, offset + len, |mut at, end| {
        while at < end {
            let to = start + (at - offset);
            // SAFETY: writes to memory of the caller.
            match unsafe { sys::transfer(libc::SYS_pread64, fd, to, end - at, at) } {
                Ok(n) if n > 0 => at += n,
                Err(Errno::EINTR) => {}
                _ => return false,
            }
        }
        true
    })
}

/// Calls `each` with the parts of a file range that contain data, until it returns `false`, and
/// then returns `false`. Also returns `false` if the descriptor no longer belongs to the file.
pub(super) fn each_data(
    fd: RawFd,
    from: u64,
    until: u64,
    mut each: impl FnMut(u64, u64) -> bool,
) -> bool {
    let mut at = from;
    while at < until {
        // SAFETY: all arguments are integers; no other code uses the descriptor's position.
        let (data, hole) = unsafe {
            let data = libc::lseek(fd, at.cast_signed(), libc::SEEK_DATA);
            (data, if data < 0 { -1 } else { libc::lseek(fd, data, libc::SEEK_HOLE) })
        };
        let (Ok(data), Ok(hole)) = (u64::try_from(data), u64::try_from(hole)) else {
            // ENXIO: no data from there on. Any other error: the descriptor no longer belongs to
            // the file.
            return Errno::last() == Errno::ENXIO;
        };
        if data < until && !each(data, hole.min(until)) {
            return false;
        }
        at = hole;
    }
    true
}
