//! Private data and other bytes of a fixed size.
use core::fmt;
use core::ops::Deref;
use thiserror::Error;

/// `N` bytes of a MAD that the connection manager carries without reading them. Shorter data is
/// padded with zeros. Only the consumers know how many bytes are meaningful.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Data<const N: usize>(pub [u8; N]);

/// The data is longer than the message allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{got} bytes of private data, the message has room for {max}")]
pub struct TooLong {
    /// Largest number of bytes.
    pub max: usize,
    /// Number of bytes in the data.
    pub got: usize,
}

impl<const N: usize> Data<N> {
    /// Zeros only.
    pub const EMPTY: Data<N> = Data([0; N]);

    /// The bytes, padded with zeros.
    ///
    /// # Errors
    /// There are more than `N` bytes.
    pub fn new(bytes: &[u8]) -> Result<Data<N>, TooLong> {
        let mut data = Data::EMPTY;
        let room = data.0.get_mut(..bytes.len()).ok_or(TooLong { max: N, got: bytes.len() })?;
        room.copy_from_slice(bytes);
        Ok(data)
    }
}

impl<const N: usize> Default for Data<N> {
    fn default() -> Self {
        Data::EMPTY
    }
}

impl<const N: usize> Deref for Data<N> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Hexadecimal, without the zeros at the end.
impl<const N: usize> fmt::Debug for Data<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = N - self.0.iter().rev().take_while(|&&byte| byte == 0).count();
        write!(f, "Data<{N}>(")?;
        self.0[..used].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ")")
    }
}
