//! `adverb stat --json`.
use super::ask::Answered;
use super::world::{AGES, Peer, Rate, Shown, ShownPair, World};
use adverb_device::snapshot::{Arm, PacketPath, Queue};
use serde_json::{Map, Value, json};

/// The version of the output. Later versions add fields and keep the others.
const VERSION: u32 = 1;

pub fn json(world: &World) -> Value {
    let silent =
        world.silent.iter().map(|one| json!({"pid": one.pid, "program": one.name, "why": one.why}));
    json!({
        "version": VERSION,
        "processes": world.processes.iter().map(|shown| process(world, shown)).collect::<Vec<_>>(),
        "silent": silent.collect::<Vec<_>>(),
    })
}

fn numbers<'a>(all: impl Iterator<Item = (&'a str, u64)>) -> Map<String, Value> {
    all.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

fn rates(out: Rate, into: Rate) -> Value {
    let round = |value: f64| value.round() as u64;
    json!({
        "out_messages": round(out.messages),
        "out_bytes": round(out.bytes),
        "in_messages": round(into.messages),
        "in_bytes": round(into.bytes),
    })
}

fn process(world: &World, shown: &Shown) -> Value {
    let Answered { pid, elsewhere, process, counters, queues, .. } = &shown.answered;
    json!({
        "pid": pid,
        "other_pid_namespace": elsewhere,
        "program": process.name,
        "adverb": process.version,
        "slot": process.slot,
        "open_devices": process.contexts,
        "rates": rates(shown.out, shown.into),
        "counters": numbers(counters.iter().map(|(name, value)| (name.as_str(), *value))),
        "drops": numbers(shown.drops()),
        "queue_pairs": shown.pairs.iter().map(|pair| queue_pair(world, pair)).collect::<Vec<_>>(),
        "completion_queues": queues.values().map(completion_queue).collect::<Vec<_>>(),
    })
}

fn queue_pair(world: &World, shown: &ShownPair) -> Value {
    let ShownPair { pair, out, into, oldest, older, peer, note, .. } = shown;
    let older: Map<String, Value> = AGES
        .iter()
        .zip(older)
        .map(|(age, count)| (format!("{}s", age.as_secs()), (*count).into()))
        .collect();
    let peer = match peer {
        Peer::None => Value::Null,
        Peer::Here(place, number) => {
            let other = &world.processes[*place].answered;
            json!({"pid": other.pid, "program": other.process.name, "queue_pair": number})
        }
        Peer::Silent(place) => json!({"pid": world.silent[*place].pid, "queue_pair": pair.dest}),
        Peer::Address(ip) => json!({"address": ip.to_string(), "queue_pair": pair.dest}),
    };
    json!({
        "number": pair.number,
        "transport": pair.transport(),
        "state": pair.state_name(),
        "locked": pair.busy,
        "carrier": match pair.way {
            PacketPath::Network => "network",
            PacketPath::Memory => "memory",
            PacketPath::Frames => "frames",
        },
        "peer": peer,
        "send_cq": pair.send_cq,
        "recv_cq": pair.recv_cq,
        "send_queue": pair.depth,
        "open_requests": pair.open,
        "oldest_request_seconds": oldest.map(|age| age.as_secs_f64()),
        "requests_older_than": older,
        "receives": pair.receives,
        "shared_receives": pair.shared,
        "rates": rates(*out, *into),
        "posted": pair.posted,
        "sent_bytes": pair.sent_bytes,
        "read_bytes": pair.read_bytes,
        "received": pair.received,
        "received_bytes": pair.received_bytes,
        "retransmitted": pair.retransmitted,
        "retrying": pair.retrying,
        "timeouts": pair.timeouts,
        "rnr_naks": pair.rnr_naks,
        "sequence_naks": pair.seq_naks,
        "drops": pair.drops,
        "error": Some(&pair.error).filter(|error| !error.is_empty()),
        "note": Some(note).filter(|note| !note.is_empty()),
    })
}

fn completion_queue(queue: &Queue) -> Value {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    json!({
        "number": queue.number,
        "capacity": queue.capacity,
        "completions": queue.waiting,
        "without_event": queue.unannounced,
        "unread_events": queue.unread,
        "armed": arm(queue.arm),
        "arms": queue.arms,
        "channel": queue.channel,
        "overflowed": queue.broken,
        "silent_seconds": queue.silent_ms as f64 / 1000.0,
        "waiter": text(&queue.waiter),
        "lost_wake_up": text(&queue.stuck),
    })
}

pub fn arm(arm: Arm) -> &'static str {
    match arm {
        Arm::None => "no",
        Arm::Next => "next",
        Arm::Solicited => "solicited",
        Arm::Errors => "errors",
    }
}
