//! Mooncake's transfer engine, the wheel of PyPI: writes and reads between two processes, compared
//! over another channel.

use std::time::Duration;

use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};
use adverb_programs::data_dir;
use adverb_programs::fetch::{self, PYTHON};
use adverb_programs::stage::{DEVICE, PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(120);
/// The build without GPU libraries.
const WHEEL: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";

pub fn cases() -> Vec<Case> {
    PATHS.map(|path| case(format!("{path}/write_and_read"), move || pair(path))).into()
}

fn pair(path: &str) -> Verdict {
    let script = "\"$1\" -m pip install --quiet --no-deps --target lib \"$2\"";
    let dir = fetch::once("mooncake", |dir| fetch::sh(dir, script, &[PYTHON, WHEEL]).map(|_| ()))?;
    let rounds = by_length(10, 1);
    let driver = data_dir().join("mooncake_pair.py").display().to_string();
    let done = Stage::new(path)
        .env("PYTHONPATH", dir.join("lib").display().to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MC_GID_INDEX", "0")
        .run_ok(&[PYTHON, &driver, DEVICE, &rounds.to_string()], LIMIT)?;
    require!(done.text.contains(&format!("ok {} transfers", rounds * 12)), "{}", done.describe());
    // Otherwise the engine would fall back to TCP silently.
    require!(done.text.contains("installTransport, type=rdma"), "{}", done.describe());
    Ok(())
}
