//! Functions for all cases.
use adverb_memory::{PeerMemory, Placed, SharedFile, Window};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

pub const PAGE: usize = 4096;

/// The file of this process.
pub fn file() -> &'static SharedFile {
    let file = SharedFile::of_process().expect("the kernel has what is needed");
    file.share_allocations(true);
    file
}

/// Private anonymous pages, never unmapped.
pub fn pages(n: usize) -> &'static mut [u8] {
    map(n * PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// Like [`pages`], but the memory is shared. It is then a block, like the memory that a program
/// gets from the allocator under the preload library.
pub fn block(n: usize) -> &'static mut [u8] {
    let memory = pages(n);
    // SAFETY: mapped just now.
    assert!(unsafe { file().share_fresh(addr(memory), memory.len() as u64) });
    memory
}

pub fn map(len: usize, prot: i32, flags: i32, fd: i32) -> &'static mut [u8] {
    // SAFETY: new memory at an address of the kernel's choice, for the lifetime of this process.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0);
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        std::slice::from_raw_parts_mut(at.cast(), len)
    }
}

pub fn addr(memory: &[u8]) -> u64 {
    memory.as_ptr() as u64
}

/// A block filled with a pattern.
pub fn filled(n: usize) -> &'static mut [u8] {
    let memory = block(n);
    memory.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n % 251) as u8 + 1);
    memory
}

/// Drops root, if the case runs as root. Without root, no `userfaultfd` handles faults of the
/// kernel.
pub fn become_nobody() {
    // SAFETY: this process has one thread.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!((libc::setgid(65534), libc::setuid(65534)), (0, 0));
            // Keeps /proc/self accessible.
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
        }
    }
}

/// A word in memory accessed by others.
pub fn word(memory: &[u8], at: usize) -> &AtomicU64 {
    assert!(at + 8 <= memory.len() && (addr(memory) as usize + at).is_multiple_of(8));
    // SAFETY: within the memory, and aligned; all access to the word is atomic.
    unsafe { AtomicU64::from_ptr(memory.as_ptr().cast_mut().add(at).cast()) }
}

/// Registers all of the memory.
pub fn place(memory: &[u8]) -> Placed {
    file().place(addr(memory), memory.len() as u64).expect("a block")
}

/// Waits for a child; returns its exit code.
pub fn ended(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child ended by {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Starts `work` in a child of `fork`, which ends with the result.
pub fn start_child(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child only runs the case, and ends without running code of its parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    child
}

/// Runs `work` in a child of `fork`; returns its result.
pub fn in_child(work: impl FnOnce() -> i32) -> i32 {
    ended(start_child(work))
}

/// A duplicate of the file's descriptor, as sent to a peer. A child of `fork` inherits the
/// descriptor, but does not treat the file as its own.
pub fn received_file() -> OwnedFd {
    file().fd().unwrap().try_clone_to_owned().expect("a descriptor")
}

/// A child's window of its parent's memory, at an offset of the file.
pub fn window(file: &OwnedFd, offset: u64, len: usize) -> Window {
    let peer = PeerMemory::new(file.try_clone().expect("a descriptor")).expect("a peer's file");
    peer.window(offset, len as u64).expect("a window")
}
