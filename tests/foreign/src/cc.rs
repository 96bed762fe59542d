//! The C programs of `c/`, compiled against the machine's headers when a test needs them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::process::{output_of, target_dir};

/// Directory of the sources.
pub fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c")
}

/// Compiles `c/NAME.c` with warnings as errors and returns the program's path.
///
/// # Errors
/// The compiler's messages.
pub fn compile(name: &str) -> Result<PathBuf, String> {
    compile_file(&source_dir().join(format!("{name}.c")), name)
}

/// Like [`compile`], with more libraries.
///
/// # Errors
/// The compiler's messages.
pub fn compile_linked(name: &str, libraries: &[&str]) -> Result<PathBuf, String> {
    let flags = [&["-O2", "-Wl,--no-as-needed"], libraries].concat();
    compile_with_c(&flags, &source_dir().join(format!("{name}.c")), name)
}

/// Like [`compile`], for a source file in any directory; `name` is the name of the program.
///
/// # Errors
/// The compiler's messages.
pub fn compile_file(source: &Path, name: &str) -> Result<PathBuf, String> {
    compile_with_c(&["-O2"], source, name)
}

/// Like [`compile_file`], with flags of the caller.
///
/// # Errors
/// The compiler's messages.
pub fn compile_with_c(flags: &[&str], source: &Path, name: &str) -> Result<PathBuf, String> {
    compile_with(&std::env::var("CC").unwrap_or_else(|_| "cc".to_string()), flags, source, name)
}

/// Like [`compile_file`], with a compiler and flags of the caller. A process compiles each program
/// once.
///
/// # Errors
/// The compiler's messages.
pub fn compile_with(
    cc: &str,
    flags: &[&str],
    source: &Path,
    name: &str,
) -> Result<PathBuf, String> {
    static BUILT: Mutex<Option<HashMap<String, Result<PathBuf, String>>>> = Mutex::new(None);
    // The lock is held while the program compiles, so that a second case waits for the program.
    let mut built = BUILT.lock().unwrap_or_else(|e| e.into_inner());
    let key = format!("{name} {cc} {} {}", flags.join(" "), source.display());
    let program = built.get_or_insert_default().entry(key);
    program.or_insert_with(|| compile_once(cc, flags, source, name)).clone()
}

fn compile_once(cc: &str, flags: &[&str], source: &Path, name: &str) -> Result<PathBuf, String> {
    let dir = target_dir()?.join("foreign-c");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let program = dir.join(name);
    // Compiled under another name first, because another test binary may be running the program.
    let fresh = dir.join(format!("{name}.{}", std::process::id()));
    let standard = if cc.ends_with("++") { "-std=c++17" } else { "-std=gnu11" };
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/faces/ibverbs/include");
    let mut command = Command::new(cc);
    command
        .args([standard, "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags)
        .args(["-o".as_ref(), fresh.as_path(), source, "-I".as_ref(), &headers])
        .args(["-libverbs", "-ldl"]);
    output_of(&mut command, &format!("{cc} {}", source.display()))?;
    std::fs::rename(&fresh, &program).map_err(|e| format!("{}: {e}", program.display()))?;
    Ok(program)
}
