//! The environment of the program.
use super::dropins::{Libraries, prepended};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Options in front of those that the user gave a sanitizer: of two values for one option the last
/// counts.
fn options(
    name: &'static str,
    ours: &str,
    get: impl Fn(&str) -> Option<OsString>,
) -> (&'static str, OsString) {
    let own = get(name);
    let told = own.as_ref().is_some_and(|own| own.as_encoded_bytes().starts_with(ours.as_bytes()));
    (name, if told { own.unwrap_or_default() } else { prepended(OsStr::new(ours), own) })
}

/// The variables to set, given those that are set already.
pub fn variables(
    libraries: &Libraries,
    replace: bool,
    sysroot: Option<&Path>,
    log: Option<log::LevelFilter>,
    get: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let mut all = Vec::new();
    let mut lead = |name: &'static str, first: &OsStr| {
        let list = get(name);
        // A program under `adverb run` may start another with `adverb run`: once is enough.
        let leads = list.as_ref().is_some_and(|l| {
            let (list, first) = (l.as_encoded_bytes(), first.as_encoded_bytes());
            list.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest[0] == b':')
        });
        if !leads {
            all.push((name, prepended(first, list)));
        }
    };
    lead("LD_LIBRARY_PATH", libraries.directory.as_os_str());
    let preload: Vec<_> = libraries.preload.iter().map(|p| p.as_os_str()).collect();
    if !preload.is_empty() {
        lead("LD_PRELOAD", &preload.join(OsStr::new(":")));
    }
    if let Some(audit) = &libraries.audit {
        lead("LD_AUDIT", audit.as_os_str());
    }
    // By name, which there has to be.
    if replace && libraries.nameless.is_none() {
        all.push(("ADVERB_REPLACE", libraries.directory.clone().into()));
    }
    // Sanitizers whose run-time library is a shared one learn this from the preloaded library.
    // Those that are part of the program do not, and a program may have its own word on it there,
    // which replaces that of the library.
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
