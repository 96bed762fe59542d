use super::attempt::{Attempt, Verdict, parse};
use super::plan::Plan;
use super::*;
use adverb_choice::{Call, Choice, Entry, Point, Site};

const LOG: &str = "site arm@loop+0x10 2 loop+0x10 in ibv_req_notify_cq, verbs.h:2902 in wait, loop.c:66\n\
    site poll@loop+0x20 2 loop+0x20 in drain\nsite poll@loop+0x20 4 loop+0x20 in drain\nbeat 7 12\n\
    site poll@loop+0x20 4 again\nmade arm@loop+0x10 object 2 count 3 before\nmade nonsense\nsite\n";

fn ended(verdict: Verdict, made: Vec<Entry>) -> Attempt {
    let (took, silence) = (Duration::from_secs(1), Duration::ZERO);
    Attempt { verdict, sites: parse(LOG).0, made, output: String::new(), took, silence }
}

#[test]
fn the_log_of_a_run_is_read() {
    let (sites, made) = parse(LOG);
    assert_eq!(sites.len(), 3, "{sites:?}");
    assert_eq!(made.len(), 1);
    assert_eq!(report::line_of(&sites[0].words), "loop.c:66 in wait");
    assert_eq!(report::line_of(&sites[1].words), "loop+0x20 in drain");
    assert_eq!(report::line_of("loop+0x30"), "loop+0x30");
}

