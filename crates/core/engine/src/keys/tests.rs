use super::*;
use crate::memory::{Range, RangeKind};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
const QPN: Qpn = 17;
const OTHER_QPN: Qpn = 18;
const BASE: u64 = 0x10_0000;
const SIZE: u64 = 0x1000;
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);
const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;

fn region(access: Access) -> Region {
    Region {
        pd: PD,
        access,
        iova: BASE,
        len: SIZE,
        addr: 0x7f00_0000_0000,
        kind: RegionKind::Mapped,
    }
}

fn table(access: Access) -> (KeyTable, Key) {
    let mut t = KeyTable::new();
    let key = t.register(region(access), 0x1234_5678).unwrap();
    (t, key)
}

fn bind(mw: Key, mr: Key, access: Access) -> MwBind {
    MwBind { mw, new_key: mw ^ 0x55, mr, addr: BASE + 0x100, len: 0x200, access }
}

fn bind_op(bind: MwBind) -> KeyOp {
    KeyOp::Bind { bind, pd: PD, qpn: QPN }
}

fn invalidate(key: Key) -> KeyOp {
    KeyOp::Invalidate { key, pd: PD, qpn: QPN }
}

fn remote(t: &KeyTable, key: Key, access: Access, va: u64, len: u32) -> Result<Range, Cause> {
    t.check_remote(PD, QPN, key, access, va, len)
}

/// Check and apply refuse alike.
fn refused(t: &mut KeyTable, op: &KeyOp) -> Cause {
    let checked = t.check_op(op).unwrap_err();
    assert_eq!(t.apply(op), Err(checked.clone()));
    checked
}

#[test]
fn key_is_the_random_number_and_probes_onward_when_taken() {
    let mut t = KeyTable::new();
    assert_eq!(t.register(region(ALL), 0xabcd_ef42), Ok(0xabcd_ef42));
    assert_eq!(
        t.register(region(ALL), 0xabcd_ef43),
        Ok(0xabcd_f043),
        "the index is taken, whatever the tag"
    );
    assert_eq!(t.register(region(ALL), 0x0000_0007), Ok(0x0000_0107), "index 0 is never given");
    assert_eq!(t.register(region(ALL), 0xffff_ff01), Ok(0xffff_ff01));
    assert_eq!(
        t.alloc_mw(PD, MwType::Type1, 0xffff_ff02),
        Ok(0x0000_0202),
        "wraps, past 0 and past 1"
    );
    assert_eq!(t.len(), 5);
}

#[test]
fn registration_rules() {
    let mut t = KeyTable::new();
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, WRITE | READ] {
        assert!(matches!(
            t.register(region(access), 1 << 8),
            Err(Cause::BadArgument { what: "access", .. })
        ));
        assert!(t.register(region(access | Access::LOCAL_WRITE), 1 << 8).is_ok());
    }
    let wraps = Region { addr: u64::MAX - 10, ..region(READ) };
    assert!(matches!(t.register(wraps, 1 << 8), Err(Cause::BadArgument { what: "length", .. })));
    let wraps = Region { iova: u64::MAX - 10, ..region(READ) };
    assert!(matches!(t.register(wraps, 1 << 8), Err(Cause::BadArgument { what: "iova", .. })));
    let zero = t.register(region(ALL | Access::ZERO_BASED), 9 << 8).unwrap();
    assert_eq!(remote(&t, zero, READ, 8, 8).unwrap().addr, 0x7f00_0000_0008);
}

