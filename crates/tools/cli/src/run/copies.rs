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
            let Some(path) =
                find(name, origin, &rpath, paths, runpath.as_deref().unwrap_or_default())
            else {
                continue;
            };
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
mod tests {
    use super::super::tests::scratch;
    use super::*;
    use std::process::Command;

    fn cc(args: &[&str]) {
        let out =
            Command::new("cc").args(args).output().expect("a C compiler: run scripts/test-deps");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// SYS-3: copies are found on every search path before `LD_LIBRARY_PATH`.
    #[test]
    fn copies_are_found_as_the_loader_finds_them() {
        let dir = scratch("copies");
        let at = |name: &str| dir.join(name).display().to_string();
        for sub in ["own", "x", "lib"] {
            std::fs::create_dir(dir.join(sub)).unwrap();
        }
        std::fs::write(dir.join("own/libibverbs.so.1"), "").unwrap();
        std::fs::write(dir.join("e.c"), "int e(void) { return 1; }\n").unwrap();
        std::fs::write(dir.join("m.c"), "int e(void); int main(void) { return e(); }\n").unwrap();
        let library_at = |file: &str, soname: Option<&str>| {
            let name = soname.map(|name| format!("-Wl,-soname,{name}"));
            let mut args = vec!["-shared", "-fPIC"];
            args.extend(name.as_deref());
            let (source, file) = (at("e.c"), at(file));
            cc(&[&args[..], &[&source, "-o", &file]].concat());
        };
        library_at("x/libibverbs.so.1", Some("libibverbs.so.1"));
        library_at("x/libibverbs-12ab.so.1.14", Some("libibverbs-12ab.so.1.14"));
        library_at("lib/librdmacm.so.1", None);
        let link = |program: &str, flags: &[&str], with: &str| {
            let (program, source, with) = (at(program), at("m.c"), at(with));
            cc(&[&[&*source, &*with, "-Wl,--no-as-needed", "-o", &*program][..], flags].concat());
        };
        let rpath = ["-Wl,-rpath,$ORIGIN/x", "-Wl,--disable-new-dtags"];
        let runpath = ["-Wl,-rpath,${ORIGIN}/x", "-Wl,--enable-new-dtags"];
        link("rpath", &rpath, "x/libibverbs.so.1");
        link("runpath", &runpath, "x/libibverbs.so.1");
        link("hashed", &runpath, "x/libibverbs-12ab.so.1.14");
        link("absolute", &[], "lib/librdmacm.so.1");
        // A library of the program that needs a copy: the loader applies the program's DT_RPATH to
        // it.
        let (middle, source, copy) = (at("x/libmiddle.so"), at("e.c"), at("x/libibverbs.so.1"));
        let named = "-Wl,--no-as-needed,-soname,libmiddle.so";
        cc(&["-shared", "-fPIC", named, &source, &copy, "-o", &middle]);
        link("through", &rpath, "x/libmiddle.so");

        let ours = dir.join("own");
        let brings = |program: &str| {
            let paths = Paths { ours: &ours, theirs: Vec::new() };
            brought(&dir.join(program), &paths)
        };
        let verbs = |name: &str| vec![(Library::Verbs, dir.join("x").join(name))];
        assert_eq!(brings("rpath"), verbs("libibverbs.so.1"));
        assert_eq!(brings("runpath"), [], "LD_LIBRARY_PATH comes before it");
        assert_eq!(brings("hashed"), verbs("libibverbs-12ab.so.1.14"));
        assert_eq!(brings("absolute"), [(Library::Manager, dir.join("lib/librdmacm.so.1"))]);
        assert_eq!(brings("through"), verbs("libibverbs.so.1"));
        assert_eq!(brought(Path::new("/bin/sh"), &Paths { ours: &ours, theirs: Vec::new() }), []);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
