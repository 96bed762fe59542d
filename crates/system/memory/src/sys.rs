//! System calls of this crate, made without the C library's functions.
//!
//! Programs replace `mmap`, `munmap` and `madvise`, for example by memory hooks of MPI libraries;
//! our preload does so, too. Such a function may do anything, so this crate never calls through one
//! of these names (MEM-7).
use nix::errno::Errno;
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes a system call by the machine instruction. The C library's `syscall` is a name that
/// programs and our preload replace, too.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn call(number: i64, args: [u64; 6]) -> Result<u64, Errno> {
    let result: i64;
    // SAFETY: the kernel's calling convention. The call changes rax, rcx and r11 (x86-64) or x0
    // (aarch64), and the memory named by its arguments.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2],
            in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    answer(result)
}

/// Decodes the kernel's answer: a number, or a negative errno.
pub(crate) fn answer(result: i64) -> Result<u64, Errno> {
    match result {
        -4095..0 => Err(Errno::from_raw(-result as i32)),
        _ => Ok(result.cast_unsigned()),
    }
}

/// Read and write.
pub(crate) const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The address of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The kernel chooses the address.
    Anywhere,
    /// This address, replacing any mapping there.
    Over(u64),
    /// This address, if nothing is mapped there.
    Free(u64),
}

fn bits(n: i32) -> u64 {
    u64::from(n.cast_unsigned())
}

/// The number of a descriptor, as an argument.
fn fd_bits(fd: RawFd) -> u64 {
    i64::from(fd).cast_unsigned()
}

/// `mprotect`.
///
/// # Safety
/// The caller may change the rights of the range.
pub(crate) unsafe fn protect(addr: u64, len: u64, prot: i32) -> Result<(), Errno> {
    // SAFETY: the contract of this function.
    unsafe { call(libc::SYS_mprotect, [addr, len, bits(prot), 0, 0, 0]) }.map(drop)
}

/// `read`, `write` or a related call: descriptor, address, length, offset.
///
/// # Safety
/// The caller may read or write the bytes.
pub(crate) unsafe fn transfer(
    number: i64,
    fd: RawFd,
    addr: u64,
    len: u64,
    offset: u64,
) -> Result<u64, Errno> {
    // SAFETY: the contract of this function.
    unsafe { call(number, [fd_bits(fd), addr, len, offset, 0, 0]) }
}

/// Opens a file for reading. Not a cancellation point, and neither are [`transfer`] and [`close`].
pub(crate) fn open(path: &CStr) -> Result<RawFd, Errno> {
    let flags = bits(libc::O_RDONLY | libc::O_CLOEXEC);
    let args = [fd_bits(libc::AT_FDCWD), path.as_ptr() as u64, flags, 0, 0, 0];
    // SAFETY: the path is NUL-terminated.
    unsafe { call(libc::SYS_openat, args) }.map(|fd| fd as RawFd)
}

/// `close`.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: affects only the descriptor, which the caller owns.
    let _ = unsafe { call(libc::SYS_close, [fd_bits(fd), 0, 0, 0, 0, 0]) };
}

/// `mmap` with the flags for `at`. `file` is a descriptor and an offset; `None` is anonymous
/// memory.
///
/// # Safety
/// With [`At::Over`] the caller may replace the range.
pub(crate) unsafe fn map(
    at: At,
    len: u64,
    prot: i32,
    flags: i32,
    file: Option<(RawFd, u64)>,
) -> Result<u64, Errno> {
    let (addr, fixed) = match at {
        At::Anywhere => (0, 0),
        At::Over(addr) => (addr, libc::MAP_FIXED),
        At::Free(addr) => (addr, libc::MAP_FIXED_NOREPLACE),
    };
    let (fd, offset) = file.unwrap_or((-1, 0));
    let anonymous = if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
    let flags = bits(flags | fixed | anonymous);
    let args = [addr, len, bits(prot), flags, fd_bits(fd), offset];
    // SAFETY: the contract of this function; a new mapping elsewhere disturbs nothing.
    let got = unsafe { call(libc::SYS_mmap, args) }?;
    if matches!(at, At::Free(addr) if addr != got) {
        // SAFETY: the mapping made just now. Kernels before 4.17 take the address for a hint.
        let _ = unsafe { unmap(got, len) };
        return Err(Errno::EEXIST);
    }
    Ok(got)
}

