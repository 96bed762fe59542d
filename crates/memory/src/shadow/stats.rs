//! What is in the file, and what was refused.
use super::Refusal;
use super::counts::Counts;
use adverb_sync::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowStats {
    /// Bytes in the file.
    pub inside: u64,
    /// Of these, bytes that nobody needs there, and that could not be given back yet.
    pub idle: u64,
    /// Ranges refused, by [`Refusal::name`].
    pub refused: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    refused: Mutex<BTreeMap<&'static str, u64>>,
    total: AtomicU64,
}

impl Tally {
    pub fn refused(&self, refusal: Refusal) {
        self.total.fetch_add(1, Ordering::Relaxed);
        *self.refused.lock().entry(refusal.name()).or_default() += 1;
    }

    pub fn stats(&self, counts: &Counts) -> ShadowStats {
        let bytes = |(start, end): (u64, u64)| end - start;
        ShadowStats {
            inside: counts.inside().map(bytes).sum(),
            idle: counts.idle(0, super::SPAN).map(bytes).sum(),
            refused: self.refused.lock().clone(),
        }
    }
}
