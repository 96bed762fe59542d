//! Debian's perftest (4.5-0.17), two processes for each test, on the loopback device.

use std::time::Duration;

use adverb_foreign::device::{loopback, on_loopback};
use adverb_foreign::pair::{Pair, PairOutcome};
use adverb_foreign::process::{Program, columns, words};
use adverb_foreign::suite::{Case, by_length, case, short};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(120);

/// Combinations of options that perftest itself refuses before it looks for a device, with its
/// message. Each is checked twice: on the system's libraries, where a search for devices would
/// print "Did not detect devices", and under `adverb run`.
const REFUSED: &[(&str, &str)] = &[
    // WRITE makes no completion at the receiver, so perftest has no event mode for this verb.
    ("ib_write_bw -e", "Events feature not available on WRITE verb"),
    ("ib_write_lat -e", "Events feature not available on WRITE verb"),
    // The requester's data of a READ or an atomic cannot be inline.
    ("ib_read_lat -I 64", "Inline feature not available on READ/Atomic verbs"),
    ("ib_read_bw -I 64", "Inline feature not available on READ/Atomic verbs"),
    ("ib_atomic_lat -I 64", "Inline feature not available on READ/Atomic verbs"),
    ("ib_atomic_bw -I 64", "Inline feature not available on READ/Atomic verbs"),
    // Only SEND consumes receives.
    ("ib_write_bw --use-srq", "Using SRQ only avavilible in SEND tests."),
    ("ib_write_lat --use-srq", "Using SRQ only avavilible in SEND tests."),
    ("ib_read_bw --use-srq", "Using SRQ only avavilible in SEND tests."),
    ("ib_read_lat --use-srq", "Using SRQ only avavilible in SEND tests."),
    ("ib_atomic_bw --use-srq", "Using SRQ only avavilible in SEND tests."),
    ("ib_atomic_lat --use-srq", "Using SRQ only avavilible in SEND tests."),
    // An atomic is 8 bytes.
    ("ib_atomic_bw -a", "Message size cannot be changed for Atomic tests"),
    ("ib_atomic_lat -a", "Message size cannot be changed for Atomic tests"),
    // Latency programs: one queue pair, one direction.
    ("ib_send_lat -b", "Bidirectional is only available in BW test"),
    ("ib_write_lat -b", "Bidirectional is only available in BW test"),
    ("ib_read_lat -b", "Bidirectional is only available in BW test"),
    ("ib_atomic_lat -b", "Bidirectional is only available in BW test"),
    ("ib_send_lat -q 16", "Multiple QPs only available on bw tests"),
    ("ib_write_lat -q 16", "Multiple QPs only available on bw tests"),
    ("ib_read_lat -q 16", "Multiple QPs only available on bw tests"),
    ("ib_atomic_lat -q 16", "Multiple QPs only available on bw tests"),
    // A run by duration has one size and polls.
    ("ib_send_bw -D 3 -e", "Duration mode doesn't work with events."),
    ("ib_send_bw -D 3 -a", "Duration mode currently doesn't support running on all sizes."),
    // Operations that a transport does not support.
    ("ib_read_bw -c UC", "UC connection not possible in READ/ATOMIC verbs"),
    ("ib_read_lat -c UC", "UC connection not possible in READ/ATOMIC verbs"),
    ("ib_atomic_bw -c UC", "UC connection not possible in READ/ATOMIC verbs"),
    ("ib_atomic_lat -c UC", "UC connection not possible in READ/ATOMIC verbs"),
    ("ib_write_bw -c UD", "UD connection only possible in SEND verb"),
    ("ib_write_lat -c UD", "UD connection only possible in SEND verb"),
    ("ib_read_bw -c UD", "UD connection only possible in SEND verb"),
    ("ib_read_lat -c UD", "UD connection only possible in SEND verb"),
];

/// Bandwidth programs.
const BW: [&str; 4] = ["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"];
const LAT: [&str; 4] = ["ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat"];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (line, message) in REFUSED {
        cases.push(case(format!("refused/{}", title(line)), move || refused(line, message)).once());
    }
    bandwidth(&mut cases);
    latency(&mut cases);
    transports(&mut cases);
    cases.push(case("several_pairs_share_the_port", several_pairs));
    cases.push(case("gid_chosen_by_perftest", || {
        judge(&pair_on("ib_send_bw", "-n 1000", false)?, "ib_send_bw", "")
    }));
    cases
}

fn title(line: &str) -> String {
    line.replace("--", "-").replace(' ', "_").replace("_-", "/").replacen('/', "/-", 1)
}

fn push(cases: &mut Vec<Case>, program: &'static str, flags: &str) {
    let flags = flags.to_string();
    let name = if flags.is_empty() {
        format!("{program}/plain")
    } else {
        title(&format!("{program} {flags}"))
    };
    cases.push(case(name, move || perftest(program, &flags)));
}

