//! Unmodified test suites of other projects on the drop-in libraries: on both paths, with verified
//! data.
//!
//! Sources are Debian's packages, crates.io and PyPI. Builds are made once, under `programs` of the
//! target directory, and kept. A case that cannot run on a machine is ignored under its name with
//! the reason, and never counts as passed. `docs/programs.md` has the table of results.
#![forbid(unsafe_code)]

pub mod crates_io;
pub mod fetch;
pub mod huge;
pub mod openmpi;
pub mod skips;
pub mod stage;

use std::path::PathBuf;

use adverb_foreign::process;

/// The directory of builds: `programs` in the target directory.
///
/// # Errors
/// The directory cannot be created.
pub fn home() -> Result<PathBuf, String> {
    let dir = process::target_dir()?.join("programs");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

/// The C programs of `c/`.
pub fn source_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("c")
}

/// Lists and drivers of `data/`.
pub fn data_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data")
}
