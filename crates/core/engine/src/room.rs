//! Memory for as many entries as the program asked for. The memory may be missing, so all of it is
//! allocated here, by calls that can fail.
use alloc::collections::{TryReserveError, VecDeque};
use alloc::vec::Vec;
use thiserror::Error;

/// There is no memory for a queue or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no memory for so many entries")]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        OutOfMemory
    }
}

/// Room for `n` entries. No page is touched.
pub(crate) fn list<T>(n: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut list = Vec::new();
    list.try_reserve_exact(n)?;
    Ok(list)
}

/// Room for a ring of `n` entries. No page is touched.
pub(crate) fn ring<T>(n: usize) -> Result<VecDeque<T>, OutOfMemory> {
    let mut ring = VecDeque::new();
    ring.try_reserve_exact(n)?;
    Ok(ring)
}

/// `n` entries of one value.
pub(crate) fn filled<T: Clone>(n: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut list = list(n)?;
    list.resize(n, value);
    Ok(list)
}
