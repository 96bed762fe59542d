//! Who is to be pumped, and with what.
use super::carriers::frames::Ethernet;
use super::carriers::relay::Relay;
use super::carriers::ring::Rings;
use super::carriers::udp::Udp;
use super::carriers::{Carrier, End, Room};
use super::queue_pair::{AnyQp, QpInner};
use crate::node::Node;
use adverb_engine::Effects;
use adverb_link::TxBatch;
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// Scratch of a thread that drives queue pairs: the staging buffer of the link and a place for
/// effects.
pub(crate) struct Tx {
    pub(super) batch: TxBatch,
    pub(crate) effects: Effects,
}

impl Tx {
    pub(crate) fn new() -> Self {
        Tx { batch: TxBatch::new(), effects: Effects::default() }
    }
}

thread_local! {
    static TX: RefCell<Tx> = RefCell::new(Tx::new());
}

impl Node {
    /// Lends the calling thread's scratch.
    pub(crate) fn with_tx<R>(&self, f: impl FnOnce(&mut Tx) -> R) -> R {
        let mut f = Some(f);
        let mut run = |tx: &mut Tx| f.take().map(|f| f(tx));
        match TX.try_with(|tx| tx.try_borrow_mut().ok().and_then(|mut tx| run(&mut tx))) {
            Ok(Some(result)) => result,
            // A process that exits has taken its thread's scratch down already when what was held
            // back is sent, or does so in a signal handler that interrupted its use.
            _ => run(&mut Tx::new()).expect("not run above"),
        }
    }

    /// Has a queue pair pumped by the next poll of the program, or by the background thread.
    pub(crate) fn pump_soon(&self, qp: &AnyQp) {
        if !qp.pending.swap(true, Ordering::Relaxed) {
            self.pending.lock().extend(qp.own.me());
            self.any_pending.store(true, Ordering::Release);
            // Awake, the thread looks again by itself; asleep it may not know that there is
            // something to do.
            if self.thread_sleeps() && !self.policy.thread_is_away() {
                self.wake_thread();
            }
        }
    }

    /// Pumps the queue pairs that wait for it.
    #[inline]
    pub(crate) fn pump_pending(&self) -> bool {
        // In a child of `fork` they are its parent's to pump.
        self.any_pending.load(Ordering::Acquire) && !self.is_stale() && self.pump_all_pending()
    }

    /// Does everything a queue pair wants done: sends its packets, performs its key operations,
    /// delivers what came of it, and keeps its timer.
    pub(crate) fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) {
        inner.waiting = (0, 0);
        let rings = if inner.carried.ring.is_near() { Rings::of(self) } else { None };
        let end = match &rings {
            _ if qp.port.is_some() => Ethernet(self).pump(qp, inner, tx),
            Some(rings) => rings.pump(qp, inner, tx),
            None => Udp(self).pump(qp, inner, tx),
        };
        if end == Room::Later {
            self.pump_soon(qp);
        }
        self.deliver(qp, inner, &mut tx.effects);
        self.keep_timer(qp, inner);
        if end == Room::Broken
            && let Some(rings) = rings
        {
            rings.leave_broken(inner);
        }
    }

    /// The queue pair keeps nothing of an earlier connection.
    pub(crate) fn disconnect(&self, inner: &mut QpInner, end: End) {
        Udp(self).disconnect(inner, end);
        Relay(self).disconnect(inner, end);
        Ethernet(self).disconnect(inner, end);
        if let Some(rings) = Rings::of(self) {
            rings.disconnect(inner, end);
        }
    }

    fn pump_all_pending(&self) -> bool {
        self.any_pending.store(false, Ordering::Release);
        let waiting = std::mem::take(&mut *self.pending.lock());
        for qp in &waiting {
            qp.pending.store(false, Ordering::Relaxed);
            self.with_tx(|tx| {
                let mut inner = qp.inner.lock();
                self.pump(qp, &mut inner, tx);
            });
        }
        !waiting.is_empty()
    }
}
