//! The memory of a child of `fork`.
//!
//! A child does not inherit mappings of the file (`MADV_DONTFORK`). So a child made without our
//! handlers has no such pages, and can never write to the pages of its parent. In a child of
//! `fork`, copies are made before `fork` returns there, and the parent waits for them. So the
//! copies contain no later writes of the forking thread. They may contain concurrent writes of
//! other threads, and in another order: unlike the kernel's, the copy is not of one moment.
//! Untouched pages are not copied. From then on the child's memory is ordinary.
//!
//! No code in this file allocates, frees or calls a logger. `_Fork` is async-signal-safe, so the
//! forking thread may be inside the allocator already. A test counts the allocator's calls during
//! forks (`tests/foreign/tests/foreign/forks.rs`).
use super::SharedFile;
use super::advice::InChild;
use super::blocks::Piece;
use super::data::fill;
use super::index::POOLED;
use crate::maps::Vma;
use crate::sys::{self, At, RW};
use crate::text::{self, Path};
use adverb_threads::Task;
use adverb_threads::call::{Line, parse};
use nix::errno::Errno;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// The pipe on which the parent waits. It is made in advance, so that a process without a free
/// descriptor can still fork. -1 is none. The inode tells whether the numbers are still the pipe's,
/// because a program may close all descriptors and reuse the numbers. Changed under the table's
/// lock.
static READER: AtomicI32 = AtomicI32::new(-1);
static WRITER: AtomicI32 = AtomicI32::new(-1);
static PIPE: AtomicU64 = AtomicU64::new(0);
/// A further function to call before a fork.
static BEFORE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// A further function to call in a child.
static CHILD: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Set between `before` and the end of the fork.
static FORKING: AtomicPtr<SharedFile> = AtomicPtr::new(std::ptr::null_mut());
/// The forking thread's signal mask from before the fork. No signal handler runs until the child
/// has its memory, because handlers may read the memory. Signals without a handler are taken: fork
/// may wait for ever for a lock of malloc that its own thread holds, and SIGTERM ends such a
/// process. Read and written only by the thread holding the table.
static MASKED: AtomicU64 = AtomicU64::new(0);
/// Whether the forking thread holds the pool. Read and written only by the thread holding the
/// table.
static POOL: AtomicBool = AtomicBool::new(false);

/// Registers `before`, called before every fork while no other thread forks, and `child`, called in
/// every child. Each runs after the functions of this file.
pub(super) fn call_around(before: extern "C" fn(), child: extern "C" fn()) {
    BEFORE.store(before as *mut (), Ordering::Release);
    CHILD.store(child as *mut (), Ordering::Release);
}

/// Calls a function registered by [`call_around`], if there is one.
fn call(function: &AtomicPtr<()>) {
    let function = function.load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: `call_around` stored a function of this signature.
        let function = unsafe { std::mem::transmute::<*mut (), extern "C" fn()>(function) };
        function();
    }
}

/// Whether the process may fork: 0 if so, ENOMEM if the machine cannot hold the copies of a child,
/// EAGAIN without descriptors for the pipe. Allocates nothing, because a signal handler that calls
/// `_Fork` may have interrupted the allocator.
pub(super) extern "C" fn may_fork() -> c_int {
    /// For less than this, available memory is not checked.
    const LITTLE: u64 = 1 << 20;
    let Some(file) = SharedFile::outside() else { return 0 };
    let usage = file.usage();
    let (resident, live) = (usage.resident, usage.own + usage.blocks);
    if live == 0 {
        return 0;
    }
    keep_stack(file);
    // Take only this lock. Under it nothing may allocate: the allocator may wait, in another
    // thread's fork, for the same lock.
    let table = file.table();
    let piped = has_pipe();
    drop(table);
    if !piped {
        text::warn(format_args!(
            "fork fails: there are no descriptors for a pipe, on which the parent waits for the child's copy (EAGAIN)"
        ));
        return libc::EAGAIN;
    }
    if resident < LITTLE || resident <= crate::room::available() {
        return 0;
    }
    text::warn(format_args!(
        "fork fails: the child's copy of {resident} bytes of shared memory does not fit (ENOMEM); posix_spawn or \
         vfork copy nothing, MADV_DONTFORK leaves memory out"
    ));
    libc::ENOMEM
}

