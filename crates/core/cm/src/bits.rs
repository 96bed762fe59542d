//! Fields of a MAD: numbers of any width at any bit.
use core::net::Ipv6Addr;

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;

/// Position of a field, most significant bit first, as in the tables of the specification.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// First bit, counted from the start of the MAD.
    first: usize,
    /// Number of bits.
    width: usize,
}

impl Field {
    /// A field of `width` bits that begins `bit` bits after the start of `byte`.
    ///
    /// # Panics
    /// If the field does not lie within a MAD, or spans more than 16 bytes. All fields are
    /// constants, so the panic occurs at compile time.
    pub const fn new(byte: usize, bit: usize, width: usize) -> Field {
        let first = byte * 8 + bit;
        assert!(width > 0 && first + width <= MAD_LEN * 8 && first % 8 + width <= 128);
        Field { first, width }
    }

    /// The bytes of the field (from, to), and the number of bits after the field in the last byte.
    const fn span(self) -> (usize, usize, u32) {
        let end = self.first + self.width;
        (self.first / 8, end.div_ceil(8), ((8 - end % 8) % 8) as u32)
    }

    const fn mask(self) -> u128 {
        u128::MAX >> (128 - self.width)
    }

    /// Reads the field.
    pub fn get(self, mad: &[u8; MAD_LEN]) -> u128 {
        let (from, to, after) = self.span();
        let all = mad[from..to].iter().fold(0_u128, |n, &byte| n << 8 | u128::from(byte));
        all >> after & self.mask()
    }

    /// Writes the low bits of `value` to the field. Neighbouring bits do not change.
    pub fn set(self, mad: &mut [u8; MAD_LEN], value: u128) {
        let (from, to, after) = self.span();
        let mask = self.mask() << after;
        let mut bits = (value << after) & mask;
        let mut mask = mask;
        for byte in mad[from..to].iter_mut().rev() {
            *byte = *byte & !(mask as u8) | bits as u8;
            mask >>= 8;
            bits >>= 8;
        }
    }
}

/// A value that a field can hold.
pub(crate) trait Bits {
    /// Converts from the bits of a field. A field is never wider than the type.
    fn from_bits(bits: u128) -> Self;
    /// Converts to bits; `Field::set` drops the bits above the width of the field.
    fn to_bits(self) -> u128;
}

macro_rules! numbers {
    ($($kind:ty)*) => { $(impl Bits for $kind {
        fn from_bits(bits: u128) -> Self {
            bits as $kind
        }
        fn to_bits(self) -> u128 {
            u128::from(self)
        }
    })* };
}
numbers! { u8 u16 u32 u64 }

impl Bits for bool {
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }
    fn to_bits(self) -> u128 {
        u128::from(self)
    }
}

/// A GID.
impl Bits for Ipv6Addr {
    fn from_bits(bits: u128) -> Self {
        Ipv6Addr::from_bits(bits)
    }
    fn to_bits(self) -> u128 {
        Ipv6Addr::to_bits(self)
    }
}
