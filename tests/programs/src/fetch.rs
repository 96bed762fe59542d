//! Programs that are not Debian packages: source archives and wheels of PyPI. Each is fetched and
//! built once, under [`crate::home`]. An incomplete build starts again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use adverb_foreign::process;

use crate::home;

/// Debian's own interpreter, which uses Debian's Python packages.
pub const PYTHON: &str = "/usr/bin/python3";

/// Time limit for a step of a preparation.
const STEP: Duration = Duration::from_secs(1800);

/// Runs a shell script in a directory.
///
/// # Errors
/// The output of a script that does not end with status 0 in time.
pub fn sh(dir: &Path, script: &str, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).args(args).current_dir(dir);
    Ok(process::start(command, script.to_string())?.wait(STEP).passed()?.text)
}

/// A directory under [`home`] that `make` fills once.
///
/// # Errors
/// The error of `make`; nothing is left then.
pub fn once(name: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let dir = home()?.join(name);
    let done = dir.join(".done");
    if done.is_file() {
        return Ok(dir);
    }
    let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
    if dir.exists() {
        std::fs::remove_dir_all(&dir).map_err(fail)?;
    }
    std::fs::create_dir_all(&dir).map_err(fail)?;
    make(&dir)?;
    std::fs::write(done, "").map_err(fail)?;
    Ok(dir)
}

/// The source archive of a PyPI project, unpacked in `dir`: `dir/NAME-VERSION`.
///
/// # Errors
/// The archive cannot be downloaded or unpacked.
pub fn sdist(dir: &Path, name: &str, version: &str) -> Result<PathBuf, String> {
    let script = "\"$1\" -m pip download --quiet --no-deps --no-binary \"$2\" \"$2==$3\" && tar xzf \"$2-$3.tar.gz\"";
    sh(dir, script, &[PYTHON, name, version])?;
    Ok(dir.join(format!("{name}-{version}")))
}

/// A virtual environment at `dir/venv` with packages of PyPI.
///
/// # Errors
/// The packages cannot be installed.
pub fn venv(dir: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let script =
        "python=$1; shift; \"$python\" -m venv venv && venv/bin/pip install --quiet \"$@\"";
    let mut args = vec![PYTHON];
    args.extend(packages);
    sh(dir, script, &args)?;
    Ok(dir.join("venv"))
}
