use crate::keys::*;
use crate::memory::{Memory, MemoryFault, RangeKind};
use crate::{AtomicOp, Range};
use proptest::prelude::*;
use std::cell::RefCell;
use std::vec;
use std::vec::Vec;

const PD: PdId = PdId(1);
const QPN: Qpn = 17;
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);
/// Where the arena begins.
const BASE: u64 = 0x7000_0000;

fn fast(t: &mut KeyTable) -> Key {
    t.alloc_fast(PD, 8, 0x00aa_bb01).unwrap()
}

fn request(t: &mut KeyTable, mr: Key, pages: &[u64], first: u32, len: u64) -> KeyOp {
    let pages = t.stage_pages(mr, pages).unwrap();
    let iova = 0x5000 + u64::from(first);
    KeyOp::Register {
        reg: FastReg { mr, new_key: mr ^ 3, iova, len, access: ALL, first, pages },
        pd: PD,
    }
}

fn with(op: KeyOp, change: impl FnOnce(&mut FastReg)) -> KeyOp {
    let KeyOp::Register { mut reg, pd } = op else { unreachable!() };
    change(&mut reg);
    KeyOp::Register { reg, pd }
}

/// Check and apply refuse alike.
fn refused(t: &mut KeyTable, op: &KeyOp) -> Cause {
    let checked = t.check_op(op).unwrap_err();
    assert_eq!(t.apply(op), Err(checked.clone()));
    checked
}

#[test]
fn opens_only_between_its_registration_and_its_invalidate() {
    let mut t = KeyTable::new();
    let mr = fast(&mut t);
    let closed = Err(Cause::NotRegistered { key: mr });
    assert_eq!(t.check_local(PD, mr, Access::empty(), 0x5000, 4), closed);
    assert_eq!(t.check_remote(PD, QPN, mr, Access::REMOTE_READ, 0x5000, 4), closed);
    let op = request(&mut t, mr, &[BASE + 0x3000, BASE], 0x10, 0x1ff0);
    t.check_op(&op).unwrap();
    t.apply(&op).unwrap();
    let key = mr ^ 3;
    let range = t.check_remote(PD, QPN, key, Access::REMOTE_WRITE, 0x5010, 0x1ff0).unwrap();
    assert_eq!(range, Range { addr: 0x10, len: 0x1ff0, kind: RangeKind::Paged(key >> 8) });
    assert!(
        matches!(t.check_local(PD, mr, Access::empty(), 0x5010, 4), Err(Cause::UnknownKey { .. })),
        "old tag"
    );
    for (va, len) in [(0x500f, 4), (0x5010, 0x1ff1), (0x6fff, 2)] {
        assert!(matches!(
            t.check_local(PD, key, Access::empty(), va, len),
            Err(Cause::OutOfBounds { .. })
        ));
    }
    assert!(matches!(
        t.check_local(PdId(2), key, Access::empty(), 0x5010, 4),
        Err(Cause::WrongPd { .. })
    ));
    // A second registration without an invalidate, then with an invalidate.
    let again = with(request(&mut t, mr, &[BASE], 0, 8), |r| (r.mr, r.new_key) = (key, key ^ 9));
    assert_eq!(refused(&mut t, &again), Cause::InUse { key });
    let inv = KeyOp::Invalidate { key, pd: PD, qpn: 99 };
    t.apply(&inv).unwrap();
    assert_eq!(refused(&mut t, &inv), Cause::NotRegistered { key });
    t.apply(&again).unwrap();
    assert!(t.check_local(PD, key ^ 9, Access::LOCAL_WRITE, 0x5000, 8).is_ok());
    t.dealloc_fast(key).unwrap();
    assert!(t.is_empty());
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let mut t = KeyTable::new();
    let mr = fast(&mut t);
    for pages in [&[][..], &[BASE + 1][..], &[BASE; 9][..]] {
        assert!(matches!(t.stage_pages(mr, pages), Err(Cause::BadArgument { what: "pages", .. })));
    }
    let good = request(&mut t, mr, &[BASE, BASE + 0x1000], 0x20, 0x1fe0);
    let bad: [(&str, KeyOp); 7] = [
        ("length", with(good, |r| r.len += 1)),
        ("length", with(good, |r| r.len = u64::MAX)),
        ("length", with(good, |r| (r.first, r.len) = (4096, 0))),
        ("iova", with(good, |r| r.iova += 1)),
        ("key", with(good, |r| r.new_key ^= 0x100)),
        ("access", with(good, |r| r.access = Access::REMOTE_WRITE)),
        ("access", with(good, |r| r.access |= Access::ZERO_BASED)),
    ];
    for (what, op) in bad {
        assert!(
            matches!(refused(&mut t, &op), Cause::BadArgument { what: w, .. } if w == what),
            "{op:?}"
        );
    }
    let other = |op| match op {
        KeyOp::Register { reg, .. } => KeyOp::Register { reg, pd: PdId(2) },
        op => op,
    };
    assert_eq!(refused(&mut t, &other(good)), Cause::WrongPd { key: mr });
    let region = Region { pd: PD, access: ALL, iova: 0, len: 8, addr: 0, kind: RegionKind::Mapped };
    let plain = t.register(region, 0x0100_0000).unwrap();
    assert!(matches!(
        refused(&mut t, &with(good, |r| (r.mr, r.new_key) = (plain, plain))),
        Cause::UnknownKey { .. }
    ));
    t.apply(&good).unwrap();
}

