//! Every operation at every size and MTU, on a network without faults.
use super::harness::*;
use crate::wr::{MwBind, Payload, SendFlags, SendOp, Sge};
use crate::*;
use adverb_wire::Operation;
use std::vec::Vec;

const MTUS: [PathMtu; 5] =
    [PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096];
const IMM: u32 = 0x0102_0304;

fn sizes(mtu: PathMtu) -> [usize; 6] {
    let m = mtu.bytes();
    [0, 1, m - 1, m, m + 1, 10 * m + 3]
}

fn ok(completions: &[Completion], wr_id: u64, opcode: WcOpcode) {
    assert_eq!(completions.len(), 1, "{completions:?}");
    let c = &completions[0];
    assert_eq!((c.wr_id, c.status, c.opcode), (wr_id, WcStatus::Success, opcode), "{c:?}");
}

#[test]
fn sends_of_all_sizes() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend] {
        for mtu in MTUS {
            for len in sizes(mtu) {
                let mut p = Pair::new(Setup { mtu, ..Setup::new(qp_type) });
                p.sides[0].fill(0, len, 3);
                p.recv(1, 50, 100_000, len + 1);
                p.recv(1, 51, 200_000, len + 1);
                p.post(0, 1, SendOp::Send, 0, len);
                p.post_flags(
                    0,
                    2,
                    SendOp::SendImm(IMM),
                    0,
                    len,
                    SendFlags::SIGNALED | SendFlags::SOLICITED,
                );
                p.run();
                assert_eq!(p.sides[0].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2]);
                let got = p.sides[1].recvs();
                assert_eq!(got.len(), 2, "{qp_type:?} {mtu:?} {len}");
                assert!(
                    got.iter().all(|c| c.status == WcStatus::Success && c.byte_len as usize == len)
                );
                assert_eq!((got[1].imm, got[1].flags), (IMM, WcFlags::WITH_IMM));
                assert_eq!((got[0].solicited, got[1].solicited), (false, true));
                assert!(p.sides[1].holds(100_000, len, 3) && p.sides[1].holds(200_000, len, 3));
                let packets = len.div_ceil(mtu.bytes()).max(1);
                assert_eq!(p.count(0, |_| true), 2 * packets);
                assert_eq!(p.sides[0].qp.poll_timeout(), None);
            }
        }
    }
}

#[test]
fn writes_and_reads_of_all_sizes() {
    for qp_type in [QpType::Rc, QpType::XrcSend, QpType::Uc] {
        for mtu in MTUS {
            for len in sizes(mtu) {
                let mut p = Pair::new(Setup { mtu, ..Setup::new(qp_type) });
                p.sides[0].fill(64, len, 9);
                p.recv(1, 50, 0, 1);
                let to = p.sides[1].remote(300_001);
                p.post(0, 1, SendOp::Write(to), 64, len);
                p.run();
                ok(&p.sides[0].sends(), 1, WcOpcode::RdmaWrite);
                assert!(p.sides[1].holds(300_001, len, 9));
                assert!(p.sides[1].recvs().is_empty());
                p.post(0, 2, SendOp::WriteImm(to, IMM), 64, len);
                p.run();
                ok(&p.sides[0].sends(), 2, WcOpcode::RdmaWrite);
                let got = p.sides[1].recvs();
                ok(&got, 50, WcOpcode::RecvRdmaWithImm);
                assert_eq!((got[0].byte_len as usize, got[0].imm), (len, IMM));
                if qp_type != QpType::Uc {
                    p.post(0, 3, SendOp::Read(to), 500_000, len);
                    p.run();
                    let done = p.sides[0].sends();
                    ok(&done, 3, WcOpcode::RdmaRead);
                    assert_eq!(done[0].byte_len as usize, len);
                    assert!(p.sides[0].holds(500_000, len, 9), "{mtu:?} {len}");
                }
                assert_eq!(p.sides[0].qp.poll_timeout(), None);
            }
        }
    }
}

