//! The variables that ask for faults and for a capture.
use adverb_device::{capture, faults};
use std::ffi::OsString;
use std::path::Path;

/// What to set; makes room for the capture.
pub fn variables(
    spec: Option<&faults::Spec>,
    file: Option<&Path>,
) -> Result<Vec<(&'static str, OsString)>, String> {
    let mut all = Vec::new();
    if let Some(spec) = spec {
        all.push((faults::VARIABLE, spec.to_string().into()));
    }
    if let Some(file) = file {
        // The program may work in another directory by the time it opens the device.
        let at = |e| format!("{}: {e}", file.display());
        let path = std::path::absolute(file).map_err(at)?;
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(format!("{}: there is no such directory to capture in", file.display()));
        }
        capture::make_room(&path).map_err(at)?;
        all.push((capture::VARIABLE, path.into()));
    }
    Ok(all)
}
