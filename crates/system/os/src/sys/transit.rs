//! Shared memory created or removed while another thread forks.
//!
//! Between the creation of a descriptor or a mapping and the call that keeps it from children,
//! another thread may fork. No lock can prevent the fork: the thread here allocates memory, and the
//! forking thread may hold the locks of an allocator. So the child cleans up if a thread of its
//! parent was at work in between.
//!
//! The kernel copies descriptors first and memory later. A descriptor closed between the two copies
//! is in the child, but not known to the child's memory. So the child compares counters in its
//! memory with the forking thread's note from before the fork:
//!
//! 1. A thread that creates or removes descriptors adds one to `BEGUN`, works, and adds one to
//!    `ENDED`.
//! 2. Before the fork, the forking thread stores `BEGUN` in `NOTED`, if `ENDED` is equal.
//! 3. The child searches for shared memory if its `BEGUN` differs from `NOTED`.
use libc::{c_int, c_long};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
/// The noted value of `BEGUN`. `u64::MAX`: a thread was at work.
static NOTED: AtomicU64 = AtomicU64::new(u64::MAX);

/// While the value lives, this thread creates or removes shared memory.
#[derive(Debug)]
pub struct Transit(());

impl Transit {
    /// Called before the creation of the descriptor or the mapping.
    #[must_use]
    pub fn begin() -> Self {
        BEGUN.fetch_add(1, SeqCst);
        Transit(())
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        ENDED.fetch_add(1, SeqCst);
    }
}

/// The kernel's names of shared memory: rings and tables, and memory files.
const NAMES: [&[u8]; 2] = [b"/memfd:adverb (deleted)", b"/memfd:adverb-memory (deleted)"];
/// The length of the longest name.
const LONGEST: usize = NAMES[1].len();
/// The number of mappings found in one search.
const FOUND: usize = 8;
/// The number of searches.
const LOOKS: usize = 64;

/// Called before a fork in the forking thread. Only one thread at a time forks.
pub fn note_transit_before_fork() {
    // In this order, so that `begun` is never less than `ended`.
    let ended = ENDED.load(SeqCst);
    let begun = BEGUN.load(SeqCst);
    NOTED.store(if begun == ended { begun } else { u64::MAX }, SeqCst);
}

/// Called in the child of a fork: closes and unmaps shared memory created or removed during the
/// fork. Async-signal-safe: only system calls, and a small stack.
pub fn drop_transit_after_fork() {
    let begun = BEGUN.load(SeqCst);
    // The parent's threads are not in the child, so their work never ends here.
    ENDED.store(begun, SeqCst);
    if begun != NOTED.load(SeqCst) {
        close_files();
        (0..LOOKS).take_while(|_| unmap_files()).for_each(drop);
    }
}

fn open(path: &std::ffi::CStr) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
}

/// The bytes that a call writes to `room`. `None` at the end, and after an error.
fn read(call: c_long, fd: c_int, room: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: room for the given number of bytes.
    let n = unsafe { libc::syscall(call, fd, room.as_mut_ptr(), room.len()) };
    room.get(..usize::try_from(n).ok()?).filter(|bytes| !bytes.is_empty())
}

fn close_files() {
    /// The offsets of the length and the name in a `linux_dirent64`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let Some(dir) = open(c"/proc/self/fd") else { return };
    let mut entries = [0_u8; 512];
    while let Some(mut rest) = read(libc::SYS_getdents64, dir, &mut entries) {
        while let Some(length) = rest.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
            let Some((entry, next)) = rest.split_at_checked(length).filter(|_| length > NAME)
            else {
                break;
            };
            rest = next;
            let name = &entry[NAME..];
            if let Some(fd) = number(name)
                && fd != dir
                && is_shared(dir, name)
            {
                super::fd::close(fd);
            }
        }
    }
    super::fd::close(dir);
}

