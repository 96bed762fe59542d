use super::*;
use proptest::prelude::*;

fn pair(number: u32) -> Pair {
    Pair {
        number,
        qp_type: 1,
        state: 3,
        busy: true,
        retrying: true,
        shared: true,
        way: PacketPath::Memory,
        peer_pid: 11,
        dest: 12,
        own_gid: Gid::from_ipv4([10, 0, 0, 1]),
        peer_gid: Gid::from_ipv4([10, 0, 0, 2]),
        send_cq: 13,
        recv_cq: 14,
        depth: 15,
        open: 16,
        receives: 17,
        posted: 18,
        sent_bytes: 19,
        read_bytes: 20,
        received: 21,
        received_bytes: 22,
        retransmitted: 23,
        timeouts: 24,
        rnr_naks: 25,
        seq_naks: 26,
        drops: 27,
        refused: 28,
        error: "remote access error".into(),
        unfit: "a datagram was dropped".into(),
        srq: 3,
        unknown_key: 0x1234,
    }
}

fn queue(number: u32, arm: Arm) -> Queue {
    Queue {
        number,
        capacity: 31,
        waiting: 32,
        unannounced: 33,
        unread: 34,
        arm,
        channel: true,
        broken: true,
        arms: 35,
        silent_ms: 36,
        waiter: "thread 37 \"r\" in read(3)".into(),
        stuck: "CQ 1 holds 8 completions".into(),
        poller: 37,
    }
}

fn page() -> Page {
    Page {
        next: Some(41),
        process: Process {
            pid: 42,
            slot: 43,
            at: 44,
            name: "näme\n".into(),
            version: "1.2.3".into(),
            contexts: 45,
            queue_pairs: 46,
        },
        counters: vec![("rx_drop_icrc".into(), 47), (String::new(), u64::MAX)],
        queues: vec![
            queue(1, Arm::Next),
            queue(2, Arm::Solicited),
            queue(3, Arm::Errors),
            Queue::default(),
        ],
        queue_pairs: vec![pair(4), Pair { way: PacketPath::Frames, ..Pair::default() }],
        objects: vec!["adverb0 ctx 1".into(), String::new()],
    }
}

/// TOP-1: a page survives the way.
#[test]
fn top_1_a_page_survives_the_way() {
    for page in [page(), Page::default()] {
        assert_eq!(Page::parse(&page.emit()), Ok(page));
    }
}

/// TOP-1: each cut page is refused, and so is another version.
#[test]
fn top_1_a_cut_page_is_refused() {
    let bytes = page().emit();
    for len in 0..bytes.len() {
        assert_eq!(Page::parse(&bytes[..len]), Err(Bad::Malformed), "{len} bytes");
    }
    let mut other = bytes;
    other[0] = 9;
    assert_eq!(Page::parse(&other), Err(Bad::Version(9)));
}

/// TOP-1: fields that a later version adds to the end of a record are skipped.
#[test]
fn top_1_a_later_version_may_add_fields() {
    let empty = Page::default();
    let bytes = empty.emit();
    // Version, next page, then the length of the process's record.
    let len = u16::from_le_bytes([bytes[6], bytes[7]]);
    let mut longer = bytes[..6].to_vec();
    longer.extend_from_slice(&(len + 3).to_le_bytes());
    longer.extend_from_slice(&bytes[8..8 + usize::from(len)]);
    longer.extend_from_slice(b"new");
    longer.extend_from_slice(&bytes[8 + usize::from(len)..]);
    assert_eq!(Page::parse(&longer), Ok(empty));
}

/// TOP-1: a text is cut at the end of a character, and the records keep to their longest length.
#[test]
fn top_1_texts_have_a_longest_length() {
    let long = "ä".repeat(100_000);
    let queue = Queue { waiter: long.clone(), stuck: long.clone(), ..queue(1, Arm::Next) };
    let pair = Pair { error: long.clone(), ..pair(1) };
    let page = Page { queues: vec![queue], queue_pairs: vec![pair], ..Page::default() };
    let got = Page::parse(&page.emit()).unwrap();
    assert_eq!(got.queues[0].stuck, long[..1000]);
    assert_eq!(got.queue_pairs[0].error, long[..1000]);
    let alone = |page: Page| page.emit().len() - Page::default().emit().len();
    assert!(alone(Page { queues: got.queues, ..Page::default() }) <= Queue::LONGEST);
    assert!(alone(Page { queue_pairs: got.queue_pairs, ..Page::default() }) <= Pair::LONGEST);
}

proptest! {
    /// TOP-1: arbitrary bytes, and pages with changed bytes, are a page or are refused. An accepted
    /// page is no larger than its bytes allow, and is written and read again.
    #[test]
    fn top_1_hostile_bytes_are_refused(
        random in proptest::collection::vec(any::<u8>(), 0..300),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8),
        cut in any::<usize>(),
    ) {
        let mut spoiled = page().emit();
        for (at, byte) in changes {
            let len = spoiled.len();
            spoiled[at % len] ^= byte;
        }
        spoiled.truncate(cut % (2 * spoiled.len()));
        let mut begun = 2_u16.to_le_bytes().to_vec();
        begun.extend_from_slice(&random);
        for bytes in [random, spoiled, begun] {
            if let Ok(page) = Page::parse(&bytes) {
                let records = page.counters.len() + page.queues.len() + page.queue_pairs.len() + page.objects.len();
                prop_assert!(records * 2 <= bytes.len());
                prop_assert_eq!(Page::parse(&page.emit()), Ok(page));
            }
        }
    }
}