#[test]
fn bounds_are_exact_and_never_wrap() {
    let (t, key) = table(ALL);
    let at = |va, len| remote(&t, key, READ, va, len);
    assert_eq!(
        at(BASE, 0x1000).unwrap(),
        Range { addr: 0x7f00_0000_0000, len: 0x1000, kind: RangeKind::Mapped }
    );
    assert_eq!(at(BASE + SIZE - 1, 1).unwrap().addr, 0x7f00_0000_0fff);
    for (va, len) in [
        (BASE - 1, 1),
        (BASE - 1, 2),
        (BASE, 0x1001),
        (BASE + SIZE, 1),
        (u64::MAX, u32::MAX),
        (0, u32::MAX),
    ] {
        let expected = Cause::OutOfBounds { key, va, len: len.into(), start: BASE, size: SIZE };
        assert_eq!(at(va, len), Err(expected.clone()));
        assert_eq!(t.check_local(PD, key, Access::empty(), va, len), Err(expected));
    }
}

#[test]
fn whole_address_space_and_null() {
    let mut t = KeyTable::new();
    let odp = Region { iova: 0, addr: 0, len: u64::MAX, kind: RegionKind::OnDemand, ..region(ALL) };
    let odp = t.register(odp, 1 << 8).unwrap();
    let got = remote(&t, odp, WRITE, 0xdead_0000, 16).unwrap();
    assert_eq!(got, Range { addr: 0xdead_0000, len: 16, kind: RangeKind::OnDemand });
    assert!(remote(&t, odp, WRITE, u64::MAX, 2).is_err());

    let null = Region { kind: RegionKind::Null, len: 0, ..region(Access::empty()) };
    let null = t.register(null, 2 << 8).unwrap();
    let got = t.check_local(PD, null, Access::LOCAL_WRITE, u64::MAX, 64).unwrap();
    assert_eq!(got, Range { addr: u64::MAX, len: 64, kind: RangeKind::Null });
    assert!(matches!(remote(&t, null, READ, 0, 8), Err(Cause::AccessDenied { .. })));
    assert_eq!(
        t.check_local(OTHER_PD, null, Access::empty(), 0, 8),
        Err(Cause::WrongPd { key: null })
    );
}

#[test]
fn tag_pd_and_rights() {
    let (t, key) = table(Access::LOCAL_WRITE | READ);
    let other_tag = key ^ 1;
    assert_eq!(remote(&t, other_tag, READ, BASE, 1), Err(Cause::UnknownKey { key: other_tag }));
    let other_index = key ^ 0x100;
    let nothing = Access::empty();
    assert_eq!(
        t.check_local(PD, other_index, nothing, BASE, 1),
        Err(Cause::UnknownKey { key: other_index })
    );
    assert_eq!(t.check_remote(OTHER_PD, QPN, key, READ, BASE, 1), Err(Cause::WrongPd { key }));
    assert_eq!(t.check_local(OTHER_PD, key, nothing, BASE, 1), Err(Cause::WrongPd { key }));
    let denied =
        Err(Cause::AccessDenied { key, needed: WRITE, granted: Access::LOCAL_WRITE | READ });
    assert_eq!(remote(&t, key, WRITE, BASE, 1), denied);
    assert_eq!(t.check_remote_key(PD, QPN, key, WRITE), denied.map(drop));
    assert_eq!(t.check_remote_key(PD, QPN, key, READ), Ok(()));
    assert!(t.check_local(PD, key, Access::LOCAL_WRITE, BASE, 1).is_ok());

    let (t, key) = table(READ);
    assert!(t.check_local(PD, key, nothing, BASE, 1).is_ok(), "local reading needs no right");
    assert!(matches!(
        t.check_local(PD, key, Access::LOCAL_WRITE, BASE, 1),
        Err(Cause::AccessDenied { needed: Access::LOCAL_WRITE, .. })
    ));
}

#[test]
fn zero_length_looks_at_no_key() {
    let t = KeyTable::new();
    let empty = Ok(Range { addr: 77, len: 0, kind: RangeKind::Null });
    assert_eq!(remote(&t, 0xbad, WRITE, 77, 0), empty);
    assert_eq!(t.check_local(PD, 0xbad, Access::LOCAL_WRITE, 77, 0), empty);
    assert_eq!(t.check_remote_key(PD, QPN, 0xbad, WRITE), Err(Cause::UnknownKey { key: 0xbad }));
}