/// Puts private zeroed memory in place of a range.
///
/// # Safety
/// The caller may replace the range.
pub(crate) unsafe fn map_zeroes(addr: u64, len: u64, prot: i32) -> Result<(), Errno> {
    // SAFETY: the contract of this function.
    unsafe { map(At::Over(addr), len, prot, libc::MAP_PRIVATE, None) }.map(drop)
}

/// Maps `len` bytes of a file, shared. The kernel chooses an address that is a multiple of `align`
/// plus `rest`. `align` and `rest` are whole pages.
pub(crate) fn map_aligned(
    len: u64,
    align: u64,
    rest: u64,
    file: (RawFd, u64),
) -> Result<u64, Errno> {
    let room = len.checked_add(align).ok_or(Errno::ENOMEM)?;
    // SAFETY: a new mapping; only parts of this mapping are unmapped again.
    unsafe {
        if align <= page_size() {
            return map(At::Anywhere, len, RW, libc::MAP_SHARED, Some(file));
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let at = map(At::Anywhere, room, libc::PROT_NONE, flags, None)?;
        let start = (at - rest).next_multiple_of(align) + rest;
        let mapped = map(At::Over(start), len, RW, libc::MAP_SHARED, Some(file));
        let (first, last) = if mapped.is_ok() { (start, start + len) } else { (at, at) };
        for (from, until) in [(at, first), (last, at + room)] {
            if from < until {
                let _ = unmap(from, until - from);
            }
        }
        mapped
    }
}

/// `mremap`.
///
/// # Safety
/// The range is the caller's, and with `MREMAP_FIXED` the target range, too.
pub(crate) unsafe fn remap(
    addr: u64,
    old: u64,
    new: u64,
    flags: i32,
    to: u64,
) -> Result<u64, Errno> {
    // SAFETY: the contract of this function.
    unsafe { call(libc::SYS_mremap, [addr, old, new, bits(flags), to, 0]) }
}

/// Sets this thread's signal mask, one bit a signal, and returns the previous mask. A set bit
/// blocks the signal.
pub(crate) fn mask_signals(mask: u64) -> u64 {
    let mut before = 0_u64;
    let args = [bits(libc::SIG_SETMASK), &raw const mask as u64, &raw mut before as u64, 8, 0, 0];
    // SAFETY: reads and writes only the two words.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, args) };
    before
}

/// The signals for which the process has no handler, one bit a signal.
pub(crate) fn signals_without_handler() -> u64 {
    /// The last signal before the real-time signals.
    const LAST: u64 = 31;
    (1..=LAST).fold(0, |set, signal| {
        // The kernel's structure begins with the handler, and has at most four words.
        let mut action = [u64::MAX; 4];
        let args = [signal, 0, (&raw mut action) as u64, 8, 0, 0];
        // SAFETY: the kernel writes the structure.
        let asked = unsafe { call(libc::SYS_rt_sigaction, args) };
        let has_none = [libc::SIG_DFL, libc::SIG_IGN].map(|none| none as u64).contains(&action[0]);
        if asked.is_ok() && has_none { set | 1 << (signal - 1) } else { set }
    })
}

/// `munmap`.
///
/// # Safety
/// The range is the caller's, and no pointer into the range is left.
pub(crate) unsafe fn unmap(addr: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: the contract of this function.
    unsafe { call(libc::SYS_munmap, [addr, len, 0, 0, 0, 0]) }.map(drop)
}

/// `madvise`.
///
/// # Safety
/// The advice is right for the range: some kinds of advice discard contents.
pub(crate) unsafe fn advise(addr: u64, len: u64, advice: i32) -> Result<(), Errno> {
    // SAFETY: the contract of this function.
    unsafe { call(libc::SYS_madvise, [addr, len, bits(advice), 0, 0, 0]) }.map(drop)
}

/// Frees pages of a file. The range reads as zeroes afterwards.
pub(crate) fn punch(fd: RawFd, offset: u64, len: u64) -> Result<(), Errno> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    for _ in 0..64 {
        // By the instruction: the C library's function is a cancellation point, and the callers,
        // the program's `free` and `madvise`, are not.
        let args = [fd_bits(fd), bits(mode), offset, len, 0, 0];
        // SAFETY: affects only the file.
        match unsafe { call(libc::SYS_fallocate, args) } {
            Err(Errno::EINTR) => {}
            result => return result.map(drop),
        }
    }
    Err(Errno::EINTR)
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    /// The two numbers of the file's device.
    pub major: u32,
    pub minor: u32,
    pub inode: u64,
}

