//! The C programs of `c/`, compiled when they are first needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use adverb_foreign::process::output_of;

use crate::Result;

/// Compiles `c/NAME.c`, unless the compiled program is newer than the source. Returns the path of
/// the compiled program, which lies beside this program.
///
/// # Errors
/// The compiler's messages.
pub fn program(name: &str) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{name}.c"));
    let exe = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    let program = exe.with_file_name(format!("{name}-c"));
    let time = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    if time(&program).is_some_and(|made| time(&source).is_none_or(|written| written < made)) {
        return Ok(program);
    }
    // Compiled under another name first, because another process may be running the program.
    let fresh = program.with_extension(std::process::id().to_string());
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let mut command = Command::new(&cc);
    command
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&fresh, &source])
        // Only programs that call these libraries get linked with them.
        .args(["-Wl,--as-needed", "-lrdmacm", "-libverbs"]);
    output_of(&mut command, &format!("{cc} {}", source.display()))?;
    std::fs::rename(&fresh, &program).map_err(|e| format!("{}: {e}", program.display()))?;
    Ok(program)
}
