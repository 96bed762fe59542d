//! UCX over verbs: its unreliable transport, with connections and acknowledgements of its own; its
//! reliable transport, which is set up over the unreliable one; and endpoints connected by address
//! over librdmacm.

use std::path::Path;
use std::time::{Duration, Instant};

use adverb_foreign::cases::PATHS;
use adverb_foreign::cc::compile_with;
use adverb_foreign::device::loopback;
use adverb_foreign::pair::Pair;
use adverb_foreign::process::Program;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(90);

/// Tests of `ucx_perftest` and their sizes: the small size is copied, the large one goes by
/// rendezvous or in fragments.
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

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, transports) in [("ud", "ud_verbs,self"), ("rc", "rc_verbs,ud_verbs,self")] {
        for (test, sizes) in TESTS {
            for &size in sizes {
                let what = format!("{name}/{test}/size_{size}");
                cases.push(case(what, move || perftest(transports, test, size)));
            }
        }
    }
    for path in PATHS {
        for (name, api) in [("am", "-A"), ("tag", "")] {
            cases.push(
                case(format!("RCM-7/{path}/io_demo/{name}"), move || io_demo(api, path)).once(),
            );
        }
        for kind in ["am", "tag", "stream"] {
            let name = format!("RCM-7/{path}/ucp_client_server/{kind}");
            cases.push(case(name, move || example(kind, path)).once());
        }
    }
    cases
}

/// One end of programs that connect by address, over librdmacm alone.
fn by_address(line: &str, path: &str) -> Program {
    Program::of_line(line)
        .env("UCX_TLS", "rc_verbs,ud_verbs,self")
        .env("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm")
        .env("ADVERB_PATH", path)
}

/// Blocks are read and written, and the program checks every byte (`-q`).
fn io_demo(api: &str, path: &str) -> Verdict {
    let line = format!("io_demo -p PORT -q -d 64:65536 {api}");
    let times = by_length(2000, 200);
    let client = by_address(&format!("{line} -i {times} -o read,write 127.0.0.1"), path);
    let (server, client) = Pair::by_address(by_address(&line, path), client, LIMIT).listening()?;
    let client = client.run(LIMIT)?;
    let both = || format!("{}\nserver:\n{}", client.describe(), server.text());
    require!(client.ok() && client.text.contains("Client exit with status 'OK'"), "{}", both());
    // The program prints a line each second.
    let of_line = |line: &str| {
        let (_, rest) = line.split_once("[DEMO] total ")?.1.split_once(" total:")?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    let done: u64 = client.text.lines().filter_map(of_line).sum();
    require!(done == times, "{done} times, not {times}: {}", both());
    for text in [&client.text, &server.text()] {
        require!(!text.contains("ERROR") && !text.contains("corrupt"), "{}", both());
    }
    Ok(())
}

/// The example of UCX: a message from the client, which the server prints.
fn example(kind: &str, path: &str) -> Verdict {
    let source = Path::new("/usr/share/doc/libucx-dev/examples/ucp_client_server.c");
    // Foreign source, so its warnings are not errors.
    let flags = ["-w", "-O2", "-Wl,--no-as-needed", "-lucp", "-lucs"];
    let program = compile_with("cc", &flags, source, "ucp_client_server")?.display().to_string();
    // The output is read while the program runs.
    let server = by_address(&format!("stdbuf -oL {program} -c {kind} -p PORT"), path);
    let client = by_address(&format!("{program} -c {kind} -p PORT -a 127.0.0.1"), path);
    let (mut server, client) = Pair::by_address(server, client, LIMIT).listening()?;
    let end = Instant::now() + LIMIT;
    loop {
        client.run(LIMIT)?.require_ok()?;
        // The client closes as soon as its message has left. The server may notice this before its
        // read, over TCP as well.
        if server.wait_for_text("UCP TEST SUCCESS", Duration::from_millis(500)).is_ok() {
            return Ok(());
        }
        require!(!server.ended() && Instant::now() < end, "nothing arrived: {}", server.text());
    }
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
    outcome.require_of_both(&[], &[" ERROR ", " WARN "])
}
