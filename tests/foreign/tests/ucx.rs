//! UCX over verbs: its unreliable transport, with connections and acknowledgements of its own; its
//! reliable transport, which is set up over the unreliable one; and endpoints connected by address
//! over librdmacm.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use adverb_foreign::cc::compile_with;
use adverb_foreign::device::loopback;
use adverb_foreign::pair::Pair;
use adverb_foreign::process::{Program, Running, free_port, words};
use adverb_foreign::suite::{by_length, case, run};
use adverb_foreign::{Verdict, require, service};

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
    for path in ["local", "wire"] {
        for (name, api) in [("am", "-A"), ("tag", "")] {
            cases.push(case(format!("RCM-7/{path}/io_demo/{name}"), move || io_demo(api, path)));
        }
        for kind in ["am", "tag", "stream"] {
            cases.push(case(format!("RCM-7/{path}/ucp_client_server/{kind}"), move || example(kind, path)));
        }
    }
    run("ucx", cases)
}

/// One end of programs that connect by address, over librdmacm alone.
fn by_address(line: &str, port: u16, path: &str) -> Program {
    let line = words(line.replace("PORT", &port.to_string()));
    Program::new(&line[0], &line[1..])
        .env("UCX_TLS", "rc_verbs,ud_verbs,self")
        .env("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm")
        .env("ADVERB_PATH", path)
}

/// Starts a server and waits until it listens at a port of librdmacm, which is no TCP port.
fn listening(line: &str, port: u16, path: &str) -> Result<Running, String> {
    let mut server = by_address(line, port, path).start()?;
    service::wait(&mut server, 0x106, port, LIMIT)?;
    Ok(server)
}

/// Blocks are read and written, and the program checks every byte (`-q`).
fn io_demo(api: &str, path: &str) -> Verdict {
    let port = free_port()?;
    let line = format!("io_demo -p PORT -q -d 64:65536 {api}");
    let server = listening(&line, port, path)?;
    let times = by_length(2000, 200);
    let line = format!("{line} -i {times} -o read,write 127.0.0.1");
    let client = by_address(&line, port, path).run(LIMIT)?;
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
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let source = Path::new("/usr/share/doc/libucx-dev/examples/ucp_client_server.c");
        // Foreign source, so its warnings are not errors.
        compile_with(
            "cc",
            &["-w", "-O2", "-Wl,--no-as-needed", "-lucp", "-lucs"],
            source,
            "ucp_client_server",
        )
    };
    let program = BUILT.get_or_init(build).clone()?.display().to_string();
    let port = free_port()?;
    // The output is read while the program runs.
    let mut server = listening(&format!("stdbuf -oL {program} -c {kind} -p PORT"), port, path)?;
    let end = Instant::now() + LIMIT;
    loop {
        let line = format!("{program} -c {kind} -p PORT -a 127.0.0.1");
        by_address(&line, port, path).run(LIMIT)?.require_ok()?;
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
    for end in [&outcome.server, &outcome.client] {
        require!(!end.text.contains(" ERROR ") && !end.text.contains(" WARN "), "{}", outcome.describe());
    }
    Ok(())
}
