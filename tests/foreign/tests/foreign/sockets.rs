//! `adverb run --sockets`: programs of plain sockets and of rsockets over RDMA, within one host and
//! over the wire. The transferred data is verified.

use adverb_foreign::Verdict;
use adverb_foreign::cases::PATHS;
use adverb_foreign::cc::compile;
use adverb_foreign::process::Program;
use adverb_foreign::sockets::{LIMIT, STORES, SocketPath, rcopy, streams};
use adverb_foreign::suite::{Case, by_length, case};

/// The cases of `c/sockets.c`.
const RULES: [&str; 7] = ["waits", "range", "stream", "sets", "handler", "child", "numbers"];
/// From the fourth connection of a process on, Debian's librdmacm 44 reads freed memory; `adverb
/// run` says so. The suite `rsockets` of `make programs` tests more connections, on a newer
/// release.
const CONNECTIONS: usize = 3;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        cases.push(case(format!("SYS-7/{path}/iperf3"), move || {
            SocketPath::distribution(path).iperf3(1, by_length(200, 20))
        }));
        for store in STORES {
            cases.push(case(format!("SYS-7/{path}/{}", store.name), move || {
                SocketPath::distribution(path).store(store, CONNECTIONS)
            }));
        }
        let pair = move |server: &str, client: &str| {
            Ok(SocketPath::distribution(path).pair(server, client))
        };
        for name in ["rstream", "riostream"] {
            cases.push(case(format!("SYS-7/{path}/{name}"), move || {
                streams(&format!("{name} -T b"), &[64, 65536], pair)
            }));
        }
        cases.push(case(format!("SYS-7/{path}/rcopy"), move || rcopy(pair)));
    }
    for rule in RULES {
        cases.push(case(format!("SYS-7/rules/{rule}"), move || rules(rule)));
    }
    cases.push(case("SYS-7/what_it_cannot_go_with_is_said", refused));
    cases
}

/// Waits, closes of descriptors, and sets behave like the kernel's calls.
fn rules(rule: &str) -> Verdict {
    let out = Program::of_file(&compile("sockets")?).arg(rule).flag("--sockets").run(LIMIT)?;
    out.require(out.ok() && out.text.lines().any(|line| line == "ok"))
}

/// `--sockets` needs the preloaded library, through which the distribution's librdmacm works.
fn refused() -> Verdict {
    let out = Program::of_line("true").flag("--sockets").flag("--no-preload").run(LIMIT)?;
    out.require(out.code() == Some(125) && out.text.contains("--no-preload"))
}
