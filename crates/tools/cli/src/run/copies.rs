//! Finds copies of libibverbs and librdmacm that the loader would take for a program in spite of
//! `LD_LIBRARY_PATH`: by a DT_RPATH, under another name, or by an absolute path. A preloaded
//! drop-in comes before such copies.
use super::elf::Elf;
use adverb_text::copies::{Library, library};
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of files to read.
const MOST: usize = 512;

/// The search paths of the loader.
pub struct Paths<'a> {
    /// The directory of the drop-in libraries, the first in `LD_LIBRARY_PATH`.
    pub ours: &'a Path,
    /// The other directories in `LD_LIBRARY_PATH`, set by the user.
    pub theirs: Vec<PathBuf>,
}

/// The copies that a program, or a library of the program, brings along. Each copy comes with the
/// replacing drop-in, and with a path.
pub fn brought(program: &Path, paths: &Paths<'_>) -> Vec<(Library, PathBuf)> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut left = VecDeque::from([(program.to_path_buf(), Vec::new())]);
    while let Some((file, inherited)) = left.pop_front() {
        if seen.len() == MOST || !seen.insert(file.clone()) {
            continue;
        }
        let Some(elf) = Elf::open(&file) else { continue };
        let dynamic = elf.dynamic();
        let origin = file.parent().unwrap_or(Path::new("/"));
        let runpath = dynamic.runpath.as_deref().map(|list| directories(list, origin));
        // The loader also searches the DT_RPATH of dependent objects, but not if
        // this object has a DT_RUNPATH.
        let rpath: Vec<PathBuf> = match runpath {
            Some(_) => Vec::new(),
            None => dynamic
                .rpath
                .iter()
                .flat_map(|list| directories(list, origin))
                .chain(inherited)
                .collect(),
        };
        for name in &dynamic.needed {
            let runpath = runpath.as_deref().unwrap_or_default();
            let Some(path) = find(name, origin, &rpath, paths, runpath) else { continue };
            match library(path.as_os_str().as_bytes()) {
                Some(library) => found.push((library, path)),
                None => left.push_back((path, rpath.clone())),
            }
        }
    }
    found
}

/// The path at which the loader finds a library. `None` if the library is a drop-in or a library of
/// the system.
fn find(
    name: &OsStr,
    origin: &Path,
    rpath: &[PathBuf],
    paths: &Paths<'_>,
    runpath: &[PathBuf],
) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(expanded(name, origin)).filter(|path| path.is_file());
    }
    let at = |directories: &[PathBuf]| {
        directories.iter().map(|d| d.join(name)).find(|path| path.is_file())
    };
    at(rpath).or_else(|| {
        if paths.ours.join(name).is_file() {
            return None;
        }
        at(&paths.theirs).or_else(|| at(runpath))
    })
}

fn directories(list: &OsStr, origin: &Path) -> Vec<PathBuf> {
    let parts = list.as_bytes().split(|b| *b == b':').filter(|part| !part.is_empty());
    parts.map(|part| expanded(OsStr::from_bytes(part), origin)).collect()
}

/// The path with `$ORIGIN` replaced by the file's directory.
fn expanded(path: &OsStr, origin: &Path) -> PathBuf {
    let text = path.as_bytes();
    for sign in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(at) = text.windows(sign.len()).position(|w| w == sign) {
            let parts = [&text[..at], origin.as_os_str().as_bytes(), &text[at + sign.len()..]];
            return PathBuf::from(OsStr::from_bytes(&parts.concat()));
        }
    }
    path.into()
}

#[cfg(test)]
mod tests;
