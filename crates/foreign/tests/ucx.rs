//! UCX over verbs: its unreliable transport, which makes connections and acknowledges by itself,
//! and its reliable one, which is set up over the other.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use adverb_foreign::device::loopback;
use adverb_foreign::pair::Pair;
use adverb_foreign::suite::{by_length, case, run};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(90);

/// Tests of `ucx_perftest`, with the sizes to run: through a copy, and by rendezvous or in
/// fragments.
const TESTS: [(&str, &[u32]); 8] = [
    ("tag_lat", &[8, 100_000]),
    ("tag_bw", &[8, 100_000]),
    ("stream_bw", &[8, 100_000]),
    ("ucp_am_lat", &[8, 100_000]),
    ("ucp_put_lat", &[8, 100_000]),
    ("ucp_get", &[8, 100_000]),
    ("ucp_fadd", &[4, 8]),
    ("ucp_cswap", &[8]),
];

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for (name, transports) in [("ud", "ud_verbs,self"), ("rc", "rc_verbs,ud_verbs,self")] {
        for (test, sizes) in TESTS {
            for &size in sizes {
                let what = format!("{name}/{test}/size_{size}");
                cases.push(case(what, move || perftest(transports, test, size)));
            }
        }
    }
    run("ucx", cases)
}

fn perftest(transports: &str, test: &str, size: u32) -> Verdict {
    let port = format!("{}:1", loopback()?.dev);
    let iterations = by_length(1000, 200).to_string();
    let args = ["-t", test, "-s", &size.to_string(), "-n", &iterations, "-w", "10"];
    let pair = Pair::new("ucx_perftest", &args, LIMIT).env("UCX_TLS", transports);
    let outcome = pair.env("UCX_NET_DEVICES", &port).run_ok()?;
    let last = outcome.client.text.lines().find(|line| line.starts_with("Final:"));
    let done = last.and_then(|line| line.split_whitespace().nth(1));
    require!(done == Some(&iterations), "not {iterations} times:\n{}", outcome.describe());
    for end in [&outcome.server, &outcome.client] {
        require!(!end.text.contains(" ERROR ") && !end.text.contains(" WARN "), "{}", outcome.describe());
    }
    Ok(())
}
