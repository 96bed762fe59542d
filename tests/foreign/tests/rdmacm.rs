//! librdmacm: the programs of rdmacm-utils, perftest's `-R`, and the rules of the manual pages,
//! each on both paths.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use adverb_foreign::cc::{compile_linked, source_dir};
use adverb_foreign::process::{Finished, Program, Running, free_port, words};
use adverb_foreign::suite::{by_length, case, run, short};
use adverb_foreign::{Verdict, require, service};
use libtest_mimic::Trial;

const LIMIT: Duration = Duration::from_secs(90);
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
const PATHS: [&str; 2] = ["local", "wire"];

/// Port spaces: the upper half of a service id (IBTA annex A11).
const TCP: u64 = 0x106;
const UDP: u64 = 0x111;
const IB: u64 = 0x13f;
/// The fixed port of udaddy.
const UDADDY_PORT: u16 = 7174;

const PERFTEST: [&str; 8] = [
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_atomic_bw",
    "ib_atomic_lat",
];

fn main() -> ExitCode {
    let mut cases = Vec::new();
    match rules() {
        Ok(names) => {
            for ((id, name), path) in names.into_iter().flat_map(|n| PATHS.map(|p| (n.clone(), p))) {
                cases.push(case(format!("{id}/{path}/{name}"), move || rule(&name, path)));
            }
        }
        Err(why) => cases.push(case("the_list_of_cases", move || Err(why))),
    }
    for path in PATHS {
        programs(&mut cases, path);
        for program in PERFTEST {
            cases.push(case(format!("RCM-7/{path}/{program}"), move || perftest(program, path)));
        }
    }
    cases.push(case("RCM-11/a_server_that_dies_is_announced", server_killed));
    run("rdmacm", cases)
}

/// Requirement and name of each case, from the table at the end of `cm_rules.c`: lines `{"RCM-5",
/// "name", function},`.
fn rules() -> Result<Vec<(String, String)>, String> {
    let path = source_dir().join("cm_rules.c");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (_, table) = text.split_once("cases[] = {").ok_or("cm_rules.c has no table of cases")?;
    let (table, _) = table.split_once("};").ok_or("the table of cm_rules.c has no end")?;
    let row = |line: &str| {
        let mut quoted = line.split('"').skip(1).step_by(2).map(str::to_string);
        Some((quoted.next()?, quoted.next()?))
    };
    let names: Vec<_> = table.lines().filter_map(row).collect();
    if names.is_empty() { Err("the table of cm_rules.c is empty".to_string()) } else { Ok(names) }
}

/// Runs a case of `cm_rules.c`.
fn rule(name: &str, path: &str) -> Verdict {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = BUILT.get_or_init(|| compile_linked("cm_rules", &["-lrdmacm"])).clone()?;
    let out = Program::new(program.display().to_string(), &[name]).env("ADVERB_PATH", path).run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(&format!("ok {name}")), "{}", out.describe());
    Ok(())
}

