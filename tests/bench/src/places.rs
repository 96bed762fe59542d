//! The places and tasks of the program `places`: perftest on the wire path, UCX over tcp and the
//! lean program, in turn.

/// Two network namespaces, joined by a cable of an MTU, and the path MTU of this MTU.
pub const CABLES: [(&str, u32, usize); 2] = [("veth_1500", 1500, 1024), ("veth_9000", 9000, 4096)];
/// Both ends in one cgroup that may use half a processor.
pub const HALF: &str = "half_cpu";
/// Both ends on the same processor.
pub const ONE: &str = "one_cpu";
/// Two pairs at once, on two processors.
pub const FOUR: &str = "two_pairs";
/// All places.
pub const PLACES: [&str; 5] = [CABLES[0].0, CABLES[1].0, HALF, ONE, FOUR];

/// A task that both sides perform.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The name in the output.
    pub name: &'static str,
    /// Program of perftest.
    pub verbs: &'static str,
    /// Test of `ucx_perftest`.
    pub ucx: &'static str,
    /// Bytes of a message.
    pub size: usize,
    /// Whether the task measures latency.
    pub latency: bool,
}

/// All tasks.
pub const TASKS: [Task; 3] = [
    Task { name: "send_lat", verbs: "ib_send_lat", ucx: "tag_lat", size: 8, latency: true },
    Task {
        name: "write_bw",
        verbs: "ib_write_bw",
        ucx: "ucp_put_bw",
        size: 1 << 20,
        latency: false,
    },
    Task { name: "send_bw", verbs: "ib_send_bw", ucx: "tag_bw", size: 1 << 20, latency: false },
];

/// A side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// perftest over Adverb.
    Adverb,
    /// `ucx_perftest` over tcp.
    Ucx,
    /// The lean RoCEv2 program, with the payload of the cable's path MTU.
    Lean,
}

/// The sides of a task at a place, in the order of their runs.
#[must_use]
pub fn sides(place: &str, task: &Task) -> &'static [Side] {
    let has_lean = !task.latency && CABLES.iter().any(|(name, ..)| *name == place);
    if has_lean { &[Side::Lean, Side::Adverb, Side::Ucx] } else { &[Side::Adverb, Side::Ucx] }
}

/// The name of a figure in the output of the program.
#[must_use]
pub fn name(place: &str, task: &str, side: Side) -> String {
    let side = match side {
        Side::Adverb => "adverb",
        Side::Ucx => "ucx",
        Side::Lean => "lean",
    };
    format!("{place}_{task}_{side}")
}
