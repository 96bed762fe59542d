//! Finds the drop-in libraries: installed beside the command, or in the build tree.
use super::runtime;
use super::tree::{Tree, TreeEntry, place_tree};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The name loaded by programs, the name opened by some programs with `dlopen`, and the file name
/// of cargo's build.
const LIBRARIES: &[(&str, &str, &str)] = &[
    ("libibverbs.so.1", "libibverbs.so", "libibverbs.so"),
    ("librdmacm.so.1", "librdmacm.so", "librdmacm.so"),
];
const PRELOAD: &str = "libadverb_preload.so";
const AUDIT: &str = "libadverb_audit.so";

/// The settings for the loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libraries {
    /// A directory with the libraries under the names that programs load.
    pub directory: PathBuf,
    /// The objects to preload, in this order.
    pub preload: Vec<PathBuf>,
    /// The auditor, which replaces programs' own copies by these libraries.
    pub audit: Option<PathBuf>,
    /// Why `directory` does not have the libraries under the names that programs load. The drop-ins
    /// are then in `preload`.
    pub nameless: Option<String>,
}

/// Finds the libraries of the command at `exe`.
pub fn find(exe: &Path, preload: bool) -> Result<Libraries, String> {
    find_with(exe, preload, &runtime::place)
}

type PlaceTree<'a> = &'a dyn Fn(&str, &Tree) -> Result<PathBuf, String>;

/// Like [`find`], with trees placed by `place`.
fn find_with(exe: &Path, preload: bool, place: PlaceTree<'_>) -> Result<Libraries, String> {
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let found = match installed(beside, preload) {
        Some(found) => found,
        None => built(beside, preload, place)?,
    };
    let mut paths =
        found.preload.iter().chain(&found.audit).chain(std::slice::from_ref(&found.directory));
    let are_plain = paths.all(|path| is_plain(path));
    if are_plain { Ok(found) } else { alias(&found, place) }
}

/// `PREFIX/lib/adverb` for a command in `PREFIX/bin`.
fn installed(beside: &Path, preload: bool) -> Option<Libraries> {
    let directory = beside.parent()?.join("lib/adverb");
    let complete = LIBRARIES.iter().all(|(name, ..)| directory.join(name).is_file());
    let preload: Vec<_> = preload.then(|| directory.join(PRELOAD)).into_iter().collect();
    let audit = directory.join(AUDIT);
    let complete = complete && preload.iter().chain([&audit]).all(|p| p.is_file());
    complete.then_some(Libraries { directory, preload, audit: Some(audit), nameless: None })
}

/// Cargo's target directory. The libraries lie in `deps`, which always has the last build, or
/// beside the command.
fn built(beside: &Path, preload: bool, place: PlaceTree<'_>) -> Result<Libraries, String> {
    let file = |name: &str| {
        [beside.join("deps").join(name), beside.join(name)]
            .into_iter()
            .find(|p| p.is_file())
            .ok_or_else(|| {
                format!(
                    "the drop-in library {name} is missing: not in {} and not in {}; `cargo build \
                     --release` builds it, `make install` installs it",
                    beside.parent().unwrap_or(beside).join("lib/adverb").display(),
                    beside.join("deps").display()
                )
            })
    };
    let (mut links, mut files) = (Tree::new(), Vec::new());
    for (name, development, file_name) in LIBRARIES {
        let file = file(file_name)?;
        links.push((PathBuf::from(name), TreeEntry::Link(file.clone())));
        links.push((PathBuf::from(development), TreeEntry::Link(name.into())));
        files.push(file);
    }
    let preload = if preload { Some(file(PRELOAD)?) } else { None };
    let audit = Some(file(AUDIT)?);
    // Beside the command, so the directory goes with the build tree. If the user cannot write
    // there, or every user can, the directory lies elsewhere.
    let placed = runtime::takes_fixed_names(beside)
        .and_then(|()| place_tree(beside, "adverb-dropins", &links))
        .or_else(|first| place("dropins", &links).map_err(|then| format!("{first}; {then}")));
    Ok(match placed {
        Ok(directory) => {
            Libraries { directory, preload: preload.into_iter().collect(), audit, nameless: None }
        }
        // The loader knows a loaded library by the name in the library (DT_SONAME).
        Err(why) => Libraries {
            directory: files[0].parent().unwrap_or(beside).into(),
            preload: files.into_iter().chain(preload).collect(),
            // The auditor needs the library names, which do not exist here.
            audit: None,
            nameless: Some(why),
        },
    })
}

/// The same libraries under a path suitable for the loader's variables.
fn alias(found: &Libraries, place: PlaceTree<'_>) -> Result<Libraries, String> {
    let mut links = vec![(PathBuf::from("lib"), TreeEntry::Link(found.directory.clone()))];
    let mut names = Vec::new();
    for file in found.preload.iter().chain(&found.audit) {
        let name = PathBuf::from(file.file_name().unwrap_or_default());
        links.push((name.clone(), TreeEntry::Link(file.clone())));
        names.push(name);
    }
    let directory = place("alias", &links).map_err(|why| {
        format!(
            "the path {} has a character at which the loader splits lists, and adverb cannot make \
             another path: {why}; move adverb to a path without space, colon, semicolon or dollar \
             sign",
            found.directory.display()
        )
    })?;
    let mut all = names.iter().map(|name| directory.join(name));
    let preload = all.by_ref().take(found.preload.len()).collect();
    let audit = all.next();
    let (directory, nameless) = (directory.join("lib"), found.nameless.clone());
    Ok(Libraries { directory, preload, audit, nameless })
}

/// Can the loader's variables hold the path? The loader splits them at colons, semicolons and white
/// space, and expands `$ORIGIN` and the like.
fn is_plain(path: &Path) -> bool {
    let mut bytes = path.as_os_str().as_encoded_bytes().iter();
    !bytes.any(|b| b.is_ascii_whitespace() || b":;$".contains(b))
}

/// Puts `first` in front of a list from the environment.
pub fn prepended(first: &OsStr, list: Option<OsString>) -> OsString {
    let mut all = first.to_owned();
    if let Some(list) = list.filter(|l| !l.is_empty()) {
        all.push(":");
        all.push(list);
    }
    all
}

#[cfg(test)]
mod tests;
