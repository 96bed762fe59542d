//! Ceph's messenger over RDMA (`async+rdma`): one monitor, one OSD, `rados bench` and a compared
//! object.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::suite::{Case, case, short};
use adverb_programs::skips::ignored;
use adverb_programs::stage::{DEVICE, PATHS, Stage};
use adverb_programs::{data_dir, home};

const LIMIT: Duration = Duration::from_secs(300);

pub fn cases() -> Vec<Case> {
    let cases = PATHS.map(|path| {
        let name = format!("{path}/rados");
        if short() {
            ignored(name, "its packages are 200 MB and it wants 4 GiB of memory: make programs")
        } else {
            case(name, move || rados(path))
        }
    });
    cases.into()
}

fn rados(path: &str) -> Verdict {
    let dir = home()?.join(format!("ceph.{path}.{}", std::process::id()));
    let script = data_dir().join("ceph.sh").display().to_string();
    let argv = ["sh", &script, &dir.display().to_string(), "async+rdma", DEVICE, "10"];
    let done = Stage::new(path).run(&argv, LIMIT);
    let _ = std::fs::remove_dir_all(&dir);
    let done = done?;
    done.require_ok()?;
    // The second rate is that of `seq`, which verifies the data.
    let rates: Vec<&str> =
        done.text.lines().filter(|l| l.starts_with("Bandwidth (MB/sec)")).collect();
    println!("ceph {path}: {}", rates.join("; "));
    done.require(rates.len() == 2)?;
    done.require_words(&["ceph: the same bytes"])
}