#[test]
fn reregister_and_deregister() {
    let (mut t, key) = table(ALL);
    let moved = Region { pd: OTHER_PD, len: 8, access: READ, ..region(ALL) };
    t.reregister(key, moved).unwrap();
    assert_eq!(t.region(key), Some(&moved));
    assert!(t.check_remote(OTHER_PD, QPN, key, READ, BASE, 8).is_ok());
    assert_eq!(remote(&t, key, READ, BASE, 8), Err(Cause::WrongPd { key }));
    assert!(t.reregister(key, region(WRITE)).is_err());
    assert_eq!(
        t.region(key ^ 3),
        Some(&moved),
        "a refusal changes nothing; queries ignore the tag"
    );
    assert_eq!(t.deregister(key ^ 1), Err(Cause::UnknownKey { key: key ^ 1 }));
    assert_eq!(t.deregister(key), Ok(moved));
    assert_eq!(t.deregister(key), Err(Cause::UnknownKey { key }));
    assert_eq!(t.region(key), None);
}

#[test]
fn type_1_window() {
    let (mut t, mr) = table(ALL);
    let mw = t.alloc_mw(PD, MwType::Type1, 0x77 << 8).unwrap();
    assert_eq!(remote(&t, mw, READ, BASE, 1), Err(Cause::WindowNotUsable { key: mw }));
    let first = bind(mw, mr, READ);
    t.apply(&bind_op(first)).unwrap();
    let key = first.new_key;
    assert_eq!(t.window(mw), Some((MwType::Type1, true)));
    assert_eq!(remote(&t, mw, READ, BASE + 0x100, 1), Err(Cause::UnknownKey { key: mw }));
    let opened = t.check_remote(PD, OTHER_QPN, key, READ, BASE + 0x100, 0x200).unwrap();
    assert_eq!(opened.addr, 0x7f00_0000_0100, "every QP of the PD");
    assert!(matches!(
        remote(&t, key, READ, BASE + 0xff, 1),
        Err(Cause::OutOfBounds { start, size: 0x200, .. }) if start == BASE + 0x100
    ));
    assert!(matches!(remote(&t, key, READ, BASE + 0x2ff, 2), Err(Cause::OutOfBounds { .. })));
    assert!(matches!(remote(&t, key, WRITE, BASE + 0x100, 1), Err(Cause::AccessDenied { .. })));
    assert_eq!(
        t.check_remote(OTHER_PD, QPN, key, READ, BASE + 0x100, 1),
        Err(Cause::WrongPd { key })
    );
    assert!(matches!(
        t.check_local(PD, key, Access::empty(), BASE + 0x100, 1),
        Err(Cause::OpNotSupported { op: "local access", .. })
    ));

    // A region with windows stays.
    assert_eq!(t.deregister(mr), Err(Cause::InUse { key: mr }));
    assert_eq!(t.reregister(mr, region(ALL)), Err(Cause::InUse { key: mr }));
    // Invalidates are for type 2.
    assert!(matches!(refused(&mut t, &invalidate(key)), Cause::OpNotSupported { .. }));
    // Bound again without unbinding, zero-based.
    let again =
        MwBind { new_key: key ^ 1, access: READ | Access::ZERO_BASED, ..bind(key, mr, READ) };
    t.apply(&bind_op(again)).unwrap();
    assert_eq!(t.windows_on(mr), 1);
    assert_eq!(remote(&t, key ^ 1, READ, 4, 4).unwrap().addr, 0x7f00_0000_0104);
    assert!(remote(&t, key ^ 1, READ, 0x200, 1).is_err());
    // Length 0 unbinds and looks at no region.
    t.apply(&bind_op(MwBind { len: 0, mr: 0, new_key: key ^ 2, ..again })).unwrap();
    assert_eq!(remote(&t, key ^ 2, READ, 4, 4), Err(Cause::WindowNotUsable { key: key ^ 2 }));
    assert!(t.deregister(mr).is_ok());
    t.dealloc_mw(key ^ 2).unwrap();
    assert!(t.is_empty());
}

