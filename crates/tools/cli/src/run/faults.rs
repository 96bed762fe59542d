//! The variables that ask for faults, for a capture, and for the choices of a hunt.
use crate::out::at;
use adverb_choice::Schedule;
use adverb_device::{capture, faults};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
        let path = std::path::absolute(file).map_err(at(file))?;
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(format!("{}: there is no such directory to capture in", file.display()));
        }
        capture::make_room(&path).map_err(at(file))?;
        try_out(&path)
            .map_err(|e| format!("{}: no capture can be written there: {e}", file.display()))?;
        all.push((capture::VARIABLE, path.into()));
    }
    Ok(all)
}

/// The variable that repeats the choices of a hunt: of a seed, or of a file.
pub fn replay(asked: &Path) -> Result<(&'static str, OsString), String> {
    let is_seed = asked.to_str().is_some_and(|text| text.parse::<u64>().is_ok());
    let value = if is_seed { asked.into() } else { readable::<Schedule>(asked)?.into() };
    Ok((adverb_hunt::SCHEDULE, value))
}

/// The absolute path of a file for the device: the program may have another working directory when
/// it opens the device. A file that the device could not read is reported before the program
/// starts.
pub fn readable<T: FromStr<Err: Display>>(file: &Path) -> Result<PathBuf, String> {
    let text = fs::read_to_string(file).map_err(at(file))?;
    text.parse::<T>().map_err(at(file))?;
    std::path::absolute(file).map_err(at(file))
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