/// Runs before `fork` in the forking thread. An allocator's own handler may have run before, and
/// hold all its locks, so nothing is allocated here.
pub(super) extern "C" fn before() {
    let Some(file) = SharedFile::outside() else { return call(&BEFORE) };
    let pooled = file.pool.hold();
    let mut table = file.table();
    call(&BEFORE);
    let mut copies = std::mem::take(&mut table.copies);
    copies.clear();
    if !table.blocks.is_empty() || file.own.load(Ordering::Relaxed) > 0 {
        let here = (&raw const copies) as u64;
        let _ = file.maps.files(|vma| {
            if !vma.shares(file.id) || table.is_alias(vma.start) {
                return;
            }
            // A child gets no blocks that the program has freed. No block enters or leaves the pool
            // while it is held.
            if pooled && file.index.find(vma.start).is_some_and(|about| about.has(POOLED)) {
                return;
            }
            if (vma.start..vma.end).contains(&here) {
                // A fork that bypasses the preload's `fork`, which would have kept the stack
                // private.
                file.mark(&table, vma.offset);
                keep(file, vma);
                return;
            }
            let (mut at, last, prot) = (vma.offset, vma.offset_end(), vma.prot());
            while at < last {
                let (what, next) = table.advised.at(at, last);
                if what != Some(InChild::Absent) && copies.len() < copies.capacity() {
                    let zeroes = what == Some(InChild::Zeroes);
                    let (start, end) =
                        (vma.start + (at - vma.offset), vma.start + (next - vma.offset));
                    copies.push(Piece { start, end, offset: at, prot, zeroes, beside: 0 });
                }
                at = next;
            }
        });
    }
    let any = !copies.is_empty();
    if any && file.raw_fd() < 0 {
        copies.iter_mut().for_each(map_beside);
    }
    table.copies = copies;
    if any {
        has_pipe();
    }
    MASKED.store(table.quiet.before, Ordering::Relaxed);
    POOL.store(pooled, Ordering::Relaxed);
    // Held over the fork; the parent and the child release the lock.
    std::mem::forget(table);
    FORKING.store(std::ptr::from_ref(file).cast_mut(), Ordering::Release);
    sys::mask_signals(!sys::signals_without_handler() | MASKED.load(Ordering::Relaxed));
}

/// Lets a child inherit the pages to copy when the program has closed the file's descriptor.
fn map_beside(piece: &mut Piece) {
    let len = piece.end - piece.start;
    // SAFETY: a second mapping of the same pages, at an address of the kernel's choice.
    unsafe {
        let Ok(at) = sys::remap(piece.start, 0, len, libc::MREMAP_MAYMOVE, 0) else { return };
        let ready =
            sys::protect(at, len, libc::PROT_READ).and(sys::advise(at, len, libc::MADV_DOFORK));
        match ready {
            Ok(()) => piece.beside = at,
            Err(_) => drop(sys::unmap(at, len)),
        }
    }
}

/// Removes the second mapping, in the parent and in the child.
fn unmap_beside(piece: &Piece) {
    if piece.beside != 0 {
        // SAFETY: the mapping made for this fork.
        let _ = unsafe { sys::unmap(piece.beside, piece.end - piece.start) };
    }
}

