use super::*;
use crate::results::tests::elements;

fn told(process: u32, code: Code, text: &str, at: &[&str]) -> Told {
    let places = at.iter().map(|at| ("posted".to_owned(), (*at).to_owned())).collect();
    Told { process, code, text: text.into(), places, state: false }
}

fn some() -> Vec<Found> {
    let (here, there) = ("a+0x1 in f, /src/a.c:7", "a+0x9 in g, /src/a.c:9");
    let changed = |process, text, at: &[&str]| told(process, Code::BufferChanged, text, at);
    together(
        [
            changed(1, "key 1 & <2>", &[here, there]),
            changed(2, "key 2", &[here]),
            changed(2, "key 3", &[there]),
            told(2, Code::CqTooSmall, "small", &[]),
            told(2, Code::CqTooSmall, "smaller", &[]),
        ]
        .into_iter(),
    )
}

/// CHK-13: reports of several processes about one place are merged.
#[test]
fn reports_of_several_processes_are_put_together() {
    let all: Vec<_> =
        some().iter().map(|of| (of.told.text.clone(), of.processes.clone())).collect();
    let one = |text: &str, processes: &[u32]| (text.to_owned(), processes.to_vec());
    let expected =
        [one("key 1 & <2>", &[1, 2]), one("key 3", &[2]), one("small", &[2]), one("smaller", &[2])];
    assert_eq!(all, expected);
}

/// CHK-13: each code is a test, which fails if there is a report with this code.
#[test]
fn the_test_report_has_a_test_for_each_code() {
    let text = as_junit(&some(), Duration::from_secs(1));
    let all = elements(&text);
    let number = |name: &str| all.iter().filter(|tag| tag.split(' ').next() == Some(name)).count();
    assert_eq!((number("testcase"), number("failure")), (Code::ALL.len(), 2));
    assert!(
        all[1].contains(&format!("tests=\"{}\" failures=\"2\"", Code::ALL.len())),
        "{}",
        all[1]
    );
    let failure = all.iter().find(|tag| tag.contains("type=\"buffer-changed\"")).unwrap();
    assert!(failure.contains("a.c:7 in f: key 1 &amp; &lt;2&gt;"), "{failure}");
    assert!(text.contains("process: 1, 2"), "{text}");
    let none = elements(&as_junit(&[], Duration::ZERO));
    assert!(
        none[1].contains("failures=\"0\"") && !none.iter().any(|tag| tag.starts_with("failure"))
    );
}

/// CHK-13: the state of a program that waits, or that a user ends, is no failure.
#[test]
fn a_state_is_no_failure() {
    let waits = |state| Told { state, ..told(1, Code::Waits, "thread 1 waits", &["a+0x1"]) };
    let failures = |all: &[Told]| {
        let found = together(all.iter().cloned());
        let text = as_junit(&found, Duration::ZERO);
        assert!(text.contains("thread 1 waits"), "{text}");
        let log = as_sarif(&found, &[]);
        let level = log["runs"][0]["results"][0]["level"].as_str().unwrap().to_owned();
        (elements(&text).iter().filter(|tag| tag.starts_with("failure")).count(), level)
    };
    assert_eq!(failures(&[waits(true)]), (0, "note".into()));
    assert_eq!(failures(&[waits(true), waits(false)]), (1, "warning".into()));
}

/// CHK-13: a result in SARIF has a rule, and the lines of all places.
#[test]
fn the_log_names_rules_and_lines() {
    let log = as_sarif(&some(), &["./a".into()]);
    let run = &log["runs"][0];
    let (rules, results) = (&run["tool"]["driver"]["rules"], run["results"].as_array().unwrap());
    assert_eq!(results.len(), 4);
    let first = &results[0];
    let index = usize::try_from(first["ruleIndex"].as_u64().unwrap()).unwrap();
    assert_eq!(
        (&first["ruleId"], &rules[index]["id"]),
        (&"buffer-changed".into(), &"buffer-changed".into())
    );
    assert!(rules[index]["shortDescription"]["text"].as_str().unwrap().starts_with("A buffer has"));
    let line = |place: &Value| place["physicalLocation"]["region"]["startLine"].clone();
    assert_eq!(line(&first["locations"][0]), 7);
    assert_eq!(line(&first["relatedLocations"][0]), 9);
    assert_eq!(first["properties"]["processes"], json!([1, 2]));
    assert_eq!(results[2]["locations"], json!([]));
    assert_eq!(as_sarif(&[], &[])["runs"][0]["results"], json!([]));
}
