//! Atomics on a word of the peer: fetch-and-add, compare-and-swap.
use adverb::Result;
use adverb::testing::pair;

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    let counter = b.pd.create_buffer(8).remote_atomic().build()?;
    counter.store_u64(0, 40)?;
    // The previous value of the word lands here.
    let old = a.pd.alloc(8)?;

    a.qp.fetch_add(&old, counter.remote(), 2).post()?;
    a.completion()?;
    assert_eq!((old.load_u64(0)?, counter.load_u64(0)?), (40, 42));

    a.qp.compare_swap(&old, counter.remote(), 42, 7).post()?;
    a.completion()?;
    assert_eq!((old.load_u64(0)?, counter.load_u64(0)?), (42, 7));

    // The word is 7 now, so the swap does not happen. `old` shows the reason.
    a.qp.compare_swap(&old, counter.remote(), 42, 8).post()?;
    a.completion()?;
    assert_eq!((old.load_u64(0)?, counter.load_u64(0)?), (7, 7));
    Ok(())
}
