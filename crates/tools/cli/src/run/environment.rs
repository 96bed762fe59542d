//! The environment of the program.
use super::dropins::{Libraries, prepended};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Puts options in front of the user's options for a sanitizer. If an option has two values, the
/// last value counts.
fn options(
    name: &'static str,
    ours: &str,
    get: impl Fn(&str) -> Option<OsString>,
) -> (&'static str, OsString) {
    let own = get(name);
    let told = own.as_ref().is_some_and(|own| own.as_encoded_bytes().starts_with(ours.as_bytes()));
    (name, if told { own.unwrap_or_default() } else { prepended(OsStr::new(ours), own) })
}

/// A list of objects without the objects of another installation: those with the file name of one
/// of `ours` at another path. One process needs one installation.
fn without_copies(list: &OsStr, ours: &[PathBuf]) -> OsString {
    let is_copy = |entry: &&[u8]| {
        let path = Path::new(OsStr::from_bytes(entry));
        ours.iter().any(|our| our != path && our.file_name() == path.file_name())
    };
    if !parts(list).any(|entry| is_copy(&entry)) {
        return list.to_owned();
    }
    let kept: Vec<_> = parts(list).filter(|entry| !is_copy(entry)).collect();
    OsString::from_vec(kept.join(&b':'))
}

/// The entries of a list of objects. The loader splits at colons and at spaces.
fn parts(list: &OsStr) -> impl Iterator<Item = &[u8]> {
    list.as_bytes().split(|b| b": ".contains(b)).filter(|entry| !entry.is_empty())
}

/// The variables to set. `get` reads the current environment.
pub fn variables(
    libraries: &Libraries,
    replace: bool,
    sysroot: Option<&Path>,
    log: Option<log::LevelFilter>,
    get: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let mut all = Vec::new();
    let mut lead = |name: &'static str, first: &OsStr, list: Option<OsString>| {
        // A program under `adverb run` may run `adverb run` again. The entry must be in the list
        // only once.
        let leads = list.as_ref().is_some_and(|l| {
            let (list, first) = (l.as_encoded_bytes(), first.as_encoded_bytes());
            list.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest[0] == b':')
        });
        if !leads || list != get(name) {
            all.push((name, if leads { list.unwrap_or_default() } else { prepended(first, list) }));
        }
    };
    lead("LD_LIBRARY_PATH", libraries.directory.as_os_str(), get("LD_LIBRARY_PATH"));
    let preload: Vec<_> = libraries.preload.iter().map(|p| p.as_os_str()).collect();
    if !preload.is_empty() {
        let others = get("LD_PRELOAD").map(|list| without_copies(&list, &libraries.preload));
        lead("LD_PRELOAD", &preload.join(OsStr::new(":")), others);
    }
    if let Some(audit) = &libraries.audit {
        let others = get("LD_AUDIT").map(|list| without_copies(&list, std::slice::from_ref(audit)));
        lead("LD_AUDIT", audit.as_os_str(), others);
    }
    all.push(("ADVERB_DROPINS", libraries.directory.clone().into()));
    // Copies give way to a library with the plain name, so the directory must have the names.
    if replace && libraries.nameless.is_none() {
        all.push(("ADVERB_REPLACE", libraries.directory.clone().into()));
    }
    // A sanitizer with a shared run-time library reads these options from the preloaded library. A
    // sanitizer that is linked into the program does not. There the program may also define the
    // options itself, which replaces the preloaded library's definition.
    if !libraries.preload.is_empty() {
        all.push(options("ASAN_OPTIONS", "verify_asan_link_order=0", &get));
    }
    if let Some(sysroot) = sysroot {
        let file = sysroot.join(super::sysroot::SUPPRESSIONS);
        all.push(options("TSAN_OPTIONS", &format!("suppressions=\"{}\"", file.display()), &get));
        all.push(("ADVERB_SYSROOT", sysroot.into()));
    }
    match log {
        Some(level) => all.push(("ADVERB_LOG", level.as_str().to_lowercase().into())),
        None if get("ADVERB_LOG").is_none() => all.push(("ADVERB_LOG", "warn".into())),
        None => {}
    }
    all
}
