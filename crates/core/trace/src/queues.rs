//! The queues of a process: matches completions to requests, and packets to requests.
use crate::record::{Done, Record};
use crate::story::{Arguments, Value, hex, status};
use crate::{Kind, Story, Track, names};
use std::collections::{HashMap, VecDeque};

mod psns;
use psns::{Posted, last_psn, precedes};

/// How many of the newest requests are searched for the PSN of a packet.
const LOOK_BACK: usize = 4096;
/// Packet opcodes without the transport bits.
const LAST_OF_MESSAGE: [u8; 8] = [2, 3, 4, 5, 0x09, 0x0b, 0x16, 0x17];
const ANSWERS: std::ops::RangeInclusive<u8> = 0x0d..=0x12;
const CNP: u8 = 0x81;
/// The note of a packet that crosses shared memory.
const NEAR: &str = "shared memory";

/// A request without completion.
#[derive(Debug)]
struct Pending {
    wr_id: u64,
    /// The slice from post to completion, and the call of the post.
    slice: usize,
    post: usize,
    /// The first PSN and the number of PSNs.
    psns: Option<(u32, u32)>,
}

#[derive(Debug, Default)]
struct QueuePair {
    transport: String,
    srq: Option<u32>,
    dest: Option<u32>,
    mtu: u32,
    next_psn: Option<u32>,
    send: VecDeque<Pending>,
    receive: VecDeque<Pending>,
    posted: VecDeque<Posted>,
    /// The last packet of each arrived message, as long as the message's receive has no completion:
    /// the packet's PSN, and the index of its node in the story.
    ends: VecDeque<(u32, usize)>,
    last_end: Option<u32>,
    /// The last answer from the peer: PSN and packet.
    answer: Option<(u32, usize)>,
    /// The packets cross shared memory. There, messages are split into other packets, and requests
    /// performed by the initiator take no PSN. So a request gets its PSNs from its first packet.
    near: bool,
}

#[derive(Debug, Default)]
struct Cq {
    /// Completions in the queue, and their nodes.
    waiting: VecDeque<(Done, usize)>,
    /// Events not taken yet.
    events: VecDeque<usize>,
    /// The last added completion.
    last: Option<usize>,
    /// The slice of the current arm.
    armed: Option<usize>,
    /// The call that took an event and has not polled its completion yet.
    taken: Option<usize>,
}

/// The state of a process.
#[derive(Debug, Default)]
pub struct Process {
    queue_pairs: HashMap<u32, QueuePair>,
    cqs: HashMap<u32, Cq>,
    shared: HashMap<u32, VecDeque<Pending>>,
}

fn cq_track(cq: u32, what: &str) -> Track {
    Track::Named(format!("CQ {cq}: {what}"))
}

impl Process {
    /// Handles a record, and adds its nodes and arrows to the story.
    pub fn tell(&mut self, story: &mut Story, process: usize, record: &Record) {
        match record {
            Record::Post { .. } | Record::Receive { .. } => self.posts(story, process, record),
            Record::Poll { .. } | Record::Taken { .. } | Record::Arm { .. } => {
                self.looks(story, process, record);
            }
            Record::Completion { t, cq, of, .. } => self.completed(story, process, *t, *cq, of),
            Record::Event { t, cq, .. } => self.event(story, process, *t, *cq),
            Record::Packet { .. } => self.packet(story, process, record),
            Record::QueuePair { t, qp, transport, send_cq, recv_cq, srq } => {
                let made = QueuePair {
                    transport: transport.clone(),
                    srq: *srq,
                    mtu: 1024,
                    ..QueuePair::default()
                };
                self.queue_pairs.insert(*qp, made);
                let cq = |cq: &Option<u32>| {
                    Value::Text(cq.map_or("none".into(), |cq| format!("CQ {cq}")))
                };
                let arguments = vec![
                    ("transport", Value::Text(transport.clone())),
                    ("sends to", cq(send_cq)),
                    ("receives to", cq(recv_cq)),
                ];
                self.state(story, process, *t, *qp, "made", arguments);
            }
            Record::Modified { t, qp, .. } => {
                let arguments = self.modified(*qp, record);
                let name = arguments.0.unwrap_or_else(|| "modified".into());
                self.state(story, process, *t, *qp, &name, arguments.1);
            }
            Record::QueuePairDestroyed { t, qp } => {
                self.state(story, process, *t, *qp, "destroyed", Vec::new());
                self.queue_pairs.remove(qp);
            }
            Record::Cq { cq, .. } => drop(self.cqs.entry(*cq).or_default()),
            Record::CqDestroyed { t, cq } => {
                if let Some(slice) = self.cqs.remove(cq).and_then(|ended| ended.armed) {
                    end(story, slice, *t);
                }
            }
            _ => {}
        }
    }