#[test]
fn long_messages_in_both_directions_at_once() {
    let len = 900_000;
    let mut p = Pair::new(Setup { arena: 4 << 20, ..Setup::new(QpType::Rc) });
    for side in 0..2 {
        p.sides[side].fill(0, len, side as u8);
        let to = p.sides[1 - side].remote(1_000_000);
        let from = p.sides[1 - side].remote(0);
        p.post(side, 1, SendOp::Write(to), 0, len);
        p.post(side, 2, SendOp::Read(from), 2_000_000, len);
    }
    p.run();
    for side in 0..2 {
        assert_eq!(p.sides[side].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2]);
        assert!(p.sides[side].holds(1_000_000, len, 1 - side as u8));
        assert!(p.sides[side].holds(2_000_000, len, 1 - side as u8));
        assert_eq!(p.sides[side].qp.counters().retransmitted, 0);
    }
    // Long messages ask for an ACK at least every 16 packets.
    let mut gap = 0;
    for f in p.log.iter().filter(|f| f.from == 0 && f.headers.bth.opcode.is_request()) {
        gap = if f.headers.bth.ack_req { 0 } else { gap + 1 };
        assert!(gap < 16);
    }
}

#[test]
fn lists_of_entries_meet_packets_anywhere() {
    let mut p = Pair::new(Setup { mtu: PathMtu::Mtu256, ..Setup::new(QpType::Rc) });
    p.sides[0].fill(0, 2000, 5);
    let s = &p.sides[0];
    let sges = [s.sge(0, 1), s.sge(0, 0), s.sge(1, 700), s.sge(701, 1299)];
    let to = p.sides[1].remote(4096);
    p.stage(0, 1, SendOp::Write(to), SendFlags::SIGNALED, Payload::Sges(&sges)).unwrap();
    let s = &p.sides[0];
    let sges = [s.sge(10_000, 255), s.sge(20_000, 2), s.sge(30_000, 1743)];
    p.stage(0, 2, SendOp::Read(to), SendFlags::SIGNALED, Payload::Sges(&sges)).unwrap();
    p.commit(0);
    p.run();
    assert_eq!(p.sides[0].sends().len(), 2);
    assert!(p.sides[1].holds(4096, 2000, 5));
    let bytes = p.sides[0].arena.bytes.borrow();
    let got = [&bytes[10_000..10_255], &bytes[20_000..20_002], &bytes[30_000..31_743]].concat();
    assert_eq!(got, bytes[..2000]);
}

#[test]
fn inline_data_is_copied_at_the_post() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut p = Pair::new(Setup::new(qp_type));
        p.recv(1, 5, 0, 400);
        let parts: [&[u8]; 3] = [b"Die Wuerde", b"", b" des Menschen"];
        p.stage(0, 1, SendOp::Send, SendFlags::SIGNALED, Payload::Inline(&parts)).unwrap();
        p.commit(0);
        p.run();
        ok(&p.sides[0].sends(), 1, WcOpcode::Send);
        let at = if qp_type == QpType::Ud { 40 } else { 0 };
        assert_eq!(p.sides[1].arena.bytes.borrow()[at..at + 23], *b"Die Wuerde des Menschen");
        let big = [0; 257];
        let refused = p.stage(0, 1, SendOp::Send, SendFlags::SIGNALED, Payload::Inline(&[&big]));
        assert_eq!(refused, Err(PostError::Invalid(Cause::TooMuchInline { given: 257, max: 256 })));
    }
}

#[test]
fn atomics_return_the_old_value_in_host_order() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.sides[1].put_u64(800, 41);
    let remote = p.sides[1].remote(800);
    p.post(0, 1, SendOp::FetchAdd { remote, add: 1 }, 8, 8);
    p.post(0, 2, SendOp::CompareSwap { remote, compare: 42, swap: 7 }, 16, 8);
    p.post(0, 3, SendOp::CompareSwap { remote, compare: 42, swap: 8 }, 24, 8);
    p.run();
    assert_eq!((p.sides[0].u64_at(8), p.sides[0].u64_at(16), p.sides[0].u64_at(24)), (41, 42, 7));
    assert_eq!(p.sides[1].u64_at(800), 7);
    let opcodes: Vec<_> = p.sides[0].sends().iter().map(|c| (c.opcode, c.byte_len)).collect();
    assert_eq!(
        opcodes,
        [(WcOpcode::FetchAdd, 8), (WcOpcode::CompSwap, 8), (WcOpcode::CompSwap, 8)]
    );
}

