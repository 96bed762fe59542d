//! The variable that repeats the choices of a hunt.
use adverb_choice::Schedule;
use adverb_hunt as hunt;
use std::ffi::OsString;
use std::path::Path;

/// The variable to set. A schedule that the program could not read is reported before the program
/// starts.
pub fn variable(asked: &Path) -> Result<(&'static str, OsString), String> {
    if asked.to_str().is_some_and(|text| text.parse::<u64>().is_ok()) {
        return Ok((hunt::SCHEDULE, asked.into()));
    }
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", asked.display());
    let text = std::fs::read_to_string(asked).map_err(|e| at(&e))?;
    text.parse::<Schedule>().map_err(|e| at(&e))?;
    // The program may have another working directory when it opens the device.
    Ok((hunt::SCHEDULE, std::path::absolute(asked).map_err(|e| at(&e))?.into()))
}
