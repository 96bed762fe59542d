//! What the cases have in common.
use adverb_memory::{PeerMemory, Refusal, Shadow, Window};
use std::os::fd::{AsFd, OwnedFd};

/// A case, played in a process of its own.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    /// With the preload of `adverb run`.
    pub preload: bool,
    pub run: fn(),
}

/// A list of cases by the names of their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::world::Case] = &[
            $($crate::world::Case { name: stringify!($name), preload: true, run: $name }),*
        ];
    };
}
pub(crate) use cases;

pub const PAGE: usize = 4096;

/// This process's file.
pub fn shadow() -> &'static Shadow {
    Shadow::of_process().expect("the kernel has what is needed")
}

/// Private anonymous pages, unmapped never.
pub fn pages(n: usize) -> &'static mut [u8] {
    map(n * PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

pub fn map(len: usize, prot: i32, flags: i32, fd: i32) -> &'static mut [u8] {
    // SAFETY: new memory at an address of the kernel's choice, for this process's life.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0);
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        std::slice::from_raw_parts_mut(at.cast(), len)
    }
}

pub fn addr(memory: &[u8]) -> u64 {
    memory.as_ptr() as u64
}

/// Adopts all of it, for good.
pub fn adopt(memory: &[u8]) -> Result<adverb_memory::Adopted, Refusal> {
    shadow().adopt(addr(memory), memory.len() as u64)
}

/// What a peer sees at an offset of the file, without a mapping of its own.
pub fn in_file(addr: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: reads into the buffer.
    let n = unsafe {
        libc::pread(
            std::os::fd::AsRawFd::as_raw_fd(&shadow().fd()),
            bytes.as_mut_ptr().cast(),
            len,
            addr as i64,
        )
    };
    assert_eq!(n, len as isize);
    bytes
}

/// Bytes of memory that the file takes.
pub fn file_size() -> u64 {
    nix::sys::stat::fstat(shadow().fd()).expect("a file").st_blocks as u64 * 512
}

/// Runs `work` in a child of `fork`; its answer.
pub fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only does what the case says, and ends without running anything of its parent's.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
            libc::_exit(code);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status), "the child ended by {status:#x}");
        libc::WEXITSTATUS(status)
    }
}

/// A copy of the file's descriptor, as a peer would get it.
pub fn handed_over() -> OwnedFd {
    shadow().fd().as_fd().try_clone_to_owned().expect("a descriptor")
}

/// A window of this process's memory; only in a child, who is another process.
pub fn window(memory: &[u8]) -> Window {
    let peer = PeerMemory::new(handed_over()).expect("a peer's file");
    peer.window(addr(memory), memory.len() as u64).expect("a window")
}