fn bandwidth(cases: &mut Vec<Case>) {
    // With -a all sizes together move n × 16 MiB. More requests than a queue holds (128) go through
    // every place of the queue.
    let n = by_length(150, 50);
    for program in BW {
        let atomic = program == "ib_atomic_bw";
        push(cases, program, "");
        if !atomic {
            push(cases, program, &format!("-a -n {n}"));
            push(cases, program, &format!("-a -b -n {}", n / 3));
        }
        push(cases, program, "-b -n 1000");
        push(cases, program, "-q 16 -n 1000");
        push(cases, program, "-q 16 -b -n 500");
        push(cases, program, "-t 512 -n 2000");
        push(cases, program, "-D 1 -f 0");
        push(cases, program, "-D 1 -f 0 -q 16 -b");
        if program != "ib_write_bw" {
            push(cases, program, "-e -n 1000");
            push(cases, program, "-e -b -n 1000");
            push(cases, program, "-e -q 16 -n 500");
        }
        if matches!(program, "ib_send_bw" | "ib_write_bw") {
            push(cases, program, "-I 64 -s 64 -n 5000");
            push(cases, program, "-s 8 -n 20000 -l 10");
        }
        if !atomic && !short() {
            push(cases, program, "-s 1 -n 10000");
            push(cases, program, "-m 256 -s 65536 -n 500");
            push(cases, program, "-Q 1 -n 1000");
        }
    }
    push(cases, "ib_send_bw", "--use-srq -n 1000");
    push(cases, "ib_send_bw", "--use-srq -q 16 -n 1000");
    push(cases, "ib_send_bw", "--use-srq -b -n 1000");
    push(cases, "ib_send_bw", "--use-srq -e -n 1000");
    push(cases, "ib_atomic_bw", "-A CMP_AND_SWAP -n 1000");
    push(cases, "ib_read_bw", "-o 1 -n 1000");
}

fn latency(cases: &mut Vec<Case>) {
    // One message is outstanding at a time, so a few of each size show as much as many.
    let n = by_length(40, 10);
    for program in LAT {
        let atomic = program == "ib_atomic_lat";
        push(cases, program, "");
        push(cases, program, &format!("-n {}", by_length(100_000, 5_000)));
        if !atomic {
            push(cases, program, &format!("-a -n {n}"));
        }
        push(cases, program, "-D 1 -f 0");
        push(cases, program, "-t 512 -n 2000");
        if program != "ib_write_lat" {
            push(cases, program, "-e -n 1000");
        }
        if matches!(program, "ib_send_lat" | "ib_write_lat") {
            push(cases, program, "-I 64 -s 64 -n 5000");
            push(cases, program, &format!("-I 64 -a -n {n}"));
        }
    }
    push(cases, "ib_send_lat", &format!("-a -e -n {n}"));
    push(cases, "ib_read_lat", &format!("-a -e -n {n}"));
    push(cases, "ib_send_lat", "--use-srq -n 1000");
    push(cases, "ib_send_lat", "--use-srq -e -n 1000");
    push(cases, "ib_atomic_lat", "-A CMP_AND_SWAP -n 1000");
}

/// SEND over UC, UD and XRC; WRITE over UC and XRC.
fn transports(cases: &mut Vec<Case>) {
    let (bw, lat) = by_length((150, 40), (50, 10));
    for c in ["UC", "UD"] {
        push(cases, "ib_send_bw", &format!("-c {c} -a -n {bw}"));
        push(cases, "ib_send_lat", &format!("-c {c} -a -n {lat}"));
        for flags in
            ["-b -n 1000", "-q 16 -n 500", "-e -n 1000", "-t 512 -n 2000", "-I 64 -s 64 -n 2000"]
        {
            push(cases, "ib_send_bw", &format!("-c {c} {flags}"));
        }
        for flags in ["-e -n 1000", "-I 64 -s 64 -n 2000", "-t 512 -n 2000"] {
            push(cases, "ib_send_lat", &format!("-c {c} {flags}"));
        }
        push(cases, "ib_send_bw", &format!("-c {c} -D 1 -f 0"));
        push(cases, "ib_send_lat", &format!("-c {c} -D 1 -f 0"));
    }
    push(cases, "ib_send_bw", "-c UD --use-srq -n 1000");
    push(cases, "ib_send_lat", "-c UD --use-srq -n 1000");
    push(cases, "ib_write_bw", "-c UC -n 1000");
    push(cases, "ib_write_lat", "-c UC -n 1000");
    push(cases, "ib_send_bw", "-c XRC -n 1000");
    push(cases, "ib_send_lat", "-c XRC -n 1000");
    push(cases, "ib_write_bw", "-c XRC -n 1000");
}