/// Copies the present pages from the second mapping.
fn fill_from_beside(piece: &Piece) {
    const PAGES: u64 = 1024;
    let (page, len) = (crate::page_size(), piece.end - piece.start);
    let mut there = [0_u8; PAGES as usize];
    let mut at = 0;
    while at < len {
        let n = (len - at).min(PAGES * page);
        let asked = sys::in_memory(piece.beside + at, n, &mut there);
        for i in (0..n / page).filter(|i| asked.is_err() || there[*i as usize] & 1 == 1) {
            let (from, to) = (piece.beside + at + i * page, piece.start + at + i * page);
            let (from, to) = (from as *const u8, to as *mut u8);
            // SAFETY: from a page of the second mapping to the mapping made for the child.
            unsafe { std::ptr::copy_nonoverlapping(from, to, page as usize) };
        }
        at += n;
    }
}

/// Makes the block private on which the forking thread runs, because the child needs this memory at
/// its first instruction. The kernel then copies the memory as any other, and the memory is no
/// block any more.
fn keep_stack(file: &SharedFile) {
    let here = 0_u8;
    let here = (&raw const here) as u64;
    if let Some(vma) = file.maps.first(here, here + 1).filter(|vma| vma.shares(file.id)) {
        file.mark(&file.table(), vma.offset);
        keep(file, &vma);
    }
}

/// Makes a mapping private, and wakes the threads waiting on futexes there.
fn keep(file: &SharedFile, vma: &Vma) {
    file.make_own(vma);
    let (len, from) = (vma.len(), Some((file.raw_fd(), vma.offset)));
    // SAFETY: a temporary mapping of the device.
    unsafe {
        if let Ok(beside) = sys::map(At::Anywhere, len, RW, libc::MAP_SHARED, from) {
            wake_waiters(vma, beside);
            let _ = sys::unmap(beside, len);
        }
    }
}

/// The kernel finds waiters of a shared futex by the offset in the file, or by the address once the
/// memory is private. Threads already waiting by the offset, such as a thread in `pthread_join`,
/// must wake up, check again, and wait by the address from then on.
fn wake_waiters(vma: &Vma, beside: u64) {
    text::numbers_in(c"/proc/self/task", |task| {
        let task = Task::own(task as i32);
        let Some(path) = Path::of(format_args!("{}", task.call_path())) else { return };
        let waits_at = text::first_line(path.as_c_str(), |line| {
            let Line::Blocked(call) = parse(std::str::from_utf8(line).ok()?)? else { return None };
            call.futex().filter(|word| (vma.start..vma.end).contains(word))
        });
        if let Some(at) = waits_at {
            let args =
                [beside + (at - vma.start), libc::FUTEX_WAKE as u64, i32::MAX as u64, 0, 0, 0];
            // SAFETY: wakes waiters, which check their condition again.
            let _ = unsafe { sys::call(libc::SYS_futex, args) };
        }
    });
}

/// Runs after `fork` in the parent: waits until the child has its copies, or is dead.
pub(super) extern "C" fn in_parent() {
    let Some(file) = forking() else { return };
    // SAFETY: this thread took the lock before the fork.
    let waits = unsafe { !(*file.table.data_ptr()).copies.is_empty() };
    if waits {
        wait_for_child(file);
    }
    unlock(file);
}

fn wait_for_child(file: &SharedFile) {
    let (reader, writer) = take_pipe();
    close(writer);
    if reader >= 0 {
        let mut byte = [0_u8];
        // The child writes a byte when done; end of file means that it died.
        loop {
            // SAFETY: one byte of a local array.
            let read =
                unsafe { sys::transfer(libc::SYS_read, reader, byte.as_mut_ptr() as u64, 1, 0) };
            if read != Err(Errno::EINTR) {
                break;
            }
        }
        close(reader);
    }
    // Make the next pipe while two descriptors are free.
    has_pipe();
    // SAFETY: this thread holds the lock.
    unsafe { (*file.table.data_ptr()).copies.iter().for_each(unmap_beside) };
}