/// Parses a NUL-terminated name as a number.
fn number(name: &[u8]) -> Option<c_int> {
    let end = name.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&name[..end]).ok()?.parse().ok()
}

/// Whether the link with this NUL-terminated name refers to shared memory.
fn is_shared(dir: c_int, name: &[u8]) -> bool {
    let mut link = [0_u8; LONGEST + 1];
    // SAFETY: a NUL-terminated name, and room for the given number of bytes.
    let n = unsafe {
        libc::syscall(libc::SYS_readlinkat, dir, name.as_ptr(), link.as_mut_ptr(), link.len())
    };
    usize::try_from(n).is_ok_and(|n| NAMES.contains(&&link[..n]))
}

/// Unmaps some shared mappings of shared memory; returns whether there were any.
fn unmap_files() -> bool {
    let Some(maps) = open(c"/proc/self/maps") else { return false };
    let (mut found, mut count) = ([(0, 0); FOUND], 0);
    let (mut bytes, mut line) = ([0_u8; 512], Line::default());
    'all: while let Some(read) = read(libc::SYS_read, maps, &mut bytes) {
        for byte in read {
            if let Some(range) = line.take(*byte) {
                found[count] = range;
                count += 1;
                if count == FOUND {
                    break 'all;
                }
            }
        }
    }
    super::fd::close(maps);
    for (start, end) in &found[..count] {
        // SAFETY: a mapping that a thread of the parent was making. It has no user in this process.
        unsafe { libc::syscall(libc::SYS_munmap, *start, end - start) };
    }
    count > 0
}

/// A line of `/proc/PID/maps`, parsed byte by byte.
#[derive(Default)]
struct Line {
    /// The index of the field: addresses, rights, offset, device, inode, name.
    field: usize,
    /// The bytes of this field so far.
    at: usize,
    start: usize,
    end: usize,
    shared: bool,
    name: [u8; LONGEST],
}

impl Line {
    /// Takes a byte. At the end of a line for a shared mapping of shared memory, returns the
    /// mapping's range.
    fn take(&mut self, byte: u8) -> Option<(usize, usize)> {
        const NAME: usize = 5;
        match (self.field, byte) {
            (_, b'\n') => {
                let line = std::mem::take(self);
                let is_named = line.name.get(..line.at).is_some_and(|name| NAMES.contains(&name));
                return (line.field == NAME && line.shared && is_named)
                    .then_some((line.start, line.end));
            }
            (..NAME, b' ') => {
                // Several spaces stand before the name.
                if self.at > 0 {
                    (self.field, self.at) = (self.field + 1, 0);
                }
                return None;
            }
            (NAME, b' ') if self.at == 0 => return None,
            (0, b'-') => self.start = std::mem::take(&mut self.end),
            (0, _) => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0) as usize;
                self.end = self.end << 4 | digit;
            }
            (1, b's') => self.shared = true,
            (NAME, _) => {
                if let Some(place) = self.name.get_mut(self.at) {
                    *place = byte;
                }
            }
            _ => {}
        }
        self.at += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_of_shared_memory_are_found() {
        let text = "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon\n\
            7f00-8f00 rw-s 2000000000000000 00:01 31     /memfd:adverb-memory (deleted)\n\
            9f00-af00 rw-p 00000000 00:01 31     /memfd:adverb-memory (deleted)\n\
            7ffd2000-7ffd4000 rw-p 00000000 00:00 0 \n\
            ab00-cd00 r--s 00000000 00:01 32             /memfd:adverb (deleted)\n\
            cd00-dd00 r--s 00000000 00:01 33             /memfd:adverb-cmd (deleted)\n\
            dd00-ee00 r--s 00000000 00:01 33             /memfd:adverb-memory (deleted) no\n";
        let mut line = Line::default();
        let found: Vec<_> = text.bytes().filter_map(|byte| line.take(byte)).collect();
        assert_eq!(found, [(0x7f00, 0x8f00), (0xab00, 0xcd00)]);
    }
}