#[test]
fn page_lists_wait_for_their_requests_and_go_with_later_ones() {
    let mut t = KeyTable::new();
    let mr = fast(&mut t);
    let [flushed, used, next] = [0, 1, 2].map(|i| t.stage_pages(mr, &[BASE + i * 0x1000]).unwrap());
    let op = |pages| KeyOp::Register {
        reg: FastReg { mr, new_key: mr, iova: 0, len: 8, access: ALL, first: 0, pages },
        pd: PD,
    };
    t.apply(&op(used)).unwrap();
    assert_eq!([flushed, used, next].map(|l| t.uses_pages(mr, l)), [false, true, true]);
    t.apply(&KeyOp::Invalidate { key: mr, pd: PD, qpn: QPN }).unwrap();
    assert_eq!([flushed, used, next].map(|l| t.uses_pages(mr, l)), [false, false, true]);
    assert!(matches!(refused(&mut t, &op(used)), Cause::BadArgument { what: "pages", .. }));
    t.unstage_pages(mr, next);
    assert!(!t.uses_pages(mr, next));
}

#[test]
fn a_window_holds_its_fast_registered_region() {
    let mut t = KeyTable::new();
    let mr = fast(&mut t);
    let op = request(&mut t, mr, &[BASE, BASE + 0x4000], 0, 0x2000);
    t.apply(&op).unwrap();
    let mr = mr ^ 3;
    let mw = t.alloc_mw(PD, MwType::Type2, 0x0500_0000).unwrap();
    let bind =
        MwBind { mw, new_key: mw | 1, mr, addr: 0x5ffe, len: 8, access: Access::REMOTE_READ };
    t.apply(&KeyOp::Bind { bind, pd: PD, qpn: QPN }).unwrap();
    let range = t.check_remote(PD, QPN, mw | 1, Access::REMOTE_READ, 0x5ffe, 8).unwrap();
    assert_eq!(range, Range { addr: 0xffe, len: 8, kind: RangeKind::Paged(mr >> 8) });
    assert_eq!(
        refused(&mut t, &KeyOp::Invalidate { key: mr, pd: PD, qpn: QPN }),
        Cause::InUse { key: mr }
    );
    assert_eq!(t.dealloc_fast(mr), Err(Cause::InUse { key: mr }));
    t.apply(&KeyOp::Invalidate { key: mw | 1, pd: PD, qpn: QPN }).unwrap();
    t.apply(&KeyOp::Invalidate { key: mr, pd: PD, qpn: QPN }).unwrap();
}

/// Mapped memory in a vector.
struct Arena(RefCell<Vec<u8>>);

impl Memory for Arena {
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        assert_eq!(from.kind, RangeKind::Mapped);
        let at = (from.addr - BASE) as usize;
        to.copy_from_slice(&self.0.borrow()[at..at + to.len()]);
        Ok(())
    }
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        assert_eq!(to.kind, RangeKind::Mapped);
        let at = (to.addr - BASE) as usize;
        self.0.borrow_mut()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }
    fn atomic(&self, at: Range, _: AtomicOp) -> Result<u64, MemoryFault> {
        let mut old = [0; 8];
        self.read(at, &mut old)?;
        Ok(u64::from_ne_bytes(old))
    }
}

proptest! {
    /// Bytes written through the key read back through the key, and stand where the page list says.
    #[test]
    fn pages_in_any_order_are_one_region(
        order in Just((0..6u64).collect::<Vec<_>>()).prop_shuffle(),
        first in 0..4096u32,
        at in 0..0x6000u64,
        len in 1..0x5000u64,
    ) {
        let total = 6 * 4096 - u64::from(first);
        let (at, len) = (at % total, len.min(total - at % total));
        let mut t = KeyTable::new();
        let mr = fast(&mut t);
        let pages: Vec<u64> = order.iter().map(|p| BASE + p * PAGE).collect();
        let op = request(&mut t, mr, &pages, first, total);
        t.apply(&op).unwrap();
        let memory = PagedMemory { keys: &t, memory: Arena(RefCell::new(vec![0; 6 * 4096])) };
        let va = 0x5000 + u64::from(first) + at;
        let range = t.check_local(PD, mr ^ 3, Access::LOCAL_WRITE, va, len as u32).unwrap();
        let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
        memory.write(range, &data).unwrap();
        let mut back = vec![0; len as usize];
        memory.read(range, &mut back).unwrap();
        prop_assert_eq!(&back, &data);
        let bytes = memory.memory.0.borrow();
        prop_assert_eq!(bytes.iter().filter(|b| **b != 0).count() as u64, len);
        for (i, expected) in data.iter().enumerate() {
            let offset = u64::from(first) + at + i as u64;
            let stands = order[(offset / PAGE) as usize] * PAGE + offset % PAGE;
            prop_assert_eq!(bytes[stands as usize], *expected);
        }
    }
}

#[test]
fn a_range_that_outlived_its_pages_faults() {
    let mut t = KeyTable::new();
    let mr = fast(&mut t);
    let op = request(&mut t, mr, &[BASE], 0, 16);
    t.apply(&op).unwrap();
    let range = t.check_local(PD, mr ^ 3, Access::empty(), 0x5000, 16).unwrap();
    t.apply(&KeyOp::Invalidate { key: mr ^ 3, pd: PD, qpn: QPN }).unwrap();
    let memory = PagedMemory { keys: &t, memory: Arena(RefCell::new(vec![0; 4096])) };
    assert!(memory.read(range, &mut [0; 16]).is_err());
    assert!(memory.write(range, &[0; 16]).is_err());
    assert!(memory.atomic(Range { len: 8, ..range }, AtomicOp::FetchAdd { add: 1 }).is_err());
}
