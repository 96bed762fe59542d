//! Values that lose their high bits, because their field is narrower than a byte. The log says this
//! once for each process and field.
use crate::nic::Nic;
use adverb_engine::attr::{Cut, Narrow, cut};
use adverb_engine::{AddressVector, AttrMask, QpAttr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Called with the cuts of each call, inside the call.
static OBSERVER: OnceLock<fn(&[Cut])> = OnceLock::new();
/// Fields already named in the log, one bit each.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Sets the function that is told of every call with cut values. Only the first observer counts.
pub fn observe(observer: fn(&[Cut])) {
    let _ = OBSERVER.set(observer);
}

/// Tells the observer about each call, and the log once about each field.
fn tell(cuts: &[Cut], nic: Option<&Nic>) {
    if cuts.is_empty() {
        return;
    }
    if let Some(observer) = OBSERVER.get() {
        observer(cuts);
    }
    for cut in cuts {
        let bit = 1 << cut.field as u32;
        if TOLD.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let on = nic.map_or("NICs", |nic| nic.name);
            log::warn!("{cut}, as on {on} (said once)");
        }
    }
}

/// Cuts the narrow fields in `mask`.
pub(crate) fn narrow(attr: &QpAttr, mask: AttrMask, nic: Option<&Nic>) -> QpAttr {
    let (mut attr, mut cuts) = (*attr, Vec::new());
    attr.narrow(mask, &mut |cut| cuts.push(cut));
    tell(&cuts, nic);
    attr
}

/// Cuts the narrow fields of an address handle's address.
pub fn narrow_address(av: &mut AddressVector, nic: Option<&Nic>) {
    cut(Narrow::Sl, &mut av.sl, &mut |cut| tell(&[cut], nic));
}
