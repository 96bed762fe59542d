//! The receive hash, which selects the receive queue of a frame.
//!
//! *Toeplitz* is the hash of receive side scaling, as specified by Microsoft ("RSS hashing
//! functions"). For each set bit of the input, it XORs the 32 bits of the key from this position
//! on. *XOR* folds all bytes of the input into one byte.
use crate::frame::{Frame, Network, Transport};
use core::fmt;

/// Length of a Toeplitz key in bytes: two IPv6 addresses, two ports, and a word.
pub const TOEPLITZ_KEY: usize = 40;
/// Length of the longest input in bytes.
const INPUT: usize = 16 + 16 + 2 + 2;

/// The hash function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Toeplitz with this key.
    Toeplitz([u8; TOEPLITZ_KEY]),
    /// XOR of all bytes.
    Xor,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Function::Toeplitz(_) => "Toeplitz",
            Function::Xor => "Xor",
        })
    }
}

/// The hashed fields: bits of `ibv_rx_hash_fields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields(pub u64);

impl Fields {
    const SRC_IPV4: u64 = 1 << 0;
    const DST_IPV4: u64 = 1 << 1;
    const SRC_IPV6: u64 = 1 << 2;
    const DST_IPV6: u64 = 1 << 3;
    const SRC_TCP: u64 = 1 << 4;
    const DST_TCP: u64 = 1 << 5;
    const SRC_UDP: u64 = 1 << 6;
    const DST_UDP: u64 = 1 << 7;
    /// All defined fields.
    pub const ALL: Fields = Fields(0xff);

    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }
}

/// A key that is not [`TOEPLITZ_KEY`] bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadKey;

/// A receive hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash {
    function: Function,
    fields: Fields,
}

impl Hash {
    /// Creates a Toeplitz hash.
    ///
    /// # Errors
    /// [`BadKey`].
    pub fn toeplitz(key: &[u8], fields: Fields) -> Result<Hash, BadKey> {
        let key = key.try_into().map_err(|_| BadKey)?;
        Ok(Hash { function: Function::Toeplitz(key), fields })
    }
    /// Creates an XOR hash.
    #[must_use]
    pub fn xor(fields: Fields) -> Hash {
        Hash { function: Function::Xor, fields }
    }

    /// The hash of a frame; 0 if the frame has none of the fields.
    #[must_use]
    pub fn of(&self, frame: &Frame) -> u32 {
        let mut input = Input { bytes: [0; INPUT], len: 0 };
        let f = self.fields;
        match &frame.network {
            Network::Ipv4 { src, dst, .. } => {
                input.add(f.has(Fields::SRC_IPV4), src);
                input.add(f.has(Fields::DST_IPV4), dst);
            }
            Network::Ipv6 { src, dst, .. } => {
                input.add(f.has(Fields::SRC_IPV6), src);
                input.add(f.has(Fields::DST_IPV6), dst);
            }
            Network::Other => {}
        }
        if let Some(ports) = &frame.ports {
            let (src, dst) = match ports.transport {
                Transport::Tcp => (Fields::SRC_TCP, Fields::DST_TCP),
                Transport::Udp => (Fields::SRC_UDP, Fields::DST_UDP),
            };
            input.add(f.has(src), &ports.src);
            input.add(f.has(dst), &ports.dst);
        }
        let input = &input.bytes[..input.len];
        match &self.function {
            Function::Toeplitz(key) => toeplitz(key, input),
            Function::Xor => input.iter().fold(0, |sum, b| sum ^ u32::from(*b)),
        }
    }
}

struct Input {
    bytes: [u8; INPUT],
    len: usize,
}

impl Input {
    fn add(&mut self, selected: bool, field: &[u8]) {
        if selected {
            self.bytes[self.len..][..field.len()].copy_from_slice(field);
            self.len += field.len();
        }
    }
}

fn toeplitz(key: &[u8; TOEPLITZ_KEY], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (byte, next) in input.iter().zip(&key[4..]) {
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}
