//! The numbers of queue pairs: their owners, and the numbers without an owner.

/// The owner of a range of QPNs: the upper 10 bits of the QPN, [`MIN_SLOT`] to [`MAX_SLOT`].
pub type Slot = u16;

/// The number of upper bits of a QPN that are the slot.
pub const SLOT_BITS: u32 = 10;
/// The position of the slot within a QPN: a slot has `1 << SLOT_SHIFT` QPNs.
pub const SLOT_SHIFT: u32 = 24 - SLOT_BITS;
/// The lowest slot; slot 0 would contain QPN 0 and 1.
pub const MIN_SLOT: Slot = 1;
/// The highest slot; the next slot would contain the multicast QPN.
pub const MAX_SLOT: Slot = (1 << SLOT_BITS) - 2;
/// DestQP of MADs of the communication manager, the general services interface (IBTA 3.9.2).
/// Belongs to no process.
pub const MAD_QPN: u32 = 1;
/// DestQP of multicast packets.
pub const MULTICAST_QPN: u32 = 0xff_ffff;
/// DestQP of steering tests; no process can own this QPN.
pub const STEERING_QPN: u32 = 0xff_fffe;

/// The slot of a QPN; `None` for QPN 0 and 1, multicast and all other QPNs outside of the slots.
pub fn slot_of_qpn(qpn: u32) -> Option<Slot> {
    let slot = u16::try_from(qpn >> SLOT_SHIFT).ok()?;
    (MIN_SLOT..=MAX_SLOT).contains(&slot).then_some(slot)
}
