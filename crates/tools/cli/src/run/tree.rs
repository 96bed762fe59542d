//! Directory trees that are made once and reused. A tree's name contains a hash of its content, so
//! a tree with other content never has the same name.
use std::fs::{self, DirBuilder, File, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEntry {
    /// A file with this text.
    File(String),
    /// A symbolic link with this target.
    Link(PathBuf),
}

/// A directory tree as a list of paths (relative to its root) and contents.
pub type Tree = Vec<(PathBuf, TreeEntry)>;

/// Makes sure that `parent` has a directory with this tree, and returns the directory's path. The
/// name contains a hash of the tree. The directory appears by a single rename, so the directory is
/// either complete or made again.
pub fn place_tree(parent: &Path, kind: &str, tree: &Tree) -> Result<PathBuf, String> {
    let path = parent.join(format!("{kind}-{:016x}", hash(tree)));
    if is_complete(&path, tree) {
        // Renew the time stamp, so no concurrent run removes the tree as old.
        let now = FileTimes::new().set_modified(SystemTime::now());
        let _ = File::open(&path).and_then(|directory| directory.set_times(now));
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
                TreeEntry::File(text) => {
                    fs::write(&at, text)?;
                    // Attributes of sysfs are read-only. The device files are
                    // opened for writing.
                    let mode = if name.starts_with("sys") { 0o444 } else { 0o644 };
                    fs::set_permissions(&at, Permissions::from_mode(mode))?;
                }
                TreeEntry::Link(to) => std::os::unix::fs::symlink(to, &at)?,
            }
        }
        if fs::rename(&fresh, &path).is_err() {
            // The directory exists: another process made it first, or a cleaner has removed part of
            // it.
            if !is_complete(&path, tree) {
                let aside = parent.join(format!(".{kind}-old-{unique}"));
                // If another process repairs the tree at the same moment, the other tree is as
                // good.
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
    let built = build();
    if built.is_err() {
        // After an error, such as a full file system, remove the incomplete tree. The remains would
        // take space from every other process.
        let _ = fs::remove_dir_all(parent.join(format!(".{kind}-{unique}")));
    }
    built.map_err(|e| format!("{} cannot be made: {e}", path.display()))?;
    forget_old(parent, kind);
    Ok(path)
}

/// Number of kept trees of a kind. Addresses come and go, and each set of addresses has
/// its own tree.
const KEPT: usize = 32;

/// A tree still unfinished after this time was left behind by a killed run.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Removes unfinished trees, and the oldest trees of a kind beyond [`KEPT`] that no program uses.
/// Programs read a tree until the program ends: UCX does so each time it opens a device.
///
/// The trees to which a link of `rdma link add` leads are used, too.
pub fn forget_old(parent: &Path, kind: &str) {
    let named = |prefix: String| {
        let all = fs::read_dir(parent).into_iter().flatten().flatten();
        all.filter(move |entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .filter_map(|e| Some((e.metadata().and_then(|m| m.modified()).ok()?, e.path())))
    };
    for (at, path) in named(format!(".{kind}-")) {
        if at.elapsed().is_ok_and(|age| age > ABANDONED) {
            let _ = fs::remove_dir_all(path);
        }
    }
    let mut found: Vec<_> = named(format!("{kind}-")).collect();
    found.sort();
    let mut old: Vec<_> = found.iter().rev().skip(KEPT).map(|(_, path)| path).collect();
    if old.is_empty() {
        return;
    }
    for link in fs::read_dir(parent).into_iter().flatten().flatten() {
        let Ok(target) = fs::read_link(link.path()) else { continue };
        old.retain(|path| **path != target);
    }
    // A program and all its children have the tree's path in their environment. The environment of
    // other users' processes cannot be read, but no such process uses this user's trees.
    for process in adverb_os::processes() {
        let Ok(environment) = fs::read(format!("/proc/{process}/environ")) else { continue };
        old.retain(|path| !names(&environment, path));
    }
    for path in old {
        let _ = fs::remove_dir_all(path);
    }
}

/// Does an environment contain this path, or a path below?
fn names(environment: &[u8], path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    environment.windows(path.len()).any(|at| at == path)
}

fn is_complete(root: &Path, tree: &Tree) -> bool {
    tree.iter().all(|(name, entry)| {
        let at = root.join(name);
        match entry {
            TreeEntry::File(text) => fs::read(&at).is_ok_and(|found| found == text.as_bytes()),
            TreeEntry::Link(to) => fs::read_link(&at).is_ok_and(|found| found == *to),
        }
    })
}

/// FNV-1a over everything in the tree. The hash tells versions apart, and is no protection against
/// an attacker.
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
            TreeEntry::File(text) => add(text.as_bytes()),
            TreeEntry::Link(to) => {
                add(b"->");
                add(to.as_os_str().as_encoded_bytes());
            }
        }
    }
    hash
}
