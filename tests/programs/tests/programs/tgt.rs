//! tgt's iSCSI target over RDMA (iSER), entirely in user space, with libiscsi as the initiator. The
//! disk is a file, which both sides read and write, and the bytes are compared.

use std::path::Path;
use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cc::compile_with_c;
use adverb_foreign::process::Finished;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_programs::data_dir;
use adverb_programs::stage::{PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(180);

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        cases.push(case(format!("{path}/disk"), move || disk(path)));
        cases.push(case(format!("{path}/stranger_is_refused"), move || stranger(path)));
    }
    cases
}

/// The run of `data/tgt.sh` with these additional arguments.
fn target(path: &str, more: &[&str]) -> Result<Finished, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/c/iser_disk.c");
    let program = compile_with_c(&["-O2", "-Wl,--no-as-needed", "-liscsi"], &source, "iser_disk")?;
    let program = program.display().to_string();
    let script = data_dir().join("tgt.sh").display().to_string();
    let mut argv = vec!["sh", &script, &program, by_length("32", "4")];
    argv.extend(more);
    let done = Stage::new(path).run_ok(&argv, LIMIT)?;
    done.require_words(&["tgt: target 0"])?;
    Ok(done)
}

fn disk(path: &str) -> Verdict {
    target(path, &[])?.require_words(&[
        "tgt: initiator 0",
        "tgt: read the same bytes",
        "tgt: wrote the same bytes",
        "tgt: saw the change",
        "tgt: and only there",
    ])
}

/// The target admits only another name, so the login fails. This shows that the case above can
/// fail, and that its data goes over the connection.
fn stranger(path: &str) -> Verdict {
    target(path, &["iqn.2026-01.test:another"])?.require_words(&[
        "tgt: initiator 1",
        "Target not found",
        "login failed, class:2 detail:3",
    ])
}
