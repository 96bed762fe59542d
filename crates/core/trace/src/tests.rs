//! Stories of hand-made records, and the files written from them.
use crate::{Kind, Node, ProcessRecords, Story, Track, calls, lines, perfetto};
use serde_json::{Value, json};
use std::collections::HashMap;

const SENDER: u32 = 0x11;
const RECEIVER: u32 = 0x22;

/// The text of a part.
fn text(records: impl IntoIterator<Item = Value>) -> String {
    records.into_iter().map(|record| format!("{record}\n")).collect()
}

fn part(text: &str) -> ProcessRecords {
    ProcessRecords::of(text.as_bytes()).unwrap()
}

/// A process with a connected queue pair.
fn begun(pid: u32, qp: u32, dest: u32, first: u32) -> Vec<Value> {
    vec![
        json!({"k": "process", "t": 0, "pid": pid, "name": "p", "command": ["p"], "wall": 5}),
        json!({"k": "queue_pair", "t": 1, "qp": qp, "transport": "Rc", "send_cq": 1, "recv_cq": 2}),
        json!({"k": "modified", "t": 2, "qp": qp, "mtu": 1024, "dest": dest}),
        json!({"k": "modified", "t": 2, "qp": qp, "sq_psn": first}),
    ]
}

fn request(wr_id: u64, opcode: u32, bytes: u64, signaled: bool) -> Value {
    json!({"wr_id": wr_id, "opcode": opcode, "bytes": bytes, "signaled": signaled,
        "solicited": false})
}

fn packet(t: u64, sent: bool, opcode: u8, qp: u32, psn: u32, note: &str) -> Value {
    let (src, dst) =
        if qp == RECEIVER { ("10.0.0.1", "10.0.0.2") } else { ("10.0.0.2", "10.0.0.1") };
    let syndrome = (opcode == 0x11).then_some(0);
    json!({
        "k": "packet", "t": t, "tid": 9, "sent": sent, "src": src, "dst": dst, "opcode": opcode,
        "qp": qp, "psn": psn, "syndrome": syndrome, "bytes": 100, "note": note,
    })
}

fn done(qp: u32, wr_id: u64, opcode: u32) -> Value {
    json!({"qp": qp, "wr_id": wr_id, "status": 0, "opcode": opcode, "bytes": 1500})
}

fn completion(t: u64, cq: u32, of: Value) -> Value {
    json!({"k": "completion", "t": t, "tid": 9, "cq": cq, "of": of})
}

/// The text of the parts of a message of two packets to another process, which sleeps; and of the
/// answer.
fn message_text() -> [String; 2] {
    let packet = |t, sent, opcode, qp, psn| packet(t, sent, opcode, qp, psn, "");
    let mut sender = begun(7, SENDER, RECEIVER, 0xff_ffff);
    // The first is unsignaled, so it is completed together with the next request.
    let requests = [request(1, 0, 10, false), request(2, 2, 1500, true), request(3, 2, 8, true)];
    sender.extend([
        json!({"k": "post", "t": 100, "d": 50, "tid": 7, "call": "ibv_post_send", "qp": SENDER,
            "requests": requests, "taken": 2, "result": 12}),
        packet(110, true, 0x0a, RECEIVER, 0xff_ffff),
        packet(111, true, 0x00, RECEIVER, 0),
        packet(112, true, 0x02, RECEIVER, 1),
        // A retransmission, as after a loss.
        packet(130, true, 0x02, RECEIVER, 1),
        packet(140, false, 0x11, SENDER, 1),
        completion(141, 1, done(SENDER, 2, 0)),
        json!({"k": "poll", "t": 120, "d": 30, "tid": 7, "call": "ibv_poll_cq", "cq": 1, "empty": 0,
            "done": [done(SENDER, 2, 0)], "result": 1}),
        json!({"k": "end", "t": 400}),
    ]);
    let mut receiver = begun(8, RECEIVER, SENDER, 500);
    receiver.extend([
        json!({"k": "receive", "t": 20, "d": 5, "tid": 8, "call": "ibv_post_recv", "qp": RECEIVER,
            "requests": [request(40, 128, 4096, true)], "taken": 1, "result": 0}),
        json!({"k": "arm", "t": 30, "d": 2, "tid": 8, "call": "ibv_req_notify_cq", "cq": 2,
            "solicited": false, "result": 0}),
        packet(120, false, 0x0a, RECEIVER, 0xff_ffff),
        packet(121, false, 0x00, RECEIVER, 0),
        packet(132, false, 0x02, RECEIVER, 1),
        completion(133, 2, done(RECEIVER, 40, 128)),
        json!({"k": "event", "t": 134, "tid": 9, "cq": 2}),
        packet(135, true, 0x11, SENDER, 1),
        json!({"k": "taken", "t": 40, "d": 100, "tid": 8, "call": "ibv_get_cq_event", "cq": 2,
            "errno": 0}),
        json!({"k": "poll", "t": 150, "d": 3, "tid": 8, "call": "ibv_poll_cq", "cq": 2, "empty": 0,
            "done": [done(RECEIVER, 40, 128)], "result": 1}),
        json!({"k": "poll", "t": 160, "d": 9, "tid": 8, "call": "ibv_poll_cq", "cq": 2, "empty": 17,
            "done": [], "result": 0}),
    ]);
    [sender, receiver].map(text)
}

