use super::*;
use proptest::prelude::*;

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![Just(Which::Any), any::<u64>().prop_map(Which::Nth)]
}

prop_compose! {
    fn site()(call in prop::sample::select(&Call::ALL[..]), place in "[a-z%+ \t/é.]{0,12}") -> Site {
        Site { call, place }
    }
}

prop_compose! {
    fn entry()(site in site(), object in which(), count in which(), choice in any::<prop::sample::Index>()) -> ChoiceEntry {
        let choice = *choice.get(site.call.choices());
        ChoiceEntry { site, object, count, choice }
    }
}

prop_compose! {
    fn schedule()(seed in any::<u64>(), rate in 0..=10_000u16, entries in prop::collection::vec(entry(), 0..6)) -> Schedule {
        Schedule { seed: if rate == 0 { 0 } else { seed }, rate, entries }
    }
}

proptest! {
    /// HUN-1: a schedule converts to text and back.
    #[test]
    fn a_schedule_is_its_text(schedule in schedule()) {
        prop_assert_eq!(schedule.to_string().parse::<Schedule>(), Ok(schedule));
    }

    /// HUN-1: for any text, the parser succeeds or returns an error.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*", lines in prop::collection::vec("[a-z@0-9 *%]{0,30}", 0..4)) {
        let _ = text.parse::<Schedule>();
        let _ = format!("adverb-schedule 1\n{}", lines.join("\n")).parse::<Schedule>();
    }

    /// HUN-1: the same point and seed give the same choice. Entries override the draw. Only choices
    /// that the call offers are made.
    #[test]
    fn a_choice_depends_on_the_point_alone(schedule in schedule(), site in site(), object in 1..5u64, count in 1..50u64) {
        let point = Point { site, object, count };
        let chosen = schedule.choice(&point);
        prop_assert_eq!(chosen, schedule.clone().choice(&point.clone()));
        if let Some(chosen) = chosen {
            prop_assert!(point.site.call.choices().contains(&chosen));
        }
        for &choice in point.site.call.choices() {
            let mut with = schedule.clone();
            with.entries.insert(0, ChoiceEntry::at(point.clone(), choice));
            prop_assert_eq!(with.choice(&point), Some(choice));
            let next = Point { count: count + 1, ..point.clone() };
            prop_assert_eq!(with.choice(&next), schedule.choice(&next));
        }
    }
}

/// HUN-1: the rate is met, and every choice occurs.
#[test]
fn a_seed_chooses_as_often_as_it_says() {
    let site = Site { call: Call::Poll, place: "a+0x1".into() };
    let schedule = Schedule { seed: 3, rate: 1000, entries: Vec::new() };
    let mut of = std::collections::BTreeMap::new();
    for count in 1..=20_000 {
        if let Some(choice) = schedule.choice(&Point { site: site.clone(), object: 2, count }) {
            *of.entry(choice).or_insert(0) += 1;
        }
    }
    let all: i32 = of.values().sum();
    assert!((1800..2200).contains(&all), "{of:?}");
    assert_eq!(of.len(), Call::Poll.choices().len(), "{of:?}");
}

/// HUN-1: a seed alone is a schedule. Errors name the invalid text.
#[test]
fn a_seed_is_a_schedule_and_nonsense_is_named() {
    assert_eq!("7\n".parse(), Ok(Schedule::random(7)));
    assert!(!Schedule::random(8).is_empty());
    for (text, words) in [
        ("", "begins"),
        ("adverb-schedule 1\nseed x rate 1", "seed"),
        ("adverb-schedule 1\nseed 1 rate 10001", "rate"),
        ("adverb-schedule 1\narm@a object 1 count 1 garbage", "no such choice"),
        ("adverb-schedule 1\nnap@a object 1 count 1 before", "kind"),
        ("adverb-schedule 1\narm@a%zz object 1 count 1 before", "digits"),
        ("adverb-schedule 1\narm@a object 0x1 count 1 before", "number"),
    ] {
        let bad = text.parse::<Schedule>().unwrap_err().to_string();
        assert!(bad.contains(words), "{text:?}: {bad}");
    }
}

/// HUN-2: first each single choice of each place, no schedule twice, then an endless series of
/// seeds.
#[test]
fn a_plan_goes_from_single_choices_to_seeds() {
    let site = |call, place: &str| Site { call, place: place.into() };
    let (arm, poll) = (site(Call::Arm, "loop+0x10"), site(Call::Poll, "loop+0x20"));
    let mut plan = Plan::new(&[(&arm, 2), (&poll, 2), (&poll, 4)], 9);
    let singles = plan.singles();
    // Two choices of the arm, three of the poll, and the three again for each of the poll's two
    // objects.
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
    let seed =
        std::iter::repeat_with(|| plan.next_schedule()).find(|s| s.entries.is_empty()).unwrap();
    assert_eq!(seed, Schedule::random(9));
    assert_eq!(plan.next_schedule(), Schedule::random(10));
    for (i, one) in seen.iter().enumerate() {
        assert!(!seen[..i].contains(one), "{one}");
    }
}

