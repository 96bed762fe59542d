//! The environment of the program.
use super::dropins::{Libraries, prepended};
use std::ffi::OsString;
use std::path::Path;

/// The variables to set, given those that are set already.
pub fn variables(
    libraries: &Libraries,
    sysroot: Option<&Path>,
    log: Option<log::LevelFilter>,
    get: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let mut all = Vec::new();
    let mut lead = |name: &'static str, first: &Path| {
        let list = get(name);
        // A program under `adverb run` may start another with `adverb run`: once is enough.
        let leads = list.as_ref().is_some_and(|l| {
            let (list, first) = (l.as_encoded_bytes(), first.as_os_str().as_encoded_bytes());
            list.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest[0] == b':')
        });
        if !leads {
            all.push((name, prepended(first, list)));
        }
    };
    lead("LD_LIBRARY_PATH", &libraries.directory);
    if let Some(preload) = &libraries.preload {
        lead("LD_PRELOAD", preload);
    }
    if let Some(sysroot) = sysroot {
        all.push(("ADVERB_SYSROOT", sysroot.into()));
    }
    match log {
        Some(level) => all.push(("ADVERB_LOG", level.as_str().to_lowercase().into())),
        None if get("ADVERB_LOG").is_none() => all.push(("ADVERB_LOG", "warn".into())),
        None => {}
    }
    all
}