fn message() -> [ProcessRecords; 2] {
    message_text().map(|text| part(&text))
}

/// The sender's part of messages through shared memory: a WRITE performed by the initiator, a SEND
/// of 1500 bytes in one packet, and a WRITE carried by a packet.
fn near() -> ProcessRecords {
    let mut records = begun(7, SENDER, RECEIVER, 7);
    let post = |t, wr_id, opcode, bytes| {
        json!({"k": "post", "t": t, "d": 5, "tid": 7, "call": "ibv_post_send", "qp": SENDER,
            "requests": [request(wr_id, opcode, bytes, true)], "taken": 1, "result": 0})
    };
    let ended = |t, wr_id, opcode| completion(t, 1, done(SENDER, wr_id, opcode));
    let packet =
        |t, sent, opcode, qp, psn| packet(t, sent, opcode, qp, psn, "sent through shared memory");
    records.extend([
        post(100, 1, 0, 3000),
        ended(101, 1, 1),
        post(110, 2, 2, 1500),
        packet(111, true, 0x04, RECEIVER, 7),
        packet(112, false, 0x11, SENDER, 7),
        ended(113, 2, 0),
        post(120, 3, 0, 3000),
        ended(121, 3, 1),
        post(130, 4, 0, 8),
        packet(131, true, 0x0a, RECEIVER, 8),
        // A retransmission.
        packet(132, true, 0x0a, RECEIVER, 8),
        packet(133, false, 0x11, SENDER, 8),
        ended(134, 4, 1),
    ]);
    part(&text(records))
}

/// TRC-3: within the host a packet holds more bytes, and requests without a packet take no PSN.
#[test]
fn arrows_of_packets_through_shared_memory() {
    let story = Story::of(&[near()]);
    let nodes = |name| named(&story, name).map(|(at, _)| at).collect::<Vec<_>>();
    let from = |at: usize| story.nodes[at].from.clone();
    let (posts, ends, acks) =
        (nodes("ibv_post_send"), nodes("completion"), nodes("RC ACKNOWLEDGE ACK"));
    assert_eq!(from(nodes("RC SEND_ONLY")[0]), [posts[1]]);
    let writes = nodes("RC RDMA_WRITE_ONLY");
    assert_eq!((from(writes[0]), from(writes[1])), (vec![posts[3]], vec![]));
    // Without a packet, the post itself leads to the completion.
    let led: Vec<_> = ends.iter().map(|end| from(*end)).collect();
    assert_eq!(led, [vec![posts[0]], vec![acks[0]], vec![posts[2]], vec![acks[1]]]);
}

/// All nodes with this name.
fn named<'s>(story: &'s Story, name: &'s str) -> impl Iterator<Item = (usize, &'s Node)> {
    story.nodes.iter().enumerate().filter(move |(_, node)| node.name == name)
}

/// The only node with this name in a process.
fn the(story: &Story, process: usize, name: &str) -> usize {
    let mut found = named(story, name).filter(|(_, node)| story.tracks[node.track].0 == process);
    let (at, _) = found.next().unwrap_or_else(|| panic!("no {name:?}"));
    assert!(found.next().is_none(), "two of {name:?}");
    at
}