impl FileId {
    /// The file with these attributes.
    pub fn of(about: &libc::stat) -> Self {
        let dev = about.st_dev;
        FileId { major: libc::major(dev), minor: libc::minor(dev), inode: about.st_ino }
    }
}

/// The attributes of a descriptor's file. Async-signal-safe.
pub(crate) fn attributes(fd: RawFd) -> Result<libc::stat, Errno> {
    let mut about = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes the structure, and all zeroes is a valid value of the structure.
    let (failed, about) = unsafe { (libc::fstat(fd, about.as_mut_ptr()), about.assume_init()) };
    if failed == 0 { Ok(about) } else { Err(Errno::last()) }
}

/// The identity of a descriptor's file. Async-signal-safe.
pub(crate) fn identity(fd: RawFd) -> Option<FileId> {
    attributes(fd).ok().map(|about| FileId::of(&about))
}

/// The page size in bytes.
pub(crate) fn page_size() -> u64 {
    static SIZE: OnceLock<u64> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf has no preconditions.
        let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(n).ok().filter(|n| n.is_power_of_two()).unwrap_or(4096)
    })
}

/// `mincore`: the lowest bit of a byte in `pages` says whether the page is in memory.
///
/// # Errors
/// ENOMEM if part of the range is not mapped; EINVAL if `pages` has too few bytes.
pub(crate) fn in_memory(addr: u64, len: u64, pages: &mut [u8]) -> Result<(), Errno> {
    if (pages.len() as u64) < len.div_ceil(page_size()) {
        return Err(Errno::EINVAL);
    }
    let args = [addr, len, pages.as_mut_ptr() as u64, 0, 0, 0];
    // SAFETY: the kernel writes one byte for each page, for which there is room.
    unsafe { call(libc::SYS_mincore, args) }.map(drop)
}

/// Whether anything is mapped at an address.
pub(crate) fn is_mapped(addr: u64) -> bool {
    let page = page_size();
    in_memory(addr & !(page - 1), page, &mut [0]).is_ok()
}

/// The process id, without a system call.
pub(crate) fn pid() -> u32 {
    let Some([word, _]) = wiped() else { return std::process::id() };
    match word.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            word.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// The identity of a process, different from all its ancestors and descendants, however a child was
/// made: `fork`, `clone`, or a raw system call of the program. The process id is not enough,
/// because a child in its own PID namespace may have the number of its parent.
#[derive(Clone, Copy, Debug)]
pub struct ProcessIdentity {
    word: Option<&'static AtomicU32>,
    number: u32,
}

impl ProcessIdentity {
    /// This process.
    #[must_use]
    pub fn current() -> Self {
        /// The number given last. A child continues from the value of its parent.
        static LAST: AtomicU32 = AtomicU32::new(0);
        let Some([_, word]) = wiped() else {
            return ProcessIdentity { word: None, number: std::process::id() };
        };
        let number = match word.load(Ordering::Acquire) {
            0 => {
                let mine = LAST.fetch_add(1, Ordering::AcqRel) + 1;
                match word.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => mine,
                    Err(other) => other,
                }
            }
            number => number,
        };
        ProcessIdentity { word: Some(word), number }
    }

    /// The number of the process: one more than the number of its nearest ancestor with a number. A
    /// process gets a number at its first call of [`current`](ProcessIdentity::current).
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// Whether an ancestor of this process has a number.
    pub(crate) fn is_child(self) -> bool {
        self.number > 1 || self.is_over()
    }

    /// Whether this process is another one than the caller of
    /// [`current`](ProcessIdentity::current), and so a descendant. Costs one load.
    #[must_use]
    #[inline]
    pub fn is_over(self) -> bool {
        match self.word {
            Some(word) => word.load(Ordering::Relaxed) != self.number,
            None => std::process::id() != self.number,
        }
    }
}

/// Two words of a page that the kernel zeroes in every child, however the child was made. So a
/// child never uses the values of its parent.
fn wiped() -> Option<[&'static AtomicU32; 2]> {
    static PAGE: OnceLock<Option<[&'static AtomicU32; 2]>> = OnceLock::new();
    *PAGE.get_or_init(|| {
        let len = page_size();
        // SAFETY: a new mapping of this crate, never unmapped; the advice affects only children.
        unsafe {
            let at = map(At::Anywhere, len, RW, libc::MAP_PRIVATE, None).ok()?;
            advise(at, len, libc::MADV_WIPEONFORK).ok()?;
            let words = at as *mut u32;
            Some([AtomicU32::from_ptr(words), AtomicU32::from_ptr(words.add(1))])
        }
    })
}