/// A plan whose single choices have been tried, and the choices.
fn tried(differs: &Choice) -> (Plan, Vec<Site>) {
    let site = |call, place: &str| Site { call, place: place.into() };
    let sites =
        vec![site(Call::Arm, "a+0x1"), site(Call::Poll, "a+0x2"), site(Call::Post, "a+0x3")];
    let met: Vec<_> = sites.iter().map(|site| (site, 1)).collect();
    let mut plan = Plan::new(&met, 5);
    let visits = |n| sites.iter().map(|site| (site.clone(), n)).collect();
    let took = std::time::Duration::from_millis(10);
    plan.learn(&Schedule::default(), &RunPath { visits: visits(4), made: 0, took });
    plan.learn(&Schedule::default(), &RunPath { visits: visits(6), made: 0, took });
    for _ in 0..plan.singles() {
        let schedule = plan.next_schedule();
        let n = if schedule.entries[0].choice == *differs { 8 } else { 5 };
        plan.learn(&schedule, &RunPath { visits: visits(n), made: 3, took });
    }
    (plan, sites)
}

/// HUN-2: pairs of choices that changed the program's path come first, and each pair comes once.
/// A number of visits that runs without choices have, too, is no change.
#[test]
fn choices_that_changed_the_path_are_combined_first() {
    let (mut plan, _) = tried(&Choice::After);
    let has = |s: &Schedule, n| s.entries.iter().filter(|e| e.choice == Choice::After).count() == n;
    let all: Vec<_> =
        std::iter::repeat_with(|| plan.next_schedule()).take_while(|s| s.rate == 0).collect();
    // The arm, the poll and the post have one such choice each.
    assert!(all[..3].iter().all(|s| has(s, 2)), "{all:?}");
    let rest = all[3..].iter().position(|s| !has(s, 1)).unwrap();
    assert!(rest > 0 && all[3 + rest..].iter().all(|s| has(s, 0)), "{all:?}");
    let [arm, poll, post] = [Call::Arm, Call::Poll, Call::Post].map(|call| call.choices().len());
    assert_eq!(all.len(), arm * poll + arm * post + poll * post);
    assert!(all.iter().enumerate().all(|(i, s)| !all[..i].contains(s)));
    // Afterwards some seeds have such a choice, too. The first of them was taken above.
    let seeds: Vec<_> = (6..30).map(|_| plan.next_schedule()).collect();
    assert!(seeds.iter().zip(6..).all(|(s, seed)| s.seed == seed && s.rate > 0));
    let mixed: Vec<_> = seeds.iter().filter(|s| !s.entries.is_empty()).collect();
    assert_eq!(mixed.len(), 8);
    assert!(mixed.iter().all(|s| has(s, 1) && s.to_string().parse::<Schedule>().as_ref() == Ok(s)));
}

/// HUN-2: a place that is reached for the first time gets its choices at once, in the run that
/// reached the place. This happens once for each place.
#[test]
fn a_new_place_is_tried_in_the_run_that_reached_the_place() {
    let (mut plan, sites) = tried(&Choice::Hold);
    let new = Site { call: Call::Error, place: "a+0x9".into() };
    let visits = [&sites[0], &new].map(|site| (site.clone(), 1)).into();
    let path = RunPath { visits, made: 1, ..RunPath::default() };
    let seed = Schedule::random(77);
    plan.learn(&seed, &path);
    plan.learn(&Schedule::random(78), &path);
    let next = plan.next_schedule();
    assert_eq!((next.seed, next.rate), (seed.seed, seed.rate));
    assert_eq!((&next.entries[0].site, next.entries[0].choice), (&new, Choice::Garbage));
    assert_eq!(next.entries.len(), 1);
    assert_ne!(plan.next_schedule().entries[0].site, new);
}

/// HUN-17: a choice after which a right program may end is made once at a place, alone. Neither
/// pairs nor seeds contain the choice, nor does a run that reached a new place.
#[test]
fn what_may_end_a_program_is_tried_alone() {
    let site = |call, place: &str| Site { call, place: place.into() };
    let [register, lossy] = [site(Call::Register, "a+0x1"), site(Call::Unreliable, "a+0x2")];
    let poll = site(Call::Poll, "a+0x3");
    let met = [(&register, 1), (&lossy, 1), (&lossy, 2), (&poll, 1)];
    let mut plan = Plan::new(&met, 1);
    let ends = |s: &Schedule| s.entries.iter().any(|e| e.choice.may_end());
    let singles: Vec<_> = (0..plan.singles()).map(|_| plan.next_schedule()).collect();
    let alone: Vec<_> = singles.iter().filter(|s| ends(s)).flat_map(|s| &s.entries).collect();
    assert_eq!(alone.len(), 2);
    assert!(alone.iter().all(|entry| entry.count == Which::Nth(1)), "{alone:?}");
    let new = site(Call::Register, "a+0x4");
    let visits = [(new, 1)].into();
    plan.learn(&Schedule::random(7), &RunPath { visits, made: 1, ..RunPath::default() });
    assert!((0..200).all(|_| !ends(&plan.next_schedule())));
    for count in 1..2000 {
        for site in [&register, &lossy] {
            let point = Point { site: site.clone(), object: 1, count };
            assert_eq!(Schedule { seed: 3, rate: 10_000, entries: vec![] }.choice(&point), None);
        }
    }
}

/// HUN-2: many objects do not keep the plan from the pairs.
#[test]
fn one_object_alone_is_tried_a_bounded_number_of_times() {
    let poll = Site { call: Call::Poll, place: "a+0x1".into() };
    let met: Vec<_> = (1..=500).map(|n| (&poll, n)).collect();
    let plan = Plan::new(&met, 1);
    assert_eq!(plan.singles(), 3 + 60);
}