/// TRC-3: each step leads to the next, from the post to the poll, and back.
#[test]
fn arrows_go_from_post_to_poll() {
    let story = Story::of(&message());
    let from = |at: usize| story.nodes[at].from.clone();
    let post = the(&story, 0, "ibv_post_send");
    let first = the(&story, 0, "RC SEND_FIRST");
    assert_eq!(from(first), [post]);
    let [sent, again] = named(&story, "RC SEND_LAST")
        .filter(|(_, node)| story.tracks[node.track].0 == 0)
        .map(|(at, _)| at)
        .collect::<Vec<_>>()[..]
    else {
        panic!("the last packet was sent twice")
    };
    assert!(
        from(sent).is_empty() && from(again).is_empty(),
        "only the first packet of a request is its post's"
    );
    let arrived = the(&story, 1, "RC SEND_LAST");
    assert_eq!(from(arrived), [again]);
    let completion = the(&story, 1, "completion");
    assert_eq!(from(completion), [arrived, the(&story, 1, "ibv_post_recv")]);
    let event = the(&story, 1, "event");
    assert_eq!(from(event), [completion]);
    let taken = the(&story, 1, "event taken");
    assert_eq!(from(taken), [event]);
    assert_eq!(from(the(&story, 1, "polled")), [completion, taken]);
    let ack = the(&story, 0, "RC ACKNOWLEDGE ACK");
    assert_eq!(from(ack), [the(&story, 1, "RC ACKNOWLEDGE ACK")]);
    assert_eq!(from(the(&story, 0, "completion")), [ack]);
    assert_eq!(from(the(&story, 0, "polled")), [the(&story, 0, "completion")]);
    for (from, to) in story.arrows() {
        assert!(
            story.nodes[from].t <= story.nodes[to].t,
            "{:?} leads back to {:?}",
            story.nodes[from],
            story.nodes[to]
        );
    }
}

/// TRC-2: a request lasts from its post to the completion that reports it, which may belong to a
/// later request. A refused request does not appear.
#[test]
fn requests_last_to_their_completion() {
    let story = Story::of(&message());
    let slices = |process: usize, name: &str| -> Vec<(u64, Kind)> {
        let spread =
            |track: usize| matches!(&story.tracks[track], (p, Track::Spread(_)) if *p == process);
        named(&story, name).filter(|(_, n)| spread(n.track)).map(|(_, n)| (n.t, n.kind)).collect()
    };
    assert_eq!(slices(0, "RDMA_WRITE"), [(100, Kind::Slice(Some(41)))]);
    assert_eq!(slices(0, "SEND"), [(100, Kind::Slice(Some(41)))]);
    assert_eq!(slices(1, "RECV"), [(20, Kind::Slice(Some(113)))]);
    let armed = the(&story, 1, "armed for next");
    assert_eq!((story.nodes[armed].t, story.nodes[armed].kind), (31, Kind::Slice(Some(103))));
    let fill: Vec<_> = story
        .nodes
        .iter()
        .filter(|n| {
            story.tracks[n.track] == (1, Track::Counter("CQ 2: completions waiting".into()))
        })
        .map(|n| n.kind)
        .collect();
    assert_eq!(fill, [Kind::Counter(1), Kind::Counter(0)]);
}

/// TRC-5: the part of a process killed in the middle of a line.
#[test]
fn a_cut_part_is_read() {
    let [sender, whole] = message_text();
    let (receiver, cut) = (part(&whole), part(&whole[..whole.len() - 7]));
    assert_eq!((receiver.records.len(), receiver.cut), (whole.lines().count(), 0));
    assert_eq!((cut.records.len(), cut.cut), (receiver.records.len() - 1, 1));
    let story = Story::of(&[part(&sender), cut]);
    assert_eq!(
        story.processes.iter().map(|p| (p.ended, p.cut)).collect::<Vec<_>>(),
        [(true, 0), (false, 1)]
    );
}

/// A field of a protobuf message: its number, and a number or bytes.
#[derive(Clone, Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number that ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(number.try_into().unwrap()))
            }
            2 => {
                let len = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(len);
                bytes = rest;
                Field::Bytes(inner)
            }
            wire => panic!("wire type {wire}"),
        };
        all.push((key >> 3, field));
    }
    all
}

