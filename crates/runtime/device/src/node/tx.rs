//! Scratch memory of a thread that drives queue pairs.
use adverb_engine::Effects;
use adverb_link::TxBatch;
use std::cell::RefCell;

/// Scratch memory of a thread that drives queue pairs: the link's staging buffer, and a buffer for
/// effects.
#[derive(Default)]
pub(crate) struct Tx {
    pub(super) batch: TxBatch,
    pub(crate) effects: Effects,
}

thread_local! {
    static TX: RefCell<Tx> = RefCell::default();
}

/// Lends the calling thread's scratch.
pub(crate) fn with<R>(f: impl FnOnce(&mut Tx) -> R) -> R {
    let mut f = Some(f);
    let mut run = |tx: &mut Tx| f.take().map(|f| f(tx));
    match TX.try_with(|tx| tx.try_borrow_mut().ok().and_then(|mut tx| run(&mut tx))) {
        Ok(Some(result)) => result,
        // An exiting process has already destroyed its thread's scratch when deferred packets are
        // sent. A signal handler may also have interrupted a use of the scratch.
        _ => run(&mut Tx::default()).expect("not run above"),
    }
}
