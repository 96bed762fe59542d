//! tgt's iSCSI target over RDMA (iSER), entirely in user space, with libiscsi as the initiator. The
//! disk is a file, which both sides read and write, and the bytes are compared.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::cc::compile_with;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};
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

/// The output of `data/tgt.sh` with these additional arguments.
fn target(path: &str, more: &[&str]) -> Result<String, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/c/iser_disk.c");
        let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
        compile_with(&cc, &["-O2", "-Wl,--no-as-needed", "-liscsi"], &source, "iser_disk")
    });
    let program = program.clone()?.display().to_string();
    let script = data_dir().join("tgt.sh").display().to_string();
    let mut argv = vec!["sh", &script, &program, by_length("32", "4")];
    argv.extend(more);
    let done = Stage::new(path).run_ok(&argv, LIMIT)?;
    require!(
        done.text.contains("tgt: target 0"),
        "the target did not end well: {}",
        done.describe()
    );
    Ok(done.describe())
}

fn disk(path: &str) -> Verdict {
    let text = target(path, &[])?;
    for said in [
        "initiator 0",
        "read the same bytes",
        "wrote the same bytes",
        "saw the change",
        "and only there",
    ] {
        require!(text.contains(&format!("tgt: {said}")), "no \"{said}\": {text}");
    }
    Ok(())
}

/// The target admits only another name, so the login fails. This shows that the case above can
/// fail, and that its data goes over the connection.
fn stranger(path: &str) -> Verdict {
    let text = target(path, &["iqn.2026-01.test:another"])?;
    require!(text.contains("tgt: initiator 1"), "{text}");
    require!(
        text.contains("Target not found") && text.contains("login failed, class:2 detail:3"),
        "{text}"
    );
    Ok(())
}
