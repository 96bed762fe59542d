//! Where the drop-in libraries are: installed beside the command, or in the build tree.
use super::runtime::{self, Entry};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The name programs load, the name some open by hand, and the file as cargo builds it.
const LIBRARIES: &[(&str, &str, &str)] = &[("libibverbs.so.1", "libibverbs.so", "libibverbs.so")];
const PRELOAD: &str = "libadverb_preload.so";

/// What the loader is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libraries {
    /// A directory with the libraries under the names that programs load.
    pub directory: PathBuf,
    /// The library to preload, if it was asked for.
    pub preload: Option<PathBuf>,
}

/// Finds the libraries that belong to the command at `exe`.
pub fn find(exe: &Path, preload: bool) -> Result<Libraries, String> {
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let found = match installed(beside, preload) {
        Some(found) => found,
        None => built(beside, preload)?,
    };
    if [Some(&found.directory), found.preload.as_ref()].into_iter().flatten().all(|p| is_plain(p)) {
        return Ok(found);
    }
    alias(&found, &runtime::directory()?)
}

/// `PREFIX/lib/adverb` for a command in `PREFIX/bin`.
fn installed(beside: &Path, preload: bool) -> Option<Libraries> {
    let directory = beside.parent()?.join("lib/adverb");
    let complete = LIBRARIES.iter().all(|(name, ..)| directory.join(name).is_file());
    let preload = preload.then(|| directory.join(PRELOAD));
    (complete && preload.as_ref().is_none_or(|p| p.is_file())).then_some(Libraries { directory, preload })
}

/// Cargo's target directory: the libraries lie in `deps`, where they are always of the last build, or beside the command.
fn built(beside: &Path, preload: bool) -> Result<Libraries, String> {
    let file = |name: &str| {
        [beside.join("deps").join(name), beside.join(name)].into_iter().find(|p| p.is_file()).ok_or_else(|| {
            format!(
                "the drop-in library {name} is missing: it is neither in {} nor in {}; `cargo build --release` builds it, \
                 `make install` installs it",
                beside.parent().unwrap_or(beside).join("lib/adverb").display(),
                beside.join("deps").display()
            )
        })
    };
    let mut links = Vec::new();
    for (name, development, file_name) in LIBRARIES {
        links.push((PathBuf::from(name), Entry::Link(file(file_name)?)));
        links.push((PathBuf::from(development), Entry::Link(name.into())));
    }
    let preload = if preload { Some(file(PRELOAD)?) } else { None };
    // Beside the command, so that it goes with the build tree; in the runtime directory if that is not ours to write.
    let directory = match runtime::place_tree(beside, "adverb-dropins", &links) {
        Ok(directory) => directory,
        Err(_) => runtime::place_tree(&runtime::directory()?, "dropins", &links)?,
    };
    Ok(Libraries { directory, preload })
}

/// The same libraries under a path that the loader's variables can hold.
fn alias(found: &Libraries, parent: &Path) -> Result<Libraries, String> {
    let mut links = vec![(PathBuf::from("lib"), Entry::Link(found.directory.clone()))];
    if let Some(preload) = &found.preload {
        links.push((PRELOAD.into(), Entry::Link(preload.clone())));
    }
    let directory = runtime::place_tree(parent, "alias", &links)?;
    let preload = found.preload.is_some().then(|| directory.join(PRELOAD));
    Ok(Libraries { directory: directory.join("lib"), preload })
}

/// The loader splits its variables at colons, semicolons and white space, and replaces `$ORIGIN` and the like.
fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().iter().any(|b| b.is_ascii_whitespace() || b":;$".contains(b))
}

/// `first` in front of a list of the environment.
pub fn prepended(first: &Path, list: Option<OsString>) -> OsString {
    let mut all = first.as_os_str().to_owned();
    if let Some(list) = list.filter(|l| !l.is_empty()) {
        all.push(":");
        all.push(list);
    }
    all
}

#[cfg(test)]
mod tests;
