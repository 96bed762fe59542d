//! The data of requests: pieces of buffers, or bytes.
use crate::buffer::{BufSlice, Buffer, LentSlice};
use crate::error::{Error, Result};
use adverb_device::device::MAX_INLINE;
use adverb_device::engine::{Cause, Sge};

/// The registered memory of a request: no piece, one piece or several pieces, used in order.
/// `into()` makes this value from a [`BufSlice`], a whole [`Buffer`], a slice of pieces, or `()`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Slices<'a> {
    /// No bytes.
    None,
    /// One piece.
    One(BufSlice<'a>),
    /// Several pieces.
    Many(&'a [BufSlice<'a>]),
    /// One piece of lent memory.
    Lent(LentSlice<'a>),
}

/// The data of a send or write: registered memory, or plain bytes. Plain bytes are copied when the
/// request is posted (inline data, at most 1024 bytes and the queue pair's own limit). `into()`
/// makes this value.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Data<'a> {
    /// Registered memory, which the device gathers when it processes the request.
    Slices(Slices<'a>),
    /// Bytes, copied when the request is posted.
    Bytes(&'a [u8]),
}

/// The conversions, each from a value of a type.
macro_rules! from {
    ($($to:ident $([$n:ident])?: |$value:pat_param| $from:ty => $made:expr;)*) => { $(
        impl<'a $(, const $n: usize)?> From<$from> for $to<'a> {
            fn from($value: $from) -> Self {
                $made
            }
        }
    )* };
}

from! {
    Slices: |()| () => Slices::None;
    Slices: |slice| BufSlice<'a> => Slices::One(slice);
    Slices: |slice| &BufSlice<'a> => Slices::One(*slice);
    Slices: |buffer| &'a Buffer => Slices::One(buffer.slice(..));
    Slices: |slices| &'a [BufSlice<'a>] => Slices::Many(slices);
    Slices [N]: |slices| &'a [BufSlice<'a>; N] => Slices::Many(slices);
    Slices: |slice| LentSlice<'a> => Slices::Lent(slice);
    Data: |bytes| &'a [u8] => Data::Bytes(bytes);
    Data [N]: |bytes| &'a [u8; N] => Data::Bytes(bytes);
    Data: |bytes| &'a Vec<u8> => Data::Bytes(bytes);
    Data: |text| &'a str => Data::Bytes(text.as_bytes());
}

/// Everything that is registered memory for a receive is data for a send.
impl<'a, T> From<T> for Data<'a>
where
    Slices<'a>: From<T>,
{
    fn from(slices: T) -> Self {
        Data::Slices(slices.into())
    }
}

/// The number of entries that need no allocation.
const FEW: usize = 8;

impl<'a> Slices<'a> {
    fn as_slice(&self) -> &[BufSlice<'a>] {
        match self {
            Slices::None => &[],
            Slices::One(slice) => std::slice::from_ref(slice),
            Slices::Many(slices) => slices,
            Slices::Lent(slice) => std::slice::from_ref(slice.as_slice()),
        }
    }

    /// The length of all pieces in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.as_slice().iter().map(|s| s.len() as u64).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the scatter/gather list.
    pub(crate) fn with_sges<R>(&self, f: impl FnOnce(&[Sge]) -> R) -> R {
        let slices = self.as_slice();
        if slices.len() <= FEW {
            let mut sges = [Sge::default(); FEW];
            for (sge, slice) in sges.iter_mut().zip(slices) {
                *sge = slice.sge();
            }
            f(&sges[..slices.len()])
        } else {
            f(&slices.iter().map(BufSlice::sge).collect::<Vec<_>>())
        }
    }

    /// Copies the bytes of all pieces together, for inline data.
    pub(crate) fn gather(&self) -> Result<Vec<u8>> {
        let len = self.len();
        if len > u64::from(MAX_INLINE) {
            let given = u32::try_from(len).unwrap_or(u32::MAX);
            return Err(Error::from(Cause::TooMuchInline { given, max: MAX_INLINE }));
        }
        let mut bytes = vec![0; len as usize];
        let mut rest = &mut bytes[..];
        for slice in self.as_slice() {
            let (now, later) = rest.split_at_mut(slice.len());
            slice.read(now)?;
            rest = later;
        }
        Ok(bytes)
    }
}

impl Data<'_> {
    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Data::Slices(slices) => slices.len(),
            Data::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
