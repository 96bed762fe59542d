//! Calls and completions that failed, as reasons for a later failure of the program.
use crate::connections::CM_EVENTS;
use crate::picture::PastCall;
use crate::state::FailedCall;
use crate::{CodeAddress, Ledger};

/// A call or completion that failed counts as a reason for a failure if the program has made at
/// most this many calls since.
const RECENT: u64 = 5;
/// Parts of the names of calls that only take down what the program has. Error paths make them.
const TAKES_DOWN: [&str; 8] =
    ["_destroy_", "_dereg_", "_dealloc_", "_close_", "_free_", "_ack_", "_detach_", "_disconnect"];
/// Parts of the names of calls that make an object. A program may try several ways.
const MAKES: [&str; 4] = ["_create_", "_reg_", "_alloc_", "_open_"];

fn has_part(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}

impl Ledger {
    /// A call has returned.
    pub fn happened(&mut self, call: PastCall) {
        self.picture.add(call);
    }

    /// The last calls of each thread and on each queue, in the order of time.
    #[must_use]
    pub fn picture(&self) -> Vec<PastCall> {
        self.picture.all()
    }

    /// The program has made a call. `why` is the reason if the call failed.
    pub fn called(&mut self, name: &str, why: Option<String>, place: CodeAddress) {
        let takes_down = has_part(name, &TAKES_DOWN);
        let recent = self.calls_failed_recently();
        let Some(why) = why else {
            self.calls += u64::from(!takes_down);
            if has_part(name, &MAKES) {
                self.failed_calls.retain(|failed| failed.name != name);
            }
            return;
        };
        if !recent {
            self.failed_calls.clear();
        }
        self.calls += 1;
        if self.failed_calls.len() < RECENT as usize {
            self.failed_calls.push(FailedCall { name: name.into(), why, place, at: self.calls });
        }
    }

    /// Has a call failed that may be the reason for a failure of the program now?
    pub(crate) fn calls_failed_recently(&self) -> bool {
        self.failed_calls.last().is_some_and(|failed| self.calls - failed.at <= RECENT)
    }

    /// The program has read an event of rdma_cm.
    pub fn connection_event(&mut self, id: u32, event: u32, status: i32, place: CodeAddress) {
        self.connecting.remove(&id);
        let name = match (event, CM_EVENTS.get(event as usize)) {
            (1 | 3 | 6 | 7 | 8, Some(name)) => name,
            _ => return self.called("rdma_get_cm_event", None, place),
        };
        let why = format!("the event is {name}, with status {status}");
        self.called("the connection", Some(why), place);
    }

    /// The program goes on after a failure. A later failure has a reason of its own.
    pub(crate) fn begins_anew(&mut self) {
        if let Some(failed) = &mut self.failed_completion {
            failed.overcome = true;
        }
    }
}
