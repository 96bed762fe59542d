//! Atomics on a word of the peer's: fetch-and-add, compare-and-swap.
use adverb::Result;
use adverb::testing::pair;

/// Runs it.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    let counter = b.pd.create_buffer(8).remote_atomic().build()?;
    counter.store_u64(0, 40)?;
    // What the word was before lands here.
    let old = a.pd.alloc(8)?;

    a.qp.fetch_add(&old, counter.remote(), 2).post()?;
    a.completion()?;
    assert_eq!((old.load_u64(0)?, counter.load_u64(0)?), (40, 42));

    a.qp.compare_swap(&old, counter.remote(), 42, 7).post()?;
    a.completion()?;
    assert_eq!((old.load_u64(0)?, counter.load_u64(0)?), (42, 7));

    // It is 7 by now: the swap does not happen, and `old` says why.
    a.qp.compare_swap(&old, counter.remote(), 42, 8).post()?;
    a.completion()?;
    assert_eq!((old.load_u64(0)?, counter.load_u64(0)?), (7, 7));
    Ok(())
}