#[test]
fn atomic_write_and_flush() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.sides[0].put_u64(0, 0x1122_3344_5566_7788);
    let remote = p.sides[1].remote(1600);
    p.post(0, 1, SendOp::AtomicWrite(remote), 0, 8);
    p.post(0, 2, SendOp::Flush { remote, len: 8, placement: 1, selectivity: 0 }, 0, 0);
    p.run();
    let done = p.sides[0].sends();
    assert_eq!(done.len(), 2, "{done:?}");
    assert!(done.iter().all(|c| c.status == WcStatus::Success), "{done:?}");
    assert_eq!((done[0].opcode, done[1].opcode), (WcOpcode::AtomicWrite, WcOpcode::Flush));
    assert_eq!(p.sides[1].u64_at(1600), 0x1122_3344_5566_7788);
}

#[test]
fn what_has_one_packet_takes_one_psn_whatever_its_buffer() {
    let mut p = Pair::new(Setup { mtu: PathMtu::Mtu256, ..Setup::new(QpType::Rc) });
    let remote = p.sides[1].remote(800);
    p.sides[1].put_u64(800, 6);
    p.post(0, 1, SendOp::FetchAdd { remote, add: 1 }, 0, 5000);
    p.post(0, 2, SendOp::Flush { remote, len: 8, placement: 1, selectivity: 0 }, 0, 5000);
    p.post(0, 3, SendOp::Write(remote), 8192, 8);
    p.run();
    assert_eq!(p.sides[0].sends().len(), 3);
    assert_eq!((p.sides[0].u64_at(0), p.sides[0].u64_at(8)), (6, 0));
    assert_eq!(
        p.log.iter().filter(|f| f.from == 0).map(Flying::psn).collect::<Vec<_>>(),
        [0xff_fff0, 0xff_fff1, 0xff_fff2]
    );
}

#[test]
fn windows_bind_and_go_in_the_order_of_posting() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let mw = p.sides[0].keys.alloc_mw(PD, keys::MwType::Type2, 0x77_0000).unwrap();
    let new_key = mw ^ 0x5a;
    let mr = p.sides[0].key;
    let bind = MwBind { mw, new_key, mr, addr: BASE + 512, len: 512, access: Access::REMOTE_WRITE };
    p.post(0, 1, SendOp::BindMw(bind), 0, 0);
    p.recv(1, 9, 0, 64);
    p.post(0, 2, SendOp::Send, 0, 4);
    p.run();
    assert_eq!(
        p.sides[0].sends().iter().map(|c| c.opcode).collect::<Vec<_>>(),
        [WcOpcode::BindMw, WcOpcode::Send]
    );
    p.sides[1].fill(0, 512, 77);
    let remote = wr::Remote { va: BASE + 512, rkey: new_key };
    p.post(1, 3, SendOp::Write(remote), 0, 512);
    p.run();
    ok(&p.sides[1].sends(), 3, WcOpcode::RdmaWrite);
    assert!(p.sides[0].holds(512, 512, 77));
    // The peer invalidates the key with a Send: NDK's and IBTA's "send with invalidate".
    p.recv(0, 10, 0, 16);
    p.post(1, 4, SendOp::SendInv(new_key), 0, 4);
    p.run();
    let got = p.sides[0].recvs();
    ok(&got, 10, WcOpcode::Recv);
    assert_eq!((got[0].flags, got[0].imm), (WcFlags::WITH_INV, new_key));
    // The key was removed: the local invalidate fails, and later requests are flushed.
    p.sides[1].sends();
    p.post(0, 5, SendOp::LocalInv(new_key), 0, 0);
    p.post(0, 6, SendOp::Send, 0, 4);
    p.run();
    let done = p.sides[0].sends();
    let seen: Vec<_> = done.iter().map(|c| (c.wr_id, c.status, c.opcode)).collect();
    assert_eq!(
        seen,
        [(5, WcStatus::MwBindErr, WcOpcode::LocalInv), (6, WcStatus::WrFlushErr, WcOpcode::Send)]
    );
}

