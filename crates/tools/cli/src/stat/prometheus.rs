//! `adverb stat --prometheus`: the text format of Prometheus.
use super::world::{Shown, ShownPair, World};
use adverb_device::printable::printable_line;
use adverb_device::snapshot::{Arm, Queue};
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
    /// A metric with its samples.
    fn metric(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels, f64)>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_some() {
            let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
        }
    }

    fn of_pairs(
        &mut self,
        world: &World,
        name: &str,
        kind: &str,
        help: &str,
        value: impl Fn(&ShownPair) -> f64,
    ) {
        let samples = world.processes.iter().flat_map(|shown| {
            let value = &value;
            shown.pairs.iter().filter(|pair| !pair.pair.busy).map(move |pair| {
                let labels = Labels::of(shown).and("qp", format_args!("{:#08x}", pair.pair.number));
                (labels.and("transport", pair.pair.transport()), value(pair))
            })
        });
        self.metric(name, kind, help, samples);
    }

    fn of_queues(&mut self, world: &World, name: &str, help: &str, value: impl Fn(&Queue) -> f64) {
        let samples = world.processes.iter().flat_map(|shown| {
            let value = &value;
            shown
                .answered
                .queues
                .values()
                .map(move |queue| (Labels::of(shown).and("cq", queue.number), value(queue)))
        });
        self.metric(name, "gauge", help, samples);
    }
}

fn is(condition: bool) -> f64 {
    if condition { 1.0 } else { 0.0 }
}

pub fn text(world: &World) -> String {
    let mut text = Text(String::new());
    let answered = world.processes.iter().map(|shown| (Labels::of(shown), 1.0));
    let silent = world.silent.iter().map(|one| {
        (Labels(vec![("pid", one.pid.to_string()), ("program", one.name.clone())]), 0.0)
    });
    text.metric("adverb_up", "gauge", "Whether the process answers.", answered.chain(silent));
    let counters = world.processes.iter().flat_map(|shown| {
        let all = shown.answered.counters.iter();
        all.map(move |(name, value)| (Labels::of(shown).and("counter", name), *value as f64))
    });
    text.metric("adverb_events_total", "counter", "Counters of the process, by name.", counters);
    let drops = world.processes.iter().flat_map(|shown| {
        shown
            .drops()
            .map(move |(name, value)| (Labels::of(shown).and("reason", name), value as f64))
    });
    text.metric("adverb_dropped_packets_total", "counter", "Packets dropped, by reason.", drops);
    let counter = "counter";
    text.of_pairs(
        world,
        "adverb_qp_posted_requests_total",
        counter,
        "Send requests handed over.",
        |p| p.pair.posted as f64,
    );
    text.of_pairs(
        world,
        "adverb_qp_sent_bytes_total",
        counter,
        "Bytes posted, without READs.",
        |p| p.pair.sent_bytes as f64,
    );
    text.of_pairs(world, "adverb_qp_read_bytes_total", counter, "Bytes of posted READs.", |p| {
        p.pair.read_bytes as f64
    });
    let help = "Requests of the peer executed here.";
    text.of_pairs(world, "adverb_qp_received_requests_total", counter, help, |p| {
        p.pair.received as f64
    });
    let help = "Bytes of the requests of the peer executed here.";
    text.of_pairs(world, "adverb_qp_received_bytes_total", counter, help, |p| {
        p.pair.received_bytes as f64
    });
    let help = "Request packets sent again.";
    text.of_pairs(world, "adverb_qp_retransmitted_packets_total", counter, help, |p| {
        p.pair.retransmitted as f64
    });
    text.of_pairs(world, "adverb_qp_timeouts_total", counter, "Local ACK timeouts.", |p| {
        p.pair.timeouts as f64
    });
    text.of_pairs(world, "adverb_qp_rnr_naks_total", counter, "RNR NAKs received.", |p| {
        p.pair.rnr_naks as f64
    });
    let gauge = "gauge";
    text.of_pairs(
        world,
        "adverb_qp_open_requests",
        gauge,
        "Send requests that are not done.",
        |p| p.pair.open.into(),
    );
    text.of_pairs(
        world,
        "adverb_qp_posted_receives",
        gauge,
        "Receives that wait for a message.",
        |p| p.pair.receives.into(),
    );
    text.of_pairs(world, "adverb_qp_error", gauge, "Whether an error ended the queue pair.", |p| {
        is(!p.pair.error.is_empty())
    });
    text.of_queues(world, "adverb_cq_completions", "Completions in the queue.", |queue| {
        queue.waiting.into()
    });
    text.of_queues(
        world,
        "adverb_cq_unread_events",
        "Events that the program has not read.",
        |queue| queue.unread.into(),
    );
    text.of_queues(world, "adverb_cq_armed", "Whether an arm is pending.", |queue| {
        is(queue.arm != Arm::None)
    });
    text.of_queues(
        world,
        "adverb_cq_lost_wake_up",
        "Whether the program sleeps beside completions.",
        |queue| is(!queue.stuck.is_empty()),
    );
    text.0
}

#[cfg(test)]
mod tests;
