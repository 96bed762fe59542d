//! librdmacm: the programs of rdmacm-utils, perftest's `-R`, and the rules of the manual pages,
//! each on both paths.

use std::time::{Duration, Instant};

use adverb_foreign::cases::{PATHS, listed, rig};
use adverb_foreign::pair::{IB, Listener, Pair, PairOutcome, TCP, UDP};
use adverb_foreign::process::{Finished, Program, Running};
use adverb_foreign::suite::{Case, by_length, case, short};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(90);
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
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

pub fn cases() -> Vec<Case> {
    let mut cases = listed("cm_rules", |id, name| {
        let id = id.unwrap_or_default();
        let rule = |path| {
            let own = name.clone();
            case(format!("{id}/{path}/{name}"), move || rule(&own, path))
        };
        PATHS.map(rule).into()
    });
    for path in PATHS {
        programs(&mut cases, path);
        for program in PERFTEST {
            cases.push(case(format!("RCM-7/{path}/{program}"), move || perftest(program, path)));
        }
    }
    cases.push(case("RCM-11/a_server_that_dies_is_announced", server_killed));
    cases
}

/// Runs a case of `cm_rules.c`.
fn rule(name: &str, path: &str) -> Verdict {
    rig("cm_rules", &["-lrdmacm"], &[name])?
        .env("ADVERB_PATH", path)
        .run_ok(LIMIT)?
        .require_words(&[&format!("ok {name}")])
}

/// A name, the command lines of a server and a client, the port space in which the server listens,
/// and the client's text after success. `PORT` in the lines is replaced.
const SIMPLE: [(&str, &str, &str, u64, &str); 7] = [
    ("ucmatose", "ucmatose -p PORT -c 200", "ucmatose -p PORT -c 200 -s 127.0.0.1", TCP, DONE),
    (
        "ucmatose_migrates",
        "ucmatose -p PORT -c 100 -m",
        "ucmatose -p PORT -c 100 -m -s 127.0.0.1",
        TCP,
        DONE,
    ),
    (
        "ucmatose_options",
        "ucmatose -p PORT -c 2 -t 96 -a 14 -b ::1 -f ipv6",
        "ucmatose -p PORT -c 2 -t 96 -a 14 -s ::1 -f ipv6",
        TCP,
        DONE,
    ),
    (
        "rdma_client",
        "rdma_server -p PORT",
        "rdma_client -s 127.0.0.1 -p PORT",
        TCP,
        "rdma_client: end 0",
    ),
    (
        "rdma_xclient_rc",
        "rdma_xserver -p PORT -c r",
        "rdma_xclient -s 127.0.0.1 -p PORT -c r",
        TCP,
        "rdma_xclient: end 0",
    ),
    (
        "rdma_xclient_xrc",
        "rdma_xserver -p PORT -c x",
        "rdma_xclient -s 127.0.0.1 -p PORT -c x",
        IB,
        "rdma_xclient: end 0",
    ),
    // This program has no option for the port.
    ("udaddy", "udaddy -c 50", "udaddy -c 50 -s 127.0.0.1", UDP, DONE),
];
const DONE: &str = "return status 0";

/// Programs of rdmacm-utils.
fn programs(cases: &mut Vec<Case>, path: &'static str) {
    let count = by_length(1000, 100);
    for (name, extra, to) in [
        ("rping", "", "127.0.0.1"),
        ("rping_ipv6", "", "::1"),
        ("rping_validates", "-V -S 65000", "127.0.0.1"),
        ("rping_own_queue_pair", "-q", "127.0.0.1"),
    ] {
        cases.push(case(format!("RCM-7/{path}/{name}"), move || {
            let line = |side| format!("rping {side} -a {to} -p PORT -v -C {count} {extra}");
            let pair = by_address(&line("-s"), &line("-c"), path);
            says(&pair.run_ok()?, "ping data: rdma-ping-", count)
        }));
    }
    for (name, server, client, space, done) in SIMPLE {
        cases.push(case(format!("RCM-7/{path}/{name}"), move || {
            let pair = by_address(server, client, path).listener(Listener::Id(space));
            let pair = if space == UDP { pair.at_port(UDADDY_PORT) } else { pair };
            says(&pair.run_ok()?, done, 1)
        }));
    }
    cases.push(case(format!("RCM-8/{path}/mckey"), move || mckey(path)));
    cases.push(case(format!("RCM-7/{path}/cmtime"), move || cmtime(path)));
    cases.push(case(format!("RCM-7/{path}/rping_persistent_server"), move || persistent(path)));
}

fn program(line: &str, path: &str) -> Program {
    Program::of_line(line).env("ADVERB_PATH", path)
}

/// rping's client closes its event channel while its thread may be about to ask for the next event.
/// The client then ends with status 255. All its output has come by then.
fn ended_well(client: &Finished) -> bool {
    let late = "rdma_get_cm_event: Bad file descriptor";
    client.ok() || client.describe().starts_with("$ rping -c ") && client.text.contains(late)
}

