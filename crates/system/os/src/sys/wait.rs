//! Waiting for descriptors, and pipes for waking a waiting thread.
use super::check_len;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Waits until one of at most 64 descriptors has one of the events, or a signal arrives. Returns a
/// bit for each ready descriptor.
pub fn poll(fds: &[RawFd], events: i16, wait: Duration) -> io::Result<u64> {
    let mut polls = [libc::pollfd { fd: -1, events, revents: 0 }; 64];
    let count = fds.len().min(64);
    for (poll, &fd) in polls.iter_mut().zip(fds) {
        poll.fd = fd;
    }
    match wait_apart(&mut polls[..count], Some(wait)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
        result => result?,
    };
    let ready = polls[..count].iter().map(|poll| u64::from(poll.revents != 0));
    Ok(ready.enumerate().fold(0, |set, (i, bit)| set | bit << i))
}

/// Waits for descriptors like `ppoll`, without a limit if there is no `limit`. Not a cancellation
/// point. A library that replaces the C library's functions does not see the call.
///
/// # Errors
/// As of `ppoll`.
pub fn wait_apart(polls: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<usize> {
    let mut limit = limit.map(timespec);
    let limit = limit.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the entries and the time are writable and live through the call; no signal mask.
    check_len(unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            polls.as_mut_ptr(),
            polls.len(),
            limit,
            ptr::null::<libc::sigset_t>(),
            0usize,
        )
    } as isize)
}

pub(super) fn timespec(time: Duration) -> libc::timespec {
    let tv_sec = time.as_secs().try_into().unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
}

/// Adds a byte to a non-blocking pipe; returns `false` if there is no room. Not a cancellation
/// point.
#[must_use]
pub fn add_byte(fd: BorrowedFd<'_>) -> bool {
    let byte = 0u8;
    // SAFETY: reads a single byte.
    unsafe { libc::syscall(libc::SYS_write, fd.as_raw_fd(), &raw const byte, 1usize) == 1 }
}

/// Takes a byte from a non-empty pipe. Not a cancellation point. `blocks`: a read of an empty pipe
/// would block.
pub fn take_byte(fd: BorrowedFd<'_>, blocks: bool) {
    let mut polls = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    if !blocks || matches!(wait_apart(&mut polls, Some(Duration::ZERO)), Ok(1)) {
        let mut byte = 0u8;
        // SAFETY: writes a single byte.
        unsafe { libc::syscall(libc::SYS_read, fd.as_raw_fd(), &raw mut byte, 1usize) };
    }
}