    fn state(
        &self,
        story: &mut Story,
        process: usize,
        t: u64,
        qp: u32,
        name: &str,
        arguments: Arguments,
    ) -> usize {
        let track = story.track(process, Track::Named(format!("QP {qp:#x}: state")));
        story.instant(track, t, name.into(), arguments)
    }

    /// Returns the new state and all attributes that were set.
    fn modified(&mut self, qp: u32, record: &Record) -> (Option<String>, Arguments) {
        let Record::Modified { state, mtu, dest, sq_psn, rq_psn, .. } = record else {
            return Default::default();
        };
        let known = self.queue_pairs.entry(qp).or_default();
        if state.as_deref() == Some("Reset") {
            *known = QueuePair {
                transport: std::mem::take(&mut known.transport),
                srq: known.srq,
                ..Default::default()
            };
        }
        known.mtu = mtu.unwrap_or(known.mtu);
        known.dest = dest.or(known.dest);
        known.next_psn = sq_psn.or(known.next_psn);
        let mut arguments: Arguments = Vec::new();
        arguments.extend(mtu.map(|mtu| ("path MTU", Value::Long(mtu.into()))));
        arguments.extend(dest.map(|qp| ("destination", hex(qp))));
        arguments.extend(sq_psn.map(|psn| ("first PSN sent", Value::Long(psn.into()))));
        arguments.extend(rq_psn.map(|psn| ("first PSN expected", Value::Long(psn.into()))));
        (state.clone(), arguments)
    }

    fn posts(&mut self, story: &mut Story, process: usize, record: &Record) {
        let (t, d, tid, call, queue, requests, taken, result) = match record {
            Record::Post { t, d, tid, call, qp, requests, taken, result } => {
                (t, d, tid, call, format!("QP {qp:#x}"), requests, taken, result)
            }
            Record::Receive { t, d, tid, call, qp, srq, requests, taken, result } => {
                let queue = match (qp, srq) {
                    (Some(qp), _) => format!("QP {qp:#x}"),
                    (_, srq) => format!("SRQ {}", srq.unwrap_or_default()),
                };
                (t, d, tid, call, queue, requests, taken, result)
            }
            _ => return,
        };
        let arguments = vec![
            ("queue", Value::Text(queue.clone())),
            ("requests", Value::Long(requests.len() as u64)),
            ("taken", Value::Long(*taken as u64)),
            ("result", Value::Number((*result).into())),
        ];
        let post = story.call(process, *tid, *t, *d, call, arguments);
        let sends = matches!(record, Record::Post { .. });
        let side = if sends { "sends" } else { "receives" };
        let track = story.track(process, Track::Spread(format!("{queue}: {side}")));
        for request in requests.iter().take(*taken) {
            let arguments = vec![
                ("wr_id", Value::Pointer(request.wr_id)),
                ("bytes", Value::Long(request.bytes)),
                ("signaled", Value::Text(request.signaled.to_string())),
            ];
            let name = names::request(request.opcode).into();
            let slice = story.add(track, *t, Kind::Slice(None), name, arguments);
            let mut pending = Pending { wr_id: request.wr_id, slice, post, psns: None };
            match record {
                Record::Post { qp, .. } => {
                    let known = self.queue_pairs.entry(*qp).or_default();
                    let psns = known.number(request);
                    if let Some((first, count)) = psns.filter(|(_, count)| *count > 0 || known.near)
                    {
                        let (opcode, bytes) = (request.opcode, request.bytes);
                        let posted =
                            Posted { first, count, slice, post, sent: false, opcode, bytes };
                        known.posted.push_back(posted);
                        if known.posted.len() > LOOK_BACK {
                            known.posted.pop_front();
                        }
                    }
                    pending.psns = psns.filter(|_| !known.near);
                    known.send.push_back(pending);
                }
                Record::Receive { qp: Some(qp), .. } => {
                    self.queue_pairs.entry(*qp).or_default().receive.push_back(pending);
                }
                Record::Receive { srq, .. } => {
                    self.shared.entry(srq.unwrap_or_default()).or_default().push_back(pending);
                }
                _ => {}
            }
        }
    }