/// A fast registration over pages that do not lie side by side, and all accesses through its key,
/// in one chain.
#[test]
fn def_2_def_6_fast_registration_and_what_uses_it_go_as_one_chain() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let mr = p.sides[0].keys.alloc_fast(PD, 4, 0x66_0000).unwrap();
    let page = |n: u64| BASE + n * 4096;
    let pages = p.sides[0].keys.stage_pages(mr, &[page(9), page(3), page(6)]).unwrap();
    let new_key = mr | 1;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let reg =
        keys::FastReg { mr, new_key, iova: 0x7f00_0100, len: 8192, access, first: 0x100, pages };
    let sge = [Sge { addr: 0x7f00_0100, length: 8192, lkey: new_key }];
    p.sides[0].fill(9 * 4096 + 0x100, 8192, 5);
    p.recv(1, 9, 0, 8192);
    let signaled = SendFlags::SIGNALED;
    p.stage(0, 1, SendOp::FastReg(reg), signaled, Payload::Sges(&[])).unwrap();
    p.stage(0, 2, SendOp::Send, signaled, Payload::Sges(&sge)).unwrap();
    p.stage(0, 3, SendOp::LocalInv(new_key), signaled, Payload::Sges(&[])).unwrap();
    assert_eq!(p.sides[0].key_ops, 0, "staged only");
    p.commit(0);
    p.run();
    let done: Vec<_> = p.sides[0].sends().iter().map(|c| (c.wr_id, c.status, c.opcode)).collect();
    let ok = WcStatus::Success;
    assert_eq!(
        done,
        [(1, ok, WcOpcode::FastReg), (2, ok, WcOpcode::Send), (3, ok, WcOpcode::LocalInv)]
    );
    assert_eq!(p.sides[1].recvs()[0].byte_len, 8192);
    let (from, to) = (p.sides[0].arena.bytes.borrow(), p.sides[1].arena.bytes.borrow());
    assert_eq!(&to[..0xf00], &from[9 * 4096 + 0x100..10 * 4096]);
    assert_eq!(&to[0xf00..0x1f00], &from[3 * 4096..4 * 4096]);
    assert_eq!(&to[0x1f00..0x2000], &from[6 * 4096..6 * 4096 + 0x100]);
}

#[test]
fn ndk_6_the_peer_writes_to_a_fast_registered_region_and_takes_it_away() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let mr = p.sides[0].keys.alloc_fast(PD, 4, 0x66_0000).unwrap();
    let pages = p.sides[0].keys.stage_pages(mr, &[BASE + 8192, BASE]).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let reg = keys::FastReg { mr, new_key: mr | 1, iova: 0, len: 8192, access, first: 0, pages };
    p.post(0, 1, SendOp::FastReg(reg), 0, 0);
    p.run();
    p.sides[1].fill(0, 8192, 3);
    p.post(1, 2, SendOp::Write(wr::Remote { va: 0, rkey: mr | 1 }), 0, 8192);
    p.recv(0, 10, 20_000, 16);
    p.post(1, 3, SendOp::SendInv(mr | 1), 0, 4);
    p.run();
    assert!(p.sides[0].holds(8192, 4096, 3));
    let got = p.sides[0].recvs();
    ok(&got, 10, WcOpcode::Recv);
    assert_eq!((got[0].flags, got[0].imm), (WcFlags::WITH_INV, mr | 1));
    // A later invalidate of the same token fails.
    p.sides[0].sends();
    p.post(0, 5, SendOp::LocalInv(mr | 1), 0, 0);
    p.run();
    assert_eq!(p.sides[0].sends()[0].status, WcStatus::MwBindErr);
    // A peer's write through the key fails, too.
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let mr = p.sides[0].keys.alloc_fast(PD, 4, 0x66_0000).unwrap();
    p.post(1, 2, SendOp::Write(wr::Remote { va: 0, rkey: mr }), 0, 8);
    p.run();
    assert_eq!(p.sides[1].sends()[0].status, WcStatus::RemAccessErr);
}

