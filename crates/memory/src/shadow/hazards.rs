//! Whether pages may move: what is mapped there, and who else might write to it.
use super::Refusal;
use crate::maps::{EXEC, Kind, Maps, READ, SHARED, Vma, WRITE};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Arenas of glibc's allocator for threads begin at multiples of this.
pub(super) const ARENA: u64 = 64 << 20;
/// Stack that what runs from here on may need, and that those need who wait for it.
const DEEPER: u64 = 64 << 10;
/// From the head of a thread's robust list, which the kernel knows, to behind what the C library keeps for the thread.
const THREAD_DATA: u64 = 2048;

/// A run of pages that would have to move.
pub(super) type Runs = Vec<(u64, u64)>;

/// Finds what of `[start, end)` is not in `file` yet, or why it cannot be.
pub(super) fn survey(
    maps: &Maps,
    (fd, file): (BorrowedFd<'_>, ((u32, u32), u64)),
    start: u64,
    end: u64,
) -> Result<Runs, Refusal> {
    let mut runs = Runs::new();
    let mut at = start;
    let mut refusal = None;
    let mut look = |vma: &Vma| -> Result<(), Refusal> {
        if vma.start > at {
            return Err(Refusal::NotMapped);
        }
        let (from, to) = (at, vma.end.min(end));
        at = to;
        if vma.is_of(file) && vma.offset == vma.start {
            return if vma.flags & (READ | WRITE) == READ | WRITE { Ok(()) } else { Err(Refusal::Guard) };
        }
        suitable(vma)?;
        match runs.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => runs.push((from, to)),
        }
        locked(from, to)?;
        arena(fd, from, to)
    };
    maps.walk(start, end, |vma| {
        refusal = look(vma).err();
        refusal.is_none()
    })?;
    match refusal {
        Some(refusal) => Err(refusal),
        None if at < end => Err(Refusal::NotMapped),
        None => Ok(runs),
    }
}

fn suitable(vma: &Vma) -> Result<(), Refusal> {
    match vma.kind {
        Kind::Stack => return Err(Refusal::Stack),
        Kind::Special => return Err(Refusal::Special),
        _ if vma.page > crate::page_size() => return Err(Refusal::HugePages),
        Kind::File if vma.flags & SHARED != 0 => return Err(Refusal::Shared),
        Kind::File => return Err(Refusal::File),
        Kind::Anonymous => {}
    }
    if vma.flags & EXEC != 0 {
        return Err(Refusal::Executable);
    }
    if vma.flags & (READ | WRITE) != READ | WRITE {
        return Err(Refusal::Guard);
    }
    Ok(())
}

/// A synchronisation of private memory does nothing, but it tells whether the memory is locked.
fn locked(start: u64, end: u64) -> Result<(), Refusal> {
    // SAFETY: changes nothing, whatever the range is.
    let rc = unsafe { libc::msync(start as *mut libc::c_void, (end - start) as usize, libc::MS_INVALIDATE) };
    match rc {
        0 => Ok(()),
        _ if Errno::last() == Errno::EBUSY => Err(Refusal::Locked),
        _ => Err(Refusal::NotMapped),
    }
}

/// Refuses the heaps of glibc's arenas. Their first words are two pointers and two sizes (`heap_info`).
fn arena(file: BorrowedFd<'_>, start: u64, end: u64) -> Result<(), Refusal> {
    let mut base = start / ARENA * ARENA;
    while base < end {
        if let Some([arena, _, size, mapped]) = peek(file, base) {
            let whole = |n: u64| n > 0 && n <= ARENA && n.is_multiple_of(crate::page_size());
            if arena != 0 && arena.is_multiple_of(8) && whole(size) && whole(mapped) && size <= mapped {
                return Err(Refusal::Arena);
            }
        }
        base += ARENA;
    }
    Ok(())
}

