//! Which libraries the loader brings for a program: is one of them a library of verbs? A program
//! may be linked with it, or with a library that needs it, as libfabric, UCX and MPI do. Nothing
//! here allocates.

use super::file::{File, PATH_MAX, join};
use crate::path::has_slash;

/// Libraries that the drop-ins stand for.
const LIBRARIES: [&[u8]; 2] = [b"libibverbs.so.1", b"librdmacm.so.1"];
/// Where the loader looks beside the paths that a file has.
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
/// Program headers, and entries of the dynamic section, that are looked at, at most.
const HEADERS: u64 = 64;
const ENTRIES: u64 = 1024;
/// So many files behind one another are looked at, and so many in all.
const DEPTH: usize = 5;
const FILES: usize = 64;

/// The files that were looked at.
struct Seen {
    files: [[u64; 2]; FILES],
    count: usize,
}

impl Seen {
    /// Notes a file; `false`: it was looked at before, or there is no room.
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

/// Does the loader bring a library of verbs for this program?
pub fn uses_verbs(program: &File) -> bool {
    needs_verbs(program, DEPTH, &mut Seen { files: [[0; 2]; FILES], count: 0 })
}

/// Of C's calling convention: so the compiler knows that the call of itself does not unwind.
extern "C" fn needs_verbs(file: &File, depth: usize, seen: &mut Seen) -> bool {
    if !seen.add(file) {
        return false;
    }
    let Some(dynamic) = Dynamic::of(file) else { return false };
    let mut room = [0; PATH_MAX];
    let mut names = dynamic.values(DT_NEEDED);
    if names.any(|name| dynamic.text(name, &mut room).is_some_and(|name| LIBRARIES.contains(&name))) {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else { return false };
    let mut names = dynamic.values(DT_NEEDED);
    names.any(|name| dynamic.open(name).is_some_and(|library| needs_verbs(&library, depth, seen)))
}

/// The dynamic section of a file.
struct Dynamic<'a> {
    file: &'a File,
    /// Where it lies in the file, and how many entries it has.
    at: u64,
    count: u64,
    /// Where its strings lie in the file.
    strings: u64,
}

impl<'a> Dynamic<'a> {
    fn of(file: &'a File) -> Option<Self> {
        // The header of a 64-bit ELF file: its mark, its table of program headers, their size and
        // number.
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
        let [_, offset, address, ..] = headers()
            .find(|h| kind(h[0]) == PT_LOAD && (h[2]..h[2].saturating_add(h[4])).contains(&strings))?;
        dynamic.strings = (strings - address).checked_add(offset)?;
        Some(dynamic)
    }

    /// The values of the entries of a kind.
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

    /// Opens the library that the loader finds by this name: in the paths that the file has, and in
    /// the usual directories.
    fn open(&self, name: u64) -> Option<File> {
        let mut room = [0; PATH_MAX];
        let name = self.text(name, &mut room)?;
        let find = |origin: &[u8], directory: &[u8]| {
            let mut path = [0; PATH_MAX];
            let mut whole = [0; PATH_MAX];
            let directory = join(&mut whole, [origin, directory, b""])?.split_last()?.1;
            let path = join(&mut path, [directory, b"/", name])?;
            File::open(libc::AT_FDCWD, path.as_ptr().cast())
        };
        if has_slash(name) {
            let mut path = [0; PATH_MAX];
            return File::open(libc::AT_FDCWD, join(&mut path, [name, b"", b""])?.as_ptr().cast());
        }
        let own = |kind: u64| {
            let mut room = [0; PATH_MAX];
            let list = self.text(self.values(kind).next()?, &mut room)?;
            let mut room = [0; PATH_MAX];
            let path = self.file.path(&mut room).unwrap_or_default();
            let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
            let origin = path.get(..end).unwrap_or_default();
            list.split(|b| *b == b':').find_map(|directory| {
                let below =
                    directory.strip_prefix(b"$ORIGIN").or_else(|| directory.strip_prefix(b"${ORIGIN}"));
                below.map_or_else(|| find(b"", directory), |below| find(origin, below))
            })
        };
        own(DT_RUNPATH)
            .or_else(|| own(DT_RPATH))
            .or_else(|| DIRECTORIES.iter().find_map(|directory| find(b"", directory)))
    }
}
