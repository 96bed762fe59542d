//! Two connected queue pairs in one process, on the loopback device. `ADVERB_PATH` selects the
//! path.
#![allow(dead_code, reason = "each test file uses its part")]
pub mod child;
pub mod party;

use adverb_device::buffer::Buffer;
use adverb_device::engine::{
    Access, AddressVector, AttrMask, Completion, Payload, QpAttr, QpCap, QpState, QpType, RecvWr,
    SendFlags, SendOp, SendWr, Sge,
};
use adverb_device::{CompChannel, Context, Cq, Pd, Qp, QpInit, device};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct QpEnd {
    pub context: Arc<Context>,
    pub pd: Arc<Pd>,
    pub channel: Arc<CompChannel>,
    pub cq: Arc<Cq>,
    pub qp: Arc<Qp>,
    pub pages: Buffer,
}

pub const SIZE: usize = 4 << 20;

/// Q_Key of datagram queue pairs.
pub const QKEY: u32 = 0x1122_3344;

pub fn loopback() -> Arc<device::Device> {
    device::loopback().unwrap().expect("a loopback device")
}

impl QpEnd {
    pub fn new(qp_type: QpType) -> QpEnd {
        QpEnd::with_cq(qp_type, 4096)
    }

    pub fn with_cq(qp_type: QpType, cqe: u32) -> QpEnd {
        let context = loopback().open().unwrap();
        let pd = Pd::new(&context).unwrap();
        let channel = CompChannel::new(&context).unwrap();
        let cq = Cq::new(&context, cqe, Some(&channel), 0).unwrap();
        let init = QpInit {
            qp_type,
            cap: QpCap {
                max_send_wr: 512,
                max_recv_wr: 512,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            signal_all: false,
            send_cq: Some(cq.clone()),
            recv_cq: Some(cq.clone()),
            srq: None,
            xrcd: None,
        };
        let qp = Qp::new(&context, Some(&pd), &init).unwrap();
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let pages = Buffer::new(&pd, SIZE, access).unwrap();
        QpEnd { context, pd, channel, cq, qp, pages }
    }

    pub fn gid_index(&self) -> u8 {
        self.context.device().gids().iter().position(|g| g.ipv4().is_some()).unwrap() as u8
    }

    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        self.pages.sge(offset, len)
    }

    pub fn connect(&self, peer: &Qp, mtu: adverb_device::engine::PathMtu) {
        self.connect_to(peer.number(), mtu);
    }

    /// An end with a datagram queue pair in RTS.
    pub fn datagrams() -> QpEnd {
        let end = QpEnd::new(QpType::Ud);
        let attr = QpAttr { state: QpState::Init, port_num: 1, qkey: QKEY, ..QpAttr::default() };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
        end.qp.modify(&attr, mask).unwrap();
        end.qp
            .modify(&QpAttr { state: QpState::Rtr, ..QpAttr::default() }, AttrMask::STATE)
            .unwrap();
        let attr = QpAttr { state: QpState::Rts, ..QpAttr::default() };
        end.qp.modify(&attr, AttrMask::STATE | AttrMask::SQ_PSN).unwrap();
        end
    }

    /// The path to an address of this end.
    pub fn own_path(&self) -> AddressVector {
        let index = self.gid_index();
        self.context
            .resolve(&adverb_device::context::AhAttr {
                dgid: self.context.gid(1, index.into()).unwrap(),
                sgid_index: index,
                is_global: true,
                port_num: 1,
                hop_limit: 64,
                ..Default::default()
            })
            .unwrap()
    }

    /// Connects to a queue pair of this host, by its number.
    pub fn connect_to(&self, dest_qpn: u32, mtu: adverb_device::engine::PathMtu) {
        self.connect_by(self.own_path(), dest_qpn, mtu);
    }

    /// Connects to a queue pair over a path that the caller chooses.
    pub fn connect_by(
        &self,
        av: AddressVector,
        dest_qpn: u32,
        mtu: adverb_device::engine::PathMtu,
    ) {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let attr = QpAttr { state: QpState::Init, port_num: 1, access, ..QpAttr::default() };
        self.qp
            .modify(
                &attr,
                AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
            )
            .unwrap();
        let attr = QpAttr {
            state: QpState::Rtr,
            av,
            path_mtu: mtu,
            dest_qpn,
            rq_psn: 0x00ff_fff0,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            ..QpAttr::default()
        };
        let mut mask = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN;
        if self.qp.qp_type().is_reliable() {
            mask |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
        }
        self.qp.modify(&attr, mask).unwrap();
        let attr = QpAttr {
            state: QpState::Rts,
            sq_psn: 0x00ff_fff0,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            ..QpAttr::default()
        };
        let mut mask = AttrMask::STATE | AttrMask::SQ_PSN;
        if self.qp.qp_type().is_reliable() {
            mask |= AttrMask::TIMEOUT
                | AttrMask::RETRY_CNT
                | AttrMask::RNR_RETRY
                | AttrMask::MAX_QP_RD_ATOMIC;
        }
        self.qp.modify(&attr, mask).unwrap();
    }

    pub fn send(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let mut chain = self.qp.send_chain().unwrap();
        chain
            .stage(&SendWr {
                wr_id,
                flags: SendFlags::SIGNALED,
                op,
                data: Payload::Sges(sges),
                ud: None,
                xrc_srqn: 0,
            })
            .unwrap();
        chain.commit();
    }

    pub fn recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr { wr_id, sges }).unwrap();
    }

    pub fn wait(&self, n: usize) -> Vec<Completion> {
        let mut got = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while got.len() < n {
            self.cq.poll(n - got.len(), |c| got.push(c)).unwrap();
            assert!(Instant::now() < deadline, "{} of {n} completions: {got:?}", got.len());
        }
        got
    }
}

pub fn pair(qp_type: QpType, mtu: adverb_device::engine::PathMtu) -> (QpEnd, QpEnd) {
    let (a, b) = (QpEnd::new(qp_type), QpEnd::new(qp_type));
    a.connect(&b.qp, mtu);
    b.connect(&a.qp, mtu);
    (a, b)
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}
