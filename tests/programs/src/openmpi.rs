//! Debian's Open MPI, with UCX alone between the ranks.

use std::time::Duration;

use adverb_foreign::cc::compile_with;
use adverb_foreign::process::Finished;

use crate::source_dir;
use crate::stage::{DEVICE, Stage};

/// Names of UCX transports: reliable connections, and datagrams.
pub const TRANSPORTS: [&str; 2] = ["rc_v", "ud_v"];

/// Compiles `c/NAME.c` with a compiler of MPI: `mpicc`, `oshcc`, or `mpicc.mpich`.
///
/// # Errors
/// The compiler's messages.
pub fn compile(compiler: &str, name: &str, flags: &[&str]) -> Result<String, String> {
    // The program itself does not call verbs, so it is not linked with them.
    let flags = [&["-O2", "-Wl,--as-needed"], flags].concat();
    let source = source_dir().join(format!("{name}.c"));
    let program = compile_with(compiler, &flags, &source, &format!("{name}.{compiler}"))?;
    Ok(program.display().to_string())
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