#[test]
fn ud_carries_the_queue_key_and_one_packet() {
    for len in [0, 1, 1024, 4096] {
        let mut p = Pair::new(Setup::new(QpType::Ud));
        p.sides[0].fill(0, len, 1);
        p.recv(1, 7, 8192, len + 40);
        p.post(0, 1, SendOp::SendImm(IMM), 0, len);
        p.run();
        ok(&p.sides[0].sends(), 1, WcOpcode::Send);
        let got = p.sides[1].recvs();
        ok(&got, 7, WcOpcode::Recv);
        assert_eq!((got[0].byte_len as usize, got[0].src_qpn), (len + 40, QPN[0]));
        assert!(p.sides[1].holds(8192 + 40, len, 1));
        assert_eq!(p.log.len(), 1);
    }
}

#[test]
fn a_queue_key_with_the_top_bit_is_the_queue_pairs_own() {
    let mut p = Pair::new(Setup::new(QpType::Ud));
    for (given, sent) in [(0x8000_0005, QKEY), (5, 5)] {
        let ud = Some(wr::UdDest { av: p.attr[0].av, qpn: QPN[1], qkey: given });
        let wr = SendWr {
            wr_id: 1,
            flags: SendFlags::empty(),
            op: SendOp::Send,
            data: Payload::Sges(&[]),
            ud,
            xrc_srqn: 0,
        };
        p.sides[0].qp.stage_send(&wr).unwrap();
        p.commit(0);
        p.pump(0);
        let deth = p.log.last().unwrap().headers.deth.unwrap();
        assert_eq!((deth.qkey, deth.src_qpn), (sent, QPN[0]));
    }
}

#[test]
fn the_solicited_bit_stands_where_it_means_something() {
    // CQN-9.
    let mut p = Pair::new(Setup { mtu: PathMtu::Mtu256, ..Setup::new(QpType::Rc) });
    for i in 0..3 {
        p.recv(1, i, 0, 1000);
    }
    let to = p.sides[1].remote(0);
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    for op in [SendOp::Send, SendOp::WriteImm(to, 1), SendOp::Write(to), SendOp::Read(to)] {
        p.post_flags(0, 1, op, 4096, 600, flags);
    }
    p.run();
    let with: Vec<_> = p.log.iter().filter(|f| f.headers.bth.solicited).map(Flying::op).collect();
    assert_eq!(with, [Operation::SendLast, Operation::WriteLastImm]);
}

#[test]
fn psns_wrap() {
    // The pair starts 16 before the wrap.
    let mut p = Pair::new(Setup { mtu: PathMtu::Mtu256, ..Setup::new(QpType::Rc) });
    p.sides[0].fill(0, 256 * 40, 8);
    let to = p.sides[1].remote(100_000);
    p.post(0, 1, SendOp::Write(to), 0, 256 * 40);
    p.post(0, 2, SendOp::Read(to), 200_000, 256 * 40);
    p.run();
    assert_eq!(p.sides[0].sends().len(), 2);
    assert!(p.sides[0].holds(200_000, 256 * 40, 8));
    assert!(p.log.iter().any(|f| f.psn() == 0) && p.log.iter().any(|f| f.psn() == 0xff_ffff));
}

#[test]
fn no_more_reads_than_allowed() {
    for limit in [1, 2, 5] {
        let mut p = Pair::new(Setup { rd_atomic: limit, ..Setup::new(QpType::Rc) });
        let from = p.sides[1].remote(0);
        for i in 0..10 {
            p.post(0, i, SendOp::Read(from), 1000, 100);
        }
        p.pump(0);
        assert_eq!(p.count(0, |_| true), usize::from(limit));
        p.run();
        assert_eq!(p.sides[0].sends().len(), 10);
    }
}

#[test]
fn the_window_bounds_what_is_on_its_way() {
    let mut p = Pair::new(Setup { max_inflight: 20_000, ..Setup::new(QpType::Rc) });
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 400_000);
    p.pump(0);
    let sent: usize = p.log.iter().map(|f| f.bytes.len()).sum();
    assert!((10_000..=20_000).contains(&sent), "{sent}");
    assert!(p.log.last().unwrap().headers.bth.ack_req, "or it would stall");
    p.run();
    ok(&p.sides[0].sends(), 1, WcOpcode::RdmaWrite);
    // Reads are requested in parts, for the same reason.
    p.log.clear();
    p.post(0, 2, SendOp::Read(to), 500_000, 100_000);
    p.run();
    ok(&p.sides[0].sends(), 2, WcOpcode::RdmaRead);
    assert!(p.log.iter().filter_map(|f| f.headers.reth).all(|r| r.len <= 20_000));
}

