//! The keys of the figures, by the names in the output of the programs.

use adverb_bench::places::{self, Side, TASKS, Task, sides};
use adverb_bench::report::{Key, What};

/// Lengths of the chains of the program `chains`.
pub const CHAINS: [u32; 4] = [1, 8, 32, 128];
/// Ways to post a chain, by their names in the program `chains`.
pub const WAYS: [&str; 2] = ["singly", "deferred"];

/// The key of a limit, of iperf3, or of completion events.
pub fn raw_key(name: &str) -> Key {
    let times = ["udp_spin", "udp_block", "udp_epoll", "eventfd_", "cq_wake"];
    let is_time = times.iter().any(|start| name.starts_with(start));
    Key::new(name, 0, if is_time { What::Latency } else { What::Bytes })
}

/// The key of a lean RoCEv2 program before a program of perftest.
pub fn lean_key(lean: &str, program: &str) -> Key {
    Key::new(format!("{lean} before {program}"), 0, What::Bytes)
}

/// The key of a figure of a chain, which is its name in the program `chains`.
pub fn chain_key(length: u32, way: &str, what: &str) -> Key {
    Key::new(format!("chain_{length}_{way}_{what}"), 0, What::Number)
}

/// The key of a task at a place by a side, which is its name in the program `places`.
pub fn place_key(place: &str, task: &Task, side: Side) -> Key {
    let what = if task.latency { What::Latency } else { What::Bytes };
    Key::new(places::name(place, task.name, side), 0, what)
}

/// The keys of all figures of a place.
pub fn place_keys(place: &str) -> impl Iterator<Item = Key> {
    TASKS.iter().flat_map(move |task| {
        sides(place, task).iter().map(move |side| place_key(place, task, *side))
    })
}
