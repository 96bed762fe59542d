//! Exchanges between two connected ends, with a check of every byte.
use super::{QpEnd, pattern};
use adverb_device::engine::completion::WcFlags;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, AttrMask, Completion, QpAttr, SendOp, WcOpcode, WcStatus};
use adverb_device::{Mapping, Page};

pub fn check(c: &Completion, opcode: WcOpcode, wr_id: u64) {
    assert_eq!((c.status, c.opcode, c.wr_id), (WcStatus::Success, opcode, wr_id), "{:?}", c.cause);
}

pub fn sends(a: &QpEnd, b: &QpEnd, sizes: &[usize]) {
    for (i, size) in sizes.iter().copied().enumerate() {
        for imm in [None, Some(0x0102_0304)] {
            let data = pattern(size, i as u8 ^ imm.map_or(0, |_| 0x55));
            a.put(0, &data);
            b.recv(1, &[b.sge(0, size.max(1))]);
            a.send(2, imm.map_or(SendOp::Send, SendOp::SendImm), &[a.sge(0, size)]);
            let c = b.wait(1).remove(0);
            check(&c, WcOpcode::Recv, 1);
            assert_eq!(c.byte_len as usize, size);
            assert!(b.get(0, size) == data, "send of {size}");
            check(&a.wait(1)[0], WcOpcode::Send, 2);
        }
    }
}

pub fn writes_and_reads(a: &QpEnd, b: &QpEnd, sizes: &[usize]) {
    let remote = b.remote(0);
    for (i, size) in sizes.iter().copied().enumerate() {
        let data = pattern(size, 0x30 ^ i as u8);
        a.put(0, &data);
        a.send(1, SendOp::Write(remote), &[a.sge(0, size)]);
        check(&a.wait(1)[0], WcOpcode::RdmaWrite, 1);
        assert!(b.get(0, size) == data, "write of {size}");
        a.send(2, SendOp::Read(remote), &[a.sge(2 << 20, size)]);
        check(&a.wait(1)[0], WcOpcode::RdmaRead, 2);
        assert!(a.get(2 << 20, size) == data, "read of {size}");
        b.recv(3, &[]);
        a.send(4, SendOp::WriteImm(remote, 7), &[a.sge(0, size)]);
        check(&b.wait(1)[0], WcOpcode::RecvRdmaWithImm, 3);
        check(&a.wait(1)[0], WcOpcode::RdmaWrite, 4);
    }
}

/// Each atomic is executed exactly once, even if the request or the answer is lost or duplicated
/// many times.
pub fn atomics(a: &QpEnd, b: &QpEnd) {
    const ROUNDS: u64 = 96;
    let remote = b.remote(0);
    b.put(0, &0u64.to_ne_bytes());
    for i in 0..ROUNDS {
        a.send(i, SendOp::FetchAdd { remote, add: 3 }, &[a.sge(8 * i as usize, 8)]);
        a.send(
            i,
            SendOp::CompareSwap { remote, compare: 3 * i + 3, swap: 3 * i + 3 },
            &[a.sge(1 << 20, 8)],
        );
        if i % 8 == 7 {
            assert!(a.wait(16).iter().all(|c| c.status == WcStatus::Success));
        }
    }
    for i in 0..ROUNDS {
        assert_eq!(a.word(8 * i as usize), 3 * i, "atomic {i} happened twice or never");
    }
}

/// Each SEND with Invalidate invalidates a region of the peer. Only after the invalidation can the
/// peer register the region anew.
pub fn invalidates_and_flushes(a: &QpEnd, b: &QpEnd) {
    const ALL: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_ATOMIC)
        .union(Access::FLUSH_GLOBAL);
    let attr = QpAttr { access: ALL, ..QpAttr::default() };
    b.qp.modify(&attr, AttrMask::ACCESS_FLAGS).unwrap();
    let memory = Mapping::alloc(4096).unwrap();
    let mr = b.pd.alloc_fast_mr(1).unwrap();
    for round in 0..20u64 {
        let page = Page { mapping: memory.clone(), addr: memory.addr() };
        let reg = mr.prepare(&[page], 0, 4096, 0x1000, ALL).unwrap();
        b.send(1, SendOp::FastReg(reg), &[]);
        check(&b.wait(1)[0], WcOpcode::FastReg, 1);
        mr.posted(&reg);
        let remote = Remote { va: 0x1000, rkey: mr.key() };
        a.put(0, &round.to_ne_bytes());
        a.send(2, SendOp::AtomicWrite(remote), &[a.sge(0, 8)]);
        check(&a.wait(1)[0], WcOpcode::AtomicWrite, 2);
        a.send(3, SendOp::Flush { remote, len: 8, placement: 1, selectivity: 0 }, &[]);
        check(&a.wait(1)[0], WcOpcode::Flush, 3);
        let mut word = [0; 8];
        assert!(memory.read_at(0, &mut word) && word == round.to_ne_bytes(), "round {round}");
        b.recv(4, &[b.sge(0, 8)]);
        a.send(5, SendOp::SendInv(mr.key()), &[a.sge(0, 8)]);
        let c = b.wait(1).remove(0);
        check(&c, WcOpcode::Recv, 4);
        assert!(c.flags.contains(WcFlags::WITH_INV) && c.imm == mr.key(), "{c:?}");
        check(&a.wait(1)[0], WcOpcode::Send, 5);
    }
    mr.dereg().unwrap();
}

/// Messages of 8 KiB, all in flight at the same time.
pub fn many_sends(a: &QpEnd, b: &QpEnd, count: usize, seed: u64) {
    let data = |i: usize| pattern(8192, (i as u64 + seed) as u8);
    for i in 0..count {
        b.recv(i as u64, &[b.sge(i * 8192, 8192)]);
    }
    for i in 0..count {
        a.put(i * 8192, &data(i));
        a.send(i as u64, SendOp::Send, &[a.sge(i * 8192, 8192)]);
    }
    for (i, c) in b.wait(count).into_iter().enumerate() {
        check(&c, WcOpcode::Recv, i as u64);
        assert_eq!(c.byte_len, 8192);
        assert!(b.get(i * 8192, 8192) == data(i), "message {i}");
    }
    assert!(a.wait(count).iter().all(|c| c.status == WcStatus::Success));
}
