use super::super::ask::{Answered, Round, Silent};
use super::super::world::History;
use super::*;
use adverb_device::snapshot::Process;
use std::time::Instant;

/// TOP-7: each metric has its help and type before its samples, and labels are quoted.
#[test]
fn top_7_the_text_is_as_prometheus_wants_it() {
    let name = "a \"quoted\" \\ name\nwith a line";
    let answered = Answered {
        pid: 7,
        process: Process { name: name.into(), ..Process::default() },
        counters: [("rx_drop_icrc".to_owned(), 3)].into(),
        queues: [(2, Queue { number: 2, stuck: "CQ 2".into(), waiting: 8, ..Queue::default() })]
            .into(),
        pairs: [(5, Pair { number: 5, sent_bytes: 1 << 50, open: 4, ..Pair::default() })].into(),
        ..Answered::default()
    };
    let silent = Silent { pid: 9, slot: 1, name: "gone".into(), why: "no answer".into() };
    let world = History::default().world(&Round {
        at: Instant::now(),
        answered: vec![answered],
        silent: vec![silent],
    });
    let text = text(&world);
    let program = r#"pid="7",program="a \"quoted\" \\ name\\u000awith a line""#;
    for line in [
        format!("adverb_up{{{program}}} 1"),
        "adverb_up{pid=\"9\",program=\"gone\"} 0".to_owned(),
        format!("adverb_dropped_packets_total{{{program},reason=\"rx_drop_icrc\"}} 3"),
        format!(
            "adverb_qp_sent_bytes_total{{{program},qp=\"0x000005\",transport=\"RC\"}} 1125899906842624"
        ),
        format!("adverb_qp_open_requests{{{program},qp=\"0x000005\",transport=\"RC\"}} 4"),
        format!("adverb_cq_completions{{{program},cq=\"2\"}} 8"),
        format!("adverb_cq_lost_wake_up{{{program},cq=\"2\"}} 1"),
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    let mut known = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            known = rest.split(' ').next().unwrap();
        } else if !line.starts_with('#') {
            assert_eq!(line.split('{').next().unwrap(), known, "{line}");
        }
    }
}
