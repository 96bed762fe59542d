//! The catalogue of all explanations: the engine's causes, and other reports of the device.
//!
//! ```
//! let line = "adverb: warn: queue pair 0x4d: Send completes with LocProtErr (wr_id 0x0): key 0x1f04 names no memory region or window";
//! let found = adverb_device::catalogue::in_line(line).next().expect("it is known");
//! assert_eq!((found.code, found.name), (0x01, "UnknownKey"));
//! ```
pub use adverb_engine::catalogue::{CAUSES, CatalogueEntry};

/// Reports that are no cause of a completion and so never stand in `vendor_err`. Their codes start
/// at 0x101.
pub const REPORTS: &[CatalogueEntry] = &[
    CatalogueEntry {
        code: 0x101,
        name: "LostWakeUp",
        meaning: "A thread sleeps on a completion channel, but completions are in the CQ for which no event will come. The \
                  completions came before the last arm, or the CQ was never armed.",
        values: &[
            "the CQ",
            "completions in the CQ",
            "the place in the program of the last arm",
            "the thread that waits for the channel, and the call; if the kernel hides the thread, the time since the last poll",
        ],
        look: &[
            "Does the program poll until the CQ is empty after each arm? The order is: get the event, acknowledge the event, \
             arm, poll until empty.",
            "Does the loop return before a poll has found nothing?",
            "Did another thread take the event?",
            "A working thread is not reported. If the report has no thread, the reason may be a worker that waits in the middle of \
             its work.",
        ],
        marks: &["lost wake-up: "],
    },
    CatalogueEntry {
        code: 0x102,
        name: "UnacknowledgedEvents",
        meaning: "A call destroys an object with events which were read and not acknowledged. The call waits for the \
                  acknowledgements.",
        values: &["the object", "the number of events", "the time of the wait so far"],
        look: &[
            "Does each ibv_get_cq_event have an ibv_ack_cq_events, on the returned CQ?",
            "Does each ibv_get_async_event have an ibv_ack_async_event?",
        ],
        marks: &["destroying ", "that were read and not acknowledged"],
    },
    CatalogueEntry {
        code: 0x103,
        name: "AttributeRefused",
        meaning: "ibv_modify_qp refused the transition: an attribute is missing, not allowed in this transition, or out of range.",
        values: &["the attribute, or the transition and the missing attributes"],
        look: &[
            "The text names the attribute and the rule.",
            "On RoCE every address has a GRH: ah_attr.is_global is 1, and sgid_index is an index of the device's GID table.",
        ],
        marks: &["ibv_modify_qp fails: "],
    },
    CatalogueEntry {
        code: 0x104,
        name: "DeregistrationWaits",
        meaning: "ibv_dereg_mr, or a call that ends a queue pair, waits for a peer in the middle of a copy.",
        values: &["the peer's process", "the state of a stopped process"],
        look: &[
            "Is the peer's process stopped by a debugger or a signal? The call continues when the process continues.",
        ],
        marks: &["the end of a region or queue pair waits for process "],
    },
    CatalogueEntry {
        code: 0x105,
        name: "ForgedSource",
        meaning: "A packet has a source address of this machine, but does not come from this user's port.",
        values: &["the source address", "the port", "the number of packets"],
        look: &[
            "Does another user's process, or the kernel's own RoCE device, send from this machine?",
        ],
        marks: &["dropped a packet from ", "an address of this machine"],
    },
];

/// Causes and reports, in the order of the codes.
pub fn all() -> impl Iterator<Item = &'static CatalogueEntry> {
    CAUSES.iter().chain(REPORTS)
}

/// The entry with this code.
#[must_use]
pub fn by_code(code: u32) -> Option<&'static CatalogueEntry> {
    all().find(|e| e.code == code)
}

/// The entries for a line of the log. For a flush this includes the first failure named in the
/// line.
pub fn in_line(line: &str) -> impl Iterator<Item = &'static CatalogueEntry> {
    all().filter(move |e| !e.marks.is_empty() && e.is_in(line))
}
