//! Programs of plain sockets with many connections, over the rsockets of a newer rdma-core than
//! Debian's. From the fourth connection of a process on, rsockets of release 44 read freed memory.

use std::path::PathBuf;

use adverb_foreign::Verdict;
use adverb_foreign::sockets::{STORES, SocketPath};
use adverb_foreign::suite::{Case, by_length, case};
use adverb_programs::fetch;
use adverb_programs::stage::PATHS;

/// The release of rdma-core.
const VERSION: &str = "59.0";
const STREAMS: usize = 8;

/// PyPI is out of reach from a separate namespace, so the build comes first.
pub fn before() -> Verdict {
    built().map(drop).map_err(|why| format!("rdma-core {VERSION} cannot be built: {why}"))
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        cases.push(case(format!("{path}/iperf3"), move || {
            SocketPath::directory(path, &built()?).iperf3(STREAMS, by_length(400, 40))
        }));
        for store in STORES {
            cases.push(case(format!("{path}/{}", store.name), move || {
                SocketPath::directory(path, &built()?).store(store, by_length(40, 8))
            }));
        }
    }
    cases
}

/// `librdmacm.so.1` and `librspreload.so` of this release, from PyPI's source archive of pyverbs,
/// which contains all of rdma-core.
fn built() -> Result<PathBuf, String> {
    let made = fetch::once("rsockets", |dir| {
        let source = fetch::sdist(dir, "pyverbs", VERSION)?;
        let script = r#"
            cmake -S "$1/rdma-core" -B build -DNO_MAN_PAGES=1 -DNO_PYVERBS=1 -DCMAKE_SKIP_RPATH=ON
            make -C build -j2 rdmacm rspreload
        "#;
        fetch::sh(dir, script, &[&source.display().to_string()]).map(|_| ())
    })?;
    Ok(made.join("build/lib"))
}
