//! `--sockets`: a program's sockets become rsockets of the distribution's librdmacm, by its
//! librspreload.
//!
//! The drop-in librdmacm has no rsockets, so the program gets the distribution's, which runs on the
//! drop-in libibverbs by the connection manager's file.
use super::dropins::Libraries;
use super::runtime;
use super::tree::{Entry, Tree};
use std::path::{Path, PathBuf};

/// What librspreload lacks.
const OURS: &str = "libadverb_sockets.so";
const RDMACM: &str = "librdmacm.so.1";
/// Beside librdmacm, in this directory; the second is a development name.
const THEIRS: [&str; 2] = ["rsocket/librspreload.so.1", "rsocket/librspreload.so"];
const VERBS: &str = "libibverbs.so.1";

/// Where distributions keep libraries.
fn directories() -> Vec<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [&multiarch, "/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib"]
        .iter()
        .map(PathBuf::from)
        .collect()
}

/// The distribution's librdmacm and librspreload.
fn distributions(directories: &[PathBuf]) -> Result<(PathBuf, PathBuf), String> {
    let file = |names: &[&str]| {
        let paths = directories.iter().flat_map(|dir| names.iter().map(move |name| dir.join(name)));
        paths.into_iter().find(|path| path.is_file())
    };
    let missing = |what: &str| {
        format!(
            "--sockets needs the distribution's {what}, which is not installed: Debian and Ubuntu have it in the package \
             librdmacm1 (apt install librdmacm1), Fedora and its kin in librdmacm"
        )
    };
    let rdmacm = file(&[RDMACM]).ok_or_else(|| missing(RDMACM))?;
    let preload = file(&THEIRS).ok_or_else(|| missing("librspreload.so"))?;
    Ok((rdmacm, preload))
}

/// The object of ours, which lies where the preloaded one does, or beside the command.
fn ours(exe: &Path, libraries: &Libraries) -> Result<PathBuf, String> {
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let preload = libraries.preload.iter().filter_map(|path| path.canonicalize().ok());
    let mut places: Vec<PathBuf> = preload.filter_map(|path| Some(path.parent()?.to_owned())).collect();
    places.extend([beside.join("deps"), beside.into()]);
    places.into_iter().map(|dir| dir.join(OURS)).find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "the library {OURS} is missing: `cargo build --release` builds it, `make install` installs it"
        )
    })
}

/// What the program is given in place of the drop-in libraries alone.
fn tree(libraries: &Libraries, ours: PathBuf, rdmacm: PathBuf, preload: PathBuf) -> Result<Tree, String> {
    let verbs = libraries.directory.join(VERBS);
    let verbs = verbs.canonicalize().map_err(|e| format!("{}: {e}", verbs.display()))?;
    let link = |name: &str, to: PathBuf| (PathBuf::from(name), Entry::Link(to));
    Ok(vec![
        link(VERBS, verbs),
        link("libibverbs.so", VERBS.into()),
        link(RDMACM, rdmacm),
        link("librdmacm.so", RDMACM.into()),
        link("librspreload.so", preload),
        link(OURS, ours),
    ])
}

/// Puts the distribution's librdmacm in the place of the drop-in one, and its librspreload in
/// front, with what it lacks before it.
///
/// # Errors
/// Which library is missing and where it comes from, or why no directory can be made.
pub fn over_rdma(exe: &Path, libraries: &mut Libraries) -> Result<(), String> {
    let (rdmacm, preload) = distributions(&directories())?;
    if let Some(why) = &libraries.nameless {
        return Err(format!("--sockets needs a directory for the names of libraries: {why}"));
    }
    let tree = tree(libraries, ours(exe, libraries)?, rdmacm, preload)?;
    let directory = runtime::place("sockets", &tree)
        .map_err(|why| format!("--sockets needs a directory for the names of libraries: {why}"))?;
    // In this order: what the first does not answer it asks the second.
    libraries.preload.splice(0..0, [OURS, "librspreload.so"].map(|name| directory.join(name)));
    libraries.directory = directory;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::scratch;
    use super::*;
    use std::fs;

    fn touch(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let dir = scratch("sockets");
        let said = || distributions(&[dir.join("none"), dir.clone()]).unwrap_err();
        assert!(said().contains(RDMACM) && said().contains("apt install librdmacm1"), "{}", said());
        let rdmacm = touch(dir.join(RDMACM));
        assert!(said().contains("librspreload.so"), "{}", said());
        let preload = touch(dir.join(THEIRS[0]));
        assert_eq!(distributions(&[dir.join("none"), dir.clone()]), Ok((rdmacm, preload)));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_distributions_librdmacm_is_in_the_drop_ins_place() {
        let dir = scratch("sockets-tree");
        let verbs = touch(dir.join("lib").join(VERBS));
        let preload = touch(dir.join("lib/libadverb_preload.so"));
        let libraries =
            Libraries { directory: dir.join("lib"), preload: vec![preload], audit: None, nameless: None };
        assert!(ours(&dir.join("bin/adverb"), &libraries).unwrap_err().contains(OURS));
        let own = touch(dir.join("lib").join(OURS));
        assert_eq!(ours(&dir.join("bin/adverb"), &libraries), Ok(own.canonicalize().unwrap()));
        let tree = tree(&libraries, own, "/their/rdmacm".into(), "/their/preload".into()).unwrap();
        let link = |name: &str| tree.iter().find(|(at, _)| at == Path::new(name)).map(|(_, entry)| entry);
        assert_eq!(link(RDMACM), Some(&Entry::Link("/their/rdmacm".into())));
        assert_eq!(link(VERBS), Some(&Entry::Link(verbs.canonicalize().unwrap())));
        fs::remove_dir_all(dir).unwrap();
    }
}
