//! Pseudo-random numbers: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
//! generators"). A dependency would be larger than the generator, and could change what a seed
//! means.

/// Mixes 64 bits: each result bit depends on all bits.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of numbers, determined by a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(mix(seed ^ 0x9e37_79b9_7f4a_7c15))
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// A number below `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    /// A number from `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    pub(crate) fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }
    /// True with a probability of `n` in a thousand.
    pub(crate) fn chance(&mut self, n: u32) -> bool {
        self.below(1000) < u64::from(n)
    }
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// Bytes after which [`pattern`] repeats: a prime, so that the bytes of other packets of the same
/// operation differ.
const PERIOD: usize = 1_048_573;

/// The bytes of operation `id`. No two operations have the same bytes, so a byte in memory
/// identifies its operation.
pub(crate) fn pattern(id: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(id ^ 0x5eed_0000_0000);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len.min(PERIOD) {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(len.min(PERIOD));
    while bytes.len() < len {
        bytes.extend_from_within(..PERIOD.min(len - bytes.len()));
    }
    bytes
}
