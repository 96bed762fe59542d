//! The variables that ask for faults and for a capture.
use adverb_device::{capture, faults};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// The variables to set. Makes room for the capture.
pub fn variables(
    spec: Option<&faults::Spec>,
    file: Option<&Path>,
) -> Result<Vec<(&'static str, OsString)>, String> {
    let mut all = Vec::new();
    if let Some(spec) = spec {
        all.push((faults::VARIABLE, spec.to_string().into()));
    }
    if let Some(file) = file {
        // The program may have another working directory when it opens the device.
        let at = |e| format!("{}: {e}", file.display());
        let path = std::path::absolute(file).map_err(at)?;
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(format!("{}: there is no such directory to capture in", file.display()));
        }
        capture::make_room(&path).map_err(at)?;
        try_out(&path)
            .map_err(|e| format!("{}: no capture can be written there: {e}", file.display()))?;
        all.push((capture::VARIABLE, path.into()));
    }
    Ok(all)
}

/// Checks that the capture can be written. The program would notice only when it opens the device.
/// An existing file is in use by another run.
fn try_out(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}
