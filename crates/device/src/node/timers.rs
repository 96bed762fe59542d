//! Deadlines of queue pairs and of moderated or watched completion queues.
//!
//! The queue keeps at most one entry of each, and lets it fire early: an entry whose queue pair has moved its deadline on is put
//! back. So a data path that restarts its timer with every acknowledgement costs one atomic load. Whose entry it is remembers its
//! time; an entry taken with another time was superseded while it was being taken, and does not count.
use adverb_engine::Time;
use adverb_sync::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    /// A queue pair, by number.
    Qp(u32),
    /// A moderated completion queue, by its number.
    Cq(u32),
    /// A completion queue that is watched for lost wake-ups, by its number.
    Watch(u32),
    /// Packets that a fault holds.
    Held,
}

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

pub(super) struct Timers {
    entries: Mutex<BTreeSet<(u64, Timed)>>,
    /// Earliest entry, [`NEVER`] without one. SeqCst: the adder stores here and then reads how long the thread sleeps,
    /// the thread does the reverse, and neither may miss the other.
    next: AtomicU64,
}

impl Timers {
    pub(super) fn new() -> Self {
        Timers { entries: Mutex::default(), next: AtomicU64::new(NEVER) }
    }

    /// Earliest deadline.
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Enters a deadline in place of an earlier entry at `old`, if that stands; `true` if it is now the earliest.
    pub(super) fn add(&self, at: Time, who: Timed, old: u64) -> bool {
        let mut entries = self.entries.lock();
        if old != NEVER {
            entries.remove(&(old, who));
        }
        entries.insert((at.0, who));
        let earliest = at.0 < self.next.load(Ordering::SeqCst);
        self.next.store(entries.first().map_or(NEVER, |(at, _)| *at), Ordering::SeqCst);
        earliest
    }

    /// Takes an entry that is due, with its time.
    pub(super) fn pop_due(&self, now: Time) -> Option<(Time, Timed)> {
        if self.next() > now.0 {
            return None;
        }
        let mut entries = self.entries.lock();
        let due = entries.first().is_some_and(|(at, _)| *at <= now.0).then(|| entries.pop_first()).flatten();
        self.next.store(entries.first().map_or(NEVER, |(at, _)| *at), Ordering::SeqCst);
        due.map(|(at, who)| (Time(at), who))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::{Context, Cq, Pd, Qp, QpInit, device};
    use adverb_engine::{
        AttrMask, PathMtu, Payload, QpAttr, QpCap, QpState, QpType, SendFlags, SendOp, SendWr,
    };
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn an_entry_takes_the_place_of_the_one_before() {
        let timers = Timers::new();
        let who = Timed::Qp(7);
        assert!(timers.add(Time(100), who, NEVER));
        assert!(timers.add(Time(50), who, 100));
        assert!(!timers.add(Time(60), Timed::Cq(7), NEVER));
        assert_eq!(timers.pop_due(Time(49)), None);
        assert_eq!(timers.pop_due(Time(200)), Some((Time(50), who)));
        assert_eq!(timers.next(), 60);
        assert_eq!(timers.pop_due(Time(200)), Some((Time(60), Timed::Cq(7))));
        assert_eq!((timers.pop_due(Time(200)), timers.next()), (None, NEVER));
    }

    fn queue_pair(context: &Arc<Context>, cq: &Arc<Cq>, pd: &Arc<Pd>) -> Arc<Qp> {
        let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, ..Default::default() };
        let init = QpInit {
            qp_type: QpType::Rc,
            cap,
            signal_all: true,
            send_cq: Some(cq.clone()),
            recv_cq: Some(cq.clone()),
            srq: None,
            xrcd: None,
        };
        Qp::new(context, Some(pd), &init).unwrap()
    }

    fn connect(context: &Arc<Context>, qp: &Qp, peer: &Qp) {
        let index = context.device().gids().iter().position(|g| g.ipv4().is_some()).unwrap() as u8;
        let attr = QpAttr { state: QpState::Init, port_num: 1, ..QpAttr::default() };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        qp.modify(&attr, mask).unwrap();
        let av = context
            .resolve(&crate::context::AhAttr {
                dgid: context.gid(1, index.into()).unwrap(),
                sgid_index: index,
                is_global: true,
                port_num: 1,
                hop_limit: 64,
                ..Default::default()
            })
            .unwrap();
        let attr = QpAttr {
            state: QpState::Rtr,
            av,
            path_mtu: PathMtu::Mtu1024,
            dest_qpn: peer.number(),
            // 10 µs.
            min_rnr_timer: 1,
            ..QpAttr::default()
        };
        let mask =
            AttrMask::STATE | AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        qp.modify(&attr, mask | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER).unwrap();
        let attr =
            QpAttr { state: QpState::Rts, timeout: 18, retry_cnt: 7, rnr_retry: 7, ..QpAttr::default() };
        let mask = AttrMask::STATE | AttrMask::SQ_PSN | AttrMask::TIMEOUT | AttrMask::RETRY_CNT;
        qp.modify(&attr, mask | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC).unwrap();
    }

    fn entries_of(node: &Node, qp: &Qp) -> usize {
        let entries = node.timers.entries.lock();
        entries.iter().filter(|(_, who)| *who == Timed::Qp(qp.number())).count()
    }

    /// Each round sets a deadline before the one of the missing acknowledgement, and then that again.
    #[test]
    fn a_receiver_that_is_not_ready_leaves_one_entry() {
        let context =
            device::list().unwrap().into_iter().find(|d| d.interface().loopback).unwrap().open().unwrap();
        let pd = Pd::new(&context).unwrap();
        let cq = Cq::new(&context, 16, None, 0).unwrap();
        let (a, b) = (queue_pair(&context, &cq, &pd), queue_pair(&context, &cq, &pd));
        connect(&context, &a, &b);
        connect(&context, &b, &a);
        let wr = SendWr {
            wr_id: 1,
            flags: SendFlags::SIGNALED,
            op: SendOp::Send,
            data: Payload::Sges(&[]),
            ud: None,
            xrc_srqn: 0,
        };
        a.post_sends(&[wr], false).unwrap();
        let node = context.node();
        let (mut most, begun) = (0, Instant::now());
        while begun.elapsed() < Duration::from_millis(300) {
            node.progress();
            most = most.max(entries_of(node, &a));
        }
        assert_eq!(most, 1, "after {:?}", a.counters());
        b.post_recv(&adverb_engine::RecvWr { wr_id: 2, sges: &[] }).unwrap();
        let mut done = 0;
        while done < 2 {
            done += cq.poll(2, |c| assert_eq!(c.status, adverb_engine::WcStatus::Success)).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(20), "{done} of 2: a deadline was lost");
        }
        a.destroy().unwrap();
        b.destroy().unwrap();
    }
}
