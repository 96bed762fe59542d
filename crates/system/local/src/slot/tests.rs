use super::*;

#[test]
fn slots_of_qpns() {
    assert_eq!(slot_of_qpn(0), None);
    assert_eq!(slot_of_qpn(1), None);
    assert_eq!(slot_of_qpn(MULTICAST_QPN), None);
    assert_eq!(slot_of_qpn(STEERING_QPN), None);
    assert_eq!(slot_of_qpn(1 << SLOT_SHIFT), Some(MIN_SLOT));
    assert_eq!(slot_of_qpn((u32::from(MAX_SLOT) << SLOT_SHIFT) | 0x3fff), Some(MAX_SLOT));
}

#[test]
fn a_slot_is_exclusive_while_its_holder_lives() {
    let seed = u64::from(std::process::id());
    let first = SlotClaim::claim(seed).unwrap();
    let second = SlotClaim::claim(seed).unwrap();
    assert_ne!(first.slot(), second.slot());
    let slot = first.slot();
    drop(first);
    assert_eq!(SlotClaim::claim(seed).unwrap().slot(), slot);
}
