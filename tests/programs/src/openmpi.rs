//! Debian's Open MPI, with UCX alone between the ranks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use adverb_foreign::process::Finished;

use crate::stage::{DEVICE, Stage};
use crate::{fetch, home};

/// Names of UCX transports: reliable connections, and datagrams.
pub const TRANSPORTS: [&str; 2] = ["rc_v", "ud_v"];

/// Compiles a program with one of Open MPI's compilers, `mpicc` or `oshcc`.
///
/// # Errors
/// The compiler's messages.
pub fn compile(compiler: &str, source: &Path) -> Result<PathBuf, String> {
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let program = home()?.join(format!("{stem}.{}", std::process::id()));
    let (source, out) = (source.display().to_string(), program.display().to_string());
    let script = "\"$1\" -std=gnu11 -O2 -g -Wall -Wextra -Werror -o \"$2\" \"$3\"";
    fetch::sh(&home()?, script, &[compiler, &out, &source])?;
    let last = home()?.join(&*stem);
    std::fs::rename(&program, &last).map_err(|e| format!("{}: {e}", last.display()))?;
    Ok(last)
}

/// Runs a program in `ranks` processes by `mpirun` or `oshrun`. UCX carries all messages, by
/// transport `tls`.
///
/// # Errors
/// The kind of end, with the output, unless all ranks ended with status 0 and UCX had no complaint.
pub fn launch(
    launcher: &str,
    path: &str,
    tls: &str,
    ranks: usize,
    program: &[&str],
    limit: Duration,
) -> Result<Finished, String> {
    let ranks = ranks.to_string();
    let mut argv = vec![launcher, "--oversubscribe", "-np", &ranks];
    for (name, value) in
        [("pml", "ucx"), ("osc", "ucx"), ("btl", "self"), ("oob_tcp_if_include", "lo")]
    {
        argv.extend(["--mca", name, value]);
    }
    if launcher == "oshrun" {
        argv.extend(["--mca", "spml", "ucx"]);
    }
    argv.extend(program);
    let done = Stage::new(path)
        .env("UCX_TLS", format!("{tls},self"))
        .env("UCX_NET_DEVICES", format!("{DEVICE}:1"))
        .env("UCX_LOG_LEVEL", "warn")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("SHMEM_SYMMETRIC_HEAP_SIZE", "16M")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .run(&argv, limit)?;
    // Open MPI asks UCX for atomics of unsupported types, and works without them.
    let known = |l: &str| l.contains("invalid atomic operation datatype");
    let complains =
        done.text.lines().any(|l| l.contains("UCX") && l.contains(" ERROR ") && !known(l));
    if !done.ok() || complains { Err(done.describe()) } else { Ok(done) }
}
