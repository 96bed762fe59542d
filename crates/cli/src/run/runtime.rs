//! The user's own directory for what programs started by `adverb run` read. Everything in it has a name that says its
//! content, so it is made once, used again and never in the way.
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The directory `adverb-UID` below the first place that takes it: `$XDG_RUNTIME_DIR`, `/dev/shm`, `/tmp`.
pub fn directory() -> Result<PathBuf, String> {
    let user = nix::unistd::Uid::effective().as_raw();
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    let places = own.into_iter().chain(["/dev/shm", "/tmp"].map(PathBuf::from));
    let mut tried = Vec::new();
    for place in places {
        let path = place.join(format!("adverb-{user}"));
        match make_private(&path, user) {
            Ok(()) => return Ok(path),
            Err(why) => tried.push(format!("{}: {why}", path.display())),
        }
    }
    Err(format!("no place for the runtime directory of user {user}: {}", tried.join("; ")))
}

/// Makes the directory, or makes sure that it is ours alone: in a place where all may write, another user could have
/// made it before us.
fn make_private(path: &Path, user: u32) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.to_string()),
        _ => {}
    }
    let found = fs::symlink_metadata(path).map_err(|e| e.to_string())?;
    if !found.is_dir() {
        return Err("is no directory".into());
    }
    if found.uid() != user {
        return Err(format!("belongs to user {}", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("is open to other users (mode {:o})", found.mode() & 0o777));
    }
    Ok(())
}

/// What stands at a path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file with this content.
    File(String),
    /// A symbolic link to this.
    Link(PathBuf),
}

/// A directory tree as a list of paths (relative to its root) and contents.
pub type Tree = Vec<(PathBuf, Entry)>;

/// Sees to it that `parent` has a directory with this tree in it and answers its path. The name has a hash of the tree, so
/// the directory is either complete or made anew; it appears by one rename.
pub fn place_tree(parent: &Path, kind: &str, tree: &Tree) -> Result<PathBuf, String> {
    let path = parent.join(format!("{kind}-{:016x}", hash(tree)));
    if is_complete(&path, tree) {
        return Ok(path);
    }
    static MADE: AtomicU32 = AtomicU32::new(0);
    let unique = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let build = || -> std::io::Result<()> {
        let fresh = parent.join(format!(".{kind}-{unique}"));
        let _ = fs::remove_dir_all(&fresh);
        DirBuilder::new().mode(0o700).create(&fresh)?;
        for (name, entry) in tree {
            let at = fresh.join(name);
            fs::create_dir_all(at.parent().unwrap_or(&fresh))?;
            match entry {
                Entry::File(text) => fs::write(&at, text)?,
                Entry::Link(to) => std::os::unix::fs::symlink(to, &at)?,
            }
        }
        if fs::rename(&fresh, &path).is_err() {
            // One is there: another process was faster, or a cleaner has been at it.
            if !is_complete(&path, tree) {
                let aside = parent.join(format!(".{kind}-old-{unique}"));
                // Whoever else repairs it at this moment is as good.
                let _ = fs::rename(&path, &aside);
                let placed = fs::rename(&fresh, &path);
                let _ = fs::remove_dir_all(&aside);
                if placed.is_err() && !is_complete(&path, tree) {
                    return placed;
                }
            }
            let _ = fs::remove_dir_all(&fresh);
        }
        Ok(())
    };
    build().map_err(|e| format!("{} cannot be made: {e}", path.display()))?;
    forget_old(parent, kind);
    Ok(path)
}

/// Trees of a kind that are kept: addresses come and go, and each set of them has a tree of its own.
const KEPT: usize = 32;

/// Removes the oldest trees of a kind beyond [`KEPT`]. Programs that look at theirs have done so when they started.
fn forget_old(parent: &Path, kind: &str) {
    let prefix = format!("{kind}-");
    let mut found: Vec<_> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix))
        .filter_map(|e| Some((e.metadata().and_then(|m| m.modified()).ok()?, e.path())))
        .collect();
    found.sort();
    for (_, path) in found.iter().rev().skip(KEPT) {
        let _ = fs::remove_dir_all(path);
    }
}

fn is_complete(root: &Path, tree: &Tree) -> bool {
    tree.iter().all(|(name, entry)| {
        let at = root.join(name);
        match entry {
            Entry::File(text) => fs::read(&at).is_ok_and(|found| found == text.as_bytes()),
            Entry::Link(to) => fs::read_link(&at).is_ok_and(|found| found == *to),
        }
    })
}

/// FNV-1a over everything in the tree; it keeps versions apart, it guards against nobody.
fn hash(tree: &Tree) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (name, entry) in tree {
        add(name.as_os_str().as_encoded_bytes());
        match entry {
            Entry::File(text) => add(text.as_bytes()),
            Entry::Link(to) => {
                add(b"->");
                add(to.as_os_str().as_encoded_bytes());
            }
        }
    }
    hash
}