#[test]
fn type_2_window() {
    let (mut t, mr) = table(ALL);
    let mw = t.alloc_mw(PD, MwType::Type2, 0x77 << 8).unwrap();
    assert_eq!(refused(&mut t, &invalidate(mw)), Cause::WindowNotUsable { key: mw });
    let first = bind(mw, mr, WRITE);
    t.apply(&bind_op(first)).unwrap();
    let key = first.new_key;
    assert!(remote(&t, key, WRITE, BASE + 0x100, 1).is_ok());
    let other = t.check_remote(PD, OTHER_QPN, key, WRITE, BASE + 0x100, 1);
    assert_eq!(other, Err(Cause::WindowNotUsable { key }), "its own QP only");
    assert_eq!(refused(&mut t, &bind_op(bind(key, mr, WRITE))), Cause::InUse { key });
    // Invalidates: own QP and PD, exact key.
    let op = KeyOp::Invalidate { key, pd: PD, qpn: OTHER_QPN };
    assert_eq!(refused(&mut t, &op), Cause::WindowNotUsable { key });
    let op = KeyOp::Invalidate { key, pd: OTHER_PD, qpn: QPN };
    assert_eq!(refused(&mut t, &op), Cause::WrongPd { key });
    assert_eq!(refused(&mut t, &invalidate(mw)), Cause::UnknownKey { key: mw });
    t.apply(&invalidate(key)).unwrap();
    assert_eq!(remote(&t, key, WRITE, BASE + 0x100, 1), Err(Cause::WindowNotUsable { key }));
    assert_eq!(refused(&mut t, &invalidate(key)), Cause::WindowNotUsable { key }, "NDK-6");
    // Free again: bound again and found by index, although the consumer holds an old tag.
    t.apply(&bind_op(MwBind { new_key: mw ^ 9, ..first })).unwrap();
    assert!(remote(&t, mw ^ 9, WRITE, BASE + 0x100, 1).is_ok());
    // Only the QP of the bind may unbind with length 0.
    let unbind = MwBind { len: 0, new_key: mw ^ 10, ..first };
    let op = KeyOp::Bind { bind: unbind, pd: PD, qpn: OTHER_QPN };
    assert_eq!(refused(&mut t, &op), Cause::WindowNotUsable { key: mw });
    t.apply(&bind_op(unbind)).unwrap();
    assert_eq!(t.window(mw), Some((MwType::Type2, false)));
    // A freed window releases the region.
    t.apply(&bind_op(MwBind { new_key: mw ^ 11, ..first })).unwrap();
    assert_eq!(t.deregister(mr), Err(Cause::InUse { key: mr }));
    t.dealloc_mw(mw).unwrap();
    assert!(t.deregister(mr).is_ok());
    assert_eq!(t.dealloc_mw(mw), Err(Cause::UnknownKey { key: mw }));
}

/// Consumers give any key, such as the region's key plus a number: its low 8 bits become the
/// window's tag.
#[test]
fn a_bind_takes_the_tag_of_the_new_key_alone() {
    for ty in [MwType::Type1, MwType::Type2] {
        let (mut t, mr) = table(ALL);
        let mw = t.alloc_mw(PD, ty, 0x77 << 8 | 3).unwrap();
        let any = MwBind { new_key: mr.wrapping_add(12), ..bind(mw, mr, READ) };
        let key = 0x77 << 8 | mr.wrapping_add(12) & 0xff;
        assert_eq!(any.bound_key(), key);
        t.apply(&bind_op(any)).unwrap();
        assert!(remote(&t, key, READ, BASE + 0x100, 0x200).is_ok());
        for old in [mw, any.new_key] {
            assert!(remote(&t, old, READ, BASE + 0x100, 1).is_err(), "{old:#x}");
        }
        // The unbinding bind takes the tag, too.
        t.apply(&bind_op(MwBind { len: 0, new_key: 0xdead_be01, ..any })).unwrap();
        assert_eq!(remote(&t, key, READ, BASE + 0x100, 1), Err(Cause::UnknownKey { key }));
        t.apply(&bind_op(any)).unwrap();
    }
}

