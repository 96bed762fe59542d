//! Finds out from a program's file what keeps the program from loading the drop-in libraries.
//!
//! The auditor replaces copies that are shared libraries. It cannot replace a copy that is linked
//! into the program itself.
use super::elf::Elf;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum number of bytes of a program to search.
const LOOK: u64 = 256 << 20;
/// A text of a warning that every release of libibverbs contains.
const MARK: &[u8] = b"libibverbs: Warning: ";

/// Warnings for the user of the program at `path`. Empty if nothing is in the way, or if
/// the file is no program of this machine.
pub fn obstacles(path: &Path, privileged: bool) -> Vec<String> {
    let mut all = Vec::new();
    if privileged {
        all.push(format!(
            "{} is set-user-ID or set-group-ID, or has file capabilities: the loader ignores \
             LD_LIBRARY_PATH, LD_PRELOAD and LD_AUDIT, so the program will not see the device; run \
             a copy without these rights, or, if the program starts another program (sudo), put \
             `adverb run --` in front of the other program",
            path.display()
        ));
    }
    let program = program_of(path);
    match look(&program) {
        Some(Image { loader: None, .. }) => all.push(format!(
            "{} is linked statically: no loader can load the drop-in libraries, so the program \
             will not see the device; link the program dynamically",
            program.display()
        )),
        Some(Image { loader: Some(loader), .. }) if is_musl(&loader) => all.push(format!(
            "{} is built with musl, and the drop-in libraries with glibc: the program will not see \
             the device; build the program with glibc",
            program.display()
        )),
        Some(Image { own_copy: true, .. }) => all.push(format!(
            "{} contains a copy of libibverbs, which cannot be replaced and does not see the \
             device; link the program with -libverbs, not with libibverbs.a",
            program.display()
        )),
        _ => {}
    }
    all
}

/// The file that is loaded to run it: the program itself, or the interpreter of a script.
pub fn program_of(path: &Path) -> PathBuf {
    interpreter(path).unwrap_or_else(|| path.into())
}

/// Is the loader musl's, such as `/lib/ld-musl-x86_64.so.1`?
fn is_musl(loader: &Path) -> bool {
    loader.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-musl-"))
}

/// The interpreter of a script.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(File::open(path).ok()?.take(256)).read_until(b'\n', &mut line).ok()?;
    let words = line.strip_prefix(b"#!")?;
    let mut words = words.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    words.next().map(|first| Path::new(std::ffi::OsStr::from_bytes(first)).into())
}

/// The relevant content of a program's file.
#[derive(Debug, PartialEq, Eq)]
struct Image {
    loader: Option<PathBuf>,
    own_copy: bool,
}

fn look(path: &Path) -> Option<Image> {
    let elf = Elf::open(path)?;
    let mut left = LOOK;
    // Strings lie in segments that are loaded and not executable.
    let file = File::open(path).ok()?;
    let own_copy = elf.data().any(|(offset, len)| {
        let len = len.min(left);
        left -= len;
        contains(&file, offset, len, MARK)
    });
    Some(Image { loader: elf.loader(), own_copy })
}

/// Do the `len` bytes from `offset` contain `what`?
fn contains(file: &File, mut offset: u64, len: u64, what: &[u8]) -> bool {
    let end = offset.saturating_add(len);
    let mut chunk = vec![0; 1 << 20];
    let mut kept = 0;
    while offset < end {
        let room = (chunk.len() - kept).min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        let got = match file.read_at(&mut chunk[kept..kept + room], offset) {
            Ok(0) | Err(_) => return false,
            Ok(got) => got,
        };
        let had = kept + got;
        if chunk[..had].windows(what.len()).any(|w| w[0] == what[0] && w == what) {
            return true;
        }
        // Keep the bytes that may be the beginning of a match.
        kept = (what.len() - 1).min(had);
        chunk.copy_within(had - kept..had, 0);
        offset += got as u64;
    }
    false
}

#[cfg(test)]
mod tests;
