//! Random draws that depend only on their arguments, and the damaged bit.

use super::rules::Rate;
use super::table::Kind;

/// The random numbers of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// For the `count`-th request or response to the `nth` queue pair.
    pub(super) fn new(seed: u64, nth: u32, response: bool, count: u64) -> Self {
        let kind = mix(u64::from(nth) << 1 | u64::from(response));
        Dice(mix(mix(seed ^ kind) ^ count))
    }

    pub(super) fn roll(self, kind: Kind) -> u64 {
        mix(self.0 ^ kind as u64)
    }

    pub(super) fn hits(self, rate: Rate, kind: Kind) -> bool {
        // The upper half of the draw, scaled to a billion.
        let scaled = ((self.roll(kind) >> 32) * u64::from(Rate::ALWAYS.get())) >> 32;
        scaled < u64::from(rate.get())
    }
}

/// A step and the finaliser of splitmix64: neighbouring arguments give unrelated results.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The byte of the BTH not covered by the ICRC (FECN, BECN and reserved bits).
const UNCOVERED: usize = 4;

/// A copy of a packet, BTH through ICRC, with one flipped bit. `draw` selects the bit among the
/// bits covered by the ICRC.
pub(crate) fn flipped(packet: &[u8], draw: u64) -> Vec<u8> {
    let mut copy = packet.to_vec();
    let mut at = (draw >> 3) as usize % copy.len();
    if at == UNCOVERED {
        at += 1;
    }
    copy[at] ^= 1 << (draw & 7);
    copy
}
