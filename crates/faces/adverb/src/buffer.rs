//! Registered memory, and pieces of it.
use crate::error::{Error, Result};
use crate::handle::{End, Handle};
use crate::pd::Pd;
use adverb_device::engine::{Access, AtomicOp, Key, Sge, wr};
use adverb_device::{Mapping, Mr};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// What peers (and memory windows) may do with a buffer. The device itself may always write it:
/// receives, reads and the results of atomics land in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rights(Access);

impl Rights {
    /// Nothing for peers.
    pub const LOCAL: Rights = Rights(Access::LOCAL_WRITE);
    /// Peers may read, write, use atomics and flush, and windows may be bound.
    pub const ALL: Rights =
        Rights::LOCAL.remote_read().remote_write().remote_atomic().remote_flush().windows();

    /// Peers may read it (RDMA READ).
    pub const fn remote_read(self) -> Self {
        Rights(self.0.union(Access::REMOTE_READ))
    }
    /// Peers may write it (RDMA WRITE).
    pub const fn remote_write(self) -> Self {
        Rights(self.0.union(Access::REMOTE_WRITE))
    }
    /// Peers may use atomics on it.
    pub const fn remote_atomic(self) -> Self {
        Rights(self.0.union(Access::REMOTE_ATOMIC))
    }
    /// Peers may flush it.
    pub const fn remote_flush(self) -> Self {
        Rights(self.0.union(Access::FLUSH_GLOBAL).union(Access::FLUSH_PERSISTENT))
    }
    /// Memory windows may be bound to it.
    pub const fn windows(self) -> Self {
        Rights(self.0.union(Access::MW_BIND))
    }
    pub(crate) const fn access(self) -> Access {
        self.0
    }
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
    /// Allocates and registers `len` zeroed bytes for local use: sent from, received into, but out
    /// of peers' reach.
    ///
    /// # Errors
    /// ENOMEM when the memory cannot be had.
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.create_buffer(len).build()
    }

    /// Starts allocating and registering `len` zeroed bytes, with rights for peers.
    pub fn create_buffer(&self, len: usize) -> BufferBuilder<'_> {
        BufferBuilder::new(self, len)
    }
}

impl<'a> BufferBuilder<'a> {
    pub(crate) fn new(pd: &'a Pd, len: usize) -> Self {
        BufferBuilder { pd, len, rights: Rights::LOCAL }
    }
    /// All rights at once.
    pub fn rights(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }
    /// Peers may read it (RDMA READ).
    pub fn remote_read(mut self) -> Self {
        self.rights = self.rights.remote_read();
        self
    }
    /// Peers may write it (RDMA WRITE).
    pub fn remote_write(mut self) -> Self {
        self.rights = self.rights.remote_write();
        self
    }
    /// Peers may use atomics on it.
    pub fn remote_atomic(mut self) -> Self {
        self.rights = self.rights.remote_atomic();
        self
    }
    /// Peers may flush it.
    pub fn remote_flush(mut self) -> Self {
        self.rights = self.rights.remote_flush();
        self
    }
    /// Memory windows may be bound to it.
    pub fn windows(mut self) -> Self {
        self.rights = self.rights.windows();
        self
    }
    /// Allocates and registers it.
    ///
    /// # Errors
    /// ENOMEM when the memory cannot be had.
    pub fn build(self) -> Result<Buffer> {
        Buffer::register(self.pd, Mapping::alloc(self.len)?, self.rights)
    }
}

/// Registered memory (IBTA 10.6.3). Cheap to clone: clones are the same bytes, and the last one
/// ends the registration.
///
/// Bytes are copied in and out, never borrowed: the device and peers may write them at any time.
/// What is read while they do is some mix of old and new bytes; a completion says when a transfer
/// is over. Words that several sides change go through [`Buffer::load_u64`] and its kin, which are
/// atomic towards the device's atomics as well.
///
/// A buffer may be dropped while requests use it: they complete with a protection error then, and
/// nothing is touched.
#[derive(Clone, Debug)]
pub struct Buffer(Handle<BufferInner>);

#[derive(Debug)]
pub struct BufferInner {
    mr: Arc<Mr>,
    mapping: Mapping,
    rights: Rights,
    pd: Pd,
}

impl End for BufferInner {
    const WHAT: &'static str = "the buffer";
    fn end(&mut self) -> Result<(), adverb_device::Error> {
        self.mr.dereg()
    }
}

