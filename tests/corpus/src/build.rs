//! The programs, compiled against the machine's headers when needed.
use crate::Mistake;
use adverb_foreign::cc::{compile_with, source_dir};
use std::path::{Path, PathBuf};

/// Directory of the C files.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c")
}

/// The C file of a program.
#[must_use]
pub fn source(program: &str) -> PathBuf {
    directory().join(format!("{program}.c"))
}

/// Compiles a program without the mistake.
///
/// # Errors
/// The compiler's messages; warnings are errors.
pub fn right(program: &str) -> Result<PathBuf, String> {
    compile(program, &format!("{program}.right"), &[])
}

/// Compiles a program with the mistake.
///
/// # Errors
/// The compiler's messages; warnings are errors.
pub fn wrong(mistake: &Mistake) -> Result<PathBuf, String> {
    let define = format!("-D{}=1", mistake.define);
    compile(mistake.program, &format!("{}.wrong", mistake.name()), &[&define])
}

fn compile(program: &str, name: &str, defines: &[&str]) -> Result<PathBuf, String> {
    // Directory of rig.h in tests/foreign, which corpus.h includes.
    let include = format!("-I{}", source_dir().display());
    let mut flags = vec!["-O2", include.as_str()];
    flags.extend(defines);
    let text = std::fs::read_to_string(source(program)).map_err(|e| format!("{program}: {e}"))?;
    if text.contains("<rdma/rdma_cma.h>") {
        flags.extend(["-Wl,--no-as-needed", "-lrdmacm"]);
    }
    compile_with("cc", &flags, &source(program), name)
}
