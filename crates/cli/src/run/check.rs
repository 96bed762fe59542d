//! The variables that ask for a check.
use adverb_check::Suppressions;
use std::ffi::OsString;
use std::path::Path;

/// What to set. A file that the program could not read is said before it starts.
pub fn variables(suppress: Option<&Path>, exit: Option<u8>) -> Result<Vec<(&'static str, OsString)>, String> {
    let mut all = vec![("ADVERB_CHECK", "1".into())];
    // Pages that peers map are not inherited, so nothing could be said of forks.
    if std::env::var_os("ADVERB_ADOPT").is_none() {
        all.push(("ADVERB_ADOPT", "off".into()));
    }
    if let Some(file) = suppress {
        let at = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
        let text = std::fs::read_to_string(file).map_err(|e| at(&e))?;
        text.parse::<Suppressions>().map_err(|e| at(&e))?;
        // The program may work in another directory by the time it opens the device.
        let path = std::path::absolute(file).map_err(|e| at(&e))?;
        all.push(("ADVERB_CHECK_SUPPRESS", path.into()));
    }
    if let Some(status) = exit {
        all.push(("ADVERB_CHECK_EXIT", status.to_string().into()));
    }
    Ok(all)
}
