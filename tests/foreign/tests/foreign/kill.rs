//! A program killed in mid-traffic: the errors of its peer, and the remains.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use adverb_foreign::cases::rig;
use adverb_foreign::device::on_loopback;
use adverb_foreign::pair::{Pair, PairOutcome};
use adverb_foreign::process::{Finished, Program, Running, adverb, free_port, group_exists};
use adverb_foreign::scratch::Scratch;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(60);
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
/// Work requests posted by c/peer.c at a time, and receives.
const DEPTH: u32 = 32;
/// Number of deaths, one of which must be noticed in time.
const TRIES: usize = 5;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in ["write", "send", "read"] {
        cases.push(case(format!("peer_gets_retry_exceeded/{op}"), move || {
            peer_of_the_killed(op, 14, 7)
        }));
    }
    cases.push(case("peer_gets_retry_exceeded/short_timer", || peer_of_the_killed("write", 10, 1)));
    cases.push(case("nothing_is_left_and_the_next_program_runs/server", || killed(true)));
    cases.push(case("nothing_is_left_and_the_next_program_runs/client", || killed(false)));
    cases.push(case("bystanders_go_on", bystanders));
    // Only root may become another user.
    cases.push(case("second_user_works_or_is_told_why", second_user).ignored_if(!is_root()));
    cases
}

/// True for root of the machine, with the right to become any user. A user namespace with a single
/// user has no other user.
fn is_root() -> bool {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let root = |l: &str| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0");
    let users =
        read("/proc/self/uid_map").split_whitespace().nth(2).and_then(|n| n.parse::<u64>().ok());
    read("/proc/self/status").lines().any(root) && users.is_some_and(|n| n > 1)
}

/// The number after `key=` in the line that starts with END.
fn figure(out: &Finished, key: &str) -> Result<f64, String> {
    out.text
        .lines()
        .find(|l| l.starts_with("END "))
        .and_then(|l| {
            l.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
        })
        .ok_or_else(|| format!("no {key}= in the report:\n{}", out.describe()))
}

/// The timers must hold in one of a few deaths, because a machine that does not schedule the peer
/// makes any of them late.
fn peer_of_the_killed(op: &str, timeout: u32, retry: u32) -> Verdict {
    // C9-141 of the IB specification: the timer is 4.096 µs × 2^timeout, and may run up to four
    // times as long. A request may fail earlier if the peer's death is noticed. Scheduling on a
    // busy machine gets half a second.
    let bound = 4.096e-6 * f64::from(1 << timeout) * f64::from(retry + 1) * 4.0 + 0.5;
    let mut took = Vec::new();
    for _ in 0..TRIES {
        let after = one_death(op, timeout, retry)?;
        if after <= bound {
            return Ok(());
        }
        took.push(after);
    }
    Err(format!("failed after {took:?} s, bound {bound} s"))
}

/// Seconds from the last success of the peer to its first error.
fn one_death(op: &str, timeout: u32, retry: u32) -> Result<f64, String> {
    let port = free_port()?.to_string();
    let (t, r) = (timeout.to_string(), retry.to_string());
    let args = ["-p", &port, "-t", &t, "-r", &r, "-o", op];
    let side = rig("peer", &[], &args)?;
    let mut victim = side.start()?;
    victim.wait_for_listener(port.parse().map_err(|e| format!("{e}"))?, LIMIT)?;
    let mut peer = side.arg("localhost").start()?;
    peer.wait_for_text("RUNNING", LIMIT)?;
    victim.kill_hard();
    let out = peer.wait(LIMIT).passed()?;
    let status = figure(&out, "status")?;
    require!(
        status == 12.0,
        "first error {status}, expected 12 (IBV_WC_RETRY_EXC_ERR)\n{}",
        out.describe()
    );
    let (posted, good, flushed) =
        (figure(&out, "posted")?, figure(&out, "good")?, figure(&out, "flushed")?);
    require!(posted == good + 1.0 + flushed, "requests without a completion\n{}", out.describe());
    out.require(good >= 200.0 && flushed <= f64::from(DEPTH))?;
    let receives = figure(&out, "recv_flushed")?;
    require!(
        receives == f64::from(DEPTH),
        "{receives} of {DEPTH} receives flushed\n{}",
        out.describe()
    );
    require!(
        figure(&out, "state")? == 6.0,
        "the queue pair is not in the error state\n{}",
        out.describe()
    );
    figure(&out, "after")
}

