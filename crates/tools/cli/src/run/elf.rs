//! What an ELF file of 64 bits tells about its libraries.
use object::elf::{self, FileHeader64, PT_LOAD, ProgramHeader64};
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadRef};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most bytes of a dynamic section, and of a string, to read.
const DYNAMIC: u64 = 1 << 16;
const STRING: u64 = 4096;

/// The file of a program or a library.
pub struct Elf {
    file: ReadCache<File>,
    endian: Endianness,
    headers: Vec<ProgramHeader64<Endianness>>,
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

impl Elf {
    /// `None` if the file is no such ELF file.
    pub fn open(path: &Path) -> Option<Elf> {
        let file = ReadCache::new(File::open(path).ok()?);
        let header = FileHeader64::<Endianness>::parse(&file).ok()?;
        let endian = header.endian().ok()?;
        let headers = header.program_headers(endian, &file).ok()?.to_vec();
        Some(Elf { file, endian, headers })
    }

    /// The loader that the file names.
    pub fn loader(&self) -> Option<PathBuf> {
        let header = self.headers.iter().find(|h| h.p_type(self.endian) == elf::PT_INTERP)?;
        self.string(header.p_offset(self.endian)).map(PathBuf::from)
    }

    /// Offset and length in the file of each segment that is loaded and not executable.
    pub fn data(&self) -> impl Iterator<Item = (u64, u64)> {
        let endian = self.endian;
        self.headers
            .iter()
            .filter(move |h| h.p_type(endian) == PT_LOAD && !h.p_flags(endian).contains(elf::PF_X))
            .map(move |h| h.file_range(endian))
    }

    pub fn dynamic(&self) -> Dynamic {
        let endian = self.endian;
        let small = self.headers.iter().filter(|h| h.p_filesz(endian) <= DYNAMIC);
        let entries = small.filter_map(|h| h.dynamic(endian, &self.file).ok().flatten()).flatten();
        let entries: Vec<_> = entries.map(|d| (d.d_tag(endian), d.d_val(endian))).collect();
        let strings = entries.iter().find(|(tag, _)| *tag == elf::DT_STRTAB);
        let strings = strings.and_then(|(_, address)| self.offset_of(*address));
        let text = |at: u64| self.string(strings?.checked_add(at)?);
        let mut found = Dynamic::default();
        for (tag, value) in entries {
            match tag {
                elf::DT_NEEDED => found.needed.extend(text(value)),
                elf::DT_RPATH => found.rpath = text(value),
                elf::DT_RUNPATH => found.runpath = text(value),
                _ => {}
            }
        }
        found
    }

    /// The offset in the file of the byte that is loaded at this address.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.headers.iter().filter(|h| h.p_type(self.endian) == PT_LOAD).find_map(|h| {
            let (offset, len) = h.file_range(self.endian);
            let within = address.checked_sub(h.p_vaddr(self.endian))?;
            if within < len { offset.checked_add(within) } else { None }
        })
    }

    /// The string at this offset.
    fn string(&self, offset: u64) -> Option<OsString> {
        let end = offset.checked_add(STRING)?.min((&self.file).len().ok()?);
        let bytes = (&self.file).read_bytes_at_until(offset..end, 0).ok()?;
        Some(OsStr::from_bytes(bytes).to_owned())
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
    }
}
