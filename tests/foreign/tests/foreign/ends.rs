//! A peer killed in each state of a connection: the events of a program of librdmacm, on one host
//! (both paths) and on two. The events and their numbers are those of Linux.

use std::process::Command;
use std::time::Duration;

use adverb_foreign::cases::PATHS;
use adverb_foreign::cc::compile_linked;
use adverb_foreign::hosts::two_hosts;
use adverb_foreign::process::{Finished, Program, Running, free_port};
use adverb_foreign::suite::{Case, case, short};
use adverb_foreign::{Verdict, require};

/// Time limit of a case, including the longest wait of the protocol.
const LIMIT: Duration = Duration::from_secs(200);

/// A state, the end to kill in this state, and the events of the other end on one host and on two.
struct Row {
    stage: &'static str,
    killed: &'static str,
    /// Alternatives.
    heard: [&'static [&'static str]; 2],
}

/// 28: the peer refused, which a kernel does for a dead process. 4: the peer gave up waiting. 8: no
/// process listens. 6: a process beside the dead one does not know the connection. A void request
/// has no attributes for a queue pair and cannot be accepted (EINVAL, 22). On two hosts the event
/// may come after the program has gone on.
const ROWS: [Row; 9] = [
    Row { stage: "resolved", killed: "server", heard: [NOBODY, NOBODY] },
    Row { stage: "asked", killed: "server", heard: [REFUSED, REFUSED] },
    Row {
        stage: "asked",
        killed: "client",
        heard: [VOID, &["create_qp 22", "accept 22", "RDMA_CM_EVENT_REJECTED 4"]],
    },
    // On one host the lookup is sent again before the death is known.
    Row {
        stage: "lookup",
        killed: "server",
        heard: [&["RDMA_CM_EVENT_UNREACHABLE 1"], &["RDMA_CM_EVENT_UNREACHABLE 2"]],
    },
    Row {
        stage: "answered",
        killed: "server",
        heard: [
            FAILED,
            &[
                "RDMA_CM_EVENT_CONNECT_ERROR -22",
                "RDMA_CM_EVENT_REJECTED 28",
                "RDMA_CM_EVENT_REJECTED 6",
            ],
        ],
    },
    Row { stage: "answered", killed: "client", heard: [REFUSED, REFUSED] },
    Row { stage: "established", killed: "server", heard: [OVER, OVER] },
    Row { stage: "established", killed: "client", heard: [OVER, OVER] },
    Row { stage: "disconnecting", killed: "server", heard: [OVER, OVER] },
];
const VOID: &[&str] = &["create_qp 22"];
const NOBODY: &[&str] = &["RDMA_CM_EVENT_REJECTED 8"];
const REFUSED: &[&str] = &["RDMA_CM_EVENT_REJECTED 28"];
const FAILED: &[&str] = &["RDMA_CM_EVENT_CONNECT_ERROR -22"];
/// On one host, for a server that has answered: the client went on before the event came.
const LATE: &[&str] = &["RDMA_CM_EVENT_DISCONNECTED 0", "RDMA_CM_EVENT_REJECTED 6"];
const TRIES: u32 = 5;
const OVER: &[&str] = &["RDMA_CM_EVENT_DISCONNECTED 0"];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for row in ROWS {
        let Row { stage, killed, heard } = row;
        for path in PATHS {
            let name = format!("RCM-11/{path}/{stage}/the_{killed}_is_killed");
            cases.push(case(name, move || one_host(stage, killed, heard[0], path)));
        }
        let name = format!("RCM-11/two_hosts/{stage}/the_{killed}_is_killed");
        cases.push(case(name, move || hosts(stage, killed, heard[1], "beside")));
    }
    if !short() {
        // The whole time of the protocol: 16 times 4.8 s.
        let silence = &["RDMA_CM_EVENT_UNREACHABLE -110"];
        let name = "RCM-11/two_hosts/resolved/nobody_is_left_on_the_servers_host";
        cases.push(case(name, move || hosts("resolved", "server", silence, "alone")));
    }
    cases
}

fn built() -> Result<String, String> {
    Ok(compile_linked("cm_end", &["-lrdmacm"])?.display().to_string())
}

fn signal(to: &Running, name: &str) -> Verdict {
    let line = ["-s", name, &to.pid().to_string()];
    let sent = Command::new("kill").args(line).status().map_err(|e| format!("kill: {e}"))?;
    if sent.success() { Ok(()) } else { Err(format!("SIG{name} was not sent")) }
}

