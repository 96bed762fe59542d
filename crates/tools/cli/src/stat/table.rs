//! The table of `adverb top` and `adverb stat`, in lines of at most 80 columns.
use super::world::{AGES, Peer, Rate, Shown, ShownPair, Weight, World};
use adverb_device::printable::printable_line;
use adverb_device::snapshot::Pair;
use std::time::Duration;

pub const COLUMNS: usize = 80;
/// In front of a note about the line above.
const NOTE: &str = "        ";

/// How a line stands out on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Head,
    Odd,
    Wrong,
}

/// A line without characters that a terminal obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub style: Style,
    pub text: String,
}

impl Line {
    pub fn new(style: Style, text: &str) -> Line {
        let text: String = printable_line(text).replace('\t', " ").chars().take(COLUMNS).collect();
        Line { style, text: text.trim_end().to_owned() }
    }
}

/// A number in at most five characters: 12, 9.9k, 123k, 1.2M.
pub fn number(value: f64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    if unit > 0 && value < 9.95 {
        format!("{value:.1}{}", UNITS[unit])
    } else {
        format!("{value:.0}{}", UNITS[unit])
    }
}

/// An age in at most five characters.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        0 if age.is_zero() => "new".into(),
        0 => format!("{}ms", age.as_millis()),
        seconds @ 1..600 => format!("{seconds}s"),
        seconds @ 600..36_000 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

/// A text of exactly this many columns.
fn cell(text: &str, width: usize) -> String {
    let text: String = printable_line(text).chars().take(width).collect();
    format!("{text:width$}")
}

/// The lines of the table. `room`: the number of lines wanted. Reports matter more than the last
/// queue pairs, so these give way; a third of the room stays theirs. Sentences are wrapped to
/// `columns`, and rows of the tables are not.
pub fn lines(world: &World, room: usize, columns: usize) -> Vec<Line> {
    let (mut lines, mut last) = (Vec::new(), Vec::new());
    processes(world, columns, &mut lines);
    reports(world, columns, &mut last);
    // A blank line and the head.
    let rows = room.saturating_sub(lines.len() + last.len() + 2).max(room / 3);
    pairs(world, rows, columns, &mut lines);
    lines.append(&mut last);
    lines
}

/// What the table is about, in a few words.
pub fn summary(world: &World) -> String {
    let pairs: usize = world.processes.iter().map(|shown| shown.pairs.len()).sum();
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let all = world.processes.len() + world.silent.len();
    let mut text = format!(
        "{all} process{}, {pairs} queue pair{}",
        if all == 1 { "" } else { "es" },
        s(pairs)
    );
    let lost = world.lost_wake_ups();
    if lost > 0 {
        text += &format!(", {lost} lost wake-up{}", s(lost));
    }
    text
}

fn processes(world: &World, columns: usize, lines: &mut Vec<Line>) {
    let head = "    PID PROGRAM          QPS OUT msg/s   B/s  IN msg/s   B/s  RETRIES   DROPS";
    lines.push(Line::new(Style::Head, head));
    for shown in &world.processes {
        let process = &shown.answered.process;
        let rates = [shown.out.messages, shown.out.bytes, shown.into.messages, shown.into.bytes]
            .map(number);
        let drops: u64 = shown.drops().map(|(_, n)| n).sum();
        let text = format!(
            "{:>7} {} {:>5} {:>9} {:>5} {:>9} {:>5} {:>8} {:>7}",
            shown.answered.pid,
            cell(&process.name, 15),
            process.queue_pairs,
            rates[0],
            rates[1],
            rates[2],
            rates[3],
            number(shown.retransmitted() as f64),
            number(drops as f64)
        );
        let stuck = shown.stuck().next().is_some();
        lines.push(Line::new(if stuck { Style::Wrong } else { Style::Plain }, &text));
        if shown.answered.elsewhere {
            let text = "(in another PID namespace, with that number there)";
            wrap(Style::Plain, NOTE, text, columns, lines);
        }
    }
    for silent in &world.silent {
        let begin = format!("{:>7} {}     ", silent.pid, cell(&silent.name, 15));
        wrap(Style::Odd, &begin, &silent.why, columns, lines);
    }
}