/// Command lines of a server and a client. `PORT` in the arguments is replaced.
#[derive(Clone, Copy)]
struct Two {
    server: &'static str,
    client: &'static str,
    /// The port space in which the server listens.
    space: u64,
    /// The port, if the program has no option for it.
    port: Option<u16>,
    /// The client's text after success, and its minimum number of occurrences.
    says: (&'static str, usize),
}

const TWO: Two = Two { server: "", client: "", space: TCP, port: None, says: ("", 0) };

/// Programs of rdmacm-utils.
fn programs(cases: &mut Vec<Trial>, path: &'static str) {
    let pings = by_length("1000", "100");
    let ping = |extra: &'static str, to: &'static str| {
        let port = "PORT";
        (
            format!("rping -s -a {to} -p {port} -v -C {pings} {extra}"),
            format!("rping -c -a {to} -p {port} -v -C {pings} {extra}"),
        )
    };
    let mut push = |name: &str, two: Two, server: String, client: String| {
        cases.push(case(format!("RCM-7/{path}/{name}"), move || pair(two, &server, &client, path)));
    };
    let count = by_length(1000, 100);
    for (name, extra, to) in [
        ("rping", "", "127.0.0.1"),
        ("rping_ipv6", "", "::1"),
        ("rping_validates", "-V -S 65000", "127.0.0.1"),
        ("rping_own_queue_pair", "-q", "127.0.0.1"),
    ] {
        let (server, client) = ping(extra, to);
        push(name, Two { says: ("ping data: rdma-ping-", count), ..TWO }, server, client);
    }
    let mut simple = |name: &str, two: Two| push(name, two, two.server.to_string(), two.client.to_string());
    let done = ("return status 0", 1);
    simple(
        "ucmatose",
        Two {
            server: "ucmatose -p PORT -c 200",
            client: "ucmatose -p PORT -c 200 -s 127.0.0.1",
            says: done,
            ..TWO
        },
    );
    simple(
        "ucmatose_migrates",
        Two {
            server: "ucmatose -p PORT -c 100 -m",
            client: "ucmatose -p PORT -c 100 -m -s 127.0.0.1",
            says: done,
            ..TWO
        },
    );
    simple(
        "ucmatose_options",
        Two {
            server: "ucmatose -p PORT -c 2 -t 96 -a 14 -b ::1 -f ipv6",
            client: "ucmatose -p PORT -c 2 -t 96 -a 14 -s ::1 -f ipv6",
            says: done,
            ..TWO
        },
    );
    simple(
        "rdma_client",
        Two {
            server: "rdma_server -p PORT",
            client: "rdma_client -s 127.0.0.1 -p PORT",
            says: ("rdma_client: end 0", 1),
            ..TWO
        },
    );
    simple(
        "rdma_xclient_rc",
        Two {
            server: "rdma_xserver -p PORT -c r",
            client: "rdma_xclient -s 127.0.0.1 -p PORT -c r",
            says: ("rdma_xclient: end 0", 1),
            ..TWO
        },
    );
    simple(
        "rdma_xclient_xrc",
        Two {
            server: "rdma_xserver -p PORT -c x",
            client: "rdma_xclient -s 127.0.0.1 -p PORT -c x",
            space: IB,
            says: ("rdma_xclient: end 0", 1),
            ..TWO
        },
    );
    simple(
        "udaddy",
        Two {
            server: "udaddy -c 50",
            client: "udaddy -c 50 -s 127.0.0.1",
            space: UDP,
            port: Some(UDADDY_PORT),
            says: done,
        },
    );
    cases.push(case(format!("RCM-8/{path}/mckey"), move || mckey(path)));
    cases.push(case(format!("RCM-7/{path}/cmtime"), move || cmtime(path)));
    cases.push(case(format!("RCM-7/{path}/rping_persistent_server"), move || persistent(path)));
}

fn program(line: &str, port: u16, path: &str) -> Program {
    let line = words(line.replace("PORT", &port.to_string()));
    Program::new(&line[0], &line[1..]).env("ADVERB_PATH", path)
}

/// Starts a server and waits until it listens at a port of a port space. The abstract name of a
/// listener shows this.
fn listening(line: &str, space: u64, port: u16, path: &str) -> Result<Running, String> {
    let mut server = program(line, port, path).start()?;
    service::wait(&mut server, space, port, LISTEN_LIMIT)?;
    Ok(server)
}

/// rping's client closes its event channel while its thread may be about to ask for the next event.
/// The client then ends with status 255. All its output has come by then.
fn ended_well(client: &Finished) -> bool {
    let late = "rdma_get_cm_event: Bad file descriptor";
    client.ok() || client.describe().starts_with("$ rping -c ") && client.text.contains(late)
}

fn both(server: &Finished, client: &Finished) -> String {
    format!("client: {}\nserver: {}", client.describe(), server.describe())
}

fn pair(two: Two, server: &str, client: &str, path: &str) -> Verdict {
    let port = two.port.map_or_else(free_port, Ok)?;
    let server = listening(server, two.space, port, path)?;
    let client = program(client, port, path).start()?.wait(LIMIT);
    let server = server.wait(if ended_well(&client) { LIMIT } else { Duration::from_secs(2) });
    require!(ended_well(&client) && server.ok(), "{}", both(&server, &client));
    let (says, times) = two.says;
    require!(
        client.text.matches(says).count() >= times,
        "not {times} times {says:?}: {}",
        both(&server, &client)
    );
    Ok(())
}

/// Two members of a group: the messages of one arrive at the other.
fn mckey(path: &str) -> Verdict {
    let line = "mckey -m 239.77.1.2 -b 127.0.0.1 -C 10";
    let mut member = program(line, 0, path).start()?;
    // The member prints nothing before its end. The kernel shows the group address in host byte
    // order.
    let end = Instant::now() + LISTEN_LIMIT;
    while !std::fs::read_to_string("/proc/net/igmp").is_ok_and(|groups| groups.contains("02014DEF")) {
        require!(!member.ended() && Instant::now() < end, "not joined: {}", member.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    // The kernel lists the group before the queue pair is attached, and nothing shows the
    // attachment.
    std::thread::sleep(Duration::from_secs(2));
    let sender = program(&format!("{line} -s"), 0, path).run(LIMIT)?;
    let member = member.wait(LIMIT);
    require!(sender.ok() && member.ok(), "{}", both(&member, &sender));
    require!(member.text.contains("data transfers complete"), "{}", both(&member, &sender));
    Ok(())
}

/// Many connections at once. The server runs until it is killed.
fn cmtime(path: &str) -> Verdict {
    let (port, n) = (free_port()?, by_length(1000, 100));
    let server = listening("cmtime -b 127.0.0.1 -p PORT", TCP, port, path)?;
    let client = program(&format!("cmtime -s 127.0.0.1 -p PORT -c {n}"), port, path).run(LIMIT)?;
    let server = server.wait(Duration::ZERO);
    require!(client.ok(), "{}", both(&server, &client));
    for line in ["connect      :", "disconnect   :", "destroy      :"] {
        require!(client.text.contains(line), "no {line:?}: {}", both(&server, &client));
    }
    for bad in ["event:", "failure", "error"] {
        require!(!client.text.contains(bad), "{bad:?}: {}", both(&server, &client));
    }
    Ok(())
}

/// One server and several clients, first one alone and then several at once. The next client starts
/// when the previous one is connected, because rping's server has room for one request.
fn persistent(path: &str) -> Verdict {
    let port = free_port()?;
    let server = listening("rping -s -P -a 127.0.0.1 -p PORT", TCP, port, path)?;
    let client = |n| program(&format!("rping -c -a 127.0.0.1 -p PORT -v -C {n}"), port, path);
    let first = client(20).run(LIMIT)?;
    require!(ended_well(&first), "{}", first.describe());
    let start = |_| -> Result<Running, String> {
        let mut one = client(5000).start()?;
        one.wait_for_text("ping data: rdma-ping-0", LISTEN_LIMIT)?;
        Ok(one)
    };
    let many: Vec<_> = (0..4).map(start).collect::<Result<_, _>>()?;
    let ended: Vec<_> = many.into_iter().map(|one| one.wait(LIMIT)).collect();
    let server = server.wait(Duration::ZERO);
    for one in &ended {
        require!(ended_well(one), "{}", both(&server, one));
        require!(one.text.matches("ping data: rdma-ping-").count() == 5000, "{}", both(&server, one));
    }
    Ok(())
}

/// perftest with connections by address.
fn perftest(name: &str, path: &str) -> Verdict {
    let port = free_port()?;
    let iterations = if short() { 100 } else { 1000 };
    let line = format!("{name} -R -p PORT -n {iterations}");
    let server = listening(&line, TCP, port, path)?;
    let client = program(&format!("{line} 127.0.0.1"), port, path).run(LIMIT)?;
    let server = server.wait(if client.ok() { LIMIT } else { Duration::from_secs(2) });
    require!(client.ok() && server.ok(), "{}", both(&server, &client));
    let row = client.text.lines().any(|l| {
        let mut words = l.split_whitespace();
        words.next().is_some_and(|w| w.parse::<u64>().is_ok())
            && words.next().is_some_and(|w| w.parse::<u64>() == Ok(iterations))
    });
    require!(row, "no line of figures: {}", both(&server, &client));
    Ok(())
}

/// On one host the end of a process is known at once, so the peer's rping ends by itself.
fn server_killed() -> Verdict {
    let port = free_port()?;
    let mut server = listening("rping -s -a 127.0.0.1 -p PORT", TCP, port, "local")?;
    let mut client = program("rping -c -a 127.0.0.1 -p PORT -v", port, "local").start()?;
    client.wait_for_text("rdma-ping-0", LISTEN_LIMIT)?;
    server.kill_hard();
    let client = client.wait(LIMIT);
    require!(!client.timed_out, "the client never heard of it: {}", client.describe());
    // The client's threads are told at once of the disconnection and of the failed completion, and
    // the first of these ends the process. The suite `ends` checks the events themselves.
    let told = ["DISCONNECT EVENT", "cq completion failed status 12"];
    require!(told.iter().any(|words| client.text.contains(words)), "{}", client.describe());
    Ok(())
}
