use super::attempt::{Attempt, Output, Verdict, Who, parse};
use super::*;
use crate::results::source;
use crate::results::tests::elements;
use adverb_check::{Code, ToldCall};
use adverb_choice::{Call, Choice, ChoiceEntry, Point, Site};

const LOG: &str = "site arm@loop+0x10 2 loop+0x10 in ibv_req_notify_cq, verbs.h:2902 in wait, loop.c:66\n\
    site poll@loop+0x20 2 loop+0x20 in drain\nsite poll@loop+0x20 4 loop+0x20 in drain\nbeat 7 12\n\
    site poll@loop+0x20 4 again\nmade arm@loop+0x10 object 2 count 3 before\nmade nonsense\nsite\n";

fn ended(verdict: Verdict, made: Vec<ChoiceEntry>) -> Attempt {
    let (took, silence) = (Duration::from_secs(1), Duration::ZERO);
    let (who, outputs) = (Who::Program, vec![Output::default()]);
    let sites = parse(LOG).sites;
    Attempt { verdict, who, sites, made, outputs, took, silence, ..Attempt::default() }
}

#[test]
fn the_log_of_a_run_is_read() {
    let Attempt { sites, made, .. } = parse(LOG);
    assert_eq!(sites.len(), 3, "{sites:?}");
    assert_eq!(made.len(), 1);
    assert_eq!(source::line_of(&sites[0].words), "loop.c:66 in wait");
    assert_eq!(source::line_of(&sites[1].words), "loop+0x20 in drain");
    assert_eq!(source::line_of("loop+0x30"), "loop+0x30");
}

