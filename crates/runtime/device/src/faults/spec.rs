//! The tables of faults, and their text form.
use super::values::{DropMad, FailCall, KillQp, Outage, RaiseEvent, Refuse};
use adverb_link::faults::{Item, PacketFaults};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

adverb_link::fault_items! {
    counted in Injected;
    /// Faults on demand.
    ///
    /// Written in the form of `ADVERB_FAULT` and `adverb run --fault`, as a list with commas. The
    /// items are those of the table below, and of [`PacketFaults`].
    ///
    /// Packets of every path obey: UDP, connections between processes, rings. A one-sided request
    /// performed in shared memory obeys the rules of the initiator's process for the answer that
    /// would arrive there. Such a request waits (`delay`, `delay-qp`), or goes as packets with a
    /// lost answer (`drop`, `drop-psn`). Duplication and reordering would have no effect.
    ///
    /// Shares have up to seven digits after the point. Times are in ns, us, ms or s. Items for a
    /// packet, a queue pair, a call, an event or a message may occur more than once.
    pub struct Spec {
        use packets: PacketFaults = "Faults of packets.",
        /// Makes receives of a reliable queue pair look absent for 50 ms, from the first message
        /// that needs a receive.
        rnr: Option<Duration> = "rnr=50ms" => rnr,
        /// Moves the second queue pair that was created to the error state after 100 messages;
        /// `@status=retry_exc_err` behind it completes the oldest send request under way with this
        /// status.
        kill_qp: Vec<KillQp> = "kill-qp=2@after=100" => kill_qp,
        /// Fails the third call of a verb with ENOMEM; `=EIO` behind it selects another error; each
        /// posted request counts as a call.
        fail: Vec<FailCall> = "fail=create_cq@3" => fail,
        /// Raises an asynchronous event when the first queue pair has carried 20 messages.
        events: Vec<RaiseEvent> = "event=port_err@1@after=20" => event,
        /// Loses the first REP that the process sends; every message of the connection manager can
        /// be lost.
        drop_mad: Vec<DropMad> = "cm-drop=rep@1" => cm_drop,
        /// Refuses the first request for a connection with this reason; without a reason, with 28
        /// (the program's own).
        refuse: Vec<Refuse> = "cm-reject=1@reason=3" => cm_reject,
        /// Takes the link of a device down for 2 s, 5 s after the process has opened the device;
        /// without `@5s`, at once; without `+2s`, for good.
        link_down: Vec<Outage> = "link-down=adverb0@5s+2s",
        /// Has the device fail for good, 5 s after the process has opened the device; without
        /// `@5s`, at once.
        device_fatal: Vec<Outage> = "device-fatal=adverb0@5s",
    }
}

/// Why a text is no valid specification of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault {item:?}: {why}")]
pub struct SpecError {
    item: String,
    why: String,
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut spec = Spec::default();
        if text.trim().is_empty() {
            return Ok(spec);
        }
        for item in text.split(',').map(str::trim) {
            spec.take(item).map_err(|why| SpecError { item: item.to_owned(), why })?;
        }
        Ok(spec)
    }
}

impl Spec {
    /// Is no fault requested?
    #[must_use]
    pub fn is_none(&self) -> bool {
        let none = Spec { packets: self.packets.clone(), ..Spec::default() };
        self.packets.is_none() && *self == none
    }

    /// Links that go down, and devices that fail.
    #[must_use]
    pub fn outages(&self) -> Vec<Outage> {
        [&*self.link_down, &*self.device_fatal].concat()
    }

    /// An example of each item, separated by commas.
    #[must_use]
    pub fn examples() -> String {
        let mut examples = Vec::new();
        Spec::default().each(&mut |item, _| examples.push(item.example));
        examples.join(", ")
    }

    fn take(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (mut known, mut result) = (Vec::new(), None);
        self.each(&mut |item, values| {
            known.push(item.name());
            if item.name() == name.trim() {
                let Item { example, meaning } = item;
                let taken = values.take(value.trim(), &item);
                result = Some(taken.map_err(|e| format!("{e}; the form is {example}:{meaning}")));
            }
        });
        let known = known.join(", ");
        result.unwrap_or_else(|| Err(format!("there is no such fault; {known} are known")))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut items = Vec::new();
        self.clone().each(&mut |item, values| {
            let texts = values.texts().into_iter();
            items.extend(texts.map(|text| format!("{}={text}", item.name())));
        });
        f.write_str(&items.join(","))
    }
}
