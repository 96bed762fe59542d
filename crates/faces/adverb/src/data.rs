//! What requests carry: pieces of buffers, or bytes.
use crate::buffer::{BufSlice, Buffer, LentSlice};
use crate::error::{Error, Result};
use adverb_device::device::MAX_INLINE;
use adverb_device::engine::{Cause, Sge};

/// Registered memory of a request: nothing, one piece or several, filled or gathered in order. Made
/// by `into()` from a [`BufSlice`], a [`Buffer`] (all of it), a slice of pieces, or `()`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Slices<'a> {
    /// No bytes.
    None,
    /// One piece.
    One(BufSlice<'a>),
    /// Several.
    Many(&'a [BufSlice<'a>]),
    /// One piece of lent memory.
    Lent(LentSlice<'a>),
}

/// What a send or write carries: registered memory, or plain bytes that are copied when the request
/// is posted (inline data, at most 1024 bytes and what the queue pair was made for). Made by
/// `into()`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Data<'a> {
    /// Registered memory, gathered when the request is processed.
    Slices(Slices<'a>),
    /// Bytes, copied at the post.
    Bytes(&'a [u8]),
}

impl<'a> From<()> for Slices<'a> {
    fn from((): ()) -> Self {
        Slices::None
    }
}
impl<'a> From<BufSlice<'a>> for Slices<'a> {
    fn from(slice: BufSlice<'a>) -> Self {
        Slices::One(slice)
    }
}
impl<'a> From<&BufSlice<'a>> for Slices<'a> {
    fn from(slice: &BufSlice<'a>) -> Self {
        Slices::One(*slice)
    }
}
impl<'a> From<&'a Buffer> for Slices<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Slices::One(buffer.slice(..))
    }
}
impl<'a> From<&'a [BufSlice<'a>]> for Slices<'a> {
    fn from(slices: &'a [BufSlice<'a>]) -> Self {
        Slices::Many(slices)
    }
}
impl<'a, const N: usize> From<&'a [BufSlice<'a>; N]> for Slices<'a> {
    fn from(slices: &'a [BufSlice<'a>; N]) -> Self {
        Slices::Many(slices)
    }
}

impl<'a> From<LentSlice<'a>> for Slices<'a> {
    fn from(slice: LentSlice<'a>) -> Self {
        Slices::Lent(slice)
    }
}

impl<'a> From<()> for Data<'a> {
    fn from((): ()) -> Self {
        Data::Slices(Slices::None)
    }
}
impl<'a> From<Slices<'a>> for Data<'a> {
    fn from(slices: Slices<'a>) -> Self {
        Data::Slices(slices)
    }
}
impl<'a> From<BufSlice<'a>> for Data<'a> {
    fn from(slice: BufSlice<'a>) -> Self {
        Data::Slices(slice.into())
    }
}
impl<'a> From<&BufSlice<'a>> for Data<'a> {
    fn from(slice: &BufSlice<'a>) -> Self {
        Data::Slices(slice.into())
    }
}
impl<'a> From<&'a Buffer> for Data<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Data::Slices(buffer.into())
    }
}
impl<'a> From<&'a [BufSlice<'a>]> for Data<'a> {
    fn from(slices: &'a [BufSlice<'a>]) -> Self {
        Data::Slices(slices.into())
    }
}
impl<'a, const N: usize> From<&'a [BufSlice<'a>; N]> for Data<'a> {
    fn from(slices: &'a [BufSlice<'a>; N]) -> Self {
        Data::Slices(slices.into())
    }
}
impl<'a> From<LentSlice<'a>> for Data<'a> {
    fn from(slice: LentSlice<'a>) -> Self {
        Data::Slices(slice.into())
    }
}
impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Data::Bytes(bytes)
    }
}
impl<'a, const N: usize> From<&'a [u8; N]> for Data<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Data::Bytes(bytes)
    }
}
impl<'a> From<&'a Vec<u8>> for Data<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Data::Bytes(bytes)
    }
}
impl<'a> From<&'a str> for Data<'a> {
    fn from(text: &'a str) -> Self {
        Data::Bytes(text.as_bytes())
    }
}

/// Entries that need no allocation.
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

    /// Bytes of all pieces.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.as_slice().iter().map(|s| s.len() as u64).sum()
    }

    /// No bytes?
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

    /// Copies the bytes together, for inline data.
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
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Data::Slices(slices) => slices.len(),
            Data::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
