//! What the kernel has mapped where: one mapping at a time by `PROCMAP_QUERY` (Linux 6.11), or all of `/proc/self/maps`
//! read, before that.
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Rights and kind of a mapping, as `PROCMAP_QUERY` gives them.
pub(crate) const READ: u64 = 1;
pub(crate) const WRITE: u64 = 2;
pub(crate) const EXEC: u64 = 4;
pub(crate) const SHARED: u64 = 8;

/// What is behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anonymous memory: the heap's or any other.
    Anonymous,
    /// The main thread's stack.
    Stack,
    /// `[vdso]` and its like.
    Special,
    /// A file, shared anonymous memory (whose file has no name) included.
    File,
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub start: u64,
    pub end: u64,
    pub flags: u64,
    /// Size of the kernel's pages; 0 where it does not say.
    pub page: u64,
    /// Offset in the file.
    pub offset: u64,
    pub inode: u64,
    pub dev: (u32, u32),
    pub kind: Kind,
}

impl Vma {
    /// Is this the piece of the file `(dev, inode)`, shared?
    pub fn is_of(&self, file: ((u32, u32), u64)) -> bool {
        (self.dev, self.inode) == file && self.flags & SHARED != 0
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
/// Room for a path.
const PATH: usize = 4096;

/// This process's mappings.
#[derive(Debug)]
pub(crate) struct Maps {
    file: File,
    query: bool,
}

impl AsFd for Maps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Maps {
    /// Opens `/proc/self/maps`. A child of `fork` needs one of its own: the descriptor stays with its process's memory.
    pub fn open() -> io::Result<Maps> {
        let mut maps = Maps { file: File::open("/proc/self/maps")?, query: true };
        maps.query = maps.ask(0, COVERING_OR_NEXT, &mut []).is_ok();
        Ok(maps)
    }

    /// The same by reading the text, as on older kernels.
    #[cfg(test)]
    pub fn open_old() -> io::Result<Maps> {
        Ok(Maps { query: false, ..Maps::open()? })
    }

    /// Calls `each` with the mappings that meet `[start, end)`, in order, until it answers `false`.
    pub fn walk(&self, start: u64, end: u64, mut each: impl FnMut(&Vma) -> bool) -> io::Result<()> {
        if !self.query {
            let text = self.text()?;
            for (vma, _) in parse(&text).filter(|(vma, _)| vma.end > start && vma.start < end) {
                if !each(&vma) {
                    break;
                }
            }
            return Ok(());
        }
        let mut at = start;
        let mut name = [0; 128];
        while at < end {
            let Some(mut vma) = self.ask(at, COVERING_OR_NEXT, &mut [])?.filter(|vma| vma.start < end) else {
                break;
            };
            if vma.kind != Kind::File {
                // The name is asked for only where it is short.
                vma = self.ask(vma.start, 0, &mut name)?.unwrap_or(vma);
            }
            at = vma.end;
            if !each(&vma) {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` with every mapping of a file of the kernel's own making (it lies on no real device), and its name.
    pub fn kernel_files(&self, mut each: impl FnMut(&Vma, &[u8])) -> io::Result<()> {
        if !self.query {
            let text = self.text()?;
            parse(&text)
                .filter(|(vma, _)| vma.kind == Kind::File && vma.dev.0 == 0)
                .for_each(|(v, n)| each(&v, n));
            return Ok(());
        }
        let mut at = 0;
        let mut name = [0; PATH];
        while let Some(vma) = self.ask(at, COVERING_OR_NEXT | FILE_BACKED, &mut [])? {
            at = vma.end;
            if vma.dev.0 == 0 && self.ask(vma.start, 0, &mut name)?.is_some() {
                each(&vma, name.split(|b| *b == 0).next().unwrap_or_default());
            }
        }
        Ok(())
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        // The open descriptor does where there are no more to be had.
        std::fs::read("/proc/self/maps").or_else(|_| self.text_again())
    }

    fn text_again(&self) -> io::Result<Vec<u8>> {
        let (mut text, mut len) = (vec![0; 1 << 16], 0);
        loop {
            match self.file.read_at(&mut text[len..], len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if len == text.len() {
                text.resize(2 * len, 0);
            }
        }
        text.truncate(len);
        Ok(text)
    }

    fn ask(&self, addr: u64, flags: u64, name: &mut [u8]) -> io::Result<Option<Vma>> {
        let mut query = Query { size: size_of::<Query>() as u64, flags, addr, ..Query::default() };
        if !name.is_empty() {
            name[0] = 0;
            query.name_size = name.len() as u32;
            query.name_addr = name.as_mut_ptr() as u64;
        }
        // SAFETY: `query` is the structure that this request reads and writes, and says how large it and `name` are.
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
            page: query.vma_page_size,
            offset: query.vma_offset,
            inode: query.inode,
            dev: (query.dev_major, query.dev_minor),
            kind: kind(query.inode, name),
        }))
    }
}

fn kind(inode: u64, name: &[u8]) -> Kind {
    if inode != 0 {
        Kind::File
    } else if name.starts_with(b"[stack") {
        Kind::Stack
    } else if name.first() == Some(&b'[') && !name.starts_with(b"[heap]") && !name.starts_with(b"[anon") {
        Kind::Special
    } else {
        Kind::Anonymous
    }
}

/// The lines of `/proc/PID/maps`, with the names of their files.
fn parse(text: &[u8]) -> impl Iterator<Item = (Vma, &[u8])> {
    text.split(|b| *b == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<(Vma, &[u8])> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let mut field = || fields.next().and_then(|f| std::str::from_utf8(f).ok());
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let rights = field()?.as_bytes();
    let offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let name = fields.next().unwrap_or_default().trim_ascii_start();
    let flags = [(b'r', READ), (b'w', WRITE), (b'x', EXEC), (b's', SHARED)];
    let flags =
        rights.iter().zip(flags).filter(|(is, (letter, _))| *is == letter).map(|(_, (_, flag))| flag).sum();
    let dev = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let (start, end) = (hex(start)?, hex(end)?);
    Some((Vma { start, end, flags, page: 0, offset, inode, dev, kind: kind(inode, name) }, name))
}

#[cfg(test)]
#[path = "maps_tests.rs"]
mod tests;