fn args(command: &[&str]) -> Args {
    Args {
        time: Duration::from_secs(1),
        jobs: Some(1),
        seed: 1,
        out: "x".into(),
        pair: command.contains(&"--"),
        junit: None,
        sarif: None,
        check_suppress: None,
        before: None,
        command: command.iter().map(Into::into).collect(),
    }
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn points(n: u64) -> Vec<ChoiceEntry> {
    let site = Site { call: Call::Poll, place: "a+0x1".into() };
    let entry =
        |count| ChoiceEntry::at(Point { site: site.clone(), object: 1, count }, Choice::Hold);
    (1..=n).map(entry).collect()
}

/// HUN-3: only the necessary choices are kept. A failure that never happens again is
/// not reported.
#[test]
fn what_is_found_is_shrunk_and_replayed() {
    let made = points(40);
    let needed = [made[11].clone(), made[30].clone()];
    let run = |schedule: &Schedule| {
        let chosen: Vec<_> =
            made.iter().filter(|e| schedule.entries.contains(e)).cloned().collect();
        let random = schedule.rate > 0;
        let fails = random || needed.iter().all(|e| chosen.contains(e));
        Ok(ended(if fails { Verdict::Crash(11) } else { Verdict::Fine }, chosen))
    };
    let failed = ended(Verdict::Crash(11), made.clone());
    let found =
        shrink::confirm(&Schedule::random(3), failed.clone(), late(), 1, run).unwrap().unwrap();
    assert_eq!(found.schedule.entries, needed);
    assert_eq!(found.with, Rate { failed: REPLAYS, of: REPLAYS });
    assert_eq!(found.without, Rate { failed: 0, of: REPLAYS });

    let never = |_: &Schedule| Ok(ended(Verdict::Fine, Vec::new()));
    assert!(
        shrink::confirm(&Schedule::random(3), failed.clone(), late(), 1, never).unwrap().is_err()
    );

    // A failure without a choice is not blamed on a choice.
    let always = |s: &Schedule| Ok(ended(Verdict::Status(1), s.entries.clone()));
    let found =
        shrink::confirm(&Schedule::random(3), failed.clone(), late(), 1, always).unwrap().unwrap();
    assert!(found.schedule.is_empty(), "{}", found.schedule);
    assert!(found.with == found.without && !found.with.is_doubtful(&found.attempt));

    // The same if the failure happens now and then, as often without choices as with them.
    let runs = AtomicUsize::new(1);
    let now_and_then = |s: &Schedule| {
        let n = runs.fetch_add(1, Ordering::Relaxed);
        Ok(ended(
            if n.is_multiple_of(2) { Verdict::Status(1) } else { Verdict::Fine },
            s.entries.clone(),
        ))
    };
    let found = shrink::confirm(&Schedule::random(3), failed.clone(), late(), 1, now_and_then)
        .unwrap()
        .unwrap();
    assert!(found.schedule.is_empty(), "{}", found.schedule);

    // If no part of the choices makes the run fail, the schedule stays as it was.
    let whole = |s: &Schedule| {
        Ok(ended(if s.rate > 0 { Verdict::Status(1) } else { Verdict::Fine }, Vec::new()))
    };
    let found = shrink::confirm(&Schedule::random(3), failed, late(), 1, whole).unwrap().unwrap();
    assert_eq!(found.schedule, Schedule::random(3));
}

/// HUN-14: a failure that does not happen again counts if a process names a mistake of its program.
#[test]
fn a_mistake_that_shows_once_is_found() {
    let never = |_: &Schedule| Ok(ended(Verdict::Fine, Vec::new()));
    let told = |code: Code| format!("1\t{code}\twhy").parse::<Told>().unwrap();
    let confirm = |code| {
        let failed = ended(Verdict::Status(1), points(1));
        let failed = Attempt { reports: vec![told(code)], ..failed };
        shrink::confirm(&Schedule::random(3), failed, late(), 1, never).unwrap()
    };
    let found = confirm(Code::OutsideRegion).unwrap();
    assert!(found.with.failed == 1 && found.with.of > REPLAYS);
    assert!(!found.with.is_doubtful(&found.attempt));
    for chance in [Code::CallFailed, Code::QueuePairFailed, Code::Ended] {
        assert_eq!(confirm(chance).err().map(|failed| failed.reports[0].code), Some(chance));
    }
}

/// HUN-14: a failure below 3 of 5 runs may be chance. A program that fails without a choice runs
/// again until this is known.
#[test]
fn a_rare_failure_is_doubtful() {
    let fails = ended(Verdict::Status(1), Vec::new());
    for (failed, of, doubtful) in
        [(3, 5, false), (2, 5, true), (1, 17, true), (1, 1, true), (2, 2, false)]
    {
        assert_eq!(Rate { failed, of }.is_doubtful(&fails), doubtful, "{failed} of {of}");
    }
    // What a process knows is no chance.
    let (code, text) = (Code::NeverArmed, String::new());
    let told = Told { process: 1, code, text, places: Vec::new(), state: false };
    let knows = Attempt { reports: vec![told], ..fails };
    assert!(!Rate { failed: 1, of: 5 }.is_doubtful(&knows));
    let alone = |fails: &[usize]| {
        let n = AtomicUsize::new(1);
        let (rate, good) = shrink::alone(|| {
            let fails = fails.contains(&n.fetch_add(1, Ordering::Relaxed));
            Ok(ended(if fails { Verdict::Status(1) } else { Verdict::Fine }, Vec::new()))
        })
        .unwrap();
        (rate.failed, rate.of, good.is_some())
    };
    assert_eq!(alone(&[1, 2, 3, 4]), (3, 3, false));
    assert_eq!(alone(&[]), (1, 4, true));
    assert_eq!(alone(&[2, 4]), (3, 5, true));
}

/// HUN-16: a failure that was not replayed because the hunt was stopped may be chance.
#[test]
fn a_failure_in_a_stopped_hunt_is_doubtful() {
    let stopped = |_: &Schedule| Ok(ended(Verdict::GivenUp, Vec::new()));
    let failed = ended(Verdict::Crash(11), points(3));
    let schedule = Schedule::random(3);
    let found = shrink::confirm(&schedule, failed.clone(), late(), 4, stopped).unwrap().unwrap();
    assert_eq!((&found.schedule, found.with), (&schedule, Rate { failed: 1, of: 1 }));
    assert!(found.with.is_doubtful(&found.attempt));
    let (rate, good) = shrink::alone(|| Ok(ended(Verdict::GivenUp, Vec::new()))).unwrap();
    assert!(rate.is_doubtful(&failed) && good.is_none());
    let run = || Ok(ended(Verdict::GivenUp, Vec::new()));
    let plain = plain::repeat(ended(Verdict::Fine, Vec::new()), 1, run).unwrap();
    assert!(plain.failed.is_none() && plain.runs.len() == 1);
}

/// HUN-14: a hunt says what it has tried, and whether this is every single choice.
#[test]
fn the_coverage_counts_schedules_and_places() {
    let mut coverage = Coverage { singles: 2, ..Coverage::default() };
    let one = Schedule::of(points(1));
    coverage.add(&one, &ended(Verdict::Fine, points(1)));
    coverage.add(&Schedule::of(points(2)), &ended(Verdict::Fine, Vec::new()));
    coverage.add(&Schedule::random(1), &ended(Verdict::Fine, Vec::new()));
    assert!(!coverage.is_whole() && coverage.disturbed.len() == 1);
    let outcome = SearchOutcome::default();
    let first = ended(Verdict::Fine, Vec::new());
    let took = Duration::from_secs(1);
    let text = report::nothing(&args(&["./a"]), 3, took, &outcome, &first, &coverage);
    for part in ["1 of 2 single choices, 1 with several choices, 1 seeds", "the time was too short"]
    {
        assert!(text.contains(part), "{text}");
    }
    coverage.add(&one, &first);
    assert!(coverage.is_whole());
}

/// HUN-17: after a refused registration or a lost message, a right program may end with a failure,
/// and its peer may wait. A fault is a mistake, and so is the hang of the only process after a
/// refusal. A hunt mentions what followed a loss.
#[test]
fn a_refusal_or_a_loss_excuses_a_failure() {
    let made = |call, choice| {
        let site = Site { call, place: "loop+0x10".into() };
        vec![ChoiceEntry::at(Point { site, object: 1, count: 1 }, choice)]
    };
    let refused = made(Call::Register, Choice::Refuse);
    let lost = made(Call::Unreliable, Choice::Lose);
    let hang = Verdict::Hang("it sleeps".into());
    for (verdict, alone, after_refusal, after_loss) in [
        (Verdict::Fine, true, false, false),
        (Verdict::Status(1), true, false, false),
        (Verdict::Status(134), true, false, false),
        (Verdict::Status(139), true, true, true),
        (Verdict::Crash(6), true, false, false),
        (Verdict::Crash(11), false, true, true),
        (hang.clone(), true, true, false),
        (hang.clone(), false, false, false),
    ] {
        let fails = |made: &[_]| {
            let attempt = ended(verdict.clone(), made.to_vec()).excused(alone);
            (attempt.verdict.is_failure(), attempt.after_loss.is_some())
        };
        assert_eq!(fails(&points(1)), (verdict.is_failure(), false), "{verdict:?}");
        assert_eq!(fails(&refused), (after_refusal, false), "{verdict:?} {alone}");
        let mentioned = verdict.is_failure() && !after_loss;
        assert_eq!(fails(&lost), (after_loss, mentioned), "{verdict:?} {alone}");
    }
    // A lost wake-up is no consequence of a loss.
    let text = format!("adverb: warn: {}CQ 4\n", attempt::LOST);
    let outputs = vec![Output { text, ..Output::default() }];
    let attempt = Attempt { outputs, ..ended(hang.clone(), lost.clone()) };
    assert!(attempt.excused(false).verdict.is_failure());

    let mut coverage = Coverage { singles: 1, ..Coverage::default() };
    coverage.add(&Schedule::of(lost.clone()), &ended(hang, lost).excused(false));
    let (first, took) = (ended(Verdict::Fine, Vec::new()), Duration::from_secs(1));
    let text =
        report::nothing(&args(&["./a"]), 3, took, &SearchOutcome::default(), &first, &coverage);
    let line = "counts on: the message posted at loop+0x10";
    assert!(text.contains(line) && text.contains("the program hangs: it sleeps"), "{text}");
}

/// HUN-3: no other run runs beside a replay until a replay has failed. The further replays run side
/// by side.
#[test]
fn replays_run_alone_until_one_failed() {
    let (running, runs, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let run = |s: &Schedule| {
        let beside = running.fetch_add(1, Ordering::SeqCst);
        let nth = runs.fetch_add(1, Ordering::SeqCst);
        assert!(beside == 0 || nth > 2, "run {nth} is beside another run");
        most.fetch_max(beside, Ordering::SeqCst);
        let until = Instant::now() + Duration::from_millis(if nth > 2 { 500 } else { 1 });
        while Instant::now() < until && most.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        running.fetch_sub(1, Ordering::SeqCst);
        let is_fine = nth < 2 || s.is_empty();
        Ok(ended(if is_fine { Verdict::Fine } else { Verdict::Crash(11) }, s.entries.clone()))
    };
    // Without a choice made, there is nothing to shrink.
    let failed = ended(Verdict::Crash(11), Vec::new());
    let found = shrink::confirm(&Schedule::random(3), failed, late(), 2, run).unwrap().unwrap();
    assert_eq!((found.with, most.into_inner()), (Rate { failed: 3, of: REPLAYS }, 1));
}

#[test]
fn every_choice_has_words_and_a_kept_file_is_a_schedule() {
    let mut words = std::collections::BTreeSet::new();
    let mut all = 0;
    for call in Call::ALL {
        for choice in call.choices() {
            all += 1;
            words.insert(choice.words(call));
        }
    }
    assert_eq!(words.len(), all, "two choices have the same words");
    let args = args(&["sh", "-c", "it's\n1"]);
    let attempt = ended(Verdict::Hang("so\nit is".into()), Vec::new());
    let schedule = Schedule::of(points(2));
    let (with, without) = (Rate { failed: 5, of: 5 }, Rate { failed: 0, of: 5 });
    let failure = Confirmed { schedule: schedule.clone(), attempt, with, without };
    let found = Found { failure, run: 3, after: Duration::ZERO };
    let text = report::found(&args, &found, &[]);
    assert!(text.contains("fails in 5 of 5 runs with the choice, in 0 of 5 without"), "{text}");
    let file = report::file(&args, &found.failure);
    assert_eq!(file.parse(), Ok(schedule), "{file}");
    assert!(file.contains(r"it'\''s"), "{file}");
}

#[test]
fn durations_are_read() {
    assert_eq!(crate::duration::parse("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(crate::duration::parse("2m"), Ok(Duration::from_secs(120)));
    assert_eq!(crate::duration::parse("1h"), Ok(Duration::from_secs(3600)));
    assert!(crate::duration::parse("1d").is_err());
    assert!(crate::duration::parse("m").is_err());
    assert!(crate::duration::parse("99999999999999999999h").is_err());
}

/// HUN-7: a pair is two commands, each with a separate line for replay.
#[test]
fn a_pair_is_two_commands() {
    let pair = args(&["./server", "-p", "7", "--", "./client", "--", "x"]);
    assert_eq!(
        pair.commands().iter().map(|c| source::line(c)).collect::<Vec<_>>(),
        ["./server -p 7", "./client -- x"]
    );
    let text = report::fails_alone(
        &pair,
        &ended(Verdict::Status(1), Vec::new()),
        Rate { failed: 1, of: 1 },
    );
    assert!(
        text.contains("  replay:  adverb run -- ./server -p 7\n     and:  adverb run -- ./client"),
        "{text}"
    );
    // Without `--pair`, the separator is an ordinary argument.
    let one = Args { pair: false, ..args(&["sh", "--", "x"]) };
    assert_eq!(one.commands().len(), 1);
}

fn some_end() -> HuntResult {
    let site = parse(LOG).sites[0].site.clone();
    let entry = ChoiceEntry::at(Point { site, object: 2, count: 3 }, Choice::Before);
    let (attempt, schedule) = (
        ended(Verdict::Hang("<it> & \"that\"\u{1}".into()), vec![entry.clone()]),
        Schedule::of(vec![entry]),
    );
    let finding = Finding { met: attempt.sites.clone(), attempt, schedule };
    HuntResult {
        outcome: HuntEnd::Found,
        finding: Some(finding),
        text: "found: a < b && \"c\"\n\u{7}".into(),
    }
}

/// HUN-8: the test report is well formed, and the counts match the elements.
#[test]
fn junit_says_what_was_found() {
    let (args, took) = (args(&["./a", "<&\">"]), Duration::from_millis(1500));
    let all = elements(&files::junit(&args, &some_end(), took));
    let names: Vec<_> = all.iter().map(|tag| tag.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["testsuites", "testsuite", "testcase", "failure"]);
    assert!(all[1].contains("tests=\"1\" failures=\"1\" errors=\"0\""), "{}", all[1]);
    assert!(all[2].contains("name=\"./a '&lt;&amp;&quot;&gt;'\" time=\"1.500\""), "{}", all[2]);
    assert!(all[3].ends_with("type=\"hang\""), "{}", all[3]);
    let fine = HuntResult { text: "nothing".into(), ..HuntResult::default() };
    let all = elements(&files::junit(&args, &fine, took));
    assert!(all[1].contains("failures=\"0\"") && all[3] == "system-out", "{all:?}");
    // What may be chance, or says nothing, has neither failed nor passed.
    for outcome in [HuntEnd::Doubtful, HuntEnd::TooShort, HuntEnd::NoChoice] {
        let all = elements(&files::junit(&args, &HuntResult { outcome, ..some_end() }, took));
        let counts = "failures=\"0\" errors=\"0\" skipped=\"1\"";
        assert!(all[1].contains(counts) && all[3].starts_with("skipped message="), "{all:?}");
    }
}

/// HUN-8: the SARIF log has all fields required by the schema, and the line of the choice.
#[test]
fn sarif_names_the_line() {
    let args = args(&["./a"]);
    let text = files::sarif(&args, &some_end()).to_string();
    let log: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(rules.iter().all(|r| r["id"].is_string() && r["shortDescription"]["text"].is_string()));
    assert_eq!(run["tool"]["driver"]["name"], "adverb hunt");
    assert_eq!(run["invocations"][0]["executionSuccessful"], true);
    let result = &run["results"][0];
    let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    assert_eq!((&result["ruleId"], &result["level"]), (&rules[index]["id"], &"error".into()));
    assert!(
        result["message"]["text"].as_str().unwrap().starts_with("the program hangs"),
        "{result}"
    );
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "loop.c");
    assert_eq!(place["region"]["startLine"], 66);
    let kept = result["properties"]["adverbSchedule"].as_str().unwrap();
    assert!(kept.parse::<Schedule>().is_ok(), "{kept}");
    // Every kind of verdict has a rule.
    for verdict in [Verdict::Status(1), Verdict::Crash(11), Verdict::Report(String::new())] {
        assert!(rules.iter().any(|r| r["id"] == verdict.code()), "{verdict:?}");
    }
    let fine = HuntResult::default();
    assert_eq!(files::sarif(&args, &fine)["runs"][0]["results"], serde_json::json!([]));
}

/// HUN-8: both files have the text and the places of the cause. The place of a cause that is known
/// comes before the choice, the place of a state after the choice.
#[test]
fn the_files_name_the_cause() {
    let args = args(&["./a"]);
    for (code, lines) in [(Code::NeverArmed, [7, 66]), (Code::Waits, [66, 7])] {
        let mut end = some_end();
        let places = vec![("sleeps".into(), "a+0x1 in main, w.c:7".into())];
        let told = Told { process: 1, code, text: "why & where".into(), places, state: false };
        end.finding.as_mut().unwrap().attempt.reports = vec![told];
        let all = elements(&files::junit(&args, &end, Duration::ZERO));
        assert!(all[3].contains("&quot;?; why &amp; where\" type"), "{}", all[3]);
        let result = &files::sarif(&args, &end)["runs"][0]["results"][0];
        let message = result["message"]["text"].as_str().unwrap();
        assert!(message.ends_with("; why & where"), "{message}");
        let line = |list: &str| {
            assert_eq!(result[list].as_array().unwrap().len(), 1, "{result}");
            result[list][0]["physicalLocation"]["region"]["startLine"].clone()
        };
        assert_eq!(["locations", "relatedLocations"].map(line), lines, "{code}");
    }
}

/// A frame may name its file with a path. Functions may have commas in their names.
#[test]
fn lines_are_read_with_their_paths() {
    let words = "a+0x1 in ibv_poll_cq, /usr/include/infiniband/verbs.h:2902 in f<A, B>, /src/b c/x.cpp:7 in main, m.c:1";
    assert_eq!(source::line_of(words), "x.cpp:7 in f<A, B>");
    assert_eq!(source::source_of(words).unwrap().path, "/src/b c/x.cpp");
}

/// HUN-18: the report has the newest calls before a failure, and the last call of each thread, with
/// their lines.
#[test]
fn the_report_has_the_last_calls() {
    let call = |at: u64, thread: &str, result: &str| ToldCall {
        process: 7,
        at: at * 1_000_000,
        times: at,
        thread: thread.into(),
        queue: "CQ 2".into(),
        call: "ibv_poll_cq".into(),
        place: "loop+0x20 in drain, /src/loop.c:24".into(),
        result: result.into(),
    };
    let mut picture = vec![call(1, "8 \"old\"", "empty"), call(2, "9", "empty")];
    picture.extend((3..60).map(|at| call(at, "9", "")));
    let attempt = Attempt { picture, ..ended(Verdict::Status(1), Vec::new()) };
    let text = report::fails_alone(&args(&["./a"]), &attempt, Rate { failed: 1, of: 1 });
    let first = "  before:  -58.000 ms  8 \"old\"  loop.c:24 in drain  ibv_poll_cq CQ 2: empty\n";
    assert!(text.contains(first), "{text}");
    let last = "            -0.000 ms  9        loop.c:24 in drain  ibv_poll_cq CQ 2, 59 times\n";
    assert!(text.contains(last), "{text}");
    assert_eq!(text.matches("ibv_poll_cq").count(), 25, "{text}");
}

/// What the cause says is not said again: neither in the headline, nor by the device's log.
#[test]
fn nothing_is_said_twice() {
    let said = "lost wake-up: 1 completion of CQ 4 came too late";
    let told =
        |code| Told { process: 7, code, text: said.into(), places: Vec::new(), state: false };
    let output = "adverb: warn: lost wake-up: CQ 4 holds 1 completion\nadverb: warn: another\n";
    let mut attempt = ended(Verdict::Report(said.into()), Vec::new());
    attempt.outputs[0].text = output.into();
    let text = |attempt: &Attempt| {
        report::fails_alone(&args(&["./a"]), attempt, Rate { failed: 1, of: 1 })
    };
    assert!(text(&attempt).contains("CQ 4 holds"), "nothing else says so");
    attempt.reports = vec![told(Code::LostWakeUp)];
    let text = text(&attempt);
    assert_eq!(text.matches("lost wake-up").count(), 1, "{text}");
    assert!(text.contains("warn: another"), "{text}");
}
