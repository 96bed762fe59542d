//! Who is to be pumped, and with what.
use super::queue_pair::AnyQp;
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
            if self.thread_sleeps() && !self.program_polls() {
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
