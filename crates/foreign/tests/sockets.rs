//! `adverb run --sockets`: programs of plain sockets, and those of rsockets, over RDMA, on one host
//! and by the wire. What they send is looked at.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::process::{Finished, Program, Running, free_port, listens, target_dir, words};
use adverb_foreign::suite::{by_length, case, run_on_own_paths};
use adverb_foreign::{Verdict, require, service};

const LIMIT: Duration = Duration::from_secs(90);
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
const PATHS: [&str; 2] = ["local", "wire"];
/// What `c/sockets.c` looks at.
const RULES: [&str; 7] = ["waits", "range", "stream", "sets", "handler", "child", "numbers"];
/// The port space of connections.
const TCP: u64 = 0x106;

fn main() -> ExitCode {
    adverb_foreign::alone::be_alone();
    let mut cases = Vec::new();
    for path in PATHS {
        cases.push(case(format!("SYS-7/{path}/iperf3"), move || iperf3(path)));
        cases.push(case(format!("SYS-7/{path}/redis"), move || {
            let server = "redis-server --save --bind 127.0.0.1 --port PORT --appendonly no";
            store("redis", server, path)
        }));
        cases.push(case(format!("SYS-7/{path}/memcached"), move || {
            store("memcached", "memcached -u root -l 127.0.0.1 -p PORT -U 0 -t 2 -I 2m", path)
        }));
        cases.push(case(format!("SYS-7/{path}/rstream"), move || stream("rstream", path)));
        cases.push(case(format!("SYS-7/{path}/riostream"), move || stream("riostream", path)));
        cases.push(case(format!("SYS-7/{path}/rcopy"), move || rcopy(path)));
    }
    for rule in RULES {
        cases.push(case(format!("SYS-7/rules/{rule}"), move || rules(rule)));
    }
    cases.push(case("SYS-7/what_it_cannot_go_with_is_said", refused));
    run_on_own_paths("sockets", cases)
}

fn program(line: &str, port: u16, path: &str) -> Program {
    let line = words(line.replace("PORT", &port.to_string()));
    Program::new(&line[0], &line[1..]).flag("--sockets").env("ADVERB_PATH", path)
}

/// A server that listens by the connection manager, and not by TCP.
fn listening(line: &str, port: u16, path: &str) -> Result<Running, String> {
    let mut server = program(line, port, path).start()?;
    service::wait(&mut server, TCP, port, LISTEN_LIMIT)?;
    require!(!listens(port), "it listens by TCP: {}", server.text());
    Ok(server)
}

fn both(server: &Finished, client: &Finished) -> String {
    format!("client: {}\nserver: {}", client.describe(), server.describe())
}

/// What of a stream iperf3's server may leave: it reads no more when the other connection says that
/// the test is over.
const UNREAD: u64 = 1 << 20;

/// What the client sent came to the server, by the words of both.
fn iperf3(path: &str) -> Verdict {
    let port = free_port()?;
    let mib = by_length(200, 20);
    let server = listening("iperf3 -s -1 -B 127.0.0.1 -p PORT", port, path)?;
    let client = program(&format!("iperf3 -J -c 127.0.0.1 -p PORT -n {mib}M"), port, path).run(LIMIT)?;
    let server = server.wait(if client.ok() { LIMIT } else { Duration::from_secs(2) });
    require!(client.ok() && server.ok(), "{}", both(&server, &client));
    let got = client.text.split_once("\"sum_received\"").and_then(|(_, rest)| rest.split_once("\"bytes\":"));
    let got = got.and_then(|(_, rest)| rest.split(',').next()?.trim().parse::<u64>().ok());
    require!(got >= Some((mib << 20) - UNREAD), "{got:?} bytes came: {}", both(&server, &client));
    Ok(())
}

/// A store gives back what was put into it, by several connections at once.
fn store(kind: &str, server: &str, path: &str) -> Verdict {
    let port = free_port()?;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/sockets_store.py");
    let mut server = listening(server, port, path)?;
    let client = program(&format!("python3 {} {kind} PORT", script.display()), port, path).run(LIMIT)?;
    // It serves until it is told to end, which it does in order: it hears of the signal at the end
    // of a wait.
    if client.ok() {
        let told = Command::new("kill").args(["-TERM", &server.pid().to_string()]).status();
        require!(told.is_ok_and(|status| status.success()), "no signal: {}", server.text());
    } else {
        server.kill_hard();
    }
    let server = server.wait(LIMIT);
    require!(server.ok(), "{}", both(&server, &client));
    require!(client.ok() && client.text.contains("ok "), "{}", both(&server, &client));
    Ok(())
}

/// Streams of rsockets themselves, verified (`-T v`).
fn stream(name: &str, path: &str) -> Verdict {
    for size in ["64", "65536"] {
        let port = free_port()?;
        let line = format!("{name} -p PORT -S {size} -I 10 -C 20 -T v -T b");
        let server = listening(&line, port, path)?;
        let client = program(&format!("{line} -s 127.0.0.1"), port, path).run(LIMIT)?;
        let server = server.wait(if client.ok() { LIMIT } else { Duration::from_secs(2) });
        require!(client.ok() && server.ok(), "{}", both(&server, &client));
        require!(client.text.contains("custom"), "{}", both(&server, &client));
    }
    Ok(())
}

fn rcopy(path: &str) -> Verdict {
    let dir = target_dir()?.join("foreign-c");
    let own = format!("{path}.{}", std::process::id());
    let (from, to) = (dir.join(format!("sockets.in.{own}")), dir.join(format!("sockets.out.{own}")));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&from, &bytes)).map_err(|e| e.to_string())?;
    let port = free_port()?;
    let mut server = listening("rcopy -p PORT", port, path)?;
    let line = format!("rcopy {} 127.0.0.1:{} -p PORT", from.display(), to.display());
    let client = program(&line, port, path).run(LIMIT)?;
    // It waits for the next client for ever.
    server.kill_hard();
    let server = server.wait(Duration::from_secs(5));
    let got = std::fs::read(&to).unwrap_or_default();
    let _ = std::fs::remove_file(&to).and(std::fs::remove_file(&from));
    require!(client.ok() && got == bytes, "{}", both(&server, &client));
    Ok(())
}

/// Waits, ends of descriptors and sets, as the kernel's calls have them.
fn rules(rule: &str) -> Verdict {
    let path = compile("sockets")?;
    let out = Program::new(path.to_string_lossy(), &[rule]).flag("--sockets").run(LIMIT)?;
    require!(out.ok() && out.text.lines().any(|line| line == "ok"), "{}", out.describe());
    Ok(())
}

/// The preloaded library is what the distribution's librdmacm speaks with.
fn refused() -> Verdict {
    let out = Program::new("true", &[] as &[&str]).flag("--sockets").flag("--no-preload").run(LIMIT)?;
    require!(out.code() == Some(125) && out.text.contains("--no-preload"), "{}", out.describe());
    Ok(())
}
