//! The objects and counters of all processes of the user, for `rdma res`, `rdma statistic` and the
//! files of counters.
use adverb_device::snapshot::{OBJECTS, Page};
use adverb_local::{Asker, Silence, Slot};
use adverb_nldev::Objects;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Longest wait for the answers. A stopped process gives none.
const WAIT: Duration = Duration::from_secs(5);

/// The text that [`Objects`] reads. `None` without a whole answer of each process: then a number
/// would be too small.
pub fn objects() -> Option<String> {
    let mut by_slot: BTreeMap<Slot, String> = BTreeMap::new();
    let mut all = true;
    let late = Asker::new().ok()?.ask(OBJECTS, WAIT, |slot, pid, bytes| {
        let Ok(page) = Page::parse(bytes) else {
            all = false;
            return None;
        };
        // A process with several slots answers at each, and is listed once. A process of another
        // PID namespace has no number here.
        if page.process.slot == slot {
            let text = by_slot.entry(slot).or_default();
            for line in &page.objects {
                let _ = writeln!(text, "{pid} {line}");
            }
        }
        page.next
    });
    let silent = late.iter().any(|one| !matches!(one.why, Silence::OtherUser(_)));
    if silent || !all {
        return None;
    }
    Some(by_slot.into_values().collect::<String>() + Objects::END)
}
