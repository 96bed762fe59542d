use super::{asked, explain, list, mlx5, named, page};
use adverb_device::catalogue;

#[test]
fn the_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/causes.md");
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == page::page(),
        "docs/causes.md is not what the catalogue says: run `make causes`"
    );
}

#[test]
fn every_entry_is_explained_by_its_number_and_its_name() {
    for entry in catalogue::all() {
        for what in
            [format!("{:#x}", entry.code), entry.code.to_string(), entry.name.to_lowercase()]
        {
            let text = explain(&what).unwrap();
            assert!(text.contains(entry.name), "{what}: {text}");
            assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        }
        assert!(list().contains(entry.name));
    }
    let mut codes: Vec<_> = catalogue::all().map(|e| e.code).collect();
    codes.dedup();
    assert_eq!(codes.len(), catalogue::all().count());
    assert!(catalogue::all().zip(catalogue::all().skip(1)).all(|(a, b)| a.code < b.code));
}

#[test]
fn lines_of_the_log_are_known() {
    for (line, names) in [
        (
            "adverb: warn: queue pair 0x4db054: RdmaWrite completes with RemAccessErr (wr_id 0x7): QP 0x6f0ac8 refused PSN 11: remote \
             access error",
            &["RemoteNak"][..],
        ),
        (
            "flushed; the queue pair failed because: key 0x00001f04 names no memory region or window",
            &["UnknownKey", "Flushed"],
        ),
        (
            "adverb: info: ibv_modify_qp fails: Init to Rtr needs IBV_QP_DEST_QPN (EINVAL)",
            &["AttributeRefused"],
        ),
        (
            "adverb: warn: lost wake-up: CQ 2 holds 8 completions that came before its last arm",
            &["LostWakeUp"],
        ),
        (
            "adverb: warn: destroying CQ 4 (32 entries) waits for 3 event(s) that were read and not acknowledged (since 1s)",
            &["UnacknowledgedEvents"],
        ),
    ] {
        let found: Vec<_> = asked::find(line).entries.iter().map(|e| e.name).collect();
        assert_eq!(found, names, "{line}");
    }
}

#[test]
fn numbers_that_programs_print_are_found() {
    for (line, number) in [
        (
            "NCCL WARN NET/IB : Got completion from peer with status=12 opcode=0 len=0 vendor err 129",
            0x81,
        ),
        ("Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)", 0x81),
        ("Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 hw_synd 0/0)", 0x51),
        ("Completion with error at client: Failed status 12: wr_id 0 syndrom 0x81", 0x81),
        ("failed with status=5, vendor_err=249", 0xf9),
        ("remote access error, vendor_error: 0x88", 0x88),
        ("vendor_err: 65537", 65537),
    ] {
        assert!(asked::find(line).mlx5.iter().any(|c| c.number == number), "{line}");
    }
    for code in mlx5::CODES {
        assert!(explain(&code.number.to_string()).unwrap().contains(code.status));
        assert!(code.cause.is_none_or(|c| catalogue::by_code(c).is_some()), "{:#x}", code.number);
    }
}

#[test]
fn what_is_unknown_is_said_with_a_remedy() {
    for what in ["0x7777", "hello", "vendor_err", "-1"] {
        let refused = explain(what).unwrap_err();
        assert!(refused.contains(what) && refused.contains("adverb explain"), "{refused}");
    }
}

/// Each report, choice, status and event has a meaning, a reason and a right order.
#[test]
fn every_report_choice_status_and_event_is_explained() {
    let kinds = named::names();
    assert_eq!(kinds.iter().map(|(_, names)| names.len()).min(), Some(19));
    for name in kinds.iter().flat_map(|(_, names)| names) {
        let text = explain(name).unwrap_or_else(|why| panic!("{name}: {why}"));
        for part in ["Why: ", "The right order:\n      ", "To suppress: "] {
            assert!(text.contains(part), "{name} lacks {part:?}: {text}");
        }
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        assert!(list().contains(name.as_str()), "{name}");
    }
    for choice in adverb_choice::Choice::ALL {
        assert!(explain(choice.name()).unwrap().contains(choice.name()));
    }
}

/// Several lines are explained at once, each report once, and other lines are skipped.
#[test]
fn pasted_lines_are_explained() {
    let lines = "hello\n\
        adverb: warn: check: waits: thread 7 waits in read(3) (waits at a+0x1 in main, a.c:9)\n\
        adverb: warn: check: region-in-use: the region with key 0x7 is deregistered\n\
        adverb: warn: check: region-in-use: the region with key 0x8 is deregistered\n  \
        rule:    completions that come before the arm make no event: arm, then poll until empty\n\
        counts on: the message posted at a.c:9 in main: if it is lost, as UC and UD allow, \
        the program hangs\n  \
        event RDMA_CM_EVENT_REJECTED (status 28) in place of RDMA_CM_EVENT_ESTABLISHED\n";
    let text = explain(lines).unwrap();
    for (title, times) in [
        ("\nregion-in-use: ", 1),
        ("choice \"before\" at the call \"arm\"", 1),
        ("choice \"lose\" at the call \"unreliable\"", 1),
        ("RDMA_CM_EVENT_REJECTED (8)", 1),
        ("RDMA_CM_EVENT_ESTABLISHED (9)", 1),
    ] {
        assert_eq!(text.matches(title).count(), times, "{title}: {text}");
    }
    assert!(text.starts_with("waits: "), "{text}");
    assert!(!explain("the program waits: vendor err 129").unwrap().contains("waits: a state"));
}