#[test]
fn bind_rules() {
    for ty in [MwType::Type1, MwType::Type2] {
        let (mut t, mr) = table(ALL);
        let mw = t.alloc_mw(PD, ty, 0x77 << 8).unwrap();
        let good = bind(mw, mr, READ);
        let wrong_mw = bind(mr, mr, READ);
        assert_eq!(
            refused(&mut t, &bind_op(wrong_mw)),
            Cause::UnknownKey { key: mr },
            "a region is no window"
        );
        let op = KeyOp::Bind { bind: good, pd: OTHER_PD, qpn: QPN };
        assert_eq!(refused(&mut t, &op), Cause::WrongPd { key: mw });
        assert_eq!(
            refused(&mut t, &bind_op(MwBind { mr: mr ^ 1, ..good })),
            Cause::UnknownKey { key: mr ^ 1 }
        );
        for (addr, len) in
            [(BASE - 1, 2), (BASE, SIZE + 1), (BASE + SIZE, 1), (u64::MAX, 2), (1, u64::MAX)]
        {
            let cause = refused(&mut t, &bind_op(MwBind { addr, len, ..good }));
            assert!(matches!(cause, Cause::OutOfBounds { .. }), "{addr:#x} {len}: {cause}");
        }
        let other_pd_key = t.register(Region { pd: OTHER_PD, ..region(ALL) }, 5 << 8).unwrap();
        let op = bind_op(MwBind { mr: other_pd_key, ..good });
        assert_eq!(refused(&mut t, &op), Cause::WrongPd { key: other_pd_key });
        let unbindable = t.register(region(ALL - Access::MW_BIND), 6 << 8).unwrap();
        let op = bind_op(MwBind { mr: unbindable, ..good });
        assert!(matches!(
            refused(&mut t, &op),
            Cause::AccessDenied { needed: Access::MW_BIND, .. }
        ));
        let read_only = t.register(region(READ | Access::MW_BIND), 7 << 8).unwrap();
        for access in [WRITE, Access::REMOTE_ATOMIC] {
            let op = bind_op(MwBind { mr: read_only, access, ..good });
            assert!(matches!(refused(&mut t, &op), Cause::AccessDenied { .. }));
        }
        let zero_based = t.register(region(ALL | Access::ZERO_BASED), 8 << 8).unwrap();
        let op = bind_op(MwBind { mr: zero_based, addr: 0, ..good });
        assert!(matches!(refused(&mut t, &op), Cause::BadArgument { what: "mr", .. }));
        assert_eq!(t.windows_on(mr), 0);
        assert!(t.apply(&bind_op(MwBind { mr: read_only, ..good })).is_ok());
        assert_eq!(t.windows_on(read_only), 1);
    }
}

#[test]
fn regions_are_never_invalidated() {
    let (mut t, mr) = table(ALL);
    assert!(matches!(
        refused(&mut t, &invalidate(mr)),
        Cause::OpNotSupported { op: "invalidate", .. }
    ));
    assert!(remote(&t, mr, READ, BASE, 1).is_ok());
}