    fn completed(&mut self, story: &mut Story, process: usize, t: u64, cq: u32, done: &Done) {
        let track = story.track(process, cq_track(cq, "completions"));
        let arguments = vec![
            ("wr_id", Value::Pointer(done.wr_id)),
            ("queue pair", hex(done.qp)),
            ("status", status(done.status)),
            ("bytes", Value::Long(done.bytes.into())),
        ];
        let name = if done.status == 0 { "completion" } else { "failed completion" };
        let node = story.instant(track, t, name.into(), arguments);
        let known = self.queue_pairs.entry(done.qp).or_default();
        let ended = match (done.is_receive(), known.srq) {
            (true, Some(srq)) => take_one(self.shared.entry(srq).or_default(), done.wr_id),
            (true, None) => take_one(&mut known.receive, done.wr_id),
            (false, _) => take_through(&mut known.send, done.wr_id),
        };
        // A request done without a packet was performed by its initiator, or flushed.
        known
            .posted
            .retain(|posted| posted.sent || ended.iter().all(|one| one.slice != posted.slice));
        let mut from = Vec::new();
        if done.is_receive() {
            if done.status == 0
                && let Some((psn, packet)) = known.ends.pop_front()
            {
                known.last_end = Some(psn);
                from.push(packet);
            }
        } else if let Some((psn, packet)) = known.answer
            && let Some((first, count)) = ended.last().and_then(|last| last.psns)
            && !precedes(psn, last_psn(first, count))
        {
            from.push(packet);
        }
        // If the peer answered, the answer leads to the completion, and the post leads to the
        // answer. Without packets, the post leads to the completion.
        if from.is_empty() || done.is_receive() {
            from.extend(ended.last().map(|last| last.post));
        }
        for one in &ended {
            end(story, one.slice, t);
            story.nodes[one.slice].arguments.push(("status", status(done.status)));
        }
        story.nodes[node].from = from;
        let queue = self.cqs.entry(cq).or_default();
        queue.waiting.push_back((done.clone(), node));
        queue.last = Some(node);
        story.counter(process, format!("CQ {cq}: completions waiting"), t, queue.waiting.len());
    }

    fn event(&mut self, story: &mut Story, process: usize, t: u64, cq: u32) {
        let track = story.track(process, cq_track(cq, "events"));
        let node = story.instant(track, t, "event".into(), Vec::new());
        let queue = self.cqs.entry(cq).or_default();
        story.nodes[node].from.extend(queue.last);
        if let Some(slice) = queue.armed.take() {
            end(story, slice, t);
        }
        queue.events.push_back(node);
        story.counter(process, format!("CQ {cq}: events waiting"), t, queue.events.len());
    }

    /// Handles calls on a CQ.
    fn looks(&mut self, story: &mut Story, process: usize, record: &Record) {
        match record {
            Record::Arm { t, d, tid, call, cq, solicited, result } => {
                let kind = if *solicited { "next solicited" } else { "next" };
                let arguments = vec![
                    ("queue", Value::Text(format!("CQ {cq}"))),
                    ("armed for", Value::Text(kind.into())),
                    ("result", Value::Number((*result).into())),
                ];
                let arm = story.call(process, *tid, *t, *d, call, arguments.clone());
                let queue = self.cqs.entry(*cq).or_default();
                if *result == 0 && queue.armed.is_none() {
                    let track = story.track(process, cq_track(*cq, "armed"));
                    let name = format!("armed for {kind}");
                    let slice = story.add(track, *t + 1, Kind::Slice(None), name, Vec::new());
                    story.nodes[slice].from.push(arm);
                    queue.armed = Some(slice);
                }
            }
            Record::Taken { t, d, tid, call, cq, errno } => {
                let arguments = match cq {
                    Some(cq) => vec![("queue", Value::Text(format!("CQ {cq}")))],
                    None => vec![("errno", Value::Number((*errno).into()))],
                };
                let call = story.call(process, *tid, *t, *d, call, arguments);
                let Some(cq) = cq else { return };
                let at = t + d.max(&2) - 1;
                let queue = self.cqs.entry(*cq).or_default();
                let event = queue.events.pop_front();
                let track = story.nodes[call].track;
                let node = story.instant(track, at, "event taken".into(), Vec::new());
                story.nodes[node].from.extend(event);
                queue.taken = Some(node);
                story.counter(process, format!("CQ {cq}: events waiting"), at, queue.events.len());
            }
            Record::Poll { t, d, tid, call, cq, empty, done, result } => {
                let mut arguments = vec![("queue", Value::Text(format!("CQ {cq}")))];
                match empty {
                    0 => arguments.push(("result", Value::Number((*result).into()))),
                    n => arguments.push(("calls that found nothing", Value::Long(*n))),
                }
                let poll = story.call(process, *tid, *t, *d, call, arguments);
                let (at, track) = (t + d.max(&2) - 1, story.nodes[poll].track);
                let queue = self.cqs.entry(*cq).or_default();
                for one in done {
                    let arguments = vec![
                        ("wr_id", Value::Pointer(one.wr_id)),
                        ("queue pair", hex(one.qp)),
                        ("status", status(one.status)),
                    ];
                    let node = story.instant(track, at, "polled".into(), arguments);
                    let found = queue
                        .waiting
                        .iter()
                        .position(|(w, _)| w.qp == one.qp && w.wr_id == one.wr_id);
                    let found = found.and_then(|at| queue.waiting.remove(at));
                    story.nodes[node].from.extend(found.map(|(_, node)| node));
                    story.nodes[node].from.extend(queue.taken.take());
                }
                if !done.is_empty() {
                    story.counter(
                        process,
                        format!("CQ {cq}: completions waiting"),
                        at,
                        queue.waiting.len(),
                    );
                }
            }
            _ => {}
        }
    }

