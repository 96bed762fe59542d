use super::super::ask::{Answered, Round, Silent};
use super::super::world::History;
use super::*;
use adverb_device::engine::Gid;
use adverb_device::snapshot::{Process, Queue};
use std::time::Instant;

fn world(name: &str) -> World {
    let gid = Gid([0xfe; 16]);
    let long = Pair {
        qp_type: 3,
        dest: 0x00ff_ffff,
        own_gid: gid,
        peer_gid: gid,
        open: u32::MAX,
        posted: u64::MAX,
        retransmitted: u64::MAX,
        error: format!("{name} ").repeat(40),
        ..Pair::default()
    };
    let queue = Queue {
        number: u32::MAX,
        stuck: format!("CQ 1 holds 8 completions; {name} ").repeat(9),
        ..Queue::default()
    };
    let answered = Answered {
        pid: 4_194_304,
        elsewhere: true,
        process: Process { name: name.into(), queue_pairs: 99_999, slot: 1, ..Process::default() },
        counters: [("rx_drop_icrc", u64::MAX), ("qp_retransmitted", 5), ("tx_packets", 7)]
            .map(|(n, v)| (n.into(), v))
            .into(),
        queues: [(1, queue)].into(),
        pairs: (0..40).map(|n| (n, Pair { number: 0x00ff_ff00 + n, ..long.clone() })).collect(),
    };
    let silent =
        Silent { pid: 4_194_303, slot: 9, name: name.into(), why: format!("no answer: {name}") };
    History::default().world(&Round {
        at: Instant::now(),
        answered: vec![answered],
        silent: vec![silent],
    })
}

/// TOP-6: lines have at most 80 columns, and names do not reach the terminal as control characters.
#[test]
fn top_6_lines_fit_and_are_printable() {
    let world = world("evil\x1b[31m\nforged\tname that goes on for long");
    let lines = lines(&world, usize::MAX, COLUMNS);
    for line in &lines {
        assert!(line.text.chars().count() <= COLUMNS, "{line:?}");
        assert!(!line.text.contains(|c: char| c.is_control()), "{line:?}");
    }
    let text: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert!(text.iter().any(|line| line.contains("evil\\u001b")), "{text:#?}");
    assert!(text.iter().any(|line| line.contains("rx_drop_icrc 18E")), "{text:#?}");
    assert!(!text.iter().any(|line| line.contains("tx_packets")), "{text:#?}");
}

/// TOP-6: on a narrow terminal, sentences lose no word.
#[test]
fn top_6_sentences_are_wrapped() {
    let world = world("program");
    let words = |columns| {
        let all = lines(&world, usize::MAX, columns);
        let text: Vec<String> = all.into_iter().map(|line| line.text).collect();
        text.join(" ").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words(40), words(COLUMNS));
    let narrow = lines(&world, usize::MAX, 40);
    let is_row = |line: &Line| line.style == Style::Head || line.text.chars().count() > 60;
    assert!(
        narrow.iter().all(|line| is_row(line) || line.text.chars().count() <= 40),
        "{narrow:#?}"
    );
}

/// TOP-6: queue pairs beyond the room are counted.
#[test]
fn top_6_queue_pairs_without_room_are_counted() {
    let world = world("program");
    let all = lines(&world, usize::MAX, COLUMNS);
    let few = lines(&world, 30, COLUMNS);
    assert!(!all.iter().any(|line| line.text.contains("more")));
    assert!(few.len() <= 30, "{few:#?}");
    let more =
        few.iter().find_map(|line| line.text.trim().strip_prefix("… and ")?.strip_suffix(" more"));
    let hidden: usize = more.expect("a count").parse().unwrap();
    // All queue pairs have as many lines, and the count has one.
    assert_eq!((all.len() - few.len() + 1) % hidden, 0);
    // Reports without an end leave the queue pairs a third of the room.
    assert!(
        lines(&world, 18, COLUMNS)
            .iter()
            .any(|line| line.text.starts_with("        … and 39 more"))
    );
}

#[test]
fn numbers_and_ages_are_short() {
    let words = [0.0, 7.4, 999.0, 999.6, 1000.0, 9949.0, 9950.0, 123_456.0, 1.8e19].map(number);
    assert_eq!(words, ["0", "7", "999", "1.0k", "1.0k", "9.9k", "10k", "123k", "18E"]);
    let ages =
        [0, 1, 999, 1000, 599_000, 600_000, 36_000_000].map(|ms| age(Duration::from_millis(ms)));
    assert_eq!(ages, ["new", "1ms", "999ms", "1s", "599s", "10m", "10h"]);
}
