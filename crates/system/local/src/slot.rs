//! Process slots: which process owns which QPNs.
//!
//! A process claims a slot by listening at an abstract `AF_UNIX` name. The name is exclusive while
//! the process lives, and vanishes at any kind of death, so nothing needs cleaning up. Holding the
//! name proves nothing: see [`crate::delivery`].

use std::sync::Arc;

use adverb_os::owner;
use adverb_os::sys::{self, Fd, FdTable, RawAddr};

use crate::error::LocalError;

pub(crate) mod number;

pub use number::{
    MAD_QPN, MAX_SLOT, MIN_SLOT, MULTICAST_QPN, SLOT_BITS, SLOT_SHIFT, STEERING_QPN, Slot,
    slot_of_qpn,
};

const SLOTS: u64 = (MAX_SLOT - MIN_SLOT + 1) as u64;
/// The listen backlog of a slot's name.
pub(crate) const BACKLOG: i32 = 1024;

/// A claimed slot: a name at which other processes of the user connect. Dropping the claim frees
/// the slot.
pub struct SlotClaim {
    slot: Slot,
    /// The listening socket.
    pub(crate) fd: Fd,
}

impl SlotClaim {
    /// Claims a free slot of the effective user. The search starts at a slot derived from `seed`. A
    /// name held by another process only costs one call.
    ///
    /// # Errors
    /// [`LocalError::NoFreeSlot`] if all slots are taken, with the users holding them; otherwise an
    /// error of the system.
    pub fn claim(seed: u64) -> Result<SlotClaim, LocalError> {
        Self::claim_in(&FdTable::new(), seed)
    }

    pub(crate) fn claim_in(table: &Arc<FdTable>, seed: u64) -> Result<SlotClaim, LocalError> {
        const DOING: &str = "claim a process slot";
        let fail = |error| LocalError::from_io(DOING, error);
        let fd = sys::message_socket(table).map_err(fail)?;
        let uid = sys::effective_uid();
        // A finaliser (splitmix64), so that neighbouring seeds do not search the same slots.
        let mut start = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        start = (start ^ (start >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        start = (start ^ (start >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        start ^= start >> 31;
        for step in 0..SLOTS {
            let slot = MIN_SLOT + ((start % SLOTS + step) % SLOTS) as Slot;
            match sys::bind(&fd, &RawAddr::abstract_name(&slot_name(uid, slot))) {
                Ok(()) => {
                    sys::listen(&fd, BACKLOG).map_err(fail)?;
                    return Ok(SlotClaim { slot, fd });
                }
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        let slot_of = slot_of_name(uid);
        let holders = owner::holders(|name| slot_of(name).is_some()).into_iter().collect();
        Err(LocalError::NoFreeSlot { slots: SLOTS as usize, uid, holders })
    }

    /// The slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// The abstract name for owning the slot.
pub(crate) fn slot_name(uid: u32, slot: Slot) -> String {
    format!("adverb-{uid}-{slot}")
}

/// Finds the slot that a name of this user stands for.
pub(crate) fn slot_of_name(uid: u32) -> impl Fn(&str) -> Option<Slot> {
    let common = format!("adverb-{uid}-");
    move |name| {
        let slot = name.strip_prefix(&common)?.parse().ok()?;
        (MIN_SLOT..=MAX_SLOT).contains(&slot).then_some(slot)
    }
}

#[cfg(test)]
mod tests;
