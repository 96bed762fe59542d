//! Scratch of a thread that drives queue pairs.
use adverb_engine::Effects;
use adverb_link::TxBatch;
use std::cell::RefCell;

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

/// Lends the calling thread's scratch.
pub(crate) fn with<R>(f: impl FnOnce(&mut Tx) -> R) -> R {
    let mut f = Some(f);
    let mut run = |tx: &mut Tx| f.take().map(|f| f(tx));
    match TX.try_with(|tx| tx.try_borrow_mut().ok().and_then(|mut tx| run(&mut tx))) {
        Ok(Some(result)) => result,
        // A process that exits has taken its thread's scratch down already when what was held
        // back is sent, or does so in a signal handler that interrupted its use.
        _ => run(&mut Tx::new()).expect("not run above"),
    }
}
