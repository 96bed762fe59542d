//! What the file holds: data, and holes between.
use crate::sys;
use nix::errno::Errno;
use std::os::fd::RawFd;

/// Copies what the file holds to fresh memory of as many bytes; holes are left out. `false`: not
/// all could be had.
pub(super) fn fill(fd: RawFd, start: u64, offset: u64, len: u64) -> bool {
    each_data(fd, offset, offset + len, |mut at, end| {
        while at < end {
            let to = start + (at - offset);
            // SAFETY: into memory of the caller's.
            match unsafe { sys::transfer(libc::SYS_pread64, fd, to, end - at, at) } {
                Ok(n) if n > 0 => at += n,
                Err(Errno::EINTR) => {}
                _ => return false,
            }
        }
        true
    })
}

/// Calls `each` with the parts of a range of the file that are no holes, until it answers `false`,
/// which is the answer then, and where the descriptor is the file's no more.
pub(super) fn each_data(fd: RawFd, from: u64, until: u64, mut each: impl FnMut(u64, u64) -> bool) -> bool {
    let mut at = from;
    while at < until {
        // SAFETY: plain integers; nobody else uses the descriptor's position.
        let (data, hole) = unsafe {
            let data = libc::lseek(fd, at.cast_signed(), libc::SEEK_DATA);
            (data, if data < 0 { -1 } else { libc::lseek(fd, data, libc::SEEK_HOLE) })
        };
        let (Ok(data), Ok(hole)) = (u64::try_from(data), u64::try_from(hole)) else {
            // No data from there on; anything else is a descriptor that is the file's no more.
            return Errno::last() == Errno::ENXIO;
        };
        if data < until && !each(data, hole.min(until)) {
            return false;
        }
        at = hole;
    }
    true
}
