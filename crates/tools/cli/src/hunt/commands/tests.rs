use super::*;

fn outputs(server: &str, client: &str) -> [Output; 2] {
    [(Who::Server, server), (Who::Client, client)]
        .map(|(who, text)| Output { who, text: text.into() })
}

/// HUN-7: the report names the command of a pair that failed first, hangs, or sleeps beside
/// completions.
#[test]
fn the_one_is_named_that_failed() {
    let quiet = outputs("", "");
    let lost = outputs("adverb: warn: lost wake-up: CQ 4\n", "");
    let (fine, one) = (Verdict::Fine, Verdict::Status(1));
    let hang = || Some("it sleeps".to_owned());
    let ended = |of: &[(Who, &Verdict)], hang: Option<String>| {
        let of = of.iter().map(|(who, verdict)| (*who, (*verdict).clone())).collect();
        Ends { of, hang, ..Ends::default() }
    };
    let both = [(Who::Server, &Verdict::Crash(11)), (Who::Client, &one)];
    assert_eq!(ended(&both, None).verdict(&quiet, false), (Who::Server, Verdict::Crash(11)));
    let both = [both[1], both[0]];
    assert_eq!(ended(&both, None).verdict(&quiet, false), (Who::Server, Verdict::Crash(11)));
    let late = [(Who::Server, &fine), (Who::Client, &one)];
    assert_eq!(ended(&late, None).verdict(&quiet, false), (Who::Client, Verdict::Status(1)));
    // If one command has ended well, the other hangs. If both hang, the command with the
    // lost wake-up is named.
    assert_eq!(ended(&late[..1], hang()).verdict(&quiet, false).0, Who::Client);
    assert_eq!(ended(&[], hang()).verdict(&quiet, false).0, Who::Both);
    assert_eq!(ended(&[], hang()).verdict(&lost, true).0, Who::Server);
    // A server sleeping at the end of every run is not to blame.
    assert_eq!(ended(&[], hang()).verdict(&quiet, true).0, Who::Client);
    let fines = [(Who::Client, &fine), (Who::Server, &fine)];
    assert_eq!(ended(&fines, None).verdict(&quiet, false), (Who::Both, Verdict::Fine));
    let report = ended(&fines, None).verdict(&lost, false);
    assert_eq!(report, (Who::Server, Verdict::Report("lost wake-up: CQ 4".into())));
}
