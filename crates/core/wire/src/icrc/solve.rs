//! Finding the IPv4 identification of a packet from its ICRC.
//!
//! Changing the id by `d` changes the CRC by `d * x^(8n) mod P`, n being the bytes from the id to
//! the end, whatever the other bytes are. So the difference between the ICRC received and the one
//! computed with a guess, times `x^(-8n)`, is the id's difference: 16 bits that must be found where
//! the id is, and 16 bits that must be zero. One product modulo P a packet; the factor depends on
//! the length alone and is kept.
use super::{IPV4_LEN, IpMeta, UDP_LEN, UdpMeta, icrc};

/// The CRC-32 polynomial, lowest power in the highest bit; x^32 is implied.
const POLY: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
/// From the id to the end of the UDP header.
const ID_TO_BTH: usize = IPV4_LEN - 4 + UDP_LEN;

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
        // Dividing by x: add P first if the constant term is set.
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

/// The id whose ICRC is `got`, if that with `guess` is `with_guess` and `factor` that of the
/// packet's length.
fn solve(got: u32, with_guess: u32, guess: u16, factor: u32) -> Option<u16> {
    let difference = mul(got ^ with_guess, factor);
    // The CRC takes the first byte into its low bits; of the id that is the high byte.
    u16::try_from(difference).ok().map(|d| guess ^ d.swap_bytes())
}

/// Verifies IPv4 packets whose identification the receiver cannot see.
///
/// Any of 65,536 ids passes, so a damaged packet is taken for good once in 65,536 times; UDP's own
/// checksum and the link's CRC are there besides. Remembers a factor for each of some packet
/// lengths; one of these for a receive loop is right.
#[derive(Clone, Debug)]
pub struct Solver {
    /// Direct-mapped by length: (bytes from the id on, factor).
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
        // Factor of no bytes is 1: an entry as right as any other.
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

    /// The id with which `icrc` (as on the wire) is that of the packet; `None` if there is none.
    ///
    /// `ip` holds the id to try first: 0, or inside a segmented run the last plus one. If it is
    /// right, the cost is one CRC and a compare. An IPv6 packet is verified exactly and gives
    /// `Some(0)`.
    #[must_use]
    pub fn verify(&mut self, ip: &IpMeta, udp: &UdpMeta, bth_and_rest: &[u8], icrc: [u8; 4]) -> Option<u16> {
        self.check(ip, udp, bth_and_rest, u32::from_le_bytes(icrc))
    }

    fn check(&mut self, ip: &IpMeta, udp: &UdpMeta, bth_and_rest: &[u8], got: u32) -> Option<u16> {
        let guess = match ip {
            IpMeta::V4 { id, .. } => Some(*id),
            IpMeta::V6 { .. } => None,
        };
        let with_guess = icrc(ip, udp, bth_and_rest);
        match guess {
            _ if with_guess == got => Some(guess.unwrap_or(0)),
            Some(guess) => solve(got, with_guess, guess, self.factor(ID_TO_BTH + bth_and_rest.len())),
            None => None,
        }
    }
}

/// [`Solver::verify`] over IPv4 without a cache: some hundred operations more if the hint is wrong.
#[must_use]
#[expect(clippy::too_many_arguments, reason = "the fields of two headers")]
pub fn verify_v4_unknown_id(
    src: [u8; 4],
    dst: [u8; 4],
    hint: u16,
    dont_fragment: bool,
    udp_src: u16,
    udp_dst: u16,
    udp_len: u16,
    bth_and_rest: &[u8],
    icrc: [u8; 4],
) -> Option<u16> {
    let ip = IpMeta::V4 { src, dst, id: hint, dont_fragment };
    let udp = UdpMeta { src_port: udp_src, dst_port: udp_dst, len: udp_len };
    Solver::new().verify(&ip, &udp, bth_and_rest, icrc)
}