/// HUN-2: each choice of each place alone first, no schedule twice, then seeds without end.
#[test]
fn a_plan_goes_from_single_choices_to_seeds() {
    let mut plan = Plan::new(&parse(LOG).0, 9);
    let singles = plan.singles();
    // Two choices of the arm, three of the poll, and these for each of its two objects.
    assert_eq!(singles, 2 + 3 + 6);
    let first = plan.next_schedule();
    assert_eq!(first.entries[0].choice, Choice::Before);
    let mut seen = vec![first];
    for _ in 1..singles {
        seen.push(plan.next_schedule());
    }
    assert!(seen.iter().all(|s| s.entries.len() == 1));
    let pair = plan.next_schedule();
    assert_eq!(pair.entries.len(), 2);
    assert_ne!(pair.entries[0].site, pair.entries[1].site);
    let seed = std::iter::repeat_with(|| plan.next_schedule()).find(|s| s.entries.is_empty()).unwrap();
    assert_eq!(seed, adverb_choice::Schedule::random(9));
    assert_eq!(plan.next_schedule(), adverb_choice::Schedule::random(10));
    for (i, one) in seen.iter().enumerate() {
        assert!(!seen[..i].contains(one), "{one}");
    }
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn points(n: u64) -> Vec<Entry> {
    let site = Site { call: Call::Poll, place: "a+0x1".into() };
    let entry = |count| Entry::at(Point { site: site.clone(), object: 1, count }, Choice::Hold);
    (1..=n).map(entry).collect()
}

/// HUN-3: of many choices those are kept that it takes, and what never fails again is not reported.
#[test]
fn what_is_found_is_shrunk_and_replayed() {
    let made = points(40);
    let needed = [made[11].clone(), made[30].clone()];
    let run = |schedule: &Schedule| {
        let chosen: Vec<_> = made.iter().filter(|e| schedule.entries.contains(e)).cloned().collect();
        let random = schedule.rate > 0;
        let fails = random || needed.iter().all(|e| chosen.contains(e));
        Ok(ended(if fails { Verdict::Crash(11) } else { Verdict::Fine }, chosen))
    };
    let failed = ended(Verdict::Crash(11), made.clone());
    let (small, _, again) =
        shrink::confirm(&Schedule::random(3), failed.clone(), late(), run).unwrap().unwrap();
    assert_eq!(small.entries, needed);
    assert_eq!(again, (REPLAYS, REPLAYS));

    let never = |_: &Schedule| Ok(ended(Verdict::Fine, Vec::new()));
    assert!(shrink::confirm(&Schedule::random(3), failed.clone(), late(), never).unwrap().is_none());

    // What fails without a choice is not blamed on one.
    let always = |s: &Schedule| Ok(ended(Verdict::Status(1), s.entries.clone()));
    let (schedule, ..) =
        shrink::confirm(&Schedule::random(3), failed.clone(), late(), always).unwrap().unwrap();
    assert!(schedule.is_empty(), "{schedule}");

    // So is what fails as often without, if not always.
    let mut runs = 0;
    let now_and_then = |s: &Schedule| {
        runs += 1;
        Ok(ended(if runs % 2 == 0 { Verdict::Status(1) } else { Verdict::Fine }, s.entries.clone()))
    };
    let (schedule, ..) =
        shrink::confirm(&Schedule::random(3), failed.clone(), late(), now_and_then).unwrap().unwrap();
    assert!(schedule.is_empty(), "{schedule}");

    // Where a part of the choices does not do it, the schedule stays as it was.
    let whole =
        |s: &Schedule| Ok(ended(if s.rate > 0 { Verdict::Status(1) } else { Verdict::Fine }, Vec::new()));
    let (schedule, ..) = shrink::confirm(&Schedule::random(3), failed, late(), whole).unwrap().unwrap();
    assert_eq!(schedule, Schedule::random(3));
}

#[test]
fn every_choice_has_words_and_a_kept_file_is_a_schedule() {
    let mut words = std::collections::BTreeSet::new();
    let mut all = 0;
    for call in Call::ALL {
        for choice in call.choices() {
            all += 1;
            words.insert(report::words_of(call, *choice));
        }
    }
    assert_eq!(words.len(), all, "two choices have the same words");
    let args = Args {
        time: Duration::from_secs(1),
        jobs: 1,
        seed: 1,
        out: "x".into(),
        command: vec!["sh".into(), "-c".into(), "it's\n1".into()],
    };
    let attempt = ended(Verdict::Hang("so\nit is".into()), Vec::new());
    let schedule = Schedule::of(points(2));
    let found = Found { schedule: schedule.clone(), attempt, again: (5, 5), run: 3, after: Duration::ZERO };
    let file = report::file(&args, &found);
    assert_eq!(file.parse(), Ok(schedule), "{file}");
    assert!(file.contains(r"it'\''s"), "{file}");
}

#[test]
fn durations_are_read() {
    assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
    assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
    assert!(duration("1d").is_err());
    assert!(duration("m").is_err());
    assert!(duration("99999999999999999999h").is_err());
}

/// HUN-4: a thread counts as asleep for ever only in a call that nothing but another thread or
/// process ends.
#[cfg(target_arch = "x86_64")]
#[test]
fn sleeps_with_a_time_limit_are_none_for_ever() {
    for (line, forever) in [
        ("202 0x7f00 0x80 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f11", true),
        ("202 0x7f00 0x80 0x0 0x7ffd12 0x0 0xffffffff 0x7ffd 0x7f11", false),
        ("7 0x7ffd 0x2 0xffffffff 0x0 0x0 0x0 0x7ffd 0x7f11", true),
        ("7 0x7ffd 0x2 0x3e8 0x0 0x0 0x0 0x7ffd 0x7f11", false),
        ("271 0x7ffd 0x2 0x0 0x0 0x8 0x0 0x7ffd 0x7f11", true),
        ("232 0x3 0x7ffd 0x1 0xffffffffffffffff 0x0 0x0 0x7ffd 0x7f11", true),
        ("232 0x3 0x7ffd 0x1 0x64 0x0 0x0 0x7ffd 0x7f11", false),
        ("230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x0 0x7ffd 0x7f11", false),
        ("61 0xffffffff 0x7ffd 0x0 0x0 0x0 0x0 0x7ffd 0x7f11", true),
        ("running", false),
        ("", false),
    ] {
        assert_eq!(stuck::sleeps_for_ever(line), forever, "{line}");
    }
}