    fn packet(&mut self, story: &mut Story, process: usize, record: &Record) {
        let Record::Packet {
            t, sent, src, dst, opcode, qp, psn, from, syndrome, bytes, note, ..
        } = record
        else {
            return;
        };
        let name = match syndrome {
            Some(syndrome) => format!("{} {}", names::packet(*opcode), names::syndrome(*syndrome)),
            None => names::packet(*opcode),
        };
        let mut arguments = vec![
            ("PSN", Value::Long((*psn).into())),
            ("to", hex(*qp)),
            ("bytes", Value::Long(*bytes as u64)),
            ("addresses", Value::Text(format!("{src} to {dst}"))),
        ];
        arguments.extend(from.map(|qp| ("from", hex(qp))));
        if !note.is_empty() {
            arguments.push(("note", Value::Text(note.to_string())));
        }
        let way = if *sent { "packets sent" } else { "packets received" };
        let track = story.track(process, Track::Named(way.into()));
        let node = story.instant(track, *t, name, arguments);
        let key = (src.clone(), dst.clone(), *qp, *psn, *opcode);
        let kind = opcode & 0x1f;
        let answers = ANSWERS.contains(&kind) || *opcode == CNP;
        if *sent {
            story.sent.insert(key, node);
            if !answers && note.contains(NEAR) {
                self.number_near(*qp, *psn, kind);
            }
            if !answers && let Some(posted) = self.request_of(*qp, *from, *psn) {
                if !std::mem::replace(&mut posted.sent, true) {
                    story.nodes[node].from.push(posted.post);
                }
                let wr_id = story.nodes[posted.slice].arguments.first().cloned();
                story.nodes[node].arguments.extend(wr_id);
            }
            return;
        }
        let sent = story.sent.get(&key).copied();
        story.nodes[node].from.extend(sent);
        let Some(known) = self.queue_pairs.get_mut(qp).filter(|_| !note.contains("drop")) else {
            return;
        };
        if note.contains(NEAR) {
            known.draw_near();
        }
        if answers {
            if *opcode != CNP && known.answer.is_none_or(|(last, _)| !precedes(*psn, last)) {
                known.answer = Some((*psn, node));
            }
        } else if LAST_OF_MESSAGE.contains(&kind) {
            known.arrived(*psn, from.is_some(), node);
        }
    }
}

/// Removes a receive from the queue.
fn take_one(queue: &mut VecDeque<Pending>, wr_id: u64) -> Vec<Pending> {
    let at = queue.iter().position(|one| one.wr_id == wr_id);
    at.and_then(|at| queue.remove(at)).into_iter().collect()
}

/// Removes a request and all earlier requests, which are completed as well.
fn take_through(queue: &mut VecDeque<Pending>, wr_id: u64) -> Vec<Pending> {
    match queue.iter().position(|one| one.wr_id == wr_id) {
        Some(at) => queue.drain(..=at).collect(),
        None => Vec::new(),
    }
}

fn end(story: &mut Story, slice: usize, t: u64) {
    let node = &mut story.nodes[slice];
    node.kind = Kind::Slice(Some(t.saturating_sub(node.t)));
}
