//! Registered memory, and pieces of it.
use crate::error::{Error, Result};
use crate::handle::{Handle, ends};
use crate::pd::Pd;
use adverb_device::engine::{Access, AtomicOp, Key, Sge, wr};
use adverb_device::{Mapping, Mr};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// What peers and memory windows may do with a buffer. The device itself may always write the
/// buffer: receives, reads and the results of atomics land there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rights(Access);

impl Rights {
    /// Peers may do nothing.
    pub const LOCAL: Rights = Rights(Access::LOCAL_WRITE);
    /// Peers may read, write, use atomics and flush, and windows may be bound.
    pub const ALL: Rights =
        Rights::LOCAL.remote_read().remote_write().remote_atomic().remote_flush().windows();

    pub(crate) const fn access(self) -> Access {
        self.0
    }
}

/// Each right, for a [`Rights`] value and for the builder of a buffer.
macro_rules! rights {
    ($(#[doc = $doc:literal] $name:ident = $access:expr;)*) => {
        impl Rights {
            $(#[doc = $doc] pub const fn $name(self) -> Self { Rights(self.0.union($access)) })*
        }

        impl BufferBuilder<'_> {
            $(#[doc = $doc] pub fn $name(self) -> Self { let rights = self.rights.$name(); self.rights(rights) })*
        }
    };
}

rights! {
    /// Peers may read the buffer (RDMA READ).
    remote_read = Access::REMOTE_READ;
    /// Peers may write the buffer (RDMA WRITE).
    remote_write = Access::REMOTE_WRITE;
    /// Peers may use atomics on the buffer.
    remote_atomic = Access::REMOTE_ATOMIC;
    /// Peers may flush the buffer.
    remote_flush = Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT);
    /// Memory windows may be bound to the buffer.
    windows = Access::MW_BIND;
}

impl Default for Rights {
    fn default() -> Self {
        Rights::LOCAL
    }
}

/// How a buffer is made ([`Pd::create_buffer`]).
#[derive(Clone, Debug)]
#[must_use = "nothing is allocated before build()"]
pub struct BufferBuilder<'a> {
    pd: &'a Pd,
    len: usize,
    rights: Rights,
}

impl Pd {
    /// Allocates and registers `len` zeroed bytes for local use. The program can send from the
    /// buffer and receive into it; peers cannot reach it.
    ///
    /// # Errors
    /// ENOMEM if the memory cannot be allocated.
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.create_buffer(len).build()
    }

    /// Starts a builder for a buffer of `len` zeroed bytes, which peers can be given rights to.
    pub fn create_buffer(&self, len: usize) -> BufferBuilder<'_> {
        BufferBuilder { pd: self, len, rights: Rights::LOCAL }
    }
}

impl BufferBuilder<'_> {
    /// Sets all rights at once.
    pub fn rights(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }
    /// Allocates and registers the buffer.
    ///
    /// # Errors
    /// ENOMEM if the memory cannot be allocated.
    pub fn build(self) -> Result<Buffer> {
        Buffer::register(self.pd, Mapping::alloc(self.len)?, self.rights)
    }
}

/// Registered memory (IBTA 10.6.3). A buffer is cheap to clone. Clones share the same bytes, and
/// the last clone ends the registration.
///
/// Bytes are copied in and out and never borrowed, because the device and peers may write them at
/// any time. A read during a transfer gives some mix of old and new bytes; a completion says when
/// the transfer is over. Use [`Buffer::load_u64`], [`Buffer::store_u64`] and
/// [`Buffer::fetch_add_u64`] for words that several sides change: they are atomic towards the
/// device's atomics as well.
///
/// A program may drop a buffer while requests use it. These requests complete with a protection
/// error, and the device touches no memory.
#[derive(Clone, Debug)]
pub struct Buffer(Handle<BufferInner>);

#[derive(Debug)]
pub struct BufferInner {
    mr: Arc<Mr>,
    mapping: Mapping,
    rights: Rights,
    pd: Pd,
}

ends!(BufferInner = "the buffer" by mr.dereg);

impl Buffer {
    pub(crate) fn register(pd: &Pd, mapping: Mapping, rights: Rights) -> Result<Self> {
        let mr =
            pd.lower().reg_mapping(&mapping, 0, mapping.len(), mapping.addr(), rights.access())?;
        Ok(Buffer(Handle::new(BufferInner { mr, mapping, rights, pd: pd.clone() })))
    }

