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
        meaning: "A thread sleeps on a completion channel beside completions that no event will tell of, since they came before \
                  the queue was armed, or it was never armed.",
        values: &[
            "the CQ",
            "completions in it",
            "the place in the program that armed it last",
            "the thread that waits for the channel, and the call; where the kernel does not show it, for how long nobody has polled",
        ],
        look: &[
            "Is the queue polled until it is empty after each arm? The order is: get the event, acknowledge it, arm, poll until \
             empty.",
            "Does the loop return before a poll has found nothing?",
            "Did another thread take the event?",
            "A thread that works is not reported. \"nobody has polled for 10 s\" can be a worker that waits in the middle of its work.",
        ],
        marks: &["lost wake-up: "],
    },
    CatalogueEntry {
        code: 0x102,
        name: "UnacknowledgedEvents",
        meaning: "An object is destroyed while events of it were read and not acknowledged; the call waits until they are.",
        values: &["the object", "events", "how long it has waited"],
        look: &[
            "Does each ibv_get_cq_event have its ibv_ack_cq_events, on the queue that it returned?",
            "Does each ibv_get_async_event have its ibv_ack_async_event?",
        ],
        marks: &["destroying ", "that were read and not acknowledged"],
    },
    CatalogueEntry {
        code: 0x103,
        name: "AttributeRefused",
        meaning: "ibv_modify_qp refused the transition: an attribute is missing, not allowed in this transition, or out of range.",
        values: &["the attribute, or the transition and what it needs"],
        look: &[
            "The text names the attribute and the rule.",
            "On RoCE every address has a GRH: ah_attr.is_global is 1, and sgid_index is one of the device's.",
        ],
        marks: &["ibv_modify_qp fails: "],
    },
    CatalogueEntry {
        code: 0x104,
        name: "DeregistrationWaits",
        meaning: "ibv_dereg_mr, or a call that ends a queue pair, waits for a peer that is in the middle of a copy.",
        values: &["the peer's process", "its state, if it is stopped"],
        look: &["Is that process stopped, by a debugger or a signal? It goes on when that process does."],
        marks: &["the end of a region or queue pair waits for process "],
    },
    CatalogueEntry {
        code: 0x105,
        name: "ForgedSource",
        meaning: "A packet claims an address of this machine and does not come from a port that this user holds.",
        values: &["its source", "the port", "how many"],
        look: &["Does another user's process, or the kernel's own RoCE device, send from this machine?"],
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