fn pair_on(program: &str, flags: &str, choose_gid: bool) -> Result<PairOutcome, String> {
    let args = match choose_gid {
        true => on_loopback("-x", &format!("-F {flags}"))?,
        false => words(format!("-d {} -F {flags}", loopback()?.dev)),
    };
    let mut outcome = Pair::new(program, &args, LIMIT).run_ok()?;
    // Before each table perftest compares the processor's cycles with the time of day. On a busy
    // machine the two may disagree. Then perftest says so and prints zeros, and the test runs it
    // again.
    for _ in 0..3 {
        if !outcome.client.text.contains("Correlation coefficient r^2") {
            break;
        }
        outcome = Pair::new(program, &args, LIMIT).run_ok()?;
    }
    Ok(outcome)
}

fn perftest(program: &str, flags: &str) -> Verdict {
    judge(&pair_on(program, flags, true)?, program, flags)
}

/// The path MTU in perftest's output.
fn mtu(text: &str) -> Option<u32> {
    let line = text.lines().find(|l| l.trim_start().starts_with("Mtu"))?;
    line.split_once(':')?.1.trim().trim_end_matches("[B]").parse().ok()
}

fn judge(outcome: &PairOutcome, program: &str, flags: &str) -> Verdict {
    let text = &outcome.client.text;
    let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
    let value = |flag: &str| flags.split_whitespace().skip_while(|f| *f != flag).nth(1);
    let found = columns(text);
    let mtu = || mtu(text).ok_or_else(|| format!("no Mtu line:\n{}", outcome.describe()));
    let sizes: Vec<u64> = found.iter().map(|r| r[0] as u64).collect();
    let expected: Vec<u64> = if has("-a") {
        // 2 B to 8 MiB; a UD message is at most one MTU.
        let top = match value("-c") {
            Some("UD") => mtu()?.ilog2(),
            _ => 23,
        };
        (1..=top).map(|p| 1 << p).collect()
    } else {
        let size = match value("-s") {
            Some(s) => s.parse().map_err(|e| format!("-s {s}: {e}"))?,
            None if program.starts_with("ib_atomic") => 8,
            None if program.ends_with("_lat") => 2,
            None if value("-c") == Some("UD") => u64::from(mtu()?),
            None => 65536,
        };
        vec![size]
    };
    require!(sizes == expected, "sizes {sizes:?}, expected {expected:?}\n{}", outcome.describe());
    for row in &found {
        require!(row[1] > 0.0, "no iterations in {row:?}\n{}", outcome.describe());
        // perftest computes -nan for the standard deviation (column 7 of the latency tables) when
        // one sample is very long. All other columns must be numbers.
        let is_deviation = |i: usize| program.ends_with("_lat") && i == 6;
        require!(
            row.iter().enumerate().all(|(i, v)| is_deviation(i) || (v.is_finite() && *v >= 0.0)),
            "{row:?}\n{}",
            outcome.describe()
        );
        let value = match (program.ends_with("_bw"), has("-D")) {
            // size, iterations, peak, average, message rate: the rate has enough digits for one
            // byte.
            (true, _) => row[4],
            // size, iterations, average, transactions/s
            (false, true) => row[2],
            // size, iterations, min, max, typical, average, …
            (false, false) => row[5],
        };
        require!(value > 0.0, "a result of zero in {row:?}\n{}", outcome.describe());
    }
    if let Some(inline) = value("-I") {
        // perftest uses the given size only on devices with a known part id. For other devices
        // perftest turns inline off and says so.
        let shown = format!("Max inline data : {inline}[B]");
        let off = "Device not recognized to implement inline feature. Disabling it";
        require!(
            text.contains(&shown) || text.contains(off),
            "no {shown:?}\n{}",
            outcome.describe()
        );
    }
    Ok(())
}

fn refused(line: &str, message: &str) -> Verdict {
    let program = Program::of_line(line);
    for program in [program.clone().bare(), program] {
        let out = program.run(LIMIT)?;
        out.require(out.code() == Some(1))?;
        out.require_words(&[message])?;
        let looked = ["Did not detect devices", "Device         :"];
        let looked = looked.iter().find(|words| out.text.contains(**words));
        require!(looked.is_none(), "it looked for a device: {}", out.describe());
    }
    Ok(())
}

/// Four pairs at once: all programs have sockets on the same RoCE v2 port.
fn several_pairs() -> Verdict {
    let programs = ["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat"];
    let n = by_length(5_000, 1_000);
    let one = |program: &'static str| {
        let flags = format!("-n {n} -s 4096");
        judge(&pair_on(program, &flags, true)?, program, &flags)
    };
    let wrong = std::thread::scope(|scope| {
        let threads = programs.map(|program| (program, scope.spawn(move || one(program))));
        let ended = threads.map(|(program, thread)| match thread.join() {
            Ok(verdict) => verdict.map_err(|why| format!("{program}: {why}")),
            Err(_) => Err(format!("{program}: panicked")),
        });
        ended.into_iter().filter_map(Result::err).collect::<Vec<_>>()
    });
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}
