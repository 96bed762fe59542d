//! Ends of descriptors. librspreload knows `close` and `dup2`; a number of its own that ends by
//! another call would stay in its table, and what gets the number next would be taken for a socket.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{FILE, sockaddr, socklen_t};

use crate::epoll;
use crate::next::{errno, failed, next, set_errno};
use crate::theirs::{drop_note, is_theirs, note, theirs_within};

/// The process of this memory: a child of `vfork` has another number and the same memory.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// How many forks this memory is away from the first.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// In which of these, and one, an rsocket was made, by its own number.
static MADE: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];

extern "C" fn begin() {
    // SAFETY: functions of this object, which is never unloaded.
    unsafe {
        PROCESS.store(libc::getpid(), Ordering::Relaxed);
        libc::pthread_atfork(None, None, Some(forked));
    }
}

unsafe extern "C" fn forked() {
    // SAFETY: it asks for a number.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Is the memory another process's? What is in it is not to be changed then.
fn is_lent() -> bool {
    // SAFETY: it asks for a number.
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

/// The function of this name, of librdmacm.
///
/// # Safety
/// That of the function, as for all below.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    note_made(next!(new c"rsocket": fn(domain => c_int, kind => c_int, protocol => c_int) -> c_int))
}

/// The function of this name, of librdmacm.
///
/// # Safety
/// That of the function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_raccept(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    note_made(next!(new c"raccept": fn(fd => c_int, from => *mut sockaddr, len => *mut socklen_t) -> c_int))
}

/// The function of this name, of librdmacm. It asks a thread of the process that made the rsocket
/// to let go of it; a child of `fork` has no such thread, and the connection is its parent's. The
/// number stays taken there, as librdmacm still knows it.
///
/// # Safety
/// That of the function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_rclose(fd: c_int) -> c_int {
    let made = made(fd).map_or(0, |made| made.load(Ordering::Relaxed));
    if made != 0 && made != FORKS.load(Ordering::Relaxed) + 1 {
        return 0;
    }
    next!(new c"rclose": fn(fd => c_int) -> c_int)
}

/// librspreload's `close`, which knows what is none of its own.
fn close_theirs(fd: c_int) -> c_int {
    epoll::closed(fd);
    drop_note(fd);
    next!(new c"close": fn(fd => c_int) -> c_int)
}

/// The function of this name: what is closed leaves the sets of `epoll`.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_close(fd: c_int) -> c_int {
    if epoll::is_waker(fd) {
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

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
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
        epoll::within(first, last).for_each(epoll::closed);
        theirs_within(first, last).for_each(|fd| {
            close_theirs(fd);
        });
    }
    // What wakes sets is left out.
    let mut from = first;
    for waker in epoll::wakers_within(first, last).map(|fd| fd as c_uint) {
        if from < waker && kernels(from, waker - 1) != 0 {
            return -1;
        }
        from = waker + 1;
    }
    if from > last { 0 } else { kernels(from, last) }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_closefrom(first: c_int) {
    // SAFETY: plain numbers.
    unsafe { adverb_sockets_close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// Puts `from` at the number `to`, which librspreload forgets.
fn over(from: c_int, to: c_int) -> c_int {
    epoll::closed(to);
    drop_note(to);
    epoll::waker_replaced(to);
    next!(new c"dup2": fn(from => c_int, to => c_int) -> c_int)
}

/// The function of this name: a stream's own close is none that others see. What it closes is then
/// no more than a file.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fclose(file: *mut FILE) -> c_int {
    // SAFETY: the caller's stream.
    let fd = unsafe { libc::fileno(file) };
    if !is_lent() {
        if is_theirs(fd) {
            // SAFETY: a path, and a descriptor of this function's.
            unsafe {
                let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), flags);
                over(file as c_int, fd);
                libc::syscall(libc::SYS_close, file);
            }
        }
        epoll::closed(fd);
    }
    next!(new c"fclose": fn(file => *mut FILE) -> c_int)
}

/// Is it any descriptor? Keeps `errno`.
fn is_open(fd: c_int) -> bool {
    let before = errno();
    // SAFETY: a flag of a descriptor.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) };
    set_errno(before);
    flags >= 0
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
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

/// The function of this name: nobody would see what is written to a duplicate.
///
/// # Safety
/// That of the C library's function.
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
        epoll::waker_replaced(to);
    }
    next!(new c"dup3": fn(from => c_int, to => c_int, flags => c_int) -> c_int)
}