#[test]
fn a_fence_waits_for_reads() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let remote = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(remote), 1000, 10);
    p.post(0, 2, SendOp::Write(remote), 0, 10);
    p.post_flags(0, 3, SendOp::Write(remote), 0, 10, SendFlags::FENCE | SendFlags::SIGNALED);
    p.pump(0);
    assert_eq!(p.count(0, |_| true), 2, "the third waits");
    p.run();
    assert_eq!(p.count(0, |_| true), 3);
    assert_eq!(p.sides[0].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn an_invalidate_waits_for_what_went_before() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let mw = p.sides[0].keys.alloc_mw(PD, keys::MwType::Type2, 0x99_0000).unwrap();
    let bind = MwBind {
        mw,
        new_key: mw ^ 1,
        mr: p.sides[0].key,
        addr: BASE,
        len: 64,
        access: Access::REMOTE_READ,
    };
    p.post(0, 1, SendOp::BindMw(bind), 0, 0);
    p.write(2, 10);
    p.post(0, 3, SendOp::LocalInv(mw ^ 1), 0, 0);
    p.write(4, 10);
    p.pump(0);
    assert_eq!((p.sides[0].key_ops, p.count(0, |_| true)), (1, 1));
    p.run();
    assert_eq!(p.sides[0].key_ops, 2);
    assert_eq!(p.sides[0].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn unsignaled_requests_complete_in_silence_and_free_their_slots() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let to = p.sides[1].remote(0);
    for round in 0..10 {
        for _ in 0..63 {
            p.post_flags(0, 1, SendOp::Write(to), 0, 10, SendFlags::empty());
        }
        p.post(0, round, SendOp::Write(to), 0, 10);
        let sge: [Sge; 0] = [];
        let full = p.stage(0, 1, SendOp::Send, SendFlags::empty(), Payload::Sges(&sge));
        assert!(matches!(full, Err(PostError::QueueFull(_))), "{full:?}");
        p.run();
        ok(&p.sides[0].sends(), round, WcOpcode::RdmaWrite);
    }
    let mut p = Pair::new(Setup { signal_all: true, ..Setup::new(QpType::Rc) });
    p.post_flags(0, 4, SendOp::Write(to), 0, 10, SendFlags::empty());
    p.run();
    assert_eq!(p.sides[0].sends().len() + p.sides[0].events.len(), 1);
}

/// The ACK of a request goes before or behind a short answer, as the host says, and always before a
/// long answer that the requester receives. Otherwise the requester would receive the answer long
/// before its request completes. It goes behind a WRITE of few packets, unless more requests
/// follow.
#[test]
fn an_ack_does_not_wait_for_a_long_message() {
    use AckOrder::{Ahead, Behind};
    // A WRITE or a SEND, its bytes, more requests, the order, and whether the ACK is first.
    for (writes, len, more, order, ack_first) in [
        (false, 1000, 0, Behind, false),
        (false, 1000, 0, Ahead, true),
        (false, 5000, 0, Behind, true),
        (true, 20_000, 0, Behind, false),
        (true, 20_000, 0, Ahead, true),
        (true, 20_000, 1, Behind, true),
        (true, 300_000, 0, Behind, true),
    ] {
        let mut p = Pair::new(Setup::new(QpType::Rc));
        p.sides[1].qp.set_ack_order(order);
        p.recv(1, 1, 0, 100);
        p.recv(0, 2, 10_000, 5000);
        p.post(0, 3, SendOp::Send, 0, 100);
        p.pump(0);
        while p.deliver() {}
        for _ in 0..=more {
            let to = p.sides[0].remote(0);
            let op = if writes { SendOp::Write(to) } else { SendOp::Send };
            p.post(1, 4, op, 0, len);
        }
        p.run();
        let answer: Vec<_> = p.log.iter().filter(|f| f.from == 1).map(Flying::op).collect();
        let acks = |at: Option<&Operation>| at == Some(&Operation::Acknowledge);
        assert_eq!(
            (acks(answer.first()), acks(answer.last())),
            (ack_first, !ack_first),
            "{len}: {answer:?}"
        );
    }
}
