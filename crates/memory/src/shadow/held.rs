//! Moving pages into the file while other threads run: `userfaultfd` holds up whoever touches them.
//!
//! `UFFDIO_MOVE` (Linux 6.8) takes pages away from the program's range in one step, contents and all, to a place that nobody knows;
//! it refuses pages that a device may be writing to. Whoever looks for them meanwhile, a system call of another thread too, waits,
//! until the file is mapped there with the same contents. That needs a `userfaultfd` which handles the kernel's own faults: root
//! has it, others where `vm.unprivileged_userfaultfd` or `/dev/userfaultfd` gives it.
use super::hazards::ARENA;
use super::moving::{CHUNK, copy_to_file, map_file, next_part, punch, set_apart};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const API: u64 = 0xaa;
/// `UFFD_FEATURE_MOVE`.
const FEATURE_MOVE: u64 = 1 << 16;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MISSING: u64 = 1;
/// `MADV_POPULATE_WRITE`.
const POPULATE: libc::c_int = 23;
/// How often pages that are busy for a moment are asked for.
const TRIES: u32 = 64;

#[repr(C)]
struct ApiArg {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RegisterArg {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct RangeArg {
    start: u64,
    len: u64,
}

#[repr(C)]
struct MoveArg {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

/// `_IOWR(0xaa, nr, …)` and `_IOR(0xaa, nr, …)`.
const fn request(dir: libc::c_ulong, nr: libc::c_ulong, size: usize) -> libc::c_ulong {
    (dir << 30) | ((size as libc::c_ulong) << 16) | (0xaa << 8) | nr
}
const UFFDIO_API: libc::c_ulong = request(3, 0x3f, size_of::<ApiArg>());
const UFFDIO_REGISTER: libc::c_ulong = request(3, 0, size_of::<RegisterArg>());
const UFFDIO_UNREGISTER: libc::c_ulong = request(2, 1, size_of::<RangeArg>());
const UFFDIO_WAKE: libc::c_ulong = request(2, 2, size_of::<RangeArg>());
const UFFDIO_MOVE: libc::c_ulong = request(3, 5, size_of::<MoveArg>());
/// `_IO(0xaa, 0)`, of `/dev/userfaultfd`.
const NEW: libc::c_ulong = request(0, 0, 0);

/// A `userfaultfd`, and the place that pages are moved to.
#[derive(Debug)]
pub(super) struct Held {
    fd: OwnedFd,
    /// A chunk of addresses.
    aside: u64,
}

impl Held {
    /// None where this kernel, or who may use it, does not do.
    pub fn new() -> Option<Held> {
        let fd = open()?;
        let mut api = ApiArg { api: API, features: FEATURE_MOVE, ioctls: 0 };
        // SAFETY: the structure of this request; then a reservation that disturbs nothing, and half of it given up.
        let aside = unsafe {
            if libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) != 0 {
                return None;
            }
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let room = libc::mmap(std::ptr::null_mut(), 2 * CHUNK as usize, prot, flags, -1, 0);
            if room == libc::MAP_FAILED {
                return None;
            }
            let (aside, other) = halves(room as u64);
            libc::munmap(other as *mut libc::c_void, CHUNK as usize);
            aside
        };
        let held = Held { fd, aside };
        held.register(held.aside, CHUNK).ok()?;
        Some(held)
    }

    /// The descriptor, to be replaced in a child.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Moves private anonymous pages into `file` at the offset that is their address, and maps them back in place. On failure some
    /// may have moved: each page is either where it was or mapped from the file.
    ///
    /// # Safety
    /// `[start, end)` are whole pages of private anonymous memory, readable and writable, none of which this thread touches: not
    /// its stack, nor its own data. The file covers all addresses.
    pub unsafe fn move_in(&self, file: RawFd, start: u64, end: u64) -> Result<(), Errno> {
        // All pages are brought in, and made this process's alone, before anybody is held up.
        // SAFETY: changes no contents.
        Errno::result(unsafe { libc::syscall(libc::SYS_madvise, start, end - start, POPULATE) })?;
        self.register(start, end - start)?;
        let mut at = start;
        while at < end {
            let next = next_part(start, at, end);
            // SAFETY: a part of the range.
            let moved = unsafe { self.move_chunk(file, at, next) };
            let left = if moved.is_ok() { next } else { at };
            let apart = if at == start { moved.and_then(|()| set_apart(start, end)) } else { moved };
            if let Err(errno) = apart {
                let rest = RangeArg { start: left, len: end - left };
                // Lets everybody go on who waits for a page of the rest.
                // SAFETY: the structure of this request.
                unsafe { libc::ioctl(self.fd(), UFFDIO_UNREGISTER, &raw const rest) };
                return Err(errno);
            }
            at = next;
        }
        Ok(())
    }

