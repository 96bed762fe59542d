//! What the cases have in common.
use adverb_memory::{PeerMemory, Refusal, Shadow, Window};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

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

/// The same with a pattern in them.
pub fn filled(n: usize) -> &'static mut [u8] {
    let memory = pages(n);
    memory.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n % 251) as u8 + 1);
    memory
}

pub fn protect(memory: &[u8], prot: i32) {
    // SAFETY: the case touches the memory no more than the rights allow.
    assert_eq!(unsafe { libc::mprotect(memory.as_ptr().cast_mut().cast(), memory.len(), prot) }, 0);
}

/// `madvise`, as a program calls it.
pub fn advise(memory: &[u8], advice: i32) -> std::io::Result<()> {
    // SAFETY: the case knows what becomes of the contents.
    match unsafe { libc::madvise(memory.as_ptr().cast_mut().cast(), memory.len(), advice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

pub fn limit(what: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a structure of ours.
    assert_eq!(unsafe { libc::setrlimit(what, &raw const limit) }, 0);
}

/// Gives up root, where that is what the case runs as: then there is no `userfaultfd` that handles the kernel's faults.
pub fn become_nobody() {
    // SAFETY: this process has one thread.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!((libc::setgid(65534), libc::setuid(65534)), (0, 0));
            // So that /proc/self stays its own.
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
        }
    }
}

/// Can this kernel hold other threads up for this user? `userfaultfd` for the kernel's own faults, with `UFFDIO_MOVE`. Where it
/// cannot, memory next to threads must be refused, which `threads_without_userfaultfd` sees to.
pub fn can_hold_up() -> bool {
    // `struct uffdio_api`, and `UFFDIO_API`.
    let mut api = [0xaa_u64, 1 << 16, 0];
    // SAFETY: a new descriptor, and the structure of the request.
    let can = unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        fd >= 0 && libc::ioctl(fd, 0xc018_aa3f, api.as_mut_ptr()) == 0
    };
    if !can {
        eprintln!("no userfaultfd here");
    }
    can
}

/// A joined thread is seen by the kernel for a moment longer.
pub fn wait_until_alone() {
    for _ in 0..10_000 {
        if std::fs::read_dir("/proc/self/task").unwrap().count() == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("threads are left");
}

/// A word in memory that others look at.
pub fn word(memory: &[u8], at: usize) -> &AtomicU64 {
    assert!(at + 8 <= memory.len() && (addr(memory) as usize + at).is_multiple_of(8));
    // SAFETY: within the memory, and aligned; all access to it is atomic.
    unsafe { AtomicU64::from_ptr(memory.as_ptr().cast_mut().add(at).cast()) }
}

/// Adopts all of it.
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

/// New private pages in place of others.
pub fn map_at(memory: &[u8]) -> &'static mut [u8] {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the case looks at the new pages alone from here on.
    unsafe {
        let at = memory.as_ptr().cast_mut().cast();
        assert_eq!(libc::mmap(at, memory.len(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0), at);
        std::slice::from_raw_parts_mut(at.cast(), memory.len())
    }
}

/// Moves memory that is adopted, which is two mappings: its first page, and the rest. Not every kernel moves both at once.
pub fn move_elsewhere(memory: &[u8]) -> &'static mut [u8] {
    let room = map(memory.len(), libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the case looks at the new place alone from here on.
    unsafe {
        for (at, len) in [(0, PAGE), (PAGE, memory.len() - PAGE)] {
            let to = room.as_mut_ptr().add(at).cast::<libc::c_void>();
            assert_eq!(libc::mremap(memory.as_ptr().cast_mut().add(at).cast(), len, len, flags, to), to);
        }
    }
    room
}

/// Waits for a child; what it answers.
pub fn ended(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child ended by {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Runs `work` in a child of `fork`; its answer.
pub fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only does what the case says, and ends without running anything of its parent's.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    ended(child)
}

/// A copy of the file's descriptor, as a peer would get it. A child of `fork` inherits it, but not the file as its own.
pub fn handed_over() -> OwnedFd {
    shadow().fd().as_fd().try_clone_to_owned().expect("a descriptor")
}

/// A child's window of its parent's memory, at the address that both know.
pub fn window(file: &OwnedFd, memory: &[u8]) -> Window {
    let peer = PeerMemory::new(file.try_clone().expect("a descriptor")).expect("a peer's file");
    peer.window(addr(memory), memory.len() as u64).expect("a window")
}
