//! Private data and other bytes of a fixed size.
use core::fmt;
use core::ops::Deref;

/// `N` bytes of a MAD that the connection manager carries and does not read. Shorter data is filled
/// with zeros: how many of the bytes mean something only the consumers know.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Data<const N: usize>(pub [u8; N]);

/// More bytes than a message has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong {
    /// Bytes there is room for.
    pub max: usize,
    /// Bytes there are.
    pub got: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of private data, the message has room for {}", self.got, self.max)
    }
}

impl core::error::Error for TooLong {}

impl<const N: usize> Data<N> {
    /// Nothing but zeros.
    pub const EMPTY: Data<N> = Data([0; N]);

    /// These bytes, then zeros.
    ///
    /// # Errors
    /// There are more than `N`.
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

/// In hexadecimal digits, without the zeros at the end.
impl<const N: usize> fmt::Debug for Data<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = N - self.0.iter().rev().take_while(|&&byte| byte == 0).count();
        write!(f, "Data<{N}>(")?;
        self.0[..used].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ")")
    }
}