/// Words of our own memory if they are mapped. The kernel reads them: another thread might unmap them at this moment. Where it is
/// forbidden to by the direct way it goes through the first page of `file`, which stands for addresses that nobody has.
fn peek(file: BorrowedFd<'_>, addr: u64) -> Option<[u64; 4]> {
    let mut bytes = [0; 32];
    let from = [RemoteIoVec { base: addr as usize, len: bytes.len() }];
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut bytes)], &from) {
        Ok(32) => {}
        Ok(_) | Err(Errno::EFAULT) => return None,
        Err(_) => {
            let fd = file.as_raw_fd();
            // SAFETY: the kernel answers with an error if the memory is not there; then into our own bytes.
            let n = unsafe {
                match libc::pwrite(fd, addr as *const libc::c_void, 32, 0) {
                    32 => libc::pread(fd, bytes.as_mut_ptr().cast(), 32, 0),
                    _ => 0,
                }
            };
            super::moving::punch(fd, 0, crate::page_size());
            if n != 32 {
                return None;
            }
        }
    }
    let mut words =
        bytes.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()));
    Some(std::array::from_fn(|_| words.next().unwrap_or_default()))
}

/// Refuses what `smaps` says is special: this is slow, so it is asked only where something might be.
pub(super) fn unmarked(start: u64, end: u64) -> Result<(), Refusal> {
    let text = std::fs::read_to_string("/proc/self/smaps")?;
    let mut inside = false;
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let odd = ["dc", "wf", "gd", "mt", "um", "uw", "ui", "io", "pf", "dp", "ss"];
            if inside && flags.split_ascii_whitespace().any(|flag| odd.contains(&flag)) {
                return Err(Refusal::Special);
            }
        } else if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-'))
            && let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
        {
            inside = from < end && to > start;
        }
    }
    Ok(())
}

/// Refuses the stack this runs on, and where the C library and the kernel keep this thread's data: both are written to while
/// pages move.
pub(super) fn not_under_us(maps: &Maps, runs: &[(u64, u64)]) -> Result<(), Refusal> {
    let here = 0_u8;
    // SAFETY: the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() } as u64;
    let head = robust_list(0).unwrap_or(errno);
    let data = (errno.min(head), data_end(nix::unistd::gettid().as_raw(), head).max(errno));
    let stack = std::hint::black_box(&raw const here) as u64;
    let used = (stack.saturating_sub(DEEPER), stack + 1);
    // All of the stack if the data lies behind it in one mapping: that of a thread, on which a child of its `fork` goes on. Of
    // stacks that the program has made, as much as is likely.
    let mut whole = (stack, stack + DEEPER);
    maps.walk(stack, stack + 1, |vma| {
        if (vma.start..vma.end).contains(&head) {
            whole = (vma.start, (head + 1).next_multiple_of(crate::page_size()));
        }
        false
    })?;
    let hit =
        |(start, end): &(u64, u64)| [used, whole, data].iter().any(|(from, to)| start < to && from < end);
    if runs.iter().any(hit) { Err(Refusal::Stack) } else { Ok(()) }
}

/// The head of a thread's list of robust mutexes, which lies in what the C library keeps for it. 0 is the caller.
pub(super) fn robust_list(tid: libc::pid_t) -> Option<u64> {
    let (mut head, mut len) = (0_u64, 0_usize);
    // SAFETY: the kernel writes the two words.
    let rc = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) };
    (rc == 0 && head != 0).then_some(head)
}

/// Where a thread's data ends: with its stack's mapping, or, for the main thread, anywhere.
fn data_end(tid: libc::pid_t, head: u64) -> u64 {
    if is_main(tid) { head + THREAD_DATA } else { (head + 1).next_multiple_of(crate::page_size()) }
}

fn is_main(tid: libc::pid_t) -> bool {
    tid.cast_unsigned() == std::process::id()
}

/// From the start of the mapping that a thread's stack lies in to the end of the thread's data behind it. The main thread's data lies
/// elsewhere, among other mappings, so it stands alone.
pub(super) fn stack_of(maps: &Maps, tid: libc::pid_t) -> Option<(u64, u64)> {
    let head = robust_list(tid)?;
    let end = data_end(tid, head);
    if is_main(tid) {
        return Some((head, end));
    }
    let mut found = None;
    maps.walk(head, head + 1, |vma| {
        found = Some((vma.start, end));
        false
    })
    .ok()?;
    found
}

/// Refuses the stacks of all threads, and what the C library keeps for them: the kernel wakes whoever joins a thread by the place
/// of a word there.
pub(super) fn no_stack(maps: &Maps, runs: &[(u64, u64)]) -> Result<(), Refusal> {
    for entry in std::fs::read_dir("/proc/self/task")? {
        let tid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(stack) = tid.and_then(|tid| stack_of(maps, tid)) else { continue };
        if runs.iter().any(|(start, end)| *start < stack.1 && *end > stack.0) {
            return Err(Refusal::Stack);
        }
    }
    Ok(())
}