    unsafe fn move_chunk(&self, file: RawFd, start: u64, end: u64) -> Result<(), Errno> {
        let len = end - start;
        let moved = self.take(self.aside, start, len);
        let done = match moved {
            // SAFETY: the pages are aside, where nobody else sees them; the caller's for the range.
            n if n == len => unsafe {
                copy_to_file(file, self.aside, start, len).and_then(|()| map_file(file, start, end))
            },
            // A device uses one, or it vanished: the program gave it up just now.
            _ => Err(Errno::EBUSY),
        };
        if let Err(errno) = done {
            if self.take(start, self.aside, moved) != moved {
                // The program's memory would be lost.
                std::process::abort();
            }
            punch(file, start, end);
            return Err(errno);
        }
        let range = RangeArg { start, len };
        // SAFETY: the structure of this request; then pages of ours whose contents are in the file.
        unsafe {
            libc::ioctl(self.fd(), UFFDIO_WAKE, &raw const range);
            libc::syscall(libc::SYS_madvise, self.aside, len, libc::MADV_DONTNEED);
        }
        Ok(())
    }

    /// Moves pages, as many as can be, and answers how many bytes.
    fn take(&self, to: u64, from: u64, len: u64) -> u64 {
        let (mut done, mut tries) = (0, 0);
        while done < len && tries < TRIES {
            let mut arg = MoveArg { dst: to + done, src: from + done, len: len - done, mode: 0, moved: 0 };
            // SAFETY: the structure of this request. The pages' new place is as empty as their old one will be.
            let rc = unsafe { libc::ioctl(self.fd(), UFFDIO_MOVE, &raw mut arg) };
            if rc == 0 {
                return len;
            }
            if arg.moved > 0 {
                done += arg.moved.cast_unsigned();
                continue;
            }
            tries += 1;
            // SAFETY: waits for its turn.
            unsafe { libc::sched_yield() };
        }
        done
    }

    fn register(&self, start: u64, len: u64) -> Result<(), Errno> {
        let mut arg = RegisterArg { start, len, mode: MISSING, ioctls: 0 };
        // SAFETY: the structure of this request. Nobody's memory changes; absent pages make their finders wait.
        Errno::result(unsafe { libc::ioctl(self.fd(), UFFDIO_REGISTER, &raw mut arg) }).map(drop)
    }
}

/// Which half of two chunks is the place aside: one without a word that `hazards::arena` might look at. It is empty,
/// and whoever looks there waits for ever.
fn halves(room: u64) -> (u64, u64) {
    let first = room.next_multiple_of(ARENA) < room + CHUNK;
    if first { (room + CHUNK, room) } else { (room, room + CHUNK) }
}

/// From whoever may give one.
fn open() -> Option<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: new descriptors.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, flags) as RawFd;
        if fd >= 0 {
            return Some(OwnedFd::from_raw_fd(fd));
        }
        let device = libc::open(c"/dev/userfaultfd".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if device < 0 {
            return None;
        }
        let device = OwnedFd::from_raw_fd(device);
        let fd = libc::ioctl(device.as_raw_fd(), NEW, flags);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_for_an_arena_aside() {
        for base in [ARENA, 100 * ARENA] {
            for room in (base - 3 * CHUNK..=base + CHUNK).step_by(4096) {
                let (aside, other) = halves(room);
                assert!(!(aside..aside + CHUNK).contains(&base), "{room:#x}");
                assert_eq!((aside.min(other), aside.max(other)), (room, room + CHUNK));
            }
        }
    }
}
