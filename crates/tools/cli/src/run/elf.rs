//! Reads 64-bit ELF files of this machine's byte order.
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Maximum number of program headers to read.
const HEADERS: u16 = 512;
/// Maximum number of entries of the dynamic section to read.
const ENTRIES: u64 = 4096;
/// Maximum length of a string.
const STRING: usize = 4096;

/// A program header.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    address: u64,
    pub len: u64,
}

/// The file of a program or a library.
#[derive(Debug)]
pub struct Elf {
    pub file: File,
    pub segments: Vec<Segment>,
}

/// What an ELF file tells the loader about libraries.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Names or paths of libraries.
    pub needed: Vec<OsString>,
    /// DT_RPATH: directories to search before `LD_LIBRARY_PATH`. Ignored if there is a DT_RUNPATH.
    pub rpath: Option<OsString>,
    /// DT_RUNPATH: directories to search after `LD_LIBRARY_PATH`.
    pub runpath: Option<OsString>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Elf {
    /// `None` if the file is no such ELF file.
    pub fn open(path: &Path) -> Option<Elf> {
        let file = File::open(path).ok()?;
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if head[..4] != *b"\x7fELF" || head[4] != 2 || head[5] != order {
            return None;
        }
        let half = |at: usize| Some(u16::from_ne_bytes(*head.get(at..)?.first_chunk()?));
        let (at, size, count) = (long(&head, 32)?, half(54)?, half(56)?);
        let mut segments = Vec::new();
        for n in 0..u64::from(count.min(HEADERS)) {
            let mut header = [0; 56];
            file.read_exact_at(&mut header, at.checked_add(n * u64::from(size))?).ok()?;
            segments.push(Segment {
                kind: word(&header, 0)?,
                flags: word(&header, 4)?,
                offset: long(&header, 8)?,
                address: long(&header, 16)?,
                len: long(&header, 32)?,
            });
        }
        Some(Elf { file, segments })
    }

    /// The loader that the file names.
    pub fn loader(&self) -> Option<PathBuf> {
        let segment = self.segments.iter().find(|s| s.kind == PT_INTERP)?;
        self.string(segment.offset).map(PathBuf::from)
    }

    /// The file's dynamic section.
    pub fn dynamic(&self) -> Dynamic {
        let mut entries = Vec::new();
        if let Some(segment) = self.segments.iter().find(|s| s.kind == PT_DYNAMIC) {
            for n in 0..(segment.len / 16).min(ENTRIES) {
                let mut entry = [0; 16];
                let at = segment.offset.checked_add(n * 16);
                if at.is_none_or(|at| self.file.read_exact_at(&mut entry, at).is_err()) {
                    break;
                }
                entries.extend(long(&entry, 0).zip(long(&entry, 8)));
            }
        }
        let strings = entries
            .iter()
            .find(|(tag, _)| *tag == DT_STRTAB)
            .and_then(|(_, at)| self.offset_of(*at));
        let text = |at: u64| self.string(strings?.checked_add(at)?);
        let mut found = Dynamic::default();
        for (tag, value) in entries {
            match tag {
                DT_NEEDED => found.needed.extend(text(value)),
                DT_RPATH => found.rpath = text(value),
                DT_RUNPATH => found.runpath = text(value),
                _ => {}
            }
        }
        found
    }

    /// The offset in the file of the byte that is loaded at this address.
    fn offset_of(&self, address: u64) -> Option<u64> {
        let within = |s: &&Segment| s.kind == PT_LOAD && address.wrapping_sub(s.address) < s.len;
        let segment = self.segments.iter().find(within)?;
        segment.offset.checked_add(address - segment.address)
    }

    /// The string at this offset.
    fn string(&self, offset: u64) -> Option<OsString> {
        let mut bytes = [0; STRING];
        let got = self.file.read_at(&mut bytes, offset).ok()?;
        let len = bytes[..got].iter().position(|b| *b == 0)?;
        Some(OsStr::from_bytes(&bytes[..len]).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::scratch;
    use super::*;

    #[test]
    fn a_program_names_its_loader_and_what_it_needs() {
        let shell = Elf::open(Path::new("/bin/sh")).unwrap();
        assert!(shell.loader().unwrap().exists());
        assert!(
            shell.dynamic().needed.iter().any(|name| name == "libc.so.6"),
            "{:?}",
            shell.dynamic()
        );
        assert!(Elf::open(Path::new("/etc/passwd")).is_none());
    }

    #[test]
    fn damaged_files_say_what_they_can() {
        let dir = scratch("elf");
        let path = dir.join("file");
        let whole = std::fs::read("/bin/sh").unwrap();
        let look = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            if let Some(elf) = Elf::open(&path) {
                elf.loader();
                elf.dynamic();
            }
        };
        for len in (0..900).step_by(7) {
            look(&whole[..len]);
            let mut spoiled = whole.clone();
            spoiled[len] ^= 0xff;
            look(&spoiled);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