    /// The protection domain of the buffer.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        &self.0.pd
    }
    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.mapping.len() as usize
    }
    /// Whether the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The key of the buffer, local and remote.
    #[must_use]
    pub fn key(&self) -> Key {
        self.0.mr.key()
    }
    /// The address of the first byte, in the key's address space.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.0.mapping.addr()
    }
    /// What peers may do with the buffer.
    pub fn rights(&self) -> Rights {
        self.0.rights
    }

    /// A piece of the buffer, for a request. `buf.slice(..)` is the whole buffer.
    ///
    /// # Panics
    /// If the range leaves the buffer. [`Buffer::try_slice`] returns an error instead.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> BufSlice<'_> {
        self.try_slice(range).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A piece of the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the range leaves the buffer.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<BufSlice<'_>> {
        let (start, len) = resolve(&range, self.len() as u64)?;
        Ok(BufSlice { buffer: self, start: start as usize, len: len as usize })
    }

    /// The whole buffer as peers name it. A peer that is told this value can read or write the
    /// buffer, as far as the rights allow.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        self.slice(..).remote()
    }

    /// Copies `from` into the buffer, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; then nothing was copied.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.in_range(offset, from.len(), self.0.mapping.write_at(offset, from))
    }

    /// Fills `to` from the buffer, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; then nothing was copied.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let len = to.len();
        self.in_range(offset, len, self.0.mapping.read_at(offset, to))
    }

    /// A copy of a part of the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>> {
        let slice = self.try_slice(range)?;
        let mut bytes = vec![0; slice.len()];
        self.read(slice.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Loads the word at byte `offset` atomically, in host byte order.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::OutOfRange`].
    pub fn load_u64(&self, offset: usize) -> Result<u64> {
        self.atomic(offset, AtomicOp::FetchAdd { add: 0 })
    }

    /// Stores a word at byte `offset` atomically, in host byte order.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::OutOfRange`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<()> {
        self.atomic(offset, AtomicOp::Write { value }).map(drop)
    }

    /// Adds to the word at byte `offset` atomically, wrapping around, and returns the previous
    /// value.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::OutOfRange`].
    pub fn fetch_add_u64(&self, offset: usize, add: u64) -> Result<u64> {
        self.atomic(offset, AtomicOp::FetchAdd { add })
    }

    fn atomic(&self, offset: usize, op: AtomicOp) -> Result<u64> {
        if !self.addr().wrapping_add(offset as u64).is_multiple_of(8) {
            return Err(Error::Misaligned { offset: offset as u64 });
        }
        self.0.mapping.atomic_at(offset, op).ok_or_else(|| self.outside(offset, 8))
    }

    fn in_range(&self, offset: usize, len: usize, ok: bool) -> Result<()> {
        if ok { Ok(()) } else { Err(self.outside(offset, len)) }
    }

    fn outside(&self, offset: usize, len: usize) -> Error {
        let start = offset as u64;
        Error::OutOfRange { start, end: start.saturating_add(len as u64), len: self.len() as u64 }
    }

    /// Ends the registration and frees the memory.
    ///
    /// # Errors
    /// [`Error::Busy`] if clones of the buffer, or windows bound to it, exist. The registration
    /// then ends with the last of them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    pub(crate) fn ptr_eq(&self, other: &Buffer) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// A piece of a [`Buffer`], which requests gather from or scatter to. The piece borrows the buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufSlice<'a> {
    buffer: &'a Buffer,
    start: usize,
    len: usize,
}