/// Makes the pipe for a fork if there is none. Returns whether there is one.
pub(super) fn has_pipe() -> bool {
    let ends = [READER.load(Ordering::Relaxed), WRITER.load(Ordering::Relaxed)];
    let ours = PIPE.load(Ordering::Relaxed);
    if ends.into_iter().all(|fd| fd >= 0 && inode(fd) == Some(ours)) {
        return true;
    }
    let mut ends = [-1; 2];
    // SAFETY: two new descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0;
    let ends = if made { ends } else { [-1; 2] };
    READER.store(ends[0], Ordering::Relaxed);
    WRITER.store(ends[1], Ordering::Relaxed);
    PIPE.store(inode(ends[0]).unwrap_or(0), Ordering::Relaxed);
    made
}

/// The inode of a pipe.
fn inode(fd: RawFd) -> Option<u64> {
    let about = sys::attributes(fd).ok()?;
    (about.st_mode & libc::S_IFMT == libc::S_IFIFO).then_some(about.st_ino)
}

/// Runs after `fork` in the child. Async-signal-safe.
pub(super) extern "C" fn in_child() {
    if let Some(file) = forking() {
        copy_all(file);
    }
    call(&CHILD);
}

fn copy_all(file: &SharedFile) {
    let (reader, writer) = take_pipe();
    close(reader);
    // SAFETY: this thread took the lock before the fork, and the child has no other thread.
    let table = unsafe { &*file.table.data_ptr() };
    for piece in &table.copies {
        copy(file.raw_fd(), piece);
        unmap_beside(piece);
    }
    // The parent's file belongs to the parent alone.
    replace(file);
    if writer >= 0 && !table.copies.is_empty() {
        // SAFETY: one byte from the stack.
        let _ = unsafe { sys::transfer(libc::SYS_write, writer, [0_u8].as_ptr() as u64, 1, 0) };
    }
    close(writer);
    unlock(file);
}

/// Makes the child's copy of a piece. If the copy fails, the range may stay unmapped.
fn copy(fd: RawFd, piece: &Piece) {
    let len = piece.end - piece.start;
    // SAFETY: nothing is mapped there, or the call fails.
    if unsafe { sys::map(At::Free(piece.start), len, RW, libc::MAP_PRIVATE, None) }.is_err() {
        return;
    }
    if !piece.zeroes && piece.beside != 0 {
        fill_from_beside(piece);
    } else if !piece.zeroes && !fill(fd, piece.start, piece.offset, len) {
        return;
    }
    if piece.prot != RW {
        // SAFETY: the mapping made above gets the rights of the parent's mapping.
        let _ = unsafe { sys::protect(piece.start, len, piece.prot) };
    }
}

/// Puts a harmless file in place of the parent's descriptors, under the same numbers.
fn replace(file: &SharedFile) {
    // SAFETY: a new descriptor replaces our descriptors. The numbers stay in use, so that no later
    // close hits a file of the program.
    unsafe {
        let nothing = libc::eventfd(0, libc::EFD_CLOEXEC);
        if nothing >= 0 {
            for fd in [file.raw_fd(), file.maps.own_fd()] {
                // A file that the program has put there stays.
                if fd >= 0 {
                    libc::dup3(nothing, fd, libc::O_CLOEXEC);
                }
            }
            sys::close(nothing);
        }
    }
}

/// The file locked by `before`; returned once for each fork.
fn forking() -> Option<&'static SharedFile> {
    // SAFETY: null, or a file, which is never freed.
    unsafe { FORKING.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
}

fn take_pipe() -> (RawFd, RawFd) {
    (READER.swap(-1, Ordering::Relaxed), WRITER.swap(-1, Ordering::Relaxed))
}

fn close(fd: RawFd) {
    if fd >= 0 {
        sys::close(fd);
    }
}

fn unlock(file: &SharedFile) {
    file.owner.store(0, Ordering::Relaxed);
    let masked = MASKED.load(Ordering::Relaxed);
    let pooled = POOL.load(Ordering::Relaxed);
    // SAFETY: this thread, or in a child the thread that continues it, took the lock in `before`
    // and forgot the guard.
    unsafe { file.table.force_unlock() };
    if pooled {
        file.pool.let_go();
    }
    sys::mask_signals(masked);
}
