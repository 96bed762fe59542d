//! The numbers of queue pairs: whose they are, and which belong to nobody.

/// The owner of a range of QPNs: their upper 10 bits, [`MIN_SLOT`] to [`MAX_SLOT`].
pub type Slot = u16;

/// How many upper bits of a QPN are the slot.
pub const SLOT_BITS: u32 = 10;
/// How far the slot is shifted: a slot has `1 << SLOT_SHIFT` QPNs.
pub const SLOT_SHIFT: u32 = 24 - SLOT_BITS;
/// The lowest slot; slot 0 would hold QPN 0 and 1.
pub const MIN_SLOT: Slot = 1;
/// The highest slot; the one above would hold the multicast QPN.
pub const MAX_SLOT: Slot = (1 << SLOT_BITS) - 2;
/// DestQP of MADs of the communication manager, the general services interface (IBTA 3.9.2). It
/// belongs to no process.
pub const MAD_QPN: u32 = 1;
/// DestQP of multicast packets.
pub const MULTICAST_QPN: u32 = 0xff_ffff;
/// DestQP of steering probes, a QPN nobody can own.
pub const PROBE_QPN: u32 = 0xff_fffe;

/// The slot that owns a QPN; `None` for QPN 0 and 1, multicast and everything else outside the
/// slots.
pub fn slot_of_qpn(qpn: u32) -> Option<Slot> {
    let slot = u16::try_from(qpn >> SLOT_SHIFT).ok()?;
    (MIN_SLOT..=MAX_SLOT).contains(&slot).then_some(slot)
}
