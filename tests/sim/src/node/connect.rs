//! Connects, breaks and renews queue pairs.
use super::end::{AREA, SLOT, WORDS, bytes_of};
use super::net::ip;
use super::world::{Step, World};
use crate::verdict::{Check, Violation, ensure};
use adverb_device::context::AhAttr;
use adverb_device::{Error, Qp, QpInit, interfaces};
use adverb_engine::wr::UdDest;
use adverb_engine::{Access, AddressVector, AttrMask, PathMtu, QpAttr, QpCap, QpState, QpType};
use std::sync::Arc;

const QKEY: u32 = 0x1234_5678;

/// The device refused a valid call.
pub(super) fn refused(what: &str) -> impl Fn(Error) -> Violation {
    move |e| Violation(format!("{what}: {e}"))
}

impl World {
    pub(super) fn peer_of(end: usize) -> usize {
        end ^ 1
    }

    fn path(&self, end: usize) -> Check<AddressVector> {
        let (own, peer) = (&self.ends[end], &self.ends[Self::peer_of(end)]);
        let host = self.hosts[peer.node];
        let attr = AhAttr {
            dgid: interfaces::gid_of(&ip(host)),
            is_global: true,
            port_num: 1,
            hop_limit: 64,
            ..AhAttr::default()
        };
        self.nodes[own.node].context.resolve(&attr).map_err(refused("an address"))
    }

    /// The destination of a datagram.
    pub(super) fn destination(&self, end: usize) -> Check<Option<UdDest>> {
        let peer = &self.ends[Self::peer_of(end)];
        match (&peer.qp, self.ends[end].qp_type) {
            (Some(qp), QpType::Ud) => {
                Ok(Some(UdDest { av: self.path(end)?, qpn: qp.number(), qkey: QKEY }))
            }
            _ => Ok(None),
        }
    }

    /// Creates the queue pair of an end, if missing.
    pub(super) fn create(&mut self, end: usize) -> Check {
        let e = &self.ends[end];
        if e.qp.is_some() {
            return Ok(());
        }
        let host = &self.nodes[e.node];
        let queue = |at: usize| Some(self.queues[e.queues[at]].cq.clone());
        let init = QpInit {
            qp_type: e.qp_type,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 128,
            },
            signal_all: false,
            send_cq: queue(0),
            recv_cq: queue(1),
            srq: None,
            xrcd: None,
        };
        let qp = Qp::new(&host.context, Some(&host.pd), &init).map_err(refused("a queue pair"))?;
        self.ends[end].qp = Some(qp);
        Ok(())
    }

    /// Brings an end from RESET to RTS. The peer's queue pair exists.
    pub(super) fn connect(&mut self, end: usize) -> Check {
        let peer = Self::peer_of(end);
        let (Some(qp), Some(to)) = (self.ends[end].qp.clone(), self.ends[peer].qp.clone()) else {
            return Err(Violation("a world without a queue pair".to_owned()));
        };
        let code = self.config.seed as u8;
        let attr = QpAttr {
            port_num: 1,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            qkey: QKEY,
            av: self.path(end)?,
            path_mtu: [PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024]
                [self.config.seed as usize % 3],
            dest_qpn: to.number(),
            rq_psn: self.ends[peer].psn,
            sq_psn: self.ends[end].psn,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1 + code % 14,
            timeout: if self.config.orderly { 15 } else { 12 + code % 3 },
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            ..QpAttr::default()
        };
        self.modify(end, &qp, &QpAttr { state: QpState::Init, ..attr })?;
        // Some receives are posted only after messages have arrived. Between processes of one host
        // such messages wait for a while.
        let at_once = self.rng.pick(&[u64::MAX, u64::MAX, 0, 3]);
        self.post_receives(end, at_once)?;
        let wait = self.rng.below(40_000_000);
        self.after(wait, Step::Refill(end));
        self.modify(end, &qp, &QpAttr { state: QpState::Rtr, ..attr })?;
        self.modify(end, &qp, &QpAttr { state: QpState::Rts, ..attr })?;
        self.ends[end].connected = true;
        self.note(|| format!("end {end} is connected as {:#x}", qp.number()));
        Ok(())
    }

    fn modify(&mut self, end: usize, qp: &Arc<Qp>, attr: &QpAttr) -> Check {
        let node = self.ends[end].node;
        let mask = AttrMask::needed(qp.qp_type(), qp.state(), attr.state);
        qp.modify(attr, mask).map_err(refused("a change of state"))?;
        self.judge(node, None)
    }

    /// The program of one end breaks a connection, by RESET or by destroying the queue pair.
    pub(super) fn break_end(&mut self, end: usize, destroy: bool) -> Check {
        let Some(qp) = self.ends[end].qp.clone() else { return Ok(()) };
        let node = self.ends[end].node;
        self.note(|| format!("end {end} is broken, destroyed: {destroy}"));
        for queue in self.ends[end].queues {
            self.queues[queue].purge(qp.number());
        }
        if destroy {
            qp.destroy().map_err(refused("destroy"))?;
            self.ends[end].qp = None;
        } else {
            qp.modify(&QpAttr::default(), AttrMask::STATE).map_err(refused("RESET"))?;
        }
        let peer = Self::peer_of(end);
        // All messages sent by either end so far may be lost.
        for of in [end, peer] {
            self.ends[of].due.iter_mut().for_each(|m| m.void = true);
        }
        let e = &mut self.ends[end];
        e.forget();
        e.epoch += 1;
        e.psn = (e.psn + 0x0030_0000) & 0x00ff_ffff;
        self.judge(node, None)
    }

    /// Both ends are broken: creates and connects them again.
    pub(super) fn renew(&mut self, link: usize) -> Check {
        for end in [2 * link, 2 * link + 1] {
            self.create(end)?;
            self.fill(end)?;
        }
        for end in [2 * link, 2 * link + 1] {
            let wait = self.rng.below(2000);
            self.after(wait, Step::Connect(end));
        }
        Ok(())
    }

    /// Fills the memory for READs of the peer, and the words of atomics.
    pub(super) fn fill(&mut self, end: usize) -> Check {
        let e = &self.ends[end];
        let buffer = &self.nodes[e.node].buffer;
        ensure!(
            buffer.write_at(e.source_at(), &bytes_of(end, 1 << 30, SLOT)),
            "the buffer is too small"
        );
        let mut words = [0; WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            ensure!(buffer.read_at(e.word_at(i), &mut bytes), "an area has {AREA} bytes");
            *word = u64::from_ne_bytes(bytes);
        }
        self.ends[Self::peer_of(end)].words = words;
        Ok(())
    }
}