/// The queue pairs of all processes: first those in trouble, then those with the most bytes.
fn pairs(world: &World, rows: usize, columns: usize, lines: &mut Vec<Line>) {
    let mut all: Vec<(&Shown, &ShownPair)> = world
        .processes
        .iter()
        .flat_map(|shown| shown.pairs.iter().map(move |pair| (shown, pair)))
        .collect();
    if all.is_empty() {
        return;
    }
    let bytes = |pair: &ShownPair| pair.out.bytes + pair.into.bytes;
    all.sort_by(|(_, a), (_, b)| b.weight.cmp(&a.weight).then(bytes(b).total_cmp(&bytes(a))));
    lines.push(Line::new(Style::Plain, ""));
    lines.push(Line::new(
        Style::Head,
        "    PID QUEUE PAIR     TO                       OUT/s  IN/s  OPEN OLDEST RETRIES",
    ));
    let mut used = 0;
    for (place, (shown, pair)) in all.iter().enumerate() {
        let mut own = Vec::new();
        pair_lines(world, shown, pair, columns, &mut own);
        let needed = own.len();
        let left = all.len() - place;
        // The first queue pair is shown with its whole note.
        if place > 0 && used + needed + usize::from(left > 1) > rows {
            lines.push(Line::new(Style::Plain, &format!("        … and {left} more")));
            break;
        }
        used += needed;
        lines.append(&mut own);
    }
}

fn pair_lines(
    world: &World,
    shown: &Shown,
    one: &ShownPair,
    columns: usize,
    lines: &mut Vec<Line>,
) {
    let Pair { number: qpn, open, retransmitted, .. } = one.pair;
    let Rate { bytes: out, .. } = one.out;
    let text = format!(
        "{:>7} {} {} {:>5} {:>5} {:>5} {:>6} {:>7}",
        shown.answered.pid,
        cell(&format!("{} {qpn:#08x}", one.pair.transport()), 14),
        cell(&to(world, one), 24),
        number(out),
        number(one.into.bytes),
        open,
        one.oldest.map_or_else(|| "-".to_owned(), age),
        number(retransmitted as f64),
    );
    let style = match one.weight {
        Weight::Quiet | Weight::Fact => Style::Plain,
        Weight::Odd => Style::Odd,
        Weight::Wrong => Style::Wrong,
    };
    lines.push(Line::new(style, &text));
    if !one.note.is_empty() {
        let old = one.older.iter().zip(AGES).rev().find(|(count, _)| **count > 0);
        let old = old
            .filter(|_| open > 1)
            .map(|(count, limit)| format!(" ({count} older than {} s)", limit.as_secs()));
        let note = format!("{}{}", one.note, old.unwrap_or_default());
        wrap(style, NOTE, &note, columns, lines);
    }
}

fn to(world: &World, one: &ShownPair) -> String {
    let dest = one.pair.dest;
    match &one.peer {
        Peer::None => one.pair.state_name().into(),
        Peer::Here(place, _) => world.processes[*place].label(),
        Peer::Silent(place) => {
            format!("{} {}", world.silent[*place].pid, world.silent[*place].name)
        }
        Peer::Address(ip) => format!("{ip} {dest:#08x}"),
    }
}

/// The whole reports of lost wake-ups, and the reasons of drops and retries.
fn reports(world: &World, columns: usize, lines: &mut Vec<Line>) {
    for shown in &world.processes {
        for queue in shown.stuck().filter(|queue| !queue.stuck.is_empty()) {
            lines.push(Line::new(Style::Plain, ""));
            let text = format!("{}: lost wake-up: {}", shown.label(), queue.stuck);
            wrap(Style::Wrong, "", &text, columns, lines);
        }
    }
    for shown in &world.processes {
        let reasons = |all: Vec<(&str, u64)>| {
            let words: Vec<String> =
                all.iter().map(|(name, n)| format!("{name} {}", number(*n as f64))).collect();
            words.join(", ")
        };
        for (what, all) in
            [("drops", shown.drops().collect()), ("retries", shown.retries().collect::<Vec<_>>())]
        {
            let all: Vec<_> = all.into_iter().filter(|(_, n)| *n > 0).collect();
            if !all.is_empty() {
                lines.push(Line::new(Style::Plain, ""));
                let text = format!("{}: {what}: {}", shown.label(), reasons(all));
                wrap(Style::Plain, "", &text, columns, lines);
            }
        }
    }
}

/// Puts the words of a text into lines, the first behind `begin`. Further lines are indented.
fn wrap(style: Style, begin: &str, text: &str, columns: usize, lines: &mut Vec<Line>) {
    let text = printable_line(text);
    let indent = if begin.is_empty() { "    " } else { NOTE };
    let all = crate::out::wrap(text.split_whitespace(), begin, indent, columns.min(COLUMNS));
    lines.extend(all.iter().map(|line| Line::new(style, line)));
}

#[cfg(test)]
mod tests;