impl<'a> BufSlice<'a> {
    /// The buffer that this is a piece of.
    #[must_use]
    pub fn buffer(&self) -> &'a Buffer {
        self.buffer
    }
    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether the piece has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The address of the first byte, in the key's address space.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.buffer.addr() + self.start as u64
    }

    /// A piece of this piece.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the range leaves the piece.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<BufSlice<'a>> {
        let (start, len) = resolve(&range, self.len as u64)?;
        Ok(BufSlice { buffer: self.buffer, start: self.start + start as usize, len: len as usize })
    }

    /// The piece as peers name it.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        RemoteBuf { addr: self.addr(), key: self.buffer.key(), len: self.len as u64 }
    }

    /// Copies `from` to the start of the piece.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `from` is longer than the piece.
    pub fn write(&self, from: &[u8]) -> Result<()> {
        self.try_slice(..from.len())?;
        self.buffer.write(self.start, from)
    }

    /// Fills `to` from the start of the piece.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `to` is longer than the piece.
    pub fn read(&self, to: &mut [u8]) -> Result<()> {
        self.try_slice(..to.len())?;
        self.buffer.read(self.start, to)
    }

    /// A copy of the bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // The range was checked when the slice was made.
        let copied = self.buffer.read(self.start, &mut bytes);
        debug_assert!(copied.is_ok());
        bytes
    }

    /// The scatter/gather entry. A piece beyond 4 GiB is longer than any message, so the post
    /// refuses the entry.
    pub(crate) fn sge(&self) -> Sge {
        let length = u32::try_from(self.len).unwrap_or(u32::MAX);
        Sge { addr: self.addr(), length, lkey: self.buffer.key() }
    }
}

/// A piece of lent memory ([`Lent::slice`](crate::Lent::slice)). Unlike [`BufSlice`], a lent piece
/// gives no handle of the buffer, because such a handle could outlive the loan.
#[derive(Clone, Copy, Debug)]
pub struct LentSlice<'a>(BufSlice<'a>);

impl<'a> LentSlice<'a> {
    pub(crate) fn new(slice: BufSlice<'a>) -> Self {
        LentSlice(slice)
    }

    pub(crate) fn as_slice(&self) -> &BufSlice<'a> {
        &self.0
    }

    /// The piece as peers name it, until the loan ends.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        self.0.remote()
    }
}

/// Memory of a peer, as one-sided operations name it: address, length and remote key. The peer
/// makes the value with [`Buffer::remote`] and tells it by any means, for example as the bytes of
/// [`RemoteBuf::to_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteBuf {
    /// The first address, in the key's address space.
    pub addr: u64,
    /// The remote key.
    pub key: Key,
    /// The length in bytes.
    pub len: u64,
}

impl RemoteBuf {
    /// The number of bytes of [`RemoteBuf::to_bytes`].
    pub const ENCODED_LEN: usize = 20;

    /// A part of this memory. The range counts bytes, as in [`Buffer::slice`].
    ///
    /// # Panics
    /// If the range ends behind this memory. [`RemoteBuf::try_slice`] returns an error instead.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> RemoteBuf {
        self.try_slice(range).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A part of this memory, in bytes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the range ends behind this memory.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteBuf> {
        let (start, len) = resolve(&range, self.len)?;
        Ok(RemoteBuf { addr: self.addr.wrapping_add(start), key: self.key, len })
    }

    /// Address, length and key, each in network byte order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RemoteBuf::ENCODED_LEN] {
        let mut bytes = [0; RemoteBuf::ENCODED_LEN];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..].copy_from_slice(&self.key.to_be_bytes());
        bytes
    }

    /// Reads the bytes of [`RemoteBuf::to_bytes`]. Any 20 bytes are accepted: only the peer knows
    /// whether this memory exists.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RemoteBuf::ENCODED_LEN]) -> RemoteBuf {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, l4, l5, l6, l7, key @ ..] = *bytes;
        RemoteBuf {
            addr: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len: u64::from_be_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
            key: Key::from_be_bytes(key),
        }
    }

    /// Address and key for a request, if this memory has at least `needed` bytes.
    pub(crate) fn holding(&self, needed: u64) -> Result<wr::Remote> {
        if needed > self.len {
            return Err(Error::RemoteTooShort { needed, len: self.len });
        }
        Ok(wr::Remote { va: self.addr, rkey: self.key })
    }
}

/// The start and the length of a range within `len` bytes.
fn resolve(range: &impl RangeBounds<usize>, len: u64) -> Result<(u64, u64)> {
    let number = |n: &usize| *n as u64;
    let start = match range.start_bound() {
        Bound::Included(n) => number(n),
        Bound::Excluded(n) => number(n).saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(n) => number(n).saturating_add(1),
        Bound::Excluded(n) => number(n),
        Bound::Unbounded => len,
    };
    match end.checked_sub(start) {
        Some(n) if end <= len => Ok((start, n)),
        _ => Err(Error::OutOfRange { start, end, len }),
    }
}
