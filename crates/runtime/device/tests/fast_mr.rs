//! Fast registration over real sockets. Separate pages form one region for local and remote users.
mod common;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, FastReg, PathMtu, QpType, SendOp, Sge, WcOpcode, WcStatus};
use adverb_device::{Mapping, Page};
use common::{QpEnd, pair, pattern};

const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// Pages of a mapping, by page number.
fn pages(mapping: &Mapping, order: &[u64]) -> Vec<Page> {
    order
        .iter()
        .map(|n| Page { mapping: mapping.clone(), addr: mapping.addr() + n * 4096 })
        .collect()
}

fn register(end: &QpEnd, reg: FastReg) {
    end.send(100, SendOp::FastReg(reg), &[]);
    let got = end.wait(1).remove(0);
    assert_eq!((got.status, got.opcode), (WcStatus::Success, WcOpcode::FastReg), "{:?}", got.cause);
}

#[test]
fn scattered_pages_are_one_region_to_both_sides() {
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu4096);
    let memory = Mapping::alloc(8 * 4096).unwrap();
    let mr = a.pd.alloc_fast_mr(8).unwrap();
    let free = mr.key();
    let order = [6, 1, 4, 3];
    let (fbo, len, base) = (0x123, 3 * 4096, 0x7_0000_0123);
    let reg = mr.prepare(&pages(&memory, &order), fbo, len, base, ALL).unwrap();
    register(&a, reg);
    mr.posted(&reg);
    assert_ne!(mr.key(), free, "a new token for each registration");
    // The peer writes to the region, and this end sends from the region.
    let data = pattern(len as usize, 9);
    b.put(0, &data);
    b.send(1, SendOp::Write(Remote { va: base, rkey: mr.key() }), &[b.sge(0, len as usize)]);
    assert_eq!(b.wait(1)[0].status, WcStatus::Success);
    let mut page = vec![0; 4096];
    assert!(memory.read_at(4096, &mut page), "the second page of the region");
    let second = 4096 - fbo as usize;
    assert!(page == data[second..second + 4096]);
    b.recv(2, &[b.sge(1 << 20, len as usize)]);
    a.send(3, SendOp::Send, &[Sge { addr: base, length: len as u32, lkey: mr.key() }]);
    assert_eq!(b.wait(1)[0].byte_len, len as u32);
    assert!(b.get(1 << 20, len as usize) == data);
    assert_eq!(a.wait(1)[0].status, WcStatus::Success);
    // An invalidated region allows no access and can be registered anew.
    a.send(4, SendOp::LocalInv(mr.key()), &[]);
    assert_eq!(a.wait(1)[0].status, WcStatus::Success);
    let reg = mr.prepare(&pages(&memory, &[0]), 0, 8, 0x1000, ALL).unwrap();
    register(&a, reg);
    mr.posted(&reg);
    b.send(5, SendOp::Write(Remote { va: 0x1000, rkey: free }), &[b.sge(0, 8)]);
    let got = b.wait(1).remove(0);
    assert_eq!(got.status, WcStatus::RemAccessErr, "the old token");
    mr.dereg().unwrap();
    assert!(mr.dereg().is_err());
}

#[test]
fn what_cannot_be_registered_is_refused_with_a_reason() {
    let a = QpEnd::new(QpType::Rc);
    let memory = Mapping::alloc(2 * 4096).unwrap();
    let mr = a.pd.alloc_fast_mr(2).unwrap();
    let p = pages(&memory, &[0, 1]);
    let refused = |pages: &[Page], fbo, len, iova, text: &str| {
        let error = mr.prepare(pages, fbo, len, iova, ALL).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(&p, 0, 8193, 0, "do not hold");
    refused(&p, 4096, 1, 0, "do not hold");
    refused(&p, 5, 8, 4, "offset within a page");
    refused(&pages(&memory, &[0, 2]), 0, 8192, 0, "leaves the memory");
    refused(&pages(&memory, &[0, 1, 0]), 0, 8192, 0, "more pages");
    let crooked = Page { mapping: memory.clone(), addr: memory.addr() + 1 };
    refused(&[crooked], 0, 8, 0, "multiple");
    assert!(a.pd.alloc_fast_mr(0).is_err());
    // The used bytes of the page are inside the memory, but the page itself extends beyond the
    // memory.
    let odd = Mapping::alloc(100).unwrap();
    mr.prepare(&pages(&odd, &[0]), 0, 100, 0, ALL).unwrap();
    refused(&pages(&odd, &[0]), 0, 101, 0, "leaves the memory");
}

#[test]
fn memory_of_our_own_outlives_its_mapping_while_a_key_opens_it() {
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu4096);
    let memory = Mapping::alloc(4096).unwrap();
    assert!(memory.write_at(0, b"still here"));
    let mr = a.pd.alloc_fast_mr(1).unwrap();
    let reg = mr.prepare(&pages(&memory, &[0]), 0, 10, 0, ALL).unwrap();
    let plain = a.pd.reg_mapping(&memory, 0, 10, 0x5000, ALL).unwrap();
    drop(memory);
    register(&a, reg);
    mr.posted(&reg);
    for (va, rkey) in [(0, mr.key()), (0x5000, plain.key())] {
        b.send(1, SendOp::Read(Remote { va, rkey }), &[b.sge(0, 10)]);
        assert_eq!(b.wait(1)[0].status, WcStatus::Success);
        assert_eq!(b.get(0, 10), b"still here");
    }
    assert!(a.pd.reg_mapping(&Mapping::alloc(64).unwrap(), 60, 5, 0, ALL).is_err());
}

#[test]
fn requests_that_were_not_posted_leave_nothing_behind() {
    let a = QpEnd::new(QpType::Rc);
    let mr = a.pd.alloc_fast_mr(1).unwrap();
    for _ in 0..100 {
        let memory = Mapping::alloc(4096).unwrap();
        let reg = mr.prepare(&pages(&memory, &[0]), 0, 10, 0, ALL).unwrap();
        mr.forget(&reg);
    }
    mr.dereg().unwrap();
}
