//! Offers: receives announced by a queue pair to its peer. From an offer the peer knows, without a
//! reply, of a receive waiting for the next message.
//!
//! 1. The owner posts a receive, and writes its *offer*: the number of the receive within the queue
//!    pair, its size in bytes, and the generation of the process's keys.
//! 2. The peer reads the offer of the next receive. If the offer is of that receive, of the current
//!    generation, and large enough, the peer writes the message into the owner's ring. The message
//!    names the receive.
//! 3. The owner takes the message, and publishes how many receives the queue pair has taken so far
//!    ([`Offers::taken`]). After sending by another path meanwhile, the peer continues from this
//!    number.
//!
//! Taking back a key begins a new generation, so all earlier offers are void.

use std::sync::atomic::Ordering::Release;

use crate::sync::{AtomicU64, load_acquire};

/// The largest number of receives offered at the same time.
pub const OFFERED: u64 = if cfg!(all(test, loom)) { 2 } else { 64 };

const SIZE_BITS: u32 = 24;
const GENERATION_BITS: u32 = 20;
const MASK: u64 = (1 << GENERATION_BITS) - 1;

/// The longest message for which an offer can promise room.
pub const LONGEST_OFFER: u32 = (1 << SIZE_BITS) - 2;

/// The offers of a queue pair.
#[repr(C, align(64))]
pub struct Offers {
    taken: AtomicU64,
    /// Padding. The offers begin in a cache line of their own: the owner writes `taken` with each
    /// message, and this must not cost the peer a cache miss.
    rest: [AtomicU64; 7],
    words: [AtomicU64; OFFERED as usize],
}

/// An offer as a word. From the low bits: size plus one (0 is no offer), generation, number of the
/// receive.
fn word(receive: u64, generation: u64, size: u32) -> u64 {
    u64::from(size.min(LONGEST_OFFER) + 1)
        | (generation & MASK) << SIZE_BITS
        | (receive & MASK) << (SIZE_BITS + GENERATION_BITS)
}

impl Offers {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        let zero = |_| AtomicU64::new(0);
        Offers {
            taken: AtomicU64::new(0),
            rest: std::array::from_fn(zero),
            words: std::array::from_fn(zero),
        }
    }

    fn place(&self, receive: u64) -> &AtomicU64 {
        &self.words[(receive % OFFERED) as usize]
    }

    /// Offers a receive of `size` bytes, for the owner. `None`: the receive is in the queue, but
    /// the peer may not use the receive by itself.
    #[inline]
    pub fn set(&self, receive: u64, generation: u64, size: Option<u32>) {
        let word = size.map_or(0, |size| word(receive, generation, size));
        self.place(receive).store(word, Release);
    }

    /// The size of the receive, if offered in this generation.
    #[inline]
    pub fn get(&self, receive: u64, generation: u64) -> Option<u32> {
        let found = load_acquire(self.place(receive));
        let size = (found & ((1 << SIZE_BITS) - 1)) as u32;
        let size = size.checked_sub(1)?;
        (found == word(receive, generation, size)).then_some(size)
    }

    /// Removes all offers.
    pub(super) fn clear(&self) {
        for word in &self.words {
            word.store(0, Release);
        }
    }

    /// Publishes how many receives the owner has taken since the queue pair was created.
    #[inline]
    pub fn set_taken(&self, receives: u64) {
        self.taken.store(receives, Release);
    }

    /// The number of receives taken by the owner.
    #[inline]
    pub fn taken(&self) -> u64 {
        load_acquire(&self.taken)
    }
}