/// Refuses while requests to the kernel may write at any time: a ring of io_uring or of aio is mapped.
pub(super) fn no_async_io(maps: &Maps) -> Result<(), Refusal> {
    let mut found = false;
    maps.kernel_files(|_, name| {
        found |= name.starts_with(b"/[aio]") || name.windows(10).any(|part| part == b"[io_uring]");
    })?;
    if found { Err(Refusal::AsyncIo) } else { Ok(()) }
}

/// Files of `/proc` that are asked again and again.
#[derive(Debug)]
pub(super) struct Asked {
    tasks: File,
    status: File,
    children: Option<File>,
}

impl Asked {
    pub fn open() -> std::io::Result<Asked> {
        let main = std::process::id();
        Ok(Asked {
            tasks: File::open("/proc/self/task")?,
            status: File::open("/proc/self/status")?,
            children: File::open(format!("/proc/self/task/{main}/children")).ok(),
        })
    }

    /// Their descriptors, to be replaced in a child.
    pub fn fds(&self) -> impl Iterator<Item = libc::c_int> + '_ {
        [Some(&self.tasks), Some(&self.status), self.children.as_ref()]
            .into_iter()
            .flatten()
            .map(AsRawFd::as_raw_fd)
    }

    /// How many threads this process has.
    pub fn threads(&self) -> std::io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        // The directory has a link for each thread beside its own two.
        Ok(self.tasks.metadata()?.nlink().saturating_sub(2))
    }

    /// Refuses if a device has pinned pages: it may write to them.
    pub fn not_pinned(&self) -> Result<(), Refusal> {
        let mut room = [0; ROOM];
        let text = read_again(&self.status, &mut room)?;
        let pinned = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"VmPin:"));
        match pinned {
            Some(size) if size.trim_ascii() == b"0 kB" => Ok(()),
            // A kernel without this line has no such pages.
            None => Ok(()),
            Some(_) => Err(Refusal::Pinned),
        }
    }

    /// Refuses if a child process runs in this address space.
    pub fn no_twin(&self) -> Result<(), Refusal> {
        let mut room = [0; ROOM];
        let Some(children) = &self.children else { return Ok(()) };
        let text = read_again(children, &mut room)?;
        let full = text.len() == ROOM;
        let me = std::process::id();
        for child in
            text.split(|b| *b == b' ').filter_map(|id| std::str::from_utf8(id).ok()?.parse::<u32>().ok())
        {
            // SAFETY: compares what the two processes have; KCMP_VM is 1.
            let order = unsafe { libc::syscall(libc::SYS_kcmp, me, child, 1, 0, 0) };
            let gone = order < 0 && Errno::last() == Errno::ESRCH;
            if order == 0 || (order < 0 && !gone) {
                return Err(Refusal::Processes);
            }
        }
        if full { Err(Refusal::Processes) } else { Ok(()) }
    }
}

/// Room for what is read.
const ROOM: usize = 4096;

fn read_again<'a>(file: &File, room: &'a mut [u8]) -> std::io::Result<&'a [u8]> {
    let mut len = 0;
    while len < room.len() {
        match file.read_at(&mut room[len..], len as u64)? {
            0 => break,
            n => len += n,
        }
    }
    Ok(&room[..len])
}

/// Refuses where a write to the file could end the process: a limit on the size of files sends SIGXFSZ.
pub(super) fn unlimited_files() -> Result<(), Refusal> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if rc == 0 && limit.rlim_cur == libc::RLIM_INFINITY { Ok(()) } else { Err(Refusal::FileSize) }
}

/// Refuses memory with tags, which would stay behind.
pub(super) fn untagged() -> Result<(), Refusal> {
    #[cfg(target_arch = "aarch64")]
    {
        /// `PR_GET_TAGGED_ADDR_CTRL`, and its bits for checking tags.
        const GET: libc::c_int = 56;
        const CHECKS: libc::c_int = 6;
        // SAFETY: asks.
        let control = unsafe { libc::prctl(GET, 0, 0, 0, 0) };
        if control > 0 && control & CHECKS != 0 {
            return Err(Refusal::Special);
        }
    }
    Ok(())
}
