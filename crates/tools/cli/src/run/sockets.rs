//! `--sockets`: a program's sockets become rsockets of the distribution's librdmacm. The
//! distribution's librspreload does this.
//!
//! The drop-in librdmacm has no rsockets, so the program gets the distribution's librdmacm. That
//! library runs on the drop-in libibverbs through the connection manager's file,
//! `/dev/infiniband/rdma_cm`.
use super::dropins::Libraries;
use super::runtime;
use super::tree::{Tree, TreeEntry};
use std::path::{Path, PathBuf};

/// Implements calls missing in librspreload.
const OURS: &str = "libadverb_sockets.so";
const RDMACM: &str = "librdmacm.so.1";
/// Where librspreload lies, relative to librdmacm. A distribution has a separate directory, also
/// with the development name. In a build of rdma-core, both libraries lie in the same directory.
const THEIRS: [&str; 4] = [
    "rsocket/librspreload.so.1",
    "rsocket/librspreload.so",
    "librspreload.so.1",
    "librspreload.so",
];
const VERBS: &str = "libibverbs.so.1";
/// The first release of rdma-core with a service thread for connections of rsockets.
const SERVICE_THREAD: u32 = 25;
/// The first release with a service thread that does not read freed memory.
const MENDED: u32 = 53;

/// The directories in which distributions keep libraries.
fn directories() -> Vec<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [&multiarch, "/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib"]
        .iter()
        .map(PathBuf::from)
        .collect()
}

fn file(directories: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    let mut paths = directories.iter().flat_map(|dir| names.iter().map(move |name| dir.join(name)));
    paths.find(|path| path.is_file())
}

/// The distribution's librdmacm and librspreload.
fn distributions(directories: &[PathBuf]) -> Result<(PathBuf, PathBuf), String> {
    let missing = |what: &str| {
        format!(
            "--sockets needs the distribution's {what}, which is not installed: Debian and Ubuntu \
             have it in the package librdmacm1 (apt install librdmacm1), Fedora and similar \
             systems in librdmacm"
        )
    };
    let rdmacm = file(directories, &[RDMACM]).ok_or_else(|| missing(RDMACM))?;
    let preload = file(directories, &THEIRS).ok_or_else(|| missing("librspreload.so"))?;
    Ok((rdmacm, preload))
}

/// The librdmacm and librspreload in a directory named by the user.
fn named(directory: &Path) -> Result<(PathBuf, PathBuf), String> {
    let fail = |e| format!("--sockets={}: {e}", directory.display());
    // The program may run in another working directory.
    let directory = directory.canonicalize().map_err(fail)?;
    let found = |what: &str, names: &[&str]| {
        file(std::slice::from_ref(&directory), names).ok_or_else(|| {
            format!(
                "--sockets={}: there is no {what}: name a directory with librdmacm.so.1 and librspreload.so of one \
                 release of rdma-core",
                directory.display()
            )
        })
    };
    Ok((found(RDMACM, &[RDMACM])?, found("librspreload.so", &THEIRS)?))
}

/// The rdma-core release of a librdmacm, by its file name: `librdmacm.so.1.3.44.0` is of
/// release 44.
fn release(rdmacm: &Path) -> Option<u32> {
    let file = rdmacm.canonicalize().ok()?;
    let numbers = file.file_name()?.to_str()?.strip_prefix("librdmacm.so.1.")?;
    numbers.split('.').nth(1)?.parse().ok()
}

/// The defect of a librdmacm of this release. Its service thread keeps the address of an array that
/// the fourth connection reallocates; rdma-core's commit 24061f015 fixes this.
fn defect(rdmacm: &Path) -> Option<String> {
    let release = release(rdmacm).filter(|release| (SERVICE_THREAD..MENDED).contains(release))?;
    Some(format!(
        "{} is of rdma-core {release}; its rsockets read freed memory in a process with four or \
         more connections at a time, so the program may hang or crash; rdma-core {MENDED} is \
         repaired; --sockets=DIR takes librdmacm.so.1 and librspreload.so of another release",
        rdmacm.display()
    ))
}

/// Adverb's own object, beside the preloaded library or beside the command.
fn ours(exe: &Path, libraries: &Libraries) -> Result<PathBuf, String> {
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let preload = libraries.preload.iter().filter_map(|path| path.canonicalize().ok());
    let mut places: Vec<PathBuf> =
        preload.filter_map(|path| Some(path.parent()?.to_owned())).collect();
    places.extend([beside.join("deps"), beside.into()]);
    places.into_iter().map(|dir| dir.join(OURS)).find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "the library {OURS} is missing: `cargo build --release` builds it, `make install` installs it"
        )
    })
}

/// The libraries for the program instead of the drop-in libraries alone.
fn tree(
    libraries: &Libraries,
    ours: PathBuf,
    rdmacm: PathBuf,
    preload: PathBuf,
) -> Result<Tree, String> {
    let verbs = libraries.directory.join(VERBS);
    let verbs = verbs.canonicalize().map_err(crate::out::at(&verbs))?;
    let link = |name: &str, to: PathBuf| (PathBuf::from(name), TreeEntry::Link(to));
    Ok(vec![
        link(VERBS, verbs),
        link("libibverbs.so", VERBS.into()),
        link(RDMACM, rdmacm),
        link("librdmacm.so", RDMACM.into()),
        link("librspreload.so", preload),
        link(OURS, ours),
    ])
}

/// Puts another librdmacm in the place of the drop-in librdmacm. Preloads the matching
/// librspreload, and Adverb's object before it. The libraries come from `directory`, or else from
/// the distribution. Returns a warning for the user, if necessary.
///
/// # Errors
/// The name of a missing library and of its package, or why no directory can be made.
pub fn over_rdma(
    exe: &Path,
    directory: Option<&Path>,
    libraries: &mut Libraries,
) -> Result<Option<String>, String> {
    let (rdmacm, preload) = directory.map_or_else(|| distributions(&directories()), named)?;
    let defect = defect(&rdmacm);
    if let Some(why) = &libraries.nameless {
        return Err(format!("--sockets needs a directory for the names of libraries: {why}"));
    }
    let tree = tree(libraries, ours(exe, libraries)?, rdmacm, preload)?;
    let directory = runtime::place("sockets", &tree)
        .map_err(|why| format!("--sockets needs a directory for the names of libraries: {why}"))?;
    // In this order: the first object asks the second for all other calls.
    libraries.preload.splice(0..0, [OURS, "librspreload.so"].map(|name| directory.join(name)));
    libraries.directory = directory;
    Ok(defect)
}

#[cfg(test)]
mod tests;
