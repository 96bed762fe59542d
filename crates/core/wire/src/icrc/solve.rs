//! Computes the IPv4 identification of a packet from its ICRC.
//!
//! A change of the id by `d` changes the CRC by `d * x^(8n) mod P`, where `n` is the number of
//! bytes from the id to the end. The other bytes do not matter. So take the difference between the
//! received ICRC and the ICRC computed with a guess, and multiply it by `x^(-8n)`. The result is
//! the difference of the ids: 16 bits at the place of the id, and 16 bits that must be zero. This
//! costs one product modulo P per packet. The factor depends only on the length and is cached.
use super::{IPV4_LEN, IcrcFlow, REST_LEN, UDP_LEN};

/// The CRC-32 polynomial, with the lowest power in the highest bit; x^32 is implicit.
const POLY: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
/// Bytes from the id to the end of the UDP header.
const ID_TO_BTH: usize = IPV4_LEN - 4 + UDP_LEN;

/// Bytes from the id to the end of the UDP ports.
const ID_TO_REST: usize = ID_TO_BTH - REST_LEN;

/// The change of the CRC up to the UDP ports by the high byte of the id.
pub(super) const HIGH: [u32; 256] = changes(ID_TO_REST - 1);
/// The change of the CRC up to the UDP ports by the low byte of the id.
pub(super) const LOW: [u32; 256] = changes(ID_TO_REST - 2);

/// The change of a CRC by a change of one byte, `behind` bytes before the end.
const fn changes(behind: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let mut bit = 0;
    while bit < 8 {
        let (mut change, mut steps) = (1 << bit, 8 * (behind + 1));
        while steps > 0 {
            change = change >> 1 ^ POLY & (change & 1_u32).wrapping_neg();
            steps -= 1;
        }
        let mut byte = 0;
        while byte < 256 {
            if byte >> bit & 1 != 0 {
                table[byte] ^= change;
            }
            byte += 1;
        }
        bit += 1;
    }
    table
}

/// `a * b mod P`.
const fn mul(a: u32, mut b: u32) -> u32 {
    let (mut product, mut i) = (0, 32);
    while i > 0 {
        i -= 1;
        product ^= b & (a >> i & 1).wrapping_neg();
        b = b >> 1 ^ POLY & (b & 1).wrapping_neg();
    }
    product
}

/// `x^(-8 * 2^i) mod P`.
const BACK: [u32; 17] = {
    let (mut byte, mut i) = (ONE, 0);
    while i < 8 {
        // Division by x: first add P if the constant term is set.
        byte = if byte & ONE != 0 { (byte ^ POLY) << 1 | 1 } else { byte << 1 };
        i += 1;
    }
    let mut table = [byte; 17];
    i = 1;
    while i < table.len() {
        table[i] = mul(table[i - 1], table[i - 1]);
        i += 1;
    }
    table
};

/// `x^(-8 * bytes) mod P`, for less than 2^17 bytes (a UDP payload has less than 2^16).
fn back(bytes: usize) -> u32 {
    let mut factor = ONE;
    for (i, power) in BACK.iter().enumerate() {
        if bytes >> i & 1 != 0 {
            factor = mul(factor, *power);
        }
    }
    factor
}

/// The id that gives the ICRC `got`. `with_guess` is the ICRC for the id `guess`, and `factor` is
/// the factor of the packet's length.
fn solve(got: u32, with_guess: u32, guess: u16, factor: u32) -> Option<u16> {
    let difference = mul(got ^ with_guess, factor);
    // The CRC puts the first byte into its low bits, and the first byte of the id is its high byte.
    u16::try_from(difference).ok().map(|d| guess ^ d.swap_bytes())
}

/// Verifies IPv4 packets with an identification unknown to the receiver.
///
/// Any of 65,536 ids passes, so one in 65,536 damaged packets is accepted. The UDP checksum and the
/// link's CRC detect damage in addition. The cache holds a factor for each of some packet lengths.
/// Use one `Solver` per receive loop.
#[derive(Clone, Debug)]
pub struct Solver {
    /// Direct-mapped by length: (bytes from the id to the end, factor).
    factors: [(u32, u32); Solver::SLOTS],
}

impl Default for Solver {
    fn default() -> Self {
        Self::new()
    }
}

impl Solver {
    const SLOTS: usize = 32;

    /// An empty cache.
    #[must_use]
    pub const fn new() -> Solver {
        // The factor for zero bytes is 1, so this entry is valid.
        Solver { factors: [(0, ONE); Self::SLOTS] }
    }

    fn factor(&mut self, bytes: usize) -> u32 {
        // Lengths are multiples of four.
        let slot = &mut self.factors[bytes / 4 % Self::SLOTS];
        if slot.0 as usize != bytes {
            *slot = (bytes as u32, back(bytes));
        }
        slot.1
    }

    /// The id for which `icrc` (as on the wire) matches the packet; `None` if there is no such id.
    ///
    /// `guess` is the id to try first: 0, or within a segmented run the previous id plus one. If
    /// this guess is right, the cost is one CRC and a comparison. An IPv6 packet is verified
    /// exactly and gives `Some(0)`.
    #[must_use]
    #[inline]
    pub fn verify(
        &mut self,
        flow: &IcrcFlow,
        guess: u16,
        bth_and_rest: &[u8],
        icrc: [u8; 4],
    ) -> Option<u16> {
        let (got, with_guess) = (u32::from_le_bytes(icrc), flow.icrc(guess, bth_and_rest));
        match flow.is_v4 {
            _ if with_guess == got => Some(if flow.is_v4 { guess } else { 0 }),
            true => solve(got, with_guess, guess, self.factor(ID_TO_BTH + bth_and_rest.len())),
            false => None,
        }
    }
}
