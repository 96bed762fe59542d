//! Mooncake's transfer engine, the wheel of PyPI: writes and reads between two processes, compared
//! over another channel.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::process::{Finished, adverb};
use adverb_foreign::suite::{Case, by_length, case};
use adverb_programs::data_dir;
use adverb_programs::fetch::{self, PYTHON};
use adverb_programs::stage::{DEVICE, PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(120);
/// The build without GPU libraries.
const WHEEL: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";

pub fn cases() -> Vec<Case> {
    let mut all = Vec::from(PATHS.map(|path| {
        case(format!("{path}/write_and_read"), move || pair(path, DEVICE, None).map(drop))
    }));
    all.extend(PATHS.map(|path| case(format!("{path}/FLT-7/failover"), move || failover(path))));
    all
}

/// One of two equal devices loses its link. The transfers that it had go over the other device.
fn failover(path: &str) -> Verdict {
    let done = pair(path, "rxe0,rxe1", Some("link-down=rxe0"))?;
    // Both engines.
    let inactive = done.text.matches("Context rxe0 is now inactive").count();
    done.require(inactive == 2)
}

/// Transfers over these devices, with a fault after half of them.
fn pair(path: &str, devices: &str, fault: Option<&str>) -> Result<Finished, String> {
    let script = "\"$1\" -m pip install --quiet --no-deps --target lib \"$2\"";
    let dir = fetch::once("mooncake", |dir| fetch::sh(dir, script, &[PYTHON, WHEEL]).map(|_| ()))?;
    let rounds = by_length(10, 2).to_string();
    let driver = data_dir().join("mooncake_pair.py").display().to_string();
    let stage = match fault {
        Some(_) => Stage::new(path).env("ADVERB_DEVICES", devices.replace(',', "@lo,") + "@lo"),
        None => Stage::new(path),
    };
    let mut argv = vec![PYTHON, &driver, devices, &rounds];
    argv.extend(fault);
    let done = stage
        .env("ADVERB", adverb()?.display().to_string())
        .env("PYTHONPATH", dir.join("lib").display().to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MC_GID_INDEX", "0")
        .run_ok(&argv, LIMIT)?;
    let ok = format!("ok {} transfers", by_length(10, 2) * 12);
    done.require_words(&[&ok])?;
    // Otherwise the engine would fall back to TCP silently.
    done.require_words(&["installTransport, type=rdma"])?;
    Ok(done)
}
