//! Finds out whether the loader brings a verbs library for a program. The program may be linked
//! with the library, or with another library that needs it, such as libfabric, UCX or MPI. This
//! module does not allocate.

use super::drop_ins::{self, NAMES};
use super::file::{File, PATH_MAX};
use crate::text::{has_slash, join};

/// Directories that the loader searches besides the paths in a file.
#[cfg(target_arch = "x86_64")]
const DIRECTORIES: [&[u8]; 8] = [
    b"/lib/x86_64-linux-gnu",
    b"/usr/lib/x86_64-linux-gnu",
    b"/usr/local/lib/x86_64-linux-gnu",
    b"/lib64",
    b"/usr/lib64",
    b"/usr/local/lib",
    b"/usr/lib",
    b"/lib",
];
#[cfg(target_arch = "aarch64")]
const DIRECTORIES: [&[u8]; 8] = [
    b"/lib/aarch64-linux-gnu",
    b"/usr/lib/aarch64-linux-gnu",
    b"/usr/local/lib/aarch64-linux-gnu",
    b"/lib64",
    b"/usr/lib64",
    b"/usr/local/lib",
    b"/usr/lib",
    b"/lib",
];
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
/// Most program headers to examine.
const HEADERS: u64 = 64;
/// Most entries of the dynamic section to examine.
const ENTRIES: u64 = 1024;
/// Most files of a chain of dependencies to examine.
const DEPTH: usize = 5;
/// Most files to examine.
const FILES: usize = 64;

/// The files examined so far.
struct Seen {
    files: [[u64; 2]; FILES],
    count: usize,
}

impl Seen {
    /// Records a file. `false`: the file was recorded before, or there is no room.
    fn add(&mut self, file: &File) -> bool {
        let Some(identity) = file.identity() else { return false };
        if self.files.iter().take(self.count).any(|known| *known == identity) {
            return false;
        }
        let Some(room) = self.files.get_mut(self.count) else { return false };
        *room = identity;
        self.count += 1;
        true
    }
}

/// Does the loader bring a verbs library for this program?
pub fn uses_verbs(program: &File) -> bool {
    needs_verbs(program, DEPTH, &mut Seen { files: [[0; 2]; FILES], count: 0 })
}

/// `extern "C"`, so that the compiler knows that the recursive call does not unwind.
extern "C" fn needs_verbs(file: &File, depth: usize, seen: &mut Seen) -> bool {
    if !seen.add(file) {
        return false;
    }
    let Some(dynamic) = Dynamic::of(file) else { return false };
    let mut room = [0; PATH_MAX];
    let mut names = dynamic.values(DT_NEEDED);
    if names.any(|at| dynamic.text(at, &mut room).is_some_and(|name| NAMES.contains(&name))) {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else { return false };
    let mut names = dynamic.values(DT_NEEDED);
    names.any(|name| dynamic.open(name).is_some_and(|library| needs_verbs(&library, depth, seen)))
}

/// The dynamic section of a file.
struct Dynamic<'a> {
    file: &'a File,
    /// Offset in the file, and number of entries.
    at: u64,
    count: u64,
    /// Offset of the string table in the file.
    strings: u64,
}

impl<'a> Dynamic<'a> {
    fn of(file: &'a File) -> Option<Self> {
        // The header of a 64-bit ELF file: the magic bytes, the offset of the program headers,
        // their size and number.
        let [mark, _, _, _, table, _, sizes, last] = file.words(0)?;
        if mark.to_ne_bytes().get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let (size, count) = (sizes >> 48, (last & 0xffff).min(HEADERS));
        let header = |n: u64| file.words::<5>(table.checked_add(n.checked_mul(size)?)?);
        let headers = || (0..count).filter_map(header);
        let kind = |first: u64| first & 0xffff_ffff;
        let [_, at, _, _, len] = headers().find(|h| kind(h[0]) == PT_DYNAMIC)?;
        let mut dynamic = Dynamic { file, at, count: (len / 16).min(ENTRIES), strings: 0 };
        let strings = dynamic.values(DT_STRTAB).next()?;
        let [_, offset, address, ..] = headers().find(|h| {
            kind(h[0]) == PT_LOAD && (h[2]..h[2].saturating_add(h[4])).contains(&strings)
        })?;
        dynamic.strings = (strings - address).checked_add(offset)?;
        Some(dynamic)
    }

    /// The values of all entries with this tag.
    fn values(&self, kind: u64) -> impl Iterator<Item = u64> {
        let (file, at) = (self.file, self.at);
        (0..self.count)
            .map_while(move |n| file.words::<2>(at.checked_add(16 * n)?))
            .filter(move |entry| entry[0] == kind)
            .map(|entry| entry[1])
    }

