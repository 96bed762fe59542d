//! qperf with connections by the connection manager (`-cm 1`), which it supports for its RC tests:
//! the figures of both ends, and verified atomics. The other tests make queue pairs and address
//! handles without a GRH, which no RoCE device accepts.

use std::time::Duration;

use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};
use adverb_programs::stage::{PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(60);

/// All tests of RC.
const ALL: &[&str] = &[
    "rc_lat",
    "rc_bw",
    "rc_bi_bw",
    "rc_rdma_read_lat",
    "rc_rdma_read_bw",
    "rc_rdma_write_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_poll_lat",
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
];
const FEW: &[&str] =
    &["rc_lat", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_write_poll_lat", "ver_rc_fetch_add"];

/// Tests without a GRH, and their error messages.
const WITHOUT_GRH: [(&str, &str); 3] = [
    ("uc_lat", "failed to modify QP to RTR: Invalid argument"),
    ("uc_rdma_write_bw", "failed to modify QP to RTR: Invalid argument"),
    ("ud_lat", "failed to create address handle: Invalid argument"),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for test in by_length(ALL, FEW) {
            cases.push(case(format!("{path}/{test}"), move || measured(path, test)));
        }
        for (test, words) in WITHOUT_GRH {
            cases.push(case(format!("{path}/without_grh/{test}"), move || {
                refused(path, test, words)
            }));
        }
    }
    cases
}

/// Runs a server, and a client with this test for a second. Returns the client's exit status and
/// the output of both.
fn pair(path: &str, test: &str) -> Result<(String, String), String> {
    // Port 19765 in hexadecimal. The server listens on IPv6 if the machine has IPv6.
    let script = format!(
        "qperf & server=$!
         n=0; until grep -q ':4D35 0*:0000 0A ' /proc/net/tcp /proc/net/tcp6 || [ $n -ge 100 ]; do n=$((n + 1)); sleep 0.1; done
         timeout 40 qperf 127.0.0.1 -cm 1 -t 1 -vvs -uu {test}; echo \"client $?\"
         kill -0 $server && echo 'the server lives'; kill $server; wait $server 2>/dev/null || :"
    );
    let done = Stage::new(path).run_ok(&["sh", "-c", &script], LIMIT)?;
    let status =
        done.text.lines().find_map(|l| l.strip_prefix("client ")).unwrap_or("none").to_string();
    done.require_words(&["the server lives"])?;
    Ok((status, done.describe()))
}

/// Lines `name = figure unit` of a report; figures have commas.
fn figures(text: &str) -> Vec<(&str, f64)> {
    text.lines()
        .filter_map(|l| {
            let (name, value) = l.split_once(" = ")?;
            let figure = value.split_whitespace().next()?.replace(',', "").parse().ok()?;
            Some((name.trim(), figure))
        })
        .collect()
}

fn measured(path: &str, test: &str) -> Verdict {
    let (status, text) = pair(path, test)?;
    require!(status == "0", "{text}");
    let found = figures(&text);
    let of = |name: &str| found.iter().find(|(n, _)| *n == name).map(|(_, f)| *f);
    require!(of("msg_rate").is_some_and(|rate| rate > 0.0), "no rate: {text}");
    // Figures of one side alone have no prefix.
    let each = ["send_bytes", "recv_bytes", "send_msgs", "recv_msgs"];
    let both = each
        .map(|n| of(n).or_else(|| Some(of(&format!("loc_{n}"))?.min(of(&format!("rem_{n}"))?))));
    require!(both.iter().all(|f| f.is_some_and(|f| f > 0.0)), "nothing came over: {text}");
    let errors = found.iter().any(|(name, _)| name.contains("err"));
    let complains = ["failed", "mismatch", "warning", "timed out"].iter().any(|w| text.contains(w));
    require!(!errors && !complains, "{text}");
    let shown: Vec<String> = ["latency", "bw", "msg_rate"]
        .iter()
        .filter_map(|n| text.lines().find(|l| l.trim_start().starts_with(&format!("{n} "))))
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    println!("qperf {path} {test}: {}", shown.join(", "));
    Ok(())
}

/// As on a NIC, the call fails with EINVAL. The message and the client's status show this.
fn refused(path: &str, test: &str, words: &str) -> Verdict {
    let (status, text) = pair(path, test)?;
    require!(status == "1" && text.contains(words), "{text}");
    Ok(())
}
