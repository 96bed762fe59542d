//! Where `adverb run` puts the directory trees that programs read.
//!
//! The program replaces the command, and children of the program may outlive the program.
//! So no process is left that could know when the last reader has ended. Therefore a tree is not
//! removed at the end of a run. All trees lie in a single directory of the user, where the next run
//! finds and reuses them.
//!
//! The directory has a fixed name, so the cost of a start does not depend on what else lies in the
//! place. In places where every user may write, another user can take the fixed name first. A
//! directory is therefore recognized by owner and mode, not by name. Only root can give
//! files away. So a directory that belongs to the user, and that only the user may enter, was made
//! by the user. If another user has taken the fixed name, the directory gets a random name with a
//! common prefix. The next run then searches the place for the directory, among at most
//! [`LOOKED_AT`] names. Directories of other users are skipped, whatever their names.
use super::tree::{Tree, place_tree};
use crate::out::at;
use nix::fcntl::OFlag;
use nix::unistd::Uid;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A place that may hold the user's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParentDirectory {
    /// Only the user writes in this place.
    Own(PathBuf),
    /// Other users may write in this place, too.
    Shared(PathBuf),
}

/// The places to try, in this order.
pub fn places(get: impl Fn(&str) -> Option<PathBuf>) -> Vec<ParentDirectory> {
    let absolute = |name: &str| get(name).filter(|p| p.is_absolute());
    let mut all: Vec<ParentDirectory> =
        absolute("XDG_RUNTIME_DIR").map(ParentDirectory::Own).into_iter().collect();
    let shared = ["/dev/shm".into()]
        .into_iter()
        .chain(absolute("TMPDIR"))
        .chain(["/tmp".into(), "/var/tmp".into()]);
    for place in shared.map(ParentDirectory::Shared) {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    all
}

/// Puts a tree into the user's directory, in the first accepting place. Returns the tree's
/// path.
///
/// # Errors
/// The error of each place.
pub fn place(kind: &str, tree: &Tree) -> Result<PathBuf, String> {
    place_in(&places(|name| std::env::var_os(name).map(PathBuf::from)), kind, tree)
}

/// Like [`place`], with the given places.
pub fn place_in(places: &[ParentDirectory], kind: &str, tree: &Tree) -> Result<PathBuf, String> {
    let mut tried = Vec::new();
    for place in places {
        let (ParentDirectory::Own(path) | ParentDirectory::Shared(path)) = place;
        let said = match directory(place) {
            Err(why) => format!("{}: {why}", path.display()),
            Ok(directory) => match place_tree(&directory, kind, tree) {
                Ok(tree) => return Ok(tree),
                Err(why) => {
                    // `remove_dir` removes the directory only if empty.
                    let _ = fs::remove_dir(&directory);
                    why
                }
            },
        };
        tried.push(said);
    }
    Err(tried.join("; "))
}

/// The user's directory in a place: the existing directory, or a new directory.
fn directory(place: &ParentDirectory) -> Result<PathBuf, String> {
    let user = Uid::effective().as_raw();
    let (ParentDirectory::Own(path) | ParentDirectory::Shared(path)) = place;
    // Symbolic links are followed here once, and not again later.
    let path = fs::canonicalize(path).map_err(|e| e.to_string())?;
    let found = look(&path).map_err(|e| e.to_string())?;
    match place {
        ParentDirectory::Own(_) => {
            private(&found, user)?;
            let directory = path.join("adverb");
            make(&directory, user)?;
            Ok(directory)
        }
        ParentDirectory::Shared(_) => {
            keeps_names(&found, user)?;
            let directory = path.join(format!("adverb-{user}"));
            if make(&directory, user).is_ok() {
                return Ok(directory);
            }
            let prefix = format!("adverb-{user}-");
            match existing(&path, &prefix, user) {
                Some(directory) => Ok(directory),
                None => fresh(&path, &prefix, user),
            }
        }
    }
}

/// The metadata of a directory, read through a descriptor. A symbolic link at `path` is not
/// followed.
fn look(path: &Path) -> io::Result<Metadata> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?.metadata()
}

/// Checks that the directory belongs to the user, and that no other user may enter.
fn private(found: &Metadata, user: u32) -> Result<(), String> {
    if found.uid() != user {
        return Err(format!("belongs to user {}, not to user {user}", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("is open to other users (mode {:o}, not 700)", found.mode() & 0o7777));
    }
    Ok(())
}

/// May a fixed name be used in this directory? Not if every user may write there.
pub fn takes_fixed_names(path: &Path) -> Result<(), String> {
    match look(path).map_err(at(path))?.mode() & 0o7777 {
        mode if mode & 0o002 == 0 => Ok(()),
        mode => Err(format!("{}: all users may write there (mode {mode:o})", path.display())),
    }
}

/// Are file names permanent in this directory? Where other users may write, only the sticky bit
/// keeps them from renaming the file.
fn keeps_names(found: &Metadata, user: u32) -> Result<(), String> {
    let owner = found.uid();
    if owner != 0 && owner != user && Some(owner) != unmapped() {
        return Err(format!("belongs to user {owner}, so this user may rename the files"));
    }
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        let mode = found.mode() & 0o7777;
        return Err(format!(
            "other users may rename the files (mode {mode:o}, without the sticky bit)"
        ));
    }
    Ok(())
}

/// The overflow user id, which stands for all users without an id in this user namespace. In most
/// user namespaces the machine's root is such a user.
fn unmapped() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    if map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

/// Makes a directory of this name, unless the user already has the directory.
fn make(path: &Path, user: u32) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be made: {e}", path.display()))
        }
        _ => {
            let found = look(path).map_err(at(path))?;
            private(&found, user).map_err(|why| format!("{} {why}", path.display()))
        }
    }
}

/// How many names of a place are searched for the user's directory if the fixed name is taken. If
/// more names are in the way, a run makes a new directory.
const LOOKED_AT: usize = 1024;

/// The first of the user's directories with a random name in this place. There are several only if
/// several first runs began at the same time.
fn existing(place: &Path, prefix: &str, user: u32) -> Option<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(place)
        .ok()?
        .take(LOOKED_AT)
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(prefix))
        .map(|e| e.path())
        .filter(|path| look(path).is_ok_and(|found| private(&found, user).is_ok()))
        .collect();
    found.sort();
    found.into_iter().next()
}

/// A new directory with an unpredictable name.
fn fresh(place: &Path, prefix: &str, user: u32) -> Result<PathBuf, String> {
    let path = place.join(format!("{prefix}{:016x}", super::random()?));
    // An existing directory is an error, because the user did not make it.
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .map_err(|e| format!("no directory can be made there: {e}"))?;
    let checked = look(&path).map_err(|e| e.to_string()).and_then(|found| private(&found, user));
    match checked {
        Ok(()) => Ok(path),
        Err(why) => {
            let _ = fs::remove_dir(&path);
            Err(format!("a directory made there {why}"))
        }
    }
}

#[cfg(test)]
mod tests;