impl Buffer {
    pub(crate) fn register(pd: &Pd, mapping: Mapping, rights: Rights) -> Result<Self> {
        let mr = pd.raw().reg_mapping(&mapping, 0, mapping.len(), mapping.addr(), rights.access())?;
        Ok(Buffer(Handle::new(BufferInner { mr, mapping, rights, pd: pd.clone() })))
    }

    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        &self.0.pd
    }
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.mapping.len() as usize
    }
    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Its key, local and remote.
    #[must_use]
    pub fn key(&self) -> Key {
        self.0.mr.key()
    }
    /// The address of the first byte, as keys count it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.0.mapping.addr()
    }
    /// What peers may do with it.
    pub fn rights(&self) -> Rights {
        self.0.rights
    }

    /// A piece of it, for a request. `buf.slice(..)` is all of it.
    ///
    /// # Panics
    /// If the range leaves the buffer, as slicing does; [`Buffer::try_slice`] does not.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> BufSlice<'_> {
        match self.try_slice(range) {
            Ok(slice) => slice,
            Err(e) => panic!("{e}"),
        }
    }

    /// A piece of it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<BufSlice<'_>> {
        let (start, len) = resolve(&range, self.len() as u64)?;
        Ok(BufSlice { buffer: self, start: start as usize, len: len as usize })
    }

    /// All of it as peers name it: what to tell them, so that they write or read it.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        self.slice(..).remote()
    }

    /// Copies `from` in, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; nothing was copied then.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.in_range(offset, from.len(), self.0.mapping.write_at(offset, from))
    }

    /// Copies out into `to`, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; nothing was copied then.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let len = to.len();
        self.in_range(offset, len, self.0.mapping.read_at(offset, to))
    }

    /// A copy of a part.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>> {
        let slice = self.try_slice(range)?;
        let mut bytes = vec![0; slice.len()];
        self.read(slice.start, &mut bytes)?;
        Ok(bytes)
    }

    /// The word at byte `offset`, in host order, read atomically.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::OutOfRange`].
    pub fn load_u64(&self, offset: usize) -> Result<u64> {
        self.atomic(offset, AtomicOp::FetchAdd { add: 0 })
    }

    /// Stores a word at byte `offset`, in host order, atomically.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::OutOfRange`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<()> {
        self.atomic(offset, AtomicOp::Write { value }).map(drop)
    }

    /// Adds to the word at byte `offset` atomically, wrapping, and answers what it was.
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

    /// Ends the registration and gives the memory back.
    ///
    /// # Errors
    /// [`Error::Busy`] if clones of it, or windows bound to it, exist; it ends with the last of
    /// them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    pub(crate) fn ptr_eq(&self, other: &Buffer) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// A piece of a [`Buffer`]: what requests gather from and scatter to. It borrows the buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufSlice<'a> {
    buffer: &'a Buffer,
    start: usize,
    len: usize,
}

impl<'a> BufSlice<'a> {
    /// The buffer it is a piece of.
    #[must_use]
    pub fn buffer(&self) -> &'a Buffer {
        self.buffer
    }
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The address of its first byte, as keys count it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.buffer.addr() + self.start as u64
    }

    /// A piece of the piece.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<BufSlice<'a>> {
        let (start, len) = resolve(&range, self.len as u64)?;
        Ok(BufSlice { buffer: self.buffer, start: self.start + start as usize, len: len as usize })
    }

    /// It as peers name it.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        RemoteBuf { addr: self.addr(), key: self.buffer.key(), len: self.len as u64 }
    }

    /// Copies `from` to its start.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `from` is longer.
    pub fn write(&self, from: &[u8]) -> Result<()> {
        self.try_slice(..from.len())?;
        self.buffer.write(self.start, from)
    }

    /// Fills `to` from its start.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `to` is longer.
    pub fn read(&self, to: &mut [u8]) -> Result<()> {
        self.try_slice(..to.len())?;
        self.buffer.read(self.start, to)
    }

    /// A copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // The range was checked when the slice was made.
        let copied = self.buffer.read(self.start, &mut bytes);
        debug_assert!(copied.is_ok());
        bytes
    }

    /// The scatter/gather entry. A piece beyond 4 GiB is longer than any message: the post refuses
    /// it.
    pub(crate) fn sge(&self) -> Sge {
        let length = u32::try_from(self.len).unwrap_or(u32::MAX);
        Sge { addr: self.addr(), length, lkey: self.buffer.key() }
    }
}

/// A piece of lent memory ([`Lent::slice`](crate::Lent::slice)): unlike that of a buffer it leads
/// to no handle that could outlive the loan.
#[derive(Clone, Copy, Debug)]
pub struct LentSlice<'a>(BufSlice<'a>);

impl<'a> LentSlice<'a> {
    pub(crate) fn new(slice: BufSlice<'a>) -> Self {
        LentSlice(slice)
    }

    pub(crate) fn as_slice(&self) -> &BufSlice<'a> {
        &self.0
    }

    /// It as peers name it, until the loan ends.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        self.0.remote()
    }
}

/// Memory of a peer's, as one-sided operations name it: address, length, remote key. Made by the
/// peer with [`Buffer::remote`] and told by whatever means; [`RemoteBuf::to_bytes`] is a form to
/// tell it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteBuf {
    /// First address, in the key's address space.
    pub addr: u64,
    /// Remote key.
    pub key: Key,
    /// Bytes.
    pub len: u64,
}

impl RemoteBuf {
    /// Bytes of [`RemoteBuf::to_bytes`].
    pub const ENCODED_LEN: usize = 20;

    /// A part of this memory. The range counts bytes, as in [`Buffer::slice`].
    ///
    /// # Panics
    /// If the range ends behind this memory. [`RemoteBuf::try_slice`] returns an error instead.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> RemoteBuf {
        match self.try_slice(range) {
            Ok(slice) => slice,
            Err(e) => panic!("{e}"),
        }
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

    /// What [`RemoteBuf::to_bytes`] gave. Any 20 bytes are some remote memory; whether it exists
    /// the peer decides.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RemoteBuf::ENCODED_LEN]) -> RemoteBuf {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, l4, l5, l6, l7, key @ ..] = *bytes;
        RemoteBuf {
            addr: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len: u64::from_be_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
            key: Key::from_be_bytes(key),
        }
    }

    /// It, if it holds `needed` bytes.
    pub(crate) fn holding(&self, needed: u64) -> Result<wr::Remote> {
        if needed > self.len {
            return Err(Error::RemoteTooShort { needed, len: self.len });
        }
        Ok(wr::Remote { va: self.addr, rkey: self.key })
    }
}

/// Start and length of a range within `len` bytes.
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