    fn text<'b>(&self, name: u64, room: &'b mut [u8]) -> Option<&'b [u8]> {
        self.file.text(self.strings.checked_add(name)?, room, |b| b == 0).map(|text| &*text)
    }

    /// Opens the library that the loader would find by this name, in the paths of the file and in
    /// the usual directories.
    fn open(&self, name: u64) -> Option<File> {
        let mut room = [0; PATH_MAX];
        let name = self.text(name, &mut room)?;
        if has_slash(name) {
            let mut path = [0; PATH_MAX];
            return File::open(libc::AT_FDCWD, join(&mut path, [name, b"", b""])?.as_ptr().cast());
        }
        self.run_path(DT_RUNPATH, name)
            .or_else(|| self.run_path(DT_RPATH, name))
            .or_else(|| DIRECTORIES.iter().find_map(|directory| find(b"", directory, name)))
    }

    /// Opens the library of this name in the run path of the file: `DT_RPATH` or `DT_RUNPATH`.
    fn run_path(&self, kind: u64, name: &[u8]) -> Option<File> {
        let mut room = [0; PATH_MAX];
        let list = self.text(self.values(kind).next()?, &mut room)?;
        let mut room = [0; PATH_MAX];
        let path = self.file.path(&mut room).unwrap_or_default();
        let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let origin = path.get(..end).unwrap_or_default();
        list.split(|b| *b == b':').find_map(|directory| {
            let below =
                directory.strip_prefix(b"$ORIGIN").or_else(|| directory.strip_prefix(b"${ORIGIN}"));
            below.map_or_else(|| find(b"", directory, name), |below| find(origin, below, name))
        })
    }

    fn has_runpath(&self) -> bool {
        self.values(DT_RUNPATH).next().is_some()
    }
}

/// Opens a library in a directory.
fn find(origin: &[u8], directory: &[u8], name: &[u8]) -> Option<File> {
    let mut path = [0; PATH_MAX];
    let mut whole = [0; PATH_MAX];
    let directory = join(&mut whole, [origin, directory, b""])?.split_last()?.1;
    let path = join(&mut path, [directory, b"/", name])?;
    File::open(libc::AT_FDCWD, path.as_ptr().cast())
}

/// An object, and the object that loads it.
struct Loaded<'a> {
    object: &'a Dynamic<'a>,
    by: Option<&'a Loaded<'a>>,
}

impl Loaded<'_> {
    /// Opens the library that the loader finds before `LD_LIBRARY_PATH`: by the `DT_RPATH` of the
    /// object and of the objects that load it, unless the object has a `DT_RUNPATH`.
    fn before_all(&self, name: &[u8]) -> Option<File> {
        if self.object.has_runpath() {
            return None;
        }
        let mut next = Some(self);
        while let Some(loaded) = next {
            if !loaded.object.has_runpath()
                && let Some(found) = loaded.object.run_path(DT_RPATH, name)
            {
                return Some(found);
            }
            next = loaded.by;
        }
        None
    }
}

/// Does the loader take a copy of a verbs library for this program, although the drop-in libraries
/// are first in `LD_LIBRARY_PATH`? Libraries in the usual directories bring no copy.
pub fn brings_copy(program: &File) -> bool {
    brings(program, DEPTH, &mut Seen { files: [[0; 2]; FILES], count: 0 }, None)
}

/// `extern "C"` as above.
extern "C" fn brings(file: &File, depth: usize, seen: &mut Seen, by: Option<&Loaded<'_>>) -> bool {
    if !seen.add(file) {
        return false;
    }
    let Some(dynamic) = Dynamic::of(file) else { return false };
    let loaded = Loaded { object: &dynamic, by };
    let deeper = depth.checked_sub(1);
    dynamic.values(DT_NEEDED).any(|at| {
        let mut room = [0; PATH_MAX];
        let Some(name) = dynamic.text(at, &mut room) else { return false };
        if is_copy(name) {
            let searched = !has_slash(name) && drop_ins::has(name);
            return !searched
                || loaded.before_all(name).is_some_and(|copy| !drop_ins::holds(&copy));
        }
        let (Some(depth), false) = (deeper, has_slash(name)) else { return false };
        let library = dynamic.run_path(DT_RUNPATH, name).or_else(|| loaded.before_all(name));
        library.is_some_and(|library| brings(&library, depth, seen, Some(&loaded)))
    })
}

/// Is this the name of a verbs library, with or without a directory?
fn is_copy(name: &[u8]) -> bool {
    let mut room = [0; PATH_MAX];
    let path = join(&mut room, [b"/", name, b""]).and_then(|path| path.split_last());
    path.is_some_and(|(_, path)| adverb_text::copies::library(path).is_some())
}