fn by_address(server: &str, client: &str, path: &str) -> Pair {
    Pair::by_address(program(server, path), program(client, path), LIMIT).ended_well(ended_well)
}

fn both(server: Finished, client: Finished) -> String {
    PairOutcome { server, client }.describe()
}

/// The client says this at least so often.
fn says(outcome: &PairOutcome, words: &str, times: usize) -> Verdict {
    let said = outcome.client.text.matches(words).count();
    require!(said >= times, "{said} times {words:?}, not {times}: {}", outcome.describe());
    Ok(())
}

/// Two members of a group: the messages of one arrive at the other.
fn mckey(path: &str) -> Verdict {
    let line = "mckey -m 239.77.1.2 -b 127.0.0.1 -C 10";
    let mut member = program(line, path).start()?;
    // The member prints nothing before its end. The kernel shows the group address in host byte
    // order.
    let end = Instant::now() + LISTEN_LIMIT;
    while !std::fs::read_to_string("/proc/net/igmp").is_ok_and(|groups| groups.contains("02014DEF"))
    {
        require!(!member.ended() && Instant::now() < end, "not joined: {}", member.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    // The kernel lists the group before the queue pair is attached, and nothing shows the
    // attachment.
    std::thread::sleep(Duration::from_secs(2));
    let sender = program(&format!("{line} -s"), path).run(LIMIT)?;
    let member = member.wait(LIMIT);
    let complete = member.text.contains("data transfers complete");
    require!(sender.ok() && member.ok() && complete, "{}", both(member, sender));
    Ok(())
}

/// Many connections at once. The server runs until it is killed.
fn cmtime(path: &str) -> Verdict {
    let client = format!("cmtime -s 127.0.0.1 -p PORT -c {}", by_length(1000, 100));
    let (server, client) = by_address("cmtime -b 127.0.0.1 -p PORT", &client, path).listening()?;
    let client = client.run(LIMIT)?;
    let outcome = PairOutcome { server: server.wait(Duration::ZERO), client };
    let text = &outcome.client.text;
    outcome.require(outcome.client.ok())?;
    outcome.client.require_words(&["connect      :", "disconnect   :", "destroy      :"])?;
    let bad = ["event:", "failure", "error"].into_iter().find(|bad| text.contains(bad));
    require!(bad.is_none(), "{bad:?}: {}", outcome.describe());
    Ok(())
}

/// One server and several clients, first one alone and then several at once. The next client starts
/// when the previous one is connected, because rping's server has room for one request.
fn persistent(path: &str) -> Verdict {
    let client = "rping -c -a 127.0.0.1 -p PORT -v -C";
    let (server, client) =
        by_address("rping -s -P -a 127.0.0.1 -p PORT", client, path).listening()?;
    let first = client.clone().arg("20").run(LIMIT)?;
    first.require(ended_well(&first))?;
    let count = by_length(5000, 1000);
    let start = |_| -> Result<Running, String> {
        let mut one = client.clone().arg(count.to_string()).start()?;
        one.wait_for_text("ping data: rdma-ping-0", LISTEN_LIMIT)?;
        Ok(one)
    };
    let many: Vec<_> = (0..4).map(start).collect::<Result<_, _>>()?;
    let ended: Vec<_> = many.into_iter().map(|one| one.wait(LIMIT)).collect();
    let server = server.wait(Duration::ZERO);
    for one in ended {
        let all = one.text.matches("ping data: rdma-ping-").count() == count;
        require!(ended_well(&one) && all, "{}", both(server, one));
    }
    Ok(())
}

/// perftest with connections by address.
fn perftest(name: &str, path: &str) -> Verdict {
    let iterations = if short() { 100 } else { 1000 };
    let line = format!("{name} -R -p PORT -n {iterations}");
    let outcome = by_address(&line, &format!("{line} 127.0.0.1"), path).run_ok()?;
    let row = outcome.client.text.lines().any(|l| {
        let mut words = l.split_whitespace();
        words.next().is_some_and(|w| w.parse::<u64>().is_ok())
            && words.next().is_some_and(|w| w.parse::<u64>() == Ok(iterations))
    });
    require!(row, "no line of figures: {}", outcome.describe());
    Ok(())
}

/// On one host the end of a process is known at once, so the peer's rping ends by itself.
fn server_killed() -> Verdict {
    let client = "rping -c -a 127.0.0.1 -p PORT -v";
    let (mut server, client) =
        by_address("rping -s -a 127.0.0.1 -p PORT", client, "local").listening()?;
    let mut client = client.start()?;
    client.wait_for_text("rdma-ping-0", LISTEN_LIMIT)?;
    server.kill_hard();
    let client = client.wait(LIMIT);
    require!(!client.timed_out, "the client never heard of it: {}", client.describe());
    // The client's threads are told at once of the disconnection and of the failed completion, and
    // the first of these ends the process. The suite `ends` checks the events themselves.
    let told = ["DISCONNECT EVENT", "cq completion failed status 12"];
    client.require(told.iter().any(|words| client.text.contains(words)))
}
