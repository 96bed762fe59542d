//! Connections by address: many that come and go, some without room, and some with lost MADs.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::cc::compile_linked;
use adverb_foreign::process::{Program, free_port, words};
use adverb_foreign::suite::{case, run_on_own_paths};
use adverb_foreign::{Verdict, require, service};

const LIMIT: Duration = Duration::from_secs(240);
const PATHS: [&str; 2] = ["local", "wire"];
/// About every third MAD meets a fault. The first packets are those of the connection.
const WEATHER: &str = "drop=8%,dup=15%,reorder=15%,delay=2ms±1ms,seed=";
/// The port space of connections.
const TCP: u64 = 0x106;
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut cases = Vec::new();
    cases.push(case("UCM-10/nothing_is_left_of_connections", leaks));
    for path in PATHS {
        cases.push(case(format!("UCM-6/{path}/a_full_backlog_is_asked_again"), move || backlog(path)));
    }
    for seed in 1..=2 {
        cases.push(case(format!("UCM-10/bad_weather_{seed}/rping"), move || {
            weather(seed, "rping -s -a ADDR -p PORT -C 20 -v", "rping -c -a ADDR -p PORT -C 20 -v")
        }));
    }
    cases.push(case("UCM-10/bad_weather_3/ucmatose", || {
        weather(3, "ucmatose -b ADDR -p PORT -c 30", "ucmatose -s ADDR -p PORT -c 30")
    }));
    run_on_own_paths("connections", cases)
}

fn many() -> Result<String, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| compile_linked("cm_many", &["-lrdmacm"])).clone()?;
    Ok(built.display().to_string())
}

/// The first connections outnumber the resting handles. In a full run (`ADVERB_CONNECTIONS=1`) they
/// outnumber the queue pair numbers of a slot.
fn leaks() -> Verdict {
    let full = std::env::var_os("ADVERB_CONNECTIONS").is_some();
    let (warm, count) = if full { ("17000", "10000") } else { ("4500", "500") };
    let out = Program::new(many()?, &["leaks", warm, count]).env("ADVERB_PATH", "local").run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains("ok leaks"), "{}", out.describe());
    Ok(())
}

fn backlog(path: &str) -> Verdict {
    let out = Program::new(many()?, &["backlog"]).env("ADVERB_PATH", path).run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains("ok backlog") && out.text.contains("4 waited"), "{}", out.describe());
    Ok(())
}

/// A program of rdmacm-utils succeeds at both ends, with any faults of MADs and messages.
fn weather(seed: u32, server: &str, client: &str) -> Verdict {
    let port = free_port()?;
    let end = |line: &str| {
        let line = words(line.replace("ADDR", "127.0.0.1").replace("PORT", &port.to_string()));
        let fault = format!("{WEATHER}{seed}");
        Program::new(&line[0], &line[1..]).option("--fault", fault).env("ADVERB_LOG", "info")
    };
    let mut server = end(server).start()?;
    service::wait(&mut server, TCP, port, LISTEN_LIMIT)?;
    let client = end(client).start()?.wait(LIMIT);
    let server = server.wait(if client.ok() { LIMIT } else { Duration::from_secs(2) });
    let both = || format!("{}\n{}", client.describe(), server.describe());
    require!(client.ok() && server.ok(), "{}", both());
    require!(client.text.contains(" fault_drop="), "nothing was injected: {}", both());
    Ok(())
}
