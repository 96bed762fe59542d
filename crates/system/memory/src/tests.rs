use super::*;

fn range(v: &[u8], kind: RangeKind) -> Range {
    Range { addr: v.as_ptr() as u64, len: v.len() as u32, kind }
}

/// Below `vm.mmap_min_addr`, so no concurrent test maps memory here.
const NEVER_MAPPED: u64 = 4096;

#[test]
fn copies_both_ways_on_every_kind() {
    for kind in [RangeKind::Mapped, RangeKind::OnDemand] {
        let buffer = vec![7u8; 10_000];
        let mut out = vec![0; 10_000];
        HostMemory.read(range(&buffer, kind), &mut out).unwrap();
        assert_eq!(out, buffer);
        let pages = Pages::new(10_000).unwrap();
        let to = Range { addr: pages.addr(), len: 10_000, kind };
        HostMemory.write(to, &buffer).unwrap();
        let mut back = vec![0; 10_000];
        assert!(pages.read_at(0, &mut back));
        assert_eq!(back, buffer);
    }
}

#[test]
fn null_reads_zero_and_swallows_writes() {
    let at = Range { addr: 0x10, len: 4, kind: RangeKind::Null };
    let mut out = [9; 4];
    HostMemory.read(at, &mut out).unwrap();
    assert_eq!(out, [0; 4]);
    HostMemory.write(at, &[1; 4]).unwrap();
}

#[test]
fn on_demand_faults_softly() {
    let at = Range { addr: NEVER_MAPPED, len: 8, kind: RangeKind::OnDemand };
    assert!(HostMemory.read(at, &mut [0; 8]).is_err());
    assert!(HostMemory.write(at, &[0; 8]).is_err());
    assert!(HostMemory.atomic(at, AtomicOp::FetchAdd { add: 1 }).is_err());
}

#[test]
fn atomics() {
    let pages = Pages::new(4096).unwrap();
    for kind in [RangeKind::Mapped, RangeKind::OnDemand] {
        let at = Range { addr: pages.addr(), len: 8, kind };
        HostMemory.write(at, &5u64.to_ne_bytes()).unwrap();
        assert_eq!(HostMemory.atomic(at, AtomicOp::FetchAdd { add: 3 }), Ok(5));
        assert_eq!(HostMemory.atomic(at, AtomicOp::CompareSwap { compare: 1, swap: 9 }), Ok(8));
        assert_eq!(HostMemory.atomic(at, AtomicOp::CompareSwap { compare: 8, swap: 9 }), Ok(8));
        assert_eq!(HostMemory.atomic(at, AtomicOp::Write { value: 1 }), Ok(9));
    }
}

#[test]
fn probe_tells_mapped_from_not() {
    let pages = Pages::new(3 * 4096).unwrap();
    assert_eq!(check_memory(pages.addr() + 5, 4096, true), Ok(()));
    assert_eq!(check_memory(NEVER_MAPPED, 4096, false), Err(MemoryCheckError::NotMapped));
    assert_eq!(check_memory(u64::MAX - 10, 100, false), Err(MemoryCheckError::NotMapped));
    assert_eq!(
        check_memory(pages.addr(), 1 << 62, true),
        Err(MemoryCheckError::NotMapped),
        "at once, however long"
    );
    // Read-only memory: a constant of the program.
    static RO: [u8; 4096 * 3] = [1; 4096 * 3];
    assert_eq!(check_memory(RO.as_ptr() as u64, 4096, false), Ok(()));
    assert_eq!(check_memory(RO.as_ptr() as u64, 4096, true), Err(MemoryCheckError::NotMapped));
}