/// Kills one side of a perftest pair in mid-traffic. The other side must end by itself, with an
/// error.
fn kill_one_side(kill_server: bool) -> Verdict {
    let port = free_port()?;
    let args = on_loopback("-x", &format!("-F -p {port} -D 20 -s 65536"))?;
    let mut server = Program::new("ib_send_bw", &args).start()?;
    server.wait_for_listener(port, LIMIT)?;
    let mut client = Program::new("ib_send_bw", &args).arg("127.0.0.1").start()?;
    // Output of perftest to a pipe comes only at its end, so the test waits long enough for the
    // connection and the start.
    std::thread::sleep(Duration::from_secs(3));
    require!(
        !server.ended() && !client.ended(),
        "the pair ended early:\n{}\n{}",
        server.text(),
        client.text()
    );
    let (mut dead, alive) = if kill_server { (server, client) } else { (client, server) };
    let group = dead.pid();
    dead.kill_hard();
    require!(!group_exists(group), "processes of the killed side are left");
    if kill_server {
        let out = alive.wait(LIMIT);
        require!(!out.timed_out, "the client hangs without its server:\n{}", out.describe());
        require!(out.code() != Some(0), "the client saw no error:\n{}", out.describe());
    } else {
        // A receiver gets no packet and so no error: perftest's server may wait forever, on any
        // hardware.
        drop(alive);
    }
    Ok(())
}

fn killed(kill_server: bool) -> Verdict {
    let before = traces();
    kill_one_side(kill_server)?;
    // At once, on the same RoCE v2 port.
    next_program()?;
    let end = Instant::now() + LIMIT;
    loop {
        let left: Vec<_> = traces().difference(&before).cloned().collect();
        if left.is_empty() {
            return Ok(());
        }
        require!(Instant::now() < end, "left behind: {left:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn next_program() -> Verdict {
    let args = on_loopback("-g", "-c -n 1000")?;
    Pair::new("ibv_rc_pingpong", &args, LIMIT).run_ok().map(drop)
}

/// Possible remains of Adverb on the machine: files in /dev/shm and the run-time directory, Unix
/// sockets, UDP sockets.
fn traces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(Path::new("/dev/shm"), &mut found);
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR") {
        walk(&PathBuf::from(dir), &mut found);
    }
    for line in std::fs::read_to_string("/proc/net/unix").unwrap_or_default().lines() {
        if let Some(path) = line.split_whitespace().nth(7).filter(|p| p.contains("adverb")) {
            found.insert(format!("unix socket {path}"));
        }
    }
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines() {
            if let Some(local) = line.split_whitespace().nth(1).filter(|l| l.ends_with(":12B7")) {
                found.insert(format!("{table} {local}"));
            }
        }
    }
    found
}

fn walk(dir: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        // Empty directories stay for the next process. Only files in them count.
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            walk(&path, found);
        } else if path.display().to_string().contains("adverb") {
            found.insert(path.display().to_string());
        }
    }
}

/// Pairs of other processes on the same port do not notice that a process was killed.
fn bystanders() -> Verdict {
    let args = on_loopback("-x", "-F -D 6 -f 1 -s 4096")?;
    let other =
        std::thread::spawn(move || Pair::new("ib_write_bw", &args, LIMIT).run_ok().map(drop));
    std::thread::sleep(Duration::from_secs(1));
    let killed = kill_one_side(true);
    let other = other.join().map_err(|_| "panicked".to_string())?;
    killed?;
    other.map_err(|e| format!("a pair that had nothing to do with the killed one: {e}"))
}

/// A second user on the same host, while programs of the first user run. The second user's program
/// either works, or names the obstacle.
fn second_user() -> Verdict {
    // Installed in a place that every user can read, so this also tests the installed tree.
    let shared = Scratch::below(Path::new("/var/tmp"), "installed")?;
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let build = adverb()?.parent().ok_or("no build directory")?.display().to_string();
    let line = format!("make -C {top} install PREFIX=/opt/adverb DESTDIR={}", shared.path(""));
    Program::of_line(&line).arg(format!("BUILD={build}")).bare().run_ok(INSTALL_LIMIT)?;
    let installed = shared.path("opt/adverb/bin/adverb");

    let port = free_port()?;
    let mine = on_loopback("-g", &format!("-p {port} -n 1000 -c"))?;
    let mut holder: Running = Program::new("ibv_rc_pingpong", &mine).start()?;
    holder.wait_for_listener(port, LIMIT)?;

    let other_port = free_port()?;
    let other = on_loopback("-g", &format!("-n 1000 -c -p {other_port}"))?.join(" ");
    let as_nobody = |extra: &[&str]| {
        let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
        let line = format!("{user} {installed} run -- ibv_rc_pingpong {other}");
        Program::of_line(&line).args(extra).bare()
    };
    let mut server = as_nobody(&[]).start()?;
    match server.wait_for_listener(other_port, LIMIT) {
        Ok(()) => {
            let client = as_nobody(&["127.0.0.1"]).run(LIMIT)?;
            let server = server.wait(LIMIT);
            let good = client.ok() && server.ok() || told(&client) || told(&server);
            PairOutcome { server, client }.require(good)?;
        }
        Err(why) => {
            let out = server.wait(Duration::ZERO);
            require!(out.code().is_some_and(|c| c != 0) && told(&out), "{why}\n{}", out.describe());
        }
    }
    // The first user's program must not be affected.
    Program::new("ibv_rc_pingpong", &mine).arg("127.0.0.1").run_ok(LIMIT)?;
    holder.wait(LIMIT).require_ok()
}

/// Whether the message names the cause: the port, and its use by another user.
fn told(out: &Finished) -> bool {
    out.text.contains("4791") && out.text.contains("user")
}
