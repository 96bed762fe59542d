//! `adverb stat --prometheus`: the text format of Prometheus.
use super::world::{Shown, World};
use adverb_device::printable::printable_line;
use adverb_device::snapshot::{Arm, Pair, Queue};
use std::fmt::{Display, Write};

/// Labels of a sample.
struct Labels(Vec<(&'static str, String)>);

impl Labels {
    fn of(shown: &Shown) -> Labels {
        Labels(vec![
            ("pid", shown.answered.pid.to_string()),
            ("program", shown.answered.process.name.clone()),
        ])
    }
    fn and(&self, name: &'static str, value: impl Display) -> Labels {
        let mut all = self.0.clone();
        all.push((name, value.to_string()));
        Labels(all)
    }
}

impl Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, (name, value)) in self.0.iter().enumerate() {
            let value = printable_line(value).replace('\\', "\\\\").replace('"', "\\\"");
            write!(f, "{}{name}=\"{value}\"", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

struct Text(String);

impl Text {
    /// A metric with its samples. The name of a counter ends with `_total`.
    fn metric(&mut self, name: &str, help: &str, samples: impl Iterator<Item = (Labels, f64)>) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let mut samples = samples.peekable();
        if samples.peek().is_some() {
            let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
        }
    }
}

fn is(condition: bool) -> f64 {
    if condition { 1.0 } else { 0.0 }
}

/// A metric of each queue pair or completion queue: the name behind the prefix, its help, its
/// value.
type MetricOf<T> = (&'static str, &'static str, fn(&T) -> f64);

const OF_PAIRS: [MetricOf<Pair>; 11] = [
    ("posted_requests_total", "Send requests handed over.", |p| p.posted as f64),
    ("sent_bytes_total", "Bytes posted, without READs.", |p| p.sent_bytes as f64),
    ("read_bytes_total", "Bytes of posted READs.", |p| p.read_bytes as f64),
    ("received_requests_total", "Requests of the peer executed here.", |p| p.received as f64),
    ("received_bytes_total", "Bytes of the requests of the peer executed here.", |p| {
        p.received_bytes as f64
    }),
    ("retransmitted_packets_total", "Request packets sent again.", |p| p.retransmitted as f64),
    ("timeouts_total", "Local ACK timeouts.", |p| p.timeouts as f64),
    ("rnr_naks_total", "RNR NAKs received.", |p| p.rnr_naks as f64),
    ("open_requests", "Send requests that are not done.", |p| p.open.into()),
    ("posted_receives", "Receives that wait for a message.", |p| p.receives.into()),
    ("error", "Whether an error ended the queue pair.", |p| is(!p.error.is_empty())),
];

const OF_QUEUES: [MetricOf<Queue>; 4] = [
    ("completions", "Completions in the queue.", |q| q.waiting.into()),
    ("unread_events", "Events that the program has not read.", |q| q.unread.into()),
    ("armed", "Whether an arm is pending.", |q| is(q.arm != Arm::None)),
    ("lost_wake_up", "Whether the program sleeps beside completions.", |q| is(!q.stuck.is_empty())),
];

fn of_pair(shown: &Shown, pair: &Pair) -> Labels {
    let labels = Labels::of(shown).and("qp", format_args!("{:#08x}", pair.number));
    labels.and("transport", pair.transport())
}

pub fn text(world: &World) -> String {
    let mut text = Text(String::new());
    let answered = world.processes.iter().map(|shown| (Labels::of(shown), 1.0));
    let silent = world.silent.iter().map(|one| {
        (Labels(vec![("pid", one.pid.to_string()), ("program", one.name.clone())]), 0.0)
    });
    text.metric("adverb_up", "Whether the process answers.", answered.chain(silent));
    let counters = world.processes.iter().flat_map(|shown| {
        let all = shown.answered.counters.iter();
        all.map(move |(name, value)| (Labels::of(shown).and("counter", name), *value as f64))
    });
    text.metric("adverb_events_total", "Counters of the process, by name.", counters);
    let drops = world.processes.iter().flat_map(|shown| {
        let all = shown.drops();
        all.map(move |(name, value)| (Labels::of(shown).and("reason", name), value as f64))
    });
    text.metric("adverb_dropped_packets_total", "Packets dropped, by reason.", drops);
    for (name, help, value) in OF_PAIRS {
        let samples = world.processes.iter().flat_map(|shown| {
            let pairs = shown.pairs.iter().map(|shown| &shown.pair).filter(|pair| !pair.busy);
            pairs.map(move |pair| (of_pair(shown, pair), value(pair)))
        });
        text.metric(&format!("adverb_qp_{name}"), help, samples);
    }
    for (name, help, value) in OF_QUEUES {
        let samples = world.processes.iter().flat_map(|shown| {
            let queues = shown.answered.queues.values();
            queues.map(move |queue| (Labels::of(shown).and("cq", queue.number), value(queue)))
        });
        text.metric(&format!("adverb_cq_{name}"), help, samples);
    }
    text.0
}

#[cfg(test)]
mod tests;
