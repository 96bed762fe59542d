//! What a child of `fork` sees.
//!
//! Shared pages would stay shared with the child, whose writes would reach the parent and its peers. So before the child's
//! `fork` returns it replaces each by a private copy, and the parent waits until it has: nothing that the forking thread does
//! afterwards is in it. (Other threads' writes of that time may be, as they may with any fork.) A child made without the C library's
//! `fork`, by `vfork` or `clone`, shares the pages until it executes another program.
use super::{Shadow, moving, prot};
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// A mapping of the file as of the fork.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    start: u64,
    end: u64,
    offset: u64,
    prot: libc::c_int,
}

/// Both ends of the pipe on which the parent waits; -1 for none.
static READER: AtomicI32 = AtomicI32::new(-1);
static WRITER: AtomicI32 = AtomicI32::new(-1);

/// Set between `prepare` and what follows the fork.
static FORKING: AtomicPtr<Shadow> = AtomicPtr::new(std::ptr::null_mut());

/// The parent looks for its child this often at most, a tenth of a second each time.
const LOOKS: u32 = 600;

/// Has the C library's `fork` call the functions below, from the first call on.
pub(crate) fn register() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::SeqCst) {
        // SAFETY: functions that live as long as the library, which is never unloaded; the child's is async-signal-safe.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}

/// Before `fork`, in the thread that forks. Pages do not move until it is done.
extern "C" fn prepare() {
    let Some(shadow) = Shadow::current() else { return };
    let mut state = shadow.state.lock();
    state.snapshot.clear();
    // The counts do not know all: what the program has moved elsewhere, say.
    if shadow.lowest.load(Ordering::Relaxed) != u64::MAX {
        let mut pieces = std::mem::take(&mut state.snapshot);
        let listed = shadow.maps.kernel_files(|vma, _| {
            if vma.is_of(shadow.file) {
                let (start, end, offset) = (vma.start, vma.end, vma.offset);
                pieces.push(Piece { start, end, offset, prot: prot(vma.flags) });
            }
        });
        if listed.is_err() {
            // As they should be: a child that shared them with its parent would be worse off.
            pieces.clear();
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            pieces.extend(state.counts.inside().map(|(start, end)| Piece {
                start,
                end,
                offset: start,
                prot,
            }));
        }
        state.snapshot = pieces;
    }
    if !state.snapshot.is_empty() {
        let mut ends = [-1; 2];
        // Without a pipe the parent does not wait: the child still gets its copies.
        // SAFETY: two new descriptors.
        unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        READER.store(ends[0], Ordering::Relaxed);
        WRITER.store(ends[1], Ordering::Relaxed);
    }
    // Held over the fork; the parent and the child let go.
    std::mem::forget(state);
    FORKING.store(std::ptr::from_ref(shadow).cast_mut(), Ordering::Release);
}

/// After `fork` in the parent: waits until the child has its copies, or is dead.
extern "C" fn parent() {
    let Some(shadow) = forking() else { return };
    let (reader, writer) = take_pipe();
    close(writer);
    if reader >= 0 {
        let mut asked = libc::pollfd { fd: reader, events: libc::POLLIN, revents: 0 };
        for _ in 0..LOOKS {
            // A byte when it is done; the end of the file when it died.
            // SAFETY: one structure, ours.
            let n = unsafe { libc::poll(&raw mut asked, 1, 100) };
            if n > 0 || (n < 0 && Errno::last() != Errno::EINTR) {
                break;
            }
        }
        close(reader);
    }
    unlock(shadow);
}

/// After `fork` in the child. Async-signal-safe.
extern "C" fn child() {
    let Some(shadow) = forking() else { return };
    shadow.stale.store(true, Ordering::Release);
    let (reader, writer) = take_pipe();
    close(reader);
    // SAFETY: the lock was taken by this thread before it forked, and no other thread is here.
    let state = unsafe { &*shadow.state.data_ptr() };
    let fd = shadow.raw_fd();
    for &piece in &state.snapshot {
        // SAFETY: the child has one thread, and its mappings are those that its parent had.
        unsafe { make_private(fd, piece) };
    }
    // The parent's file lives on with the parent alone.
    replace(shadow, state);
    if writer >= 0 {
        // SAFETY: one byte from the stack.
        unsafe { libc::write(writer, [0_u8].as_ptr().cast(), 1) };
        close(writer);
    }
    unlock(shadow);
}

/// Gives a child its own copy of a piece; where memory lacks a view that shows the parent's writes but keeps the child's to itself.
unsafe fn make_private(fd: RawFd, piece: Piece) {
    let mut at = piece.start;
    while at < piece.end {
        let next = piece.end.min((at / moving::CHUNK + 1) * moving::CHUNK);
        let offset = piece.offset + (at - piece.start);
        // SAFETY: the caller's.
        unsafe {
            if moving::private_copy(fd, at, next, offset, piece.prot).is_err() {
                let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
                let len = (next - at) as usize;
                libc::mmap(at as *mut libc::c_void, len, piece.prot, flags, fd, offset.cast_signed());
            }
        }
        at = next;
    }
}

/// Puts something harmless in place of the descriptors that belong to the parent.
fn replace(shadow: &Shadow, state: &super::State) {
    // SAFETY: a new descriptor, copied over ours, which keep their numbers so that nobody closes another's.
    unsafe {
        let nothing = libc::eventfd(0, libc::EFD_CLOEXEC);
        if nothing < 0 {
            return;
        }
        let maps = shadow.maps.as_fd().as_raw_fd();
        let held = state.held.iter().flatten().map(super::Held::fd);
        for fd in [shadow.raw_fd(), maps].into_iter().chain(shadow.asked.fds()).chain(held) {
            libc::dup3(nothing, fd, libc::O_CLOEXEC);
        }
        libc::close(nothing);
    }
}

/// The file whose lock `prepare` took, once.
fn forking() -> Option<&'static Shadow> {
    // SAFETY: null, or a file, which is never freed.
    unsafe { FORKING.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
}

fn take_pipe() -> (RawFd, RawFd) {
    (READER.swap(-1, Ordering::Relaxed), WRITER.swap(-1, Ordering::Relaxed))
}

fn close(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: a descriptor of ours that nobody else uses.
        unsafe { libc::close(fd) };
    }
}

fn unlock(shadow: &Shadow) {
    // SAFETY: this thread, or in a child the one it goes on as, took the lock in `prepare` and forgot the guard.
    unsafe { shadow.state.force_unlock() };
}