fn number(of: &[(u64, Field<'_>)], field: u64) -> Option<u64> {
    of.iter().find(|(n, _)| *n == field).map(|(_, f)| match f {
        Field::Number(n) => *n,
        Field::Bytes(_) => panic!("field {field} is bytes"),
    })
}

fn inner<'a>(of: &[(u64, Field<'a>)], field: u64) -> Option<Vec<(u64, Field<'a>)>> {
    of.iter().find(|(n, _)| *n == field).map(|(_, f)| match f {
        Field::Bytes(bytes) => fields(bytes),
        Field::Number(_) => panic!("field {field} is a number"),
    })
}

/// TRC-4: the trace meets Perfetto's rules. Times never decrease. All slices of a line end and are
/// nested. Each event is on a described line. Each arrow has a begin and a later end.
#[test]
fn the_perfetto_trace_is_whole() {
    let story = Story::of(&message());
    let mut bytes = Vec::new();
    perfetto::write(&story, &mut bytes).unwrap();
    let (mut tracks, mut last) = (Vec::new(), 0);
    let mut open: HashMap<u64, usize> = HashMap::new();
    let (mut begins, mut ends) = (HashMap::new(), HashMap::new());
    let mut counts = HashMap::new();
    for (n, packet) in fields(&bytes) {
        let Field::Bytes(packet) = packet else { panic!("field {n} of a trace") };
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1), "the sequence");
        if let Some(descriptor) = inner(&packet, 60) {
            tracks.push(number(&descriptor, 1).unwrap());
            continue;
        }
        let t = number(&packet, 8).expect("a time");
        assert!(t >= last, "{t} after {last}");
        last = t;
        let event = inner(&packet, 11).expect("an event");
        let line = number(&event, 11).unwrap();
        assert!(tracks.contains(&line), "line {line} is not known");
        let kind = number(&event, 9).unwrap();
        *counts.entry(kind).or_insert(0) += 1;
        match kind {
            1 => *open.entry(line).or_default() += 1,
            2 => *open.get_mut(&line).filter(|n| **n > 0).expect("an end without a begin") -= 1,
            _ => {}
        }
        for (field, value) in &event {
            let Field::Number(arrow) = value else { continue };
            match field {
                47 => assert_eq!(begins.insert(*arrow, t), None),
                48 => assert_eq!(ends.insert(*arrow, t), None),
                _ => {}
            }
        }
    }
    assert!(open.values().all(|n| *n == 0), "{open:?}");
    assert_eq!(begins.len(), story.arrows().count());
    assert_eq!(begins.len(), ends.len());
    assert!(ends.iter().all(|(arrow, t)| begins[arrow] <= *t));
    let slices = story.nodes.iter().filter(|n| matches!(n.kind, Kind::Slice(_))).count();
    assert_eq!((counts[&1], counts[&2]), (slices, slices));
    let counters = story.nodes.iter().filter(|n| matches!(n.kind, Kind::Counter(_))).count();
    assert_eq!(counts[&4], counters);
}

/// TRC-4: the JSON lines contain the same nodes.
#[test]
fn lines_have_every_node() {
    let story = Story::of(&message());
    let mut text = Vec::new();
    lines::write(&story, &mut text).unwrap();
    let all: Vec<serde_json::Value> = String::from_utf8(text)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(all.len(), story.processes.len() + story.nodes.len());
    let arrows: usize = all.iter().filter_map(|line| line["from"].as_array()).map(Vec::len).sum();
    assert_eq!(arrows, story.arrows().count());
}

#[test]
fn calls_are_known_by_their_arguments() {
    let (arguments, result) = calls::of("ibv_create_cq").unwrap();
    assert_eq!(
        arguments.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["context", "cqe", "cq_context", "channel", "comp_vector"]
    );
    assert_eq!(
        (arguments[0].1, arguments[1].1, result),
        (calls::Shown::Hex, calls::Shown::Int, calls::Shown::Hex)
    );
    assert!(calls::of("ibv_nothing").is_none());
}

/// HUN-18: choices of a hunt have a track, with the effect, the rule and the place.
#[test]
fn choices_have_a_track() {
    let choice = json!({"k": "choice", "t": 5, "tid": 9, "name": "poll after",
        "effect": "completions came late", "rule": "arm, and poll again",
        "place": "a.out in f, f.c:3"});
    let story = Story::of(&[part(&text([choice]))]);
    assert_eq!(story.tracks, [(0, Track::Named("choices of the hunt".into()))]);
    assert_eq!((story.nodes[0].kind, &*story.nodes[0].name), (Kind::Instant, "poll after"));
    assert_eq!(story.nodes[0].arguments.len(), 4);
}