/// Runs one case on one host. The client of a killed server may continue before the event about the
/// death arrives. Then it establishes the dead connection and reports an event of [`LATE`] instead.
/// In that case the test repeats, up to `TRIES` times, until the expected event comes.
fn one_host(stage: &str, killed: &str, heard: &[&str], path: &str) -> Verdict {
    let says = |out: &Finished, what: &[&str]| {
        what.iter().any(|h| out.text.contains(&format!("HEARD {h}\n")))
    };
    let mut tries = 0;
    loop {
        let out = one_death(stage, killed, path)?;
        if says(&out, heard) {
            return Ok(());
        }
        tries += 1;
        let late = (stage, killed) == ("answered", "server") && says(&out, LATE);
        out.require(late && tries < TRIES)?;
    }
}

/// Kills one end and returns the output of the other.
fn one_death(stage: &str, killed: &str, path: &str) -> Result<Finished, String> {
    let port = free_port()?.to_string();
    let program = built()?;
    let end = |side: &str| {
        let role = if side == killed { "dies" } else { "hears" };
        let args = [side, stage, role, "127.0.0.1", &port];
        Program::new(program.clone(), &args).env("ADVERB_PATH", path).start()
    };
    let mut server = end("server")?;
    server.wait_for_text("LISTENING", LIMIT)?;
    let mut client = end("client")?;
    server.wait_for_text("READY", LIMIT)?;
    client.wait_for_text("READY", LIMIT)?;
    let (mut dead, mut alive) =
        if killed == "server" { (server, client) } else { (client, server) };
    if stage == "disconnecting" {
        signal(&dead, "STOP")?;
        signal(&alive, "USR1")?;
        alive.wait_for_text("DISCONNECTING", LIMIT)?;
    }
    dead.kill_hard();
    // The surviving end may have got the event and ended.
    let signalled = signal(&alive, "USR1");
    require!(signalled.is_ok() || !waits(stage), "{signalled:?}");
    alive.wait(LIMIT).passed()
}

/// Stages in which the surviving end acts after the death, instead of sleeping.
fn waits(stage: &str) -> bool {
    ["resolved", "asked", "answered"].contains(&stage)
}

/// `$1` stage, `$2` the killed end, `$3` the surviving end, `$4` whether other processes of Adverb
/// run on the server's host (`beside` or `alone`).
const STEPS: &str = r#"
role() { [ $1 = $2 ] && echo dies || echo hears; }
if [ $4 = beside ]; then
    "$ADVERB" run -- "$END" server resolved dies 192.0.2.1 7472 >/run/beside 2>&1 & beside=$!
    started=$beside
    wait_for "nobody listens" 30 says LISTENING beside
fi
"$ADVERB" run -- "$END" server $1 $(role server $2) 192.0.2.1 7471 >/run/server 2>&1 & server=$!
started="$started $server"
wait_for "nobody listens" 30 says LISTENING server
$there "$ADVERB" run -- "$END" client $1 $(role client $2) 192.0.2.1 7471 >/run/client 2>&1 & client=$!
started="$started $client"
wait_for "the server is not ready" 30 says READY server
wait_for "the client is not ready" 30 says READY client
eval "killed=\$$2; told=\$$3"
if [ $1 = disconnecting ]; then
    kill -STOP $killed
    kill -USR1 $told
    wait_for "it does not disconnect" 30 says DISCONNECTING $3
fi
kill -9 $killed || fail "$2 has ended by itself"
# It may have heard of it, and ended.
kill -USR1 $told 2>/dev/null || true
wait_for "$3 heard nothing" 100 says HEARD $3
wait $told || fail "$3 failed"
[ -z "$beside" ] || kill -9 $beside
cat /run/$3
"#;

fn hosts(stage: &str, killed: &str, heard: &[&str], others: &str) -> Verdict {
    let alive = if killed == "server" { "client" } else { "server" };
    let steps = format!("END={}\n{STEPS}", built()?);
    let what = format!("the {killed} killed when {stage}");
    let out = two_hosts(&what, &steps, &[stage, killed, alive, others], LIMIT)?;
    out.require(heard.iter().any(|h| out.text.contains(&format!("HEARD {h}\n"))))
}
