//! The C programs, compiled against the machine's headers.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs built from `c/`.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The torture program.
    pub torture: PathBuf,
    /// The same with hooks on the calls that map memory, as in MPI libraries.
    pub hooks: PathBuf,
}

/// Compiles both programs.
///
/// # Errors
/// The compiler's messages.
pub fn compile() -> Result<Programs, String> {
    let exe = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    let dir = exe.parent().ok_or("own path has no directory")?.join("torture-c");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(Programs {
        torture: build(&dir, "torture", |name| name != "hooks.c", &[])?,
        hooks: build(&dir, "torture-hooks", |_| true, &["-rdynamic"])?,
    })
}

fn build(
    dir: &Path,
    name: &str,
    takes: impl Fn(&str) -> bool,
    flags: &[&str],
) -> Result<PathBuf, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let listing = std::fs::read_dir(&sources).map_err(|e| format!("{}: {e}", sources.display()))?;
    let mut files: Vec<PathBuf> = listing
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.extension().is_some_and(|e| e == "c"))
        .filter(|p| p.file_name().is_some_and(|n| takes(&n.to_string_lossy())))
        .collect();
    files.sort();
    // Compiled under another name first, because another driver may be running the program.
    let (program, fresh) = (dir.join(name), dir.join(format!("{name}.{}", std::process::id())));
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let out = Command::new(&cc)
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&fresh)
        .args(&files)
        .arg("-I")
        // Directory of rig.h, which all C programs of the tests share.
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/c"))
        .arg("-libverbs")
        .output()
        .map_err(|e| format!("{cc}: {e}: run scripts/test-deps"))?;
    if !out.status.success() {
        return Err(format!("{name} does not compile:\n{}", String::from_utf8_lossy(&out.stderr)));
    }
    std::fs::rename(&fresh, &program).map_err(|e| format!("{}: {e}", program.display()))?;
    Ok(program)
}
