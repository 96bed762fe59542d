//! Connections by address: many that come and go, some without room, and some with lost MADs.

use std::time::Duration;

use adverb_foreign::cases::{PATHS, rig};
use adverb_foreign::pair::Pair;
use adverb_foreign::process::Program;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(240);
/// About every third MAD meets a fault. The first packets are those of the connection.
const WEATHER: &str = "drop=8%,dup=15%,reorder=15%,delay=2ms±1ms,seed=";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.push(case("UCM-10/nothing_is_left_of_connections", leaks));
    for path in PATHS {
        cases.push(case(format!("UCM-6/{path}/a_full_backlog_is_asked_again"), move || {
            backlog(path)
        }));
    }
    for seed in 1..=2 {
        cases.push(case(format!("UCM-10/bad_weather_{seed}/rping"), move || {
            weather(seed, "rping -s -a ADDR -p PORT -C 20 -v", "rping -c -a ADDR -p PORT -C 20 -v")
        }));
    }
    cases.push(case("UCM-10/bad_weather_3/ucmatose", || {
        weather(3, "ucmatose -b ADDR -p PORT -c 30", "ucmatose -s ADDR -p PORT -c 30")
    }));
    cases
}

fn many(args: &[&str]) -> Result<Program, String> {
    rig("cm_many", &["-lrdmacm"], args)
}

/// The first connections outnumber the resting handles. In a full run (`ADVERB_CONNECTIONS=1`) they
/// outnumber the queue pair numbers of a slot.
fn leaks() -> Verdict {
    let full = std::env::var_os("ADVERB_CONNECTIONS").is_some();
    let (warm, count) = if full { ("17000", "10000") } else { ("4500", "500") };
    many(&["leaks", warm, count])?
        .env("ADVERB_PATH", "local")
        .run_ok(LIMIT)?
        .require_words(&["ok leaks"])
}

fn backlog(path: &str) -> Verdict {
    many(&["backlog"])?
        .env("ADVERB_PATH", path)
        .run_ok(LIMIT)?
        .require_words(&["ok backlog", "4 waited"])
}

/// A program of rdmacm-utils succeeds at both ends, with any faults of MADs and messages.
fn weather(seed: u32, server: &str, client: &str) -> Verdict {
    let end = |line: &str| {
        let line = line.replace("ADDR", "127.0.0.1");
        Program::of_line(&line)
            .option("--fault", format!("{WEATHER}{seed}"))
            .env("ADVERB_LOG", "info")
    };
    let outcome = Pair::by_address(end(server), end(client), LIMIT).run_ok()?;
    let injected = outcome.client.text.contains(" fault_drop=");
    require!(injected, "nothing was injected: {}", outcome.describe());
    Ok(())
}