#[test]
fn a_destroyed_qp_frees_its_windows() {
    let (mut t, mr) = table(ALL);
    let mine = t.alloc_mw(PD, MwType::Type2, 0x77 << 8).unwrap();
    let theirs = t.alloc_mw(PD, MwType::Type2, 0x78 << 8).unwrap();
    let shared = t.alloc_mw(PD, MwType::Type1, 0x79 << 8).unwrap();
    t.apply(&bind_op(bind(mine, mr, READ))).unwrap();
    t.apply(&bind_op(bind(shared, mr, READ))).unwrap();
    t.apply(&KeyOp::Bind { bind: bind(theirs, mr, READ), pd: PD, qpn: OTHER_QPN }).unwrap();
    t.release_qp(QPN);
    assert_eq!(t.window(mine), Some((MwType::Type2, false)));
    assert_eq!(t.window(theirs), Some((MwType::Type2, true)));
    assert_eq!(t.window(shared), Some((MwType::Type1, true)));
    assert_eq!(t.windows_on(mr), 2);
}

#[test]
fn a_region_can_take_itself_from_its_windows() {
    let (mut t, mr) = table(ALL);
    let (_, kept) = (t.unbind_windows(mr), t.alloc_mw(PD, MwType::Type2, 0x76 << 8).unwrap());
    let other = t.register(*t.region(mr).unwrap(), 0x99 << 8).unwrap();
    t.apply(&bind_op(bind(kept, other, READ))).unwrap();
    for (ty, random) in [(MwType::Type1, 0x77 << 8), (MwType::Type2, 0x78 << 8)] {
        let mw = t.alloc_mw(PD, ty, random).unwrap();
        t.apply(&bind_op(bind(mw, mr, READ))).unwrap();
        t.unbind_windows(mr);
        assert_eq!(t.window(mw), Some((ty, false)));
    }
    assert_eq!(t.windows_on(mr), 0);
    assert_eq!(t.window(kept), Some((MwType::Type2, true)), "of another region");
    t.deregister(mr).unwrap();
}

proptest! {
    /// Compares with a map. Indices collide in their low bits, so that probing and gap closing are
    /// exercised.
    #[test]
    fn slots_behave_as_a_map(steps in prop::collection::vec((0u32..4, 0u32..24, 0u32..3), 1..200)) {
        let mut slots = slots::Slots::default();
        let mut model: BTreeMap<u32, (Key, usize)> = BTreeMap::new();
        for (i, (what, low, high)) in steps.into_iter().enumerate() {
            let wanted = (high << 16 | low) << 8 | 5;
            if what < 2 {
                let key = slots.insert(i, wanted).unwrap();
                prop_assert!(key >> 8 != 0);
                prop_assert!(model.insert(key >> 8, (key, i)).is_none(), "index given twice");
                if wanted >> 8 != 0 && !model.contains_key(&(wanted >> 8)) {
                    prop_assert_eq!(key, wanted);
                }
            } else {
                let removed = slots.remove(wanted);
                prop_assert_eq!(removed, model.remove(&(wanted >> 8)).map(|(_, v)| v));
            }
            prop_assert_eq!(slots.len(), model.len());
            for (key, value) in model.values() {
                prop_assert_eq!(slots.get(*key), Some((*key, value)));
            }
            let mut all = slots.keys_where(|_| true);
            all.sort_unstable();
            prop_assert_eq!(all, model.values().map(|(k, _)| *k).collect::<Vec<_>>());
        }
    }

    /// Compares the bounds rule with arithmetic that cannot wrap.
    #[test]
    fn bounds_agree_with_wide_arithmetic(iova: u64, size: u64, va: u64, near: bool, delta in -40i64..40, len in 1u32..64) {
        let size = size.min(u64::MAX - iova);
        let va = if near { iova.wrapping_add(size).wrapping_add_signed(delta) } else { va };
        let mut t = KeyTable::new();
        let key = t.register(Region { iova, len: size, addr: 0, ..region(ALL) }, 1 << 8).unwrap();
        let fits = va >= iova && u128::from(va) + u128::from(len) <= u128::from(iova) + u128::from(size);
        prop_assert_eq!(remote(&t, key, READ, va, len).is_ok(), fits);
    }
}
