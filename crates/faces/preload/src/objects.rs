//! The objects and counters of the user's processes. The survivor of the run collects them.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;

use adverb_nldev::{COUNTERS, Objects, QUESTION};
use libc::{c_long, sockaddr_un, socklen_t};

use crate::file;
use crate::real::{errno, keeping_errno};
use crate::text::decimal;

/// The variable with the name of the run's survivor.
const SURVIVOR: &CStr = c"ADVERB_SURVIVOR";
/// The survivor itself waits for other processes for at most five seconds.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 10, tv_usec: 0 };
/// Bytes that are read at once.
const PIECE: usize = 2048;

const NAME: &CStr = c"adverb-objects";

/// Closes an own descriptor. Keeps `errno`.
pub fn close(fd: c_long) {
    // SAFETY: our own descriptor.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_close, fd) });
}

/// The descriptor that a call has made.
fn made(fd: c_long) -> Option<c_long> {
    (fd >= 0).then_some(fd)
}

/// Calls `use_it` with the objects of the user's processes; with `None` if there is no survivor, or
/// if a process did not answer. Keeps `errno`.
pub fn with<R>(use_it: impl FnOnce(Option<&Objects<'_>>) -> R) -> R {
    let Some(fd) = keeping_errno(collect) else { return use_it(None) };
    let said = file::with_text(fd, |text| use_it(text.and_then(Objects::parse).as_ref()));
    close(fd);
    said
}

/// A file with the survivor's answer.
fn collect() -> Option<c_long> {
    // SAFETY: integers.
    let survivor = made(unsafe {
        libc::syscall(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
    })?;
    let file = if connect(survivor) { answer(survivor) } else { None };
    close(survivor);
    file
}

/// Asks the survivor, and copies its answer into a file.
fn answer(survivor: c_long) -> Option<c_long> {
    // SAFETY: our own bytes, and a string.
    let file = made(unsafe {
        let (bytes, len) = (QUESTION.as_ptr(), QUESTION.len());
        let none = core::ptr::null::<c_void>();
        libc::syscall(libc::SYS_sendto, survivor, bytes, len, libc::MSG_NOSIGNAL, none, 0);
        libc::syscall(libc::SYS_memfd_create, NAME.as_ptr(), libc::MFD_CLOEXEC)
    })?;
    let mut piece = MaybeUninit::<[u8; PIECE]>::uninit();
    loop {
        // SAFETY: our own buffer. The kernel has written the bytes that are copied.
        let (got, put) = unsafe {
            let got = libc::syscall(libc::SYS_read, survivor, piece.as_mut_ptr(), PIECE);
            let put = match got {
                1.. => libc::syscall(libc::SYS_write, file, piece.as_ptr(), got),
                _ => got,
            };
            (got, put)
        };
        match got {
            0 => return Some(file),
            _ if got < 0 && errno() == libc::EINTR => {}
            1.. if put == got => {}
            _ => {
                close(file);
                return None;
            }
        }
    }
}

/// Connects to the survivor. `false` unless the survivor is a process of this user.
fn connect(fd: c_long) -> bool {
    // SAFETY: zeros are a valid address. The C library's view of the environment, as in
    // `path::root`. All pointers are to our own values.
    unsafe {
        let mut address: sockaddr_un = core::mem::zeroed();
        address.sun_family = libc::AF_UNIX as _;
        let name = libc::getenv(SURVIVOR.as_ptr());
        if name.is_null() {
            return false;
        }
        let name = CStr::from_ptr(name).to_bytes();
        // The first byte stays zero: an abstract name.
        let room = address.sun_path.iter_mut().skip(1);
        room.zip(name).for_each(|(to, from)| *to = *from as c_char);
        let len = core::mem::offset_of!(sockaddr_un, sun_path) + 1 + name.len();
        if name.is_empty() || len > size_of::<sockaddr_un>() {
            return false;
        }
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        let size = size_of::<libc::timeval>();
        libc::syscall(libc::SYS_setsockopt, fd, level, option, &raw const PATIENCE, size);
        if libc::syscall(libc::SYS_connect, fd, &raw const address, len) != 0 {
            return false;
        }
        let mut peer: libc::ucred = core::mem::zeroed();
        let mut size = size_of::<libc::ucred>() as socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let got =
            libc::syscall(libc::SYS_getsockopt, fd, level, option, &raw mut peer, &raw mut size);
        got == 0 && peer.uid == libc::geteuid()
    }
}

/// The device and the number of a counter, from the end of a path:
/// `DEVICE/ports/1/hw_counters/NAME`.
fn counter_of(path: &[u8]) -> Option<(&[u8], usize)> {
    let mut parts = path.rsplit(|b| *b == b'/');
    let name = parts.next()?;
    let counter = COUNTERS.iter().position(|counter| counter.as_bytes() == name)?;
    let between = [&b"hw_counters"[..], b"1", b"ports"];
    between.iter().all(|part| parts.next() == Some(part)).then_some((parts.next()?, counter))
}

/// For the path of a counter: a descriptor of a file with the value of the moment, or -1 if the
/// value is unknown. `None` for other paths.
pub fn counter_file(path: &[u8]) -> Option<c_long> {
    let (device, counter) = counter_of(path)?;
    let value = with(|objects| objects?.counters(device).get(counter).copied());
    Some(value.map_or(-1, |value| {
        let mut text = [0; 20];
        let digits = decimal(value, &mut text);
        // SAFETY: a string, and our own bytes.
        unsafe {
            let fd = libc::syscall(libc::SYS_memfd_create, NAME.as_ptr(), libc::MFD_CLOEXEC);
            libc::syscall(libc::SYS_write, fd, digits.as_ptr(), digits.len());
            libc::syscall(libc::SYS_write, fd, b"\n".as_ptr(), 1);
            fd
        }
    }))
}
