//! `adverb top` and `adverb stat` beside programs at work, stuck and stopped (TOP): cases of
//! `c/stuck.c`, and perftest.
use std::time::{Duration, Instant};

use adverb_foreign::cases::on_rig;
use adverb_foreign::cc::compile;
use adverb_foreign::device::on_loopback;
use adverb_foreign::process::{Finished, Program, Running, adverb, free_port};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    vec![
        case("TOP-3/a_transfer", transfer),
        case("TOP-4/a_stuck_program", stuck),
        case("TOP-4/a_right_program", right),
        case("TOP-2/a_stopped_program", stopped),
        case("TOP-6/the_terminal_is_left_as_it_was", terminal),
        case("TOP-7/prometheus", prometheus),
    ]
}

/// Runs the command.
fn command(args: &[&str]) -> Result<Finished, String> {
    Program::of_file(&adverb()?).args(args).bare().run_ok(LIMIT)
}

fn stat() -> Result<Value, String> {
    let out = command(&["stat", "--json"])?;
    serde_json::from_str(&out.text).map_err(|e| format!("{e}: {}", out.describe()))
}

/// Looks until the answer is as it should be.
fn until(what: &str, is: impl Fn(&Value) -> bool) -> Result<Value, String> {
    let end = Instant::now() + LIMIT;
    loop {
        let found = stat()?;
        if is(&found) {
            return Ok(found);
        }
        require!(Instant::now() < end, "{what}: {found:#}");
    }
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

/// The processes with this name.
fn named<'a>(found: &'a Value, name: &str) -> Vec<&'a Value> {
    list(found, "processes").iter().filter(|process| process["program"] == name).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Starts `c/stuck.c`, which has come to rest at the return.
fn start(mode: &str) -> Result<Running, String> {
    let program = compile("stuck")?;
    let mut running = on_rig(Program::of_file(&program).arg(mode))?.start()?;
    running.wait_for_text("READY", LIMIT)?;
    Ok(running)
}

/// TOP-3: both ends of a transfer are shown with their rates, and each names the other.
fn transfer() -> Verdict {
    let port = free_port()?;
    let program = Program::new("ib_write_bw", &on_loopback("-x", &format!("-D 20 -p {port}"))?);
    let mut server = program.start()?;
    server.wait_for_listener(port, LIMIT)?;
    let _client = program.arg("127.0.0.1").start()?;
    let found = until("two ends with a rate", |found| {
        let ends = named(found, "ib_write_bw");
        ends.len() == 2 && ends.iter().any(|end| end["rates"]["out_bytes"].as_u64() > Some(1 << 20))
    })?;
    let ends = named(&found, "ib_write_bw");
    let sends = |end: &Value| end["rates"]["out_bytes"].as_u64() > Some(0);
    let of = |sends_it| ends.iter().find(|end| sends(end) == sends_it);
    let (Some(sender), Some(receiver)) = (of(true), of(false)) else {
        return Err(format!("{found:#}"));
    };
    for rate in ["in_bytes", "in_messages"] {
        let rate = receiver["rates"][rate].as_u64();
        require!(rate > Some(0), "the receiver has no rate: {found:#}");
    }
    for (end, other) in [(sender, receiver), (receiver, sender)] {
        let [pair] = list(end, "queue_pairs") else { return Err(format!("{found:#}")) };
        require!(pair["transport"] == "RC", "{found:#}");
        // The receiving end of perftest sends nothing, and stays in RTR.
        require!(["RTR", "RTS"].contains(&text(&pair["state"])), "the state {}", pair["state"]);
        require!(pair["peer"]["pid"] == other["pid"], "the peer is another: {found:#}");
    }
    require!(list(&found, "silent").is_empty(), "{found:#}");
    Ok(())
}

/// TOP-4: a program that sleeps on a lost wake-up is named, with the queue, the line that armed and
/// the call; and the program that waits for it names it.
fn stuck() -> Verdict {
    let _running = start("lost")?;
    let lost = |found: &Value| {
        let queues =
            named(found, "receiver").into_iter().flat_map(|end| list(end, "completion_queues"));
        queues.filter(|queue| queue["lost_wake_up"].is_string()).cloned().collect::<Vec<_>>()
    };
    let waits = |found: &Value| {
        let pairs = named(found, "sender").into_iter().flat_map(|end| list(end, "queue_pairs"));
        pairs.map(|pair| text(&pair["note"]).to_owned()).find(|note| note.contains("LOST WAKE-UP"))
    };
    let found = until("a lost wake-up", |found| !lost(found).is_empty() && waits(found).is_some())?;
    let [queue] = &lost(&found)[..] else { return Err(format!("{found:#}")) };
    let report = text(&queue["lost_wake_up"]);
    let number = &queue["number"];
    for words in [
        format!("CQ {number} holds 8 completions that came before its last arm").as_str(),
        "in wait_for_messages, stuck.c:",
        "waits in epoll_wait(",
    ] {
        require!(report.contains(words), "no {words:?} in {report:?}");
    }
    require!(
        queue["completions"] == 8 && queue["unread_events"] == 0 && queue["armed"] == "next",
        "{queue:#}"
    );
    let receiver = &named(&found, "receiver")[0]["pid"];
    let note = waits(&found).unwrap_or_default();
    let words = format!("waits for {receiver} receiver: LOST WAKE-UP on CQ {number}");
    require!(note.starts_with(&words), "{note:?}, not {words:?}");
    // Each retry of the sender wakes the receiver, and a thread that waits for a processor may be
    // anywhere.
    let end = Instant::now() + LIMIT;
    let table = loop {
        let table = command(&["stat"])?.text;
        let missing =
            ["1 lost wake-up", &words, "stuck.c:"].into_iter().find(|w| !table.contains(w));
        let Some(words) = missing else { break table };
        require!(Instant::now() < end, "no {words:?} in\n{table}");
    };
    require!(table.lines().all(|line| line.chars().count() <= 80), "a line is too long:\n{table}");
    Ok(())
}

