//! The explanations that a name or a line names: reports of the check, choices of the hunt,
//! statuses and events of connections.
use super::topic::Topic;
use super::{choices, events, reports, statuses};
use adverb_check::Code;
use adverb_choice::{Call, Choice};

/// The names of all topics, by kind.
pub fn names() -> Vec<(&'static str, Vec<String>)> {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let codes = Code::ALL.iter().map(|code| code.name().to_owned()).collect();
    let choices = pairs().map(|(call, choice)| format!("{} {}", call.name(), choice.name()));
    let statuses: Vec<_> = statuses::ALL.iter().map(|status| status.0).collect();
    vec![
        ("reports of adverb run --check", codes),
        ("choices of adverb hunt (call and choice)", choices.collect()),
        ("statuses of completions", of(&statuses)),
        ("events of rdma_cm", of(&adverb_check::CM_EVENTS)),
    ]
}

/// The topics that a name or a line of a log names.
pub fn find(what: &str) -> Vec<Topic> {
    let what = what.trim();
    let mut topics: Vec<Topic> = Vec::new();
    let names =
        |name: &str| what.eq_ignore_ascii_case(name) || what.contains(&format!("check: {name}: "));
    topics.extend(Code::ALL.iter().filter(|code| names(code.name())).map(|c| reports::topic(*c)));
    for (call, choice) in pairs().filter(|pair| is_choice(what, *pair)) {
        topics.push(choices::topic(call, choice));
    }
    let words: Vec<_> =
        what.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').collect();
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    topics.extend(statuses::ALL.iter().filter(|s| has(s.0)).map(statuses::topic));
    let kinds = adverb_check::CM_EVENTS.iter().enumerate();
    topics.extend(kinds.filter(|(_, name)| has(name)).map(|(n, name)| events::topic(n, name)));
    // The names of reports and of choices that are no usual word count anywhere in a line.
    if topics.is_empty() {
        let rare = |code: &&Code| code.name().contains('-') && has(code.name());
        topics.extend(Code::ALL.iter().filter(rare).map(|code| reports::topic(*code)));
    }
    topics
}

fn pairs() -> impl Iterator<Item = (Call, Choice)> {
    Call::ALL.iter().flat_map(|call| call.choices().iter().map(move |choice| (*call, *choice)))
}

/// Is this the name of a choice, a call with a choice, or the line of a report with the choice?
fn is_choice(what: &str, (call, choice): (Call, Choice)) -> bool {
    let whole = what.eq_ignore_ascii_case(choice.name())
        || what.eq_ignore_ascii_case(&format!("{} {}", call.name(), choice.name()));
    let line = |label: &str, text: &str| {
        what.trim_start().strip_prefix(label).map(str::trim) == Some(text)
    };
    let counted_on = call == Call::Unreliable && what.trim_start().starts_with("counts on:");
    whole || counted_on || line("chosen:", choice.words(call)) || line("rule:", choice.rule(call))
}
