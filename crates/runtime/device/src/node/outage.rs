//! The outages on request (`link-down=`, `device-fatal=`, `adverb fault`) of a process, and which
//! of them have begun. [`due`] begins and ends them.
mod due;

use super::ports::DeviceScope;
use crate::faults::{Outage, OutageKind};
use crate::ranks;
use adverb_sync::Ranked;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The outages of a process.
pub(super) struct Outages {
    pub(super) known: Ranked<Known, ranks::Outages>,
    /// An outage has begun.
    pub(super) any: AtomicBool,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) entries: Vec<AskedOutage>,
    /// The present outage of each device.
    now: BTreeMap<String, OutageKind>,
    /// The names were compared with the list of devices.
    pub(super) checked: bool,
}

pub(super) struct AskedOutage {
    pub(super) asked: Outage,
    /// The device, once it was opened.
    scope: Option<DeviceScope>,
    begun: bool,
}

impl Outages {
    pub(super) fn new(asked: Vec<Outage>) -> Self {
        let mut known = Known::default();
        known.add(asked);
        Outages { known: Ranked::new(known), any: AtomicBool::new(false) }
    }

    /// The present outage of a device.
    pub(super) fn of(&self, device: &str) -> Option<OutageKind> {
        if !self.any.load(Ordering::SeqCst) {
            return None;
        }
        self.known.lock().now.get(device).copied()
    }

    /// The device's open outages without a time so far, with the time until each begins.
    pub(super) fn opened(&self, device: &str, scope: DeviceScope) -> Vec<(usize, Duration)> {
        let mut known = self.known.lock();
        let entries = known.entries.iter_mut().enumerate();
        let here = entries.filter(|(_, e)| e.scope.is_none() && e.asked.device == device);
        here.map(|(index, entry)| {
            entry.scope = Some(scope);
            (index, entry.asked.after)
        })
        .collect()
    }

    /// The next change of an outage that is due: the outage, its device, and whether the outage
    /// begins. `None` without a change.
    pub(super) fn change(&self, index: usize) -> Option<(Outage, DeviceScope, bool)> {
        let mut known = self.known.lock();
        let Known { entries, now, .. } = &mut *known;
        let entry = entries.get_mut(index)?;
        let begins = !std::mem::replace(&mut entry.begun, true);
        let (asked, scope) = (entry.asked.clone(), entry.scope?);
        if now.get(&asked.device) == Some(&OutageKind::DeviceFatal) {
            return None;
        }
        match begins {
            true => now.insert(asked.device.clone(), asked.kind),
            false => now.remove(&asked.device),
        };
        self.any.store(true, Ordering::SeqCst);
        Some((asked, scope, begins))
    }
}

impl Known {
    pub(super) fn add(&mut self, asked: Vec<Outage>) {
        let entry = |asked| AskedOutage { asked, scope: None, begun: false };
        self.entries.extend(asked.into_iter().map(entry));
    }
}