/// TOP-4: a program that sleeps rightly is not accused.
fn right() -> Verdict {
    let _running = start("right")?;
    let note = |found: &Value, name: &str| {
        let pairs =
            named(found, name).into_iter().flat_map(|end| list(end, "queue_pairs").to_vec());
        pairs.map(|pair| text(&pair["note"]).to_owned()).next().unwrap_or_default()
    };
    let asleep = |found: &Value| {
        note(found, "receiver").contains("asleep on armed CQ")
            && note(found, "sender").contains("waits for")
    };
    let found = until("a program asleep", asleep)?;
    let sender = note(&found, "sender");
    require!(sender.contains("no receive posted"), "the sender {sender}: {found:#}");
    // A watch of a sleeping program looks at it for the first time after 100 ms.
    for _ in 0..3 {
        let found = stat()?;
        let queues =
            list(&found, "processes").iter().flat_map(|end| list(end, "completion_queues"));
        for queue in queues {
            require!(queue["lost_wake_up"].is_null(), "accused: {found:#}");
        }
    }
    Ok(())
}

/// TOP-2: a stopped process is named as that, the others answer, and the process goes on.
fn stopped() -> Verdict {
    let _running = start("right")?;
    let found = until("both", |found| list(found, "processes").len() == 2)?;
    let receiver = named(&found, "receiver")[0]["pid"].clone();
    let kill = |signal: &str| {
        Program::new("kill", &[signal, &receiver.to_string()]).bare().run(LIMIT)?.require_ok()
    };
    kill("-STOP")?;
    let found = until("a stopped process", |found| list(found, "silent").len() == 1)?;
    let silent = &list(&found, "silent")[0];
    require!(silent["pid"] == receiver && silent["program"] == "receiver", "{found:#}");
    require!(text(&silent["why"]).contains("stopped"), "{found:#}");
    require!(named(&found, "sender").len() == 1, "the other does not answer: {found:#}");
    let note = text(&list(named(&found, "sender")[0], "queue_pairs")[0]["note"]).to_owned();
    require!(note.contains("receiver: no answer: stopped"), "the sender {note:?}");
    kill("-CONT")?;
    until("both again", |found| {
        list(found, "processes").len() == 2 && list(found, "silent").is_empty()
    })?;
    Ok(())
}

/// TOP-6: the keys `q` and Ctrl-C end `adverb top`, and leave screen and settings as before.
fn terminal() -> Verdict {
    let _running = start("lost")?;
    for key in ["q", "\\003"] {
        let inside = format!("stty cols 80 rows 30; '{}' top; stty -a", adverb()?.display());
        let line =
            format!("(sleep 3; printf '{key}'; sleep 1) | script -qec \"{inside}\" /dev/null");
        let out = Program::new("sh", &["-c", &line]).bare().run_ok(LIMIT)?;
        let Some((shown, after)) = out.text.split_once("\u{1b}[?1049l") else {
            return Err(out.describe());
        };
        let begun = shown.starts_with("\u{1b}[?1049h\u{1b}[?25l");
        out.require(begun && shown.contains("\u{1b}[?25h"))?;
        out.require(shown.contains("every 1 s, q quits") && shown.contains("LOST WAKE-UP"))?;
        for setting in ["icanon", "isig", "echo"] {
            let is_set = after.split_whitespace().any(|word| word == setting);
            require!(is_set, "no {setting} after {key:?}: {}", out.describe());
        }
    }
    Ok(())
}

/// TOP-7: the text for Prometheus has the process and the lost wake-up.
fn prometheus() -> Verdict {
    let _running = start("lost")?;
    until("a lost wake-up", |found| found.to_string().contains("\"lost_wake_up\":\""))?;
    let text = command(&["stat", "--prometheus"])?.text;
    let has = |begin: &str, words: &[&str], end: &str| {
        text.lines().any(|line| {
            line.starts_with(begin) && words.iter().all(|w| line.contains(w)) && line.ends_with(end)
        })
    };
    require!(has("adverb_up{", &["program=\"receiver\""], " 1"), "{text}");
    require!(has("adverb_cq_lost_wake_up{", &["program=\"receiver\""], " 1"), "{text}");
    require!(has("adverb_cq_completions{", &["program=\"receiver\""], " 8"), "{text}");
    require!(
        has("adverb_qp_open_requests{", &["program=\"sender\"", "transport=\"RC\""], " 1"),
        "{text}"
    );
    Ok(())
}
