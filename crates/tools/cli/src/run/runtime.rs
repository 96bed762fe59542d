//! Where trees lie that programs started by `adverb run` read.
//!
//! The program takes the place of the command, and what it starts may outlive it: nobody is left
//! who could know that the last reader has gone. So a tree is not removed at the end of a run. It
//! lies in one directory of the user's, where the next run finds it and uses it again.
//!
//! The directory has a fixed name, so that a start costs the same whatever else lies there. In
//! places where everybody may write, another user can take that name first. A directory is known by
//! its owner and mode, not by its name: one that belongs to the user, and that only the user may
//! enter, was made by the user, since nobody but root gives files away. Where the fixed name is
//! taken, the directory has a random name with a common beginning, and the next run looks through
//! the place for the directory, at [`LOOKED_AT`] names at most. What others make beside it, under
//! whatever name, is passed over.
use super::tree::{Tree, place_tree};
use nix::fcntl::OFlag;
use nix::unistd::Uid;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory that may hold the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Only the user writes there.
    Own(PathBuf),
    /// Others may write there, too.
    Shared(PathBuf),
}

/// The places to try, in this order.
pub fn places(get: impl Fn(&str) -> Option<PathBuf>) -> Vec<Place> {
    let absolute = |name: &str| get(name).filter(|p| p.is_absolute());
    let mut all: Vec<Place> = absolute("XDG_RUNTIME_DIR").map(Place::Own).into_iter().collect();
    let shared =
        ["/dev/shm".into()].into_iter().chain(absolute("TMPDIR")).chain(["/tmp".into(), "/var/tmp".into()]);
    for place in shared.map(Place::Shared) {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    all
}

/// Places a tree in the user's directory below the first place that takes it, and answers its path.
///
/// # Errors
/// What each place said.
pub fn place(kind: &str, tree: &Tree) -> Result<PathBuf, String> {
    place_in(&places(|name| std::env::var_os(name).map(PathBuf::from)), kind, tree)
}

/// The same for these places.
pub fn place_in(places: &[Place], kind: &str, tree: &Tree) -> Result<PathBuf, String> {
    let mut tried = Vec::new();
    for place in places {
        let (Place::Own(path) | Place::Shared(path)) = place;
        let said = match directory(place) {
            Err(why) => format!("{}: {why}", path.display()),
            Ok(directory) => match place_tree(&directory, kind, tree) {
                Ok(tree) => return Ok(tree),
                Err(why) => {
                    // Removes it only if nothing is in it.
                    let _ = fs::remove_dir(&directory);
                    why
                }
            },
        };
        tried.push(said);
    }
    Err(tried.join("; "))
}

/// The user's directory in a place: the one that is there, or a new one.
fn directory(place: &Place) -> Result<PathBuf, String> {
    let user = Uid::effective().as_raw();
    let (Place::Own(path) | Place::Shared(path)) = place;
    // Symbolic links are followed once, here, and not again later.
    let path = fs::canonicalize(path).map_err(|e| e.to_string())?;
    let found = look(&path).map_err(|e| e.to_string())?;
    match place {
        Place::Own(_) => {
            private(&found, user)?;
            let directory = path.join("adverb");
            make(&directory, user)?;
            Ok(directory)
        }
        Place::Shared(_) => {
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

/// What a descriptor says of a directory. A symbolic link in its place is not followed.
fn look(path: &Path) -> io::Result<Metadata> {
    open(path)?.metadata()
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Is the directory the user's, and nobody else's?
fn private(found: &Metadata, user: u32) -> Result<(), String> {
    if found.uid() != user {
        return Err(format!("belongs to user {}, not to user {user}", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("is open to other users (mode {:o}, not 700)", found.mode() & 0o7777));
    }
    Ok(())
}

/// May a fixed name be used in this directory? Not where everybody may write.
pub fn takes_fixed_names(path: &Path) -> Result<(), String> {
    let found = look(path).map_err(|e| format!("{}: {e}", path.display()))?;
    match found.mode() & 0o002 {
        0 => Ok(()),
        _ => Err(format!("{}: everybody may write there (mode {:o})", path.display(), found.mode() & 0o7777)),
    }
}

/// Does what the user makes there keep its name? Where others may write, only the sticky bit sees
/// to that.
fn keeps_names(found: &Metadata, user: u32) -> Result<(), String> {
    let owner = found.uid();
    if owner != 0 && owner != user && Some(owner) != unmapped() {
        return Err(format!("belongs to user {owner}, who may rename what is in it"));
    }
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        let mode = found.mode() & 0o7777;
        return Err(format!("others may rename what is in it (mode {mode:o}, without the sticky bit)"));
    }
    Ok(())
}

/// The user id that stands for those without one in this user namespace. The machine's root is such
/// a one in most.
fn unmapped() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    let all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    if all { None } else { fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok() }
}

/// Makes a directory of this name, unless the user has.
fn make(path: &Path, user: u32) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be made: {e}", path.display()))
        }
        _ => {
            let found = look(path).map_err(|e| format!("{}: {e}", path.display()))?;
            private(&found, user).map_err(|why| format!("{} {why}", path.display()))
        }
    }
}

/// Names of a place that are looked at for the user's directory, where the fixed name is taken.
/// With more names in the way, a run makes a directory of its own.
const LOOKED_AT: usize = 1024;

/// The first of the user's directories with a random name there. There are more only if several
/// first runs began at once.
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

/// A directory that did not exist, under a name that nobody could know before.
fn fresh(place: &Path, prefix: &str, user: u32) -> Result<PathBuf, String> {
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(|e| format!("the kernel gives no random number: {e}"))?;
    let path = place.join(format!("{prefix}{:016x}", u64::from_ne_bytes(number)));
    // One that exists already is an error: it is not ours.
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
