//! Values that lose their high bits, as their field is narrower than a byte: the log says it once a
//! process and field.
use crate::nic::Nic;
use adverb_engine::attr::{Cut, Narrow, cut};
use adverb_engine::{AddressVector, AttrMask, QpAttr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Hears of the cuts of each call, inside the call.
static OBSERVER: OnceLock<fn(&[Cut])> = OnceLock::new();
/// Fields that the log has named, a bit each.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Has a face hear of every call that cuts values; the first observer counts.
pub fn observe(observer: fn(&[Cut])) {
    let _ = OBSERVER.set(observer);
}

/// Tells the observer of each call, and the log of each field once.
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

/// Cuts the narrow fields that `mask` names.
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
