//! The mappings of this process: one at a time by `PROCMAP_QUERY` (Linux 6.11), or all by reading
//! `/proc/self/maps` on older kernels.
use crate::sys::{self, FileId};
use crate::text;
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Rights and kind of a mapping, as reported by `PROCMAP_QUERY`.
pub(crate) const READ: u64 = 1;
pub(crate) const WRITE: u64 = 2;
pub(crate) const EXEC: u64 = 4;
pub(crate) const SHARED: u64 = 8;

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub start: u64,
    pub end: u64,
    pub flags: u64,
    /// The mapped file; inode 0 for anonymous memory.
    pub file: FileId,
    /// The offset in the file.
    pub offset: u64,
}

impl Vma {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }
    /// The offset in the file behind the mapping.
    pub fn offset_end(&self) -> u64 {
        self.offset + self.len()
    }
    /// Whether the mapping shows a part of `[from, until)` of its file.
    pub fn shows(&self, from: u64, until: u64) -> bool {
        self.offset < until && self.offset_end() > from
    }
    /// Whether this is a shared mapping of the file.
    pub fn shares(&self, file: FileId) -> bool {
        self.file == file && self.flags & SHARED != 0
    }
    /// The rights, as arguments of `mprotect`.
    pub fn prot(&self) -> i32 {
        let flags = [(READ, libc::PROT_READ), (WRITE, libc::PROT_WRITE), (EXEC, libc::PROT_EXEC)];
        flags.into_iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, prot)| prot).sum()
    }
}

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

const COVERING_OR_NEXT: u64 = 0x10;
const FILE_BACKED: u64 = 0x20;
/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong =
    (3 << 30) | ((size_of::<Query>() as libc::c_ulong) << 16) | (0x66 << 8) | 17;

/// The mappings of this process.
#[derive(Debug)]
pub(crate) struct Maps {
    file: File,
    /// The identity of the opened file. The descriptor may belong to another file by now.
    id: FileId,
    query: bool,
}

impl Maps {
    /// Opens `/proc/self/maps`. A child of `fork` must open the file again, because the descriptor
    /// shows the memory of the opening process.
    pub fn open() -> io::Result<Maps> {
        let file = File::open("/proc/self/maps")?;
        let id = sys::identity(file.as_raw_fd()).ok_or(io::ErrorKind::NotFound)?;
        let mut maps = Maps { file, id, query: true };
        maps.query = maps.ask(0, COVERING_OR_NEXT).is_ok();
        Ok(maps)
    }

    /// The descriptor if still open for the same file, else -1.
    pub fn own_fd(&self) -> RawFd {
        let fd = self.file.as_raw_fd();
        if sys::identity(fd) == Some(self.id) { fd } else { -1 }
    }

    /// Reads the text, as on older kernels.
    #[cfg(test)]
    pub fn open_old() -> io::Result<Maps> {
        Ok(Maps { query: false, ..Maps::open()? })
    }

    /// Calls `each` with the mappings overlapping `[start, end)`, in order, until `each` returns
    /// `false`.
    pub fn walk(&self, start: u64, end: u64, mut each: impl FnMut(&Vma) -> bool) -> io::Result<()> {
        let mut at = start;
        while at < end
            && let Ok(found) = self.ask(at, COVERING_OR_NEXT)
        {
            let Some(vma) = found.filter(|vma| vma.start < end) else { return Ok(()) };
            at = vma.end;
            if !each(&vma) {
                return Ok(());
            }
        }
        if at >= end {
            return Ok(());
        }
        self.lines(|vma| vma.end <= at || (vma.start < end && each(vma)))
    }

    /// The first mapping overlapping `[start, end)`.
    pub fn first(&self, start: u64, end: u64) -> Option<Vma> {
        let mut found = None;
        let _ = self.walk(start, end, |vma| {
            found = Some(*vma);
            false
        });
        found
    }

    /// Calls `each` with every mapping of a file.
    pub fn files(&self, mut each: impl FnMut(&Vma)) -> io::Result<()> {
        let mut at = 0;
        while let Ok(found) = self.ask(at, COVERING_OR_NEXT | FILE_BACKED) {
            let Some(vma) = found else { return Ok(()) };
            at = vma.end;
            each(&vma);
        }
        self.lines(|vma| {
            if vma.file.inode != 0 && vma.end > at {
                each(vma);
            }
            true
        })
    }

    /// Calls `each` with the mappings in the text, until `each` returns `false`. Allocates nothing,
    /// because allocators call `madvise` under their locks. Not a cancellation point.
    fn lines(&self, mut each: impl FnMut(&Vma) -> bool) -> io::Result<()> {
        // A new descriptor, because two readers of one descriptor would disturb each other. Without
        // a free descriptor use ours.
        let opened = sys::open(c"/proc/self/maps");
        let fd = opened.unwrap_or(self.own_fd());
        let result =
            text::lines_of::<1024>(fd, &mut |line| parse_line(line).is_none_or(|vma| each(&vma)));
        if let Ok(fd) = opened {
            sys::close(fd);
        }
        Ok(result?)
    }

    /// Asks the kernel for one mapping. Fails on older kernels, and if the program has closed the
    /// descriptor together with its own.
    fn ask(&self, addr: u64, flags: u64) -> io::Result<Option<Vma>> {
        if !self.query {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut query = Query { size: size_of::<Query>() as u64, flags, addr, ..Query::default() };
        // SAFETY: this request reads and writes the structure `query`, which contains the size of
        // the structure.
        if unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } != 0 {
            return match Errno::last() {
                Errno::ENOENT => Ok(None),
                errno => Err(errno.into()),
            };
        }
        Ok(Some(Vma {
            start: query.vma_start,
            end: query.vma_end,
            flags: query.vma_flags,
            file: FileId { major: query.dev_major, minor: query.dev_minor, inode: query.inode },
            offset: query.vma_offset,
        }))
    }
}

/// Parses a line of `/proc/PID/maps`. Text behind the inode may be cut off.
fn parse_line(line: &[u8]) -> Option<Vma> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let mut field = || fields.next().and_then(|f| std::str::from_utf8(f).ok());
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let half = |text: &str| u32::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let rights = field()?.as_bytes();
    let offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.trim().parse().ok()?;
    let flags = [(b'r', READ), (b'w', WRITE), (b'x', EXEC), (b's', SHARED)];
    let set = rights.iter().zip(flags).filter(|(is, (letter, _))| *is == letter);
    let flags = set.map(|(_, (_, flag))| flag).sum();
    let file = FileId { major: half(major)?, minor: half(minor)?, inode };
    Some(Vma { start: hex(start)?, end: hex(end)?, flags, file, offset })
}

#[cfg(test)]
mod tests;
