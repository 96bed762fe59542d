//! `adverb run --sockets`: programs of plain sockets and of rsockets over RDMA, within one host and
//! over the wire. The transferred data is verified.

use std::time::Duration;

use adverb_foreign::cases::PATHS;
use adverb_foreign::cc::compile;
use adverb_foreign::pair::PairOutcome;
use adverb_foreign::process::{Program, target_dir};
use adverb_foreign::sockets::{LIMIT, SocketPath, Store};
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};

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
        for (name, store) in [("redis", Store::Redis), ("memcached", Store::Memcached)] {
            cases.push(case(format!("SYS-7/{path}/{name}"), move || {
                SocketPath::distribution(path).store(store, CONNECTIONS)
            }));
        }
        cases.push(case(format!("SYS-7/{path}/rstream"), move || stream("rstream", path)));
        cases.push(case(format!("SYS-7/{path}/riostream"), move || stream("riostream", path)));
        cases.push(case(format!("SYS-7/{path}/rcopy"), move || rcopy(path)));
    }
    for rule in RULES {
        cases.push(case(format!("SYS-7/rules/{rule}"), move || rules(rule)));
    }
    cases.push(case("SYS-7/what_it_cannot_go_with_is_said", refused));
    cases
}

/// Streams of rsockets, verified (`-T v`).
fn stream(name: &str, path: &'static str) -> Verdict {
    let way = SocketPath::distribution(path);
    for size in ["64", "65536"] {
        let line = format!("{name} -p PORT -S {size} -I 10 -C 20 -T v -T b");
        let outcome = way.pair(&line, &format!("{line} -s 127.0.0.1")).run_ok()?;
        require!(outcome.client.text.contains("custom"), "{}", outcome.describe());
    }
    Ok(())
}

fn rcopy(path: &'static str) -> Verdict {
    let way = SocketPath::distribution(path);
    let dir = target_dir()?.join("foreign-c");
    let own = format!("{path}.{}", std::process::id());
    let (from, to) =
        (dir.join(format!("sockets.in.{own}")), dir.join(format!("sockets.out.{own}")));
    let bytes: Vec<u8> =
        (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(&from, &bytes))
        .map_err(|e| e.to_string())?;
    let line = format!("rcopy {} 127.0.0.1:{} -p PORT", from.display(), to.display());
    let (mut server, client) = way.pair("rcopy -p PORT", &line).listening()?;
    let client = client.run(LIMIT)?;
    // The server waits for further clients forever.
    server.kill_hard();
    let outcome = PairOutcome { server: server.wait(Duration::from_secs(5)), client };
    let got = std::fs::read(&to).unwrap_or_default();
    let _ = std::fs::remove_file(&to).and(std::fs::remove_file(&from));
    require!(outcome.client.ok() && got == bytes, "{}", outcome.describe());
    Ok(())
}

/// Waits, closes of descriptors, and sets behave like the kernel's calls.
fn rules(rule: &str) -> Verdict {
    let path = compile("sockets")?;
    let out = Program::new(path.to_string_lossy(), &[rule]).flag("--sockets").run(LIMIT)?;
    require!(out.ok() && out.text.lines().any(|line| line == "ok"), "{}", out.describe());
    Ok(())
}

/// `--sockets` needs the preloaded library, through which the distribution's librdmacm works.
fn refused() -> Verdict {
    let out =
        Program::new("true", &[] as &[&str]).flag("--sockets").flag("--no-preload").run(LIMIT)?;
    require!(out.code() == Some(125) && out.text.contains("--no-preload"), "{}", out.describe());
    Ok(())
}
