//! Closing descriptors. librspreload only sees `close` and `dup2`. If another call closes one of
//! its descriptors, the number stays in librspreload's table. The next file with this number would
//! then be taken for a socket.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{FILE, sockaddr, socklen_t};

use crate::epoll;
use crate::next::{errno, failed, next, set_errno};
use crate::theirs::{GIVEN, is_theirs, note, theirs_within};

/// The process that owns this memory. A child of `vfork` has another process id and the same
/// memory.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// How many forks lie between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// For each rsocket, by its number: the value of `FORKS` when it was made, plus one; 0 if unknown.
static MADE: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];

extern "C" fn begin() {
    // SAFETY: the functions belong to this object, which is never unloaded.
    unsafe {
        PROCESS.store(libc::getpid(), Ordering::Relaxed);
        libc::pthread_atfork(None, None, Some(forked));
    }
}

unsafe extern "C" fn forked() {
    // SAFETY: `getpid` has no requirements.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Whether this memory belongs to another process (in a child of `vfork`). Such a child must not
/// change the memory.
fn is_lent() -> bool {
    // SAFETY: `getpid` has no requirements.
    PROCESS.load(Ordering::Relaxed) != unsafe { libc::getpid() }
}

fn made(rsocket: c_int) -> Option<&'static AtomicU32> {
    MADE.get(usize::try_from(rsocket).ok()?)
}

fn note_made(rsocket: c_int) -> c_int {
    if let Some(made) = made(rsocket) {
        made.store(FORKS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    rsocket
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_rsocket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    note_made(next!(new c"rsocket": fn(domain => c_int, kind => c_int, protocol => c_int) -> c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_raccept(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    note_made(
        next!(new c"raccept": fn(fd => c_int, from => *mut sockaddr, len => *mut socklen_t) -> c_int),
    )
}

/// Replaces the function of this name of librdmacm. librdmacm's `rclose` asks a thread of the
/// process that made the rsocket to release it. A child of `fork` has no such thread, and the
/// connection belongs to the parent. So in a child this function does nothing for an inherited
/// rsocket. The number stays taken in the child, because librdmacm still knows the rsocket.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_rclose(fd: c_int) -> c_int {
    let made = made(fd).map_or(0, |made| made.load(Ordering::Relaxed));
    if made != 0 && made != FORKS.load(Ordering::Relaxed) + 1 {
        return 0;
    }
    next!(new c"rclose": fn(fd => c_int) -> c_int)
}

/// librspreload's `close`, which passes other descriptors on to the C library.
fn close_theirs(fd: c_int) -> c_int {
    epoll::closed(fd);
    GIVEN.clear(fd);
    next!(new c"close": fn(fd => c_int) -> c_int)
}

/// Replaces the function of this name. A closed descriptor leaves the `epoll` sets.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_close(fd: c_int) -> c_int {
    if epoll::WAKERS.has(fd) {
        return failed(libc::EBADF);
    }
    if !is_lent() {
        return close_theirs(fd);
    }
    if is_theirs(fd) {
        // SAFETY: the caller's descriptor.
        return unsafe { libc::syscall(libc::SYS_close, fd) as c_int };
    }
    next!(new c"close": fn(fd => c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    let kernels = |first: c_uint, last: c_uint| next!(last c"close_range": fn(first => c_uint, last => c_uint, flags => c_int) -> c_int);
    let known = libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE;
    let closes = flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 && flags & !(known as c_int) == 0;
    if first > last || !closes {
        return kernels(first, last);
    }
    if !is_lent() {
        epoll::MIXED.within(first, last).for_each(epoll::closed);
        theirs_within(first, last).for_each(|fd| {
            close_theirs(fd);
        });
    }
    // Wakers of sets stay open.
    let mut from = first;
    for waker in epoll::WAKERS.within(first, last).map(|fd| fd as c_uint) {
        if from < waker && kernels(from, waker - 1) != 0 {
            return -1;
        }
        from = waker + 1;
    }
    if from > last { 0 } else { kernels(from, last) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_closefrom(first: c_int) {
    // SAFETY: plain numbers.
    unsafe { adverb_sockets_close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// Puts a duplicate of `from` at the number `to`. librspreload then forgets its socket `to`.
fn over(from: c_int, to: c_int) -> c_int {
    epoll::closed(to);
    GIVEN.clear(to);
    epoll::WAKERS.clear(to);
    next!(new c"dup2": fn(from => c_int, to => c_int) -> c_int)
}

/// Replaces the function of this name. The C library closes the stream's descriptor inside
/// `fclose`, and librspreload does not see this close. So a socket is first replaced by a plain
/// `/dev/null`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fclose(file: *mut FILE) -> c_int {
    // SAFETY: the caller's stream.
    let fd = unsafe { libc::fileno(file) };
    if !is_lent() {
        if is_theirs(fd) {
            // SAFETY: the path is a string, and this function owns the new descriptor.
            unsafe {
                let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                let file =
                    libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), flags);
                over(file as c_int, fd);
                libc::syscall(libc::SYS_close, file);
            }
        }
        epoll::closed(fd);
    }
    next!(new c"fclose": fn(file => *mut FILE) -> c_int)
}

/// Whether the descriptor is open. Keeps `errno`.
fn is_open(fd: c_int) -> bool {
    let before = errno();
    // SAFETY: the call only reads the flags of a descriptor.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) };
    set_errno(before);
    flags >= 0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_dup2(from: c_int, to: c_int) -> c_int {
    if is_lent() && from != to && (is_theirs(from) || is_theirs(to)) {
        // SAFETY: plain numbers.
        return unsafe { libc::syscall(libc::SYS_dup3, from, to, 0) as c_int };
    }
    if is_lent() || from == to || !is_open(from) {
        return next!(new c"dup2": fn(from => c_int, to => c_int) -> c_int);
    }
    let from_theirs = is_theirs(from);
    let new = over(from, to);
    if from_theirs {
        note(new);
    }
    new
}

/// Replaces the function of this name. A socket of librspreload is refused: data that a program
/// writes to a duplicate would be lost.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if is_theirs(from) {
        return failed(libc::EOPNOTSUPP);
    }
    let known = flags & !libc::O_CLOEXEC == 0;
    if !is_lent() && from != to && known && is_open(from) {
        if is_theirs(to) {
            close_theirs(to);
        }
        epoll::closed(to);
        epoll::WAKERS.clear(to);
    }
    next!(new c"dup3": fn(from => c_int, to => c_int, flags => c_int) -> c_int)
}
