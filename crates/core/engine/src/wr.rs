//! Work requests as given by the API, and receive work queue elements as stored in the queues.
use crate::attr::AddressVector;
use crate::cause::Cause;
use crate::keys::FastReg;
use crate::types::{Access, Key, PdId, Qpn};
use adverb_wire::tag_matching::{Rvh, Tmh};
use alloc::boxed::Box;

bitflags::bitflags! {
    /// Flags of a send work request, with the bits of `ibv_send_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SendFlags: u32 {
        /// Wait for earlier reads and atomics.
        const FENCE = 1 << 0;
        /// Make a completion (always on when the QP signals all).
        const SIGNALED = 1 << 1;
        /// Ask the peer for a solicited event (CQN-9).
        const SOLICITED = 1 << 2;
        /// The data was copied at the post.
        const INLINE = 1 << 3;
        /// Fill in the checksums of a frame.
        const IP_CSUM = 1 << 4;
        /// Marks requests of a rendezvous that an SRQ performs ([`Rendezvous`](crate::Rendezvous)).
        /// Consumers do not set this bit.
        const RENDEZVOUS = 1 << 31;
    }
}

/// A scatter/gather entry; laid out as `ibv_sge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Sge {
    /// First address, in the key's address space.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: Key,
}

/// Remote memory of a one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address in the remote key's address space.
    pub va: u64,
    /// Remote key.
    pub rkey: Key,
}

/// A memory window bind (by work request: type 2; by `ibv_bind_mw`: type 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwBind {
    /// The window's current key.
    pub mw: Key,
    /// The window's new key. For type 2 the consumer chooses the tag, for type 1 the device. Only
    /// the low 8 bits count, as on ConnectX and rxe; all other bits come from the window
    /// ([`MwBind::bound_key`]).
    pub new_key: Key,
    /// The region's local key.
    pub mr: Key,
    /// First address.
    pub addr: u64,
    /// Bytes; 0 unbinds.
    pub len: u64,
    /// Rights of the window (remote rights and ZERO_BASED).
    pub access: Access,
}

impl MwBind {
    /// The window's key after the bind.
    #[must_use]
    pub fn bound_key(&self) -> Key {
        self.mw & !0xff | self.new_key & 0xff
    }
}

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SendOp {
    Send,
    /// Immediate data: four bytes in network order, read from memory as `u32` (`__be32`).
    SendImm(u32),
    /// Send with invalidate of a key of the peer.
    SendInv(Key),
    Write(Remote),
    WriteImm(Remote, u32),
    Read(Remote),
    CompareSwap {
        remote: Remote,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        remote: Remote,
        add: u64,
    },
    /// Eight bytes, stored atomically.
    AtomicWrite(Remote),
    Flush {
        remote: Remote,
        len: u32,
        placement: u8,
        selectivity: u8,
    },
    LocalInv(Key),
    BindMw(MwBind),
    /// Give pages to a fast-registered region. The host staged the pages with
    /// [`KeyTable::stage_pages`](crate::KeyTable::stage_pages).
    FastReg(FastReg),
}

impl SendOp {
    /// Performed by this device alone, without a packet.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, SendOp::LocalInv(_) | SendOp::BindMw(_) | SendOp::FastReg(_))
    }
    /// Answered by more than an ACK (IBTA 9.7.2.1.1): READ, atomics, and the ATOMIC WRITE and FLUSH
    /// of annex A19.
    pub(crate) fn needs_response(&self) -> bool {
        matches!(
            self,
            SendOp::Read(_)
                | SendOp::CompareSwap { .. }
                | SendOp::FetchAdd { .. }
                | SendOp::AtomicWrite(_)
                | SendOp::Flush { .. }
        )
    }
}

/// The bytes of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Gathered from registered memory when the request is processed.
    Sges(&'a [Sge]),
    /// Copied at the post.
    Inline(&'a [&'a [u8]]),
}

/// The destination of a UD message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdDest {
    /// Address handle, resolved.
    pub av: AddressVector,
    /// Destination queue pair.
    pub qpn: Qpn,
    /// Q_Key. If the top bit is set, the QP's own Q_Key is used (IBTA 10.2.5).
    pub qkey: u32,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// The consumer's id.
    pub wr_id: u64,
    /// Flags.
    pub flags: SendFlags,
    /// Operation and its parameters.
    pub op: SendOp,
    /// Data.
    pub data: Payload<'a>,
    /// UD destination; required on UD, ignored elsewhere.
    pub ud: Option<UdDest>,
    /// XRC: the peer's SRQ number.
    pub xrc_srqn: u32,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// The consumer's id.
    pub wr_id: u64,
    /// Buffers, filled in order.
    pub sges: &'a [Sge],
}

/// Scatter/gather list of a queued receive. Up to four entries are inline, so that the usual
/// receive allocates nothing.
#[derive(Clone, Debug)]
pub enum SgeList {
    /// Up to four entries.
    Short(u8, [Sge; 4]),
    /// More than four entries.
    Long(Box<[Sge]>),
}

impl SgeList {
    /// Copies a list.
    #[must_use]
    pub fn new(sges: &[Sge]) -> Self {
        if sges.len() <= 4 {
            let mut short = [Sge::default(); 4];
            short[..sges.len()].copy_from_slice(sges);
            SgeList::Short(sges.len() as u8, short)
        } else {
            SgeList::Long(sges.into())
        }
    }
    /// The entries.
    #[must_use]
    pub fn as_slice(&self) -> &[Sge] {
        match self {
            SgeList::Short(n, s) => &s[..usize::from(*n)],
            SgeList::Long(s) => s,
        }
    }
}

/// A receive work queue element, taken from a receive queue or an SRQ.
#[derive(Clone, Debug)]
pub struct RecvWqe {
    /// The consumer's id.
    pub wr_id: u64,
    /// Protection domain of the entries' keys: the domain of the QP or of the SRQ.
    pub pd: PdId,
    /// Buffers.
    pub sges: SgeList,
    /// For a tag-matching SRQ: how the message matched.
    pub tagged: Option<Box<Tagged>>,
}

/// How a message matched in a tag-matching SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// How the message is received.
    pub kind: TagKind,
    /// The tag-matching header of a matched message.
    pub tmh: Tmh,
}

/// How a tag-matching SRQ receives a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagKind {
    /// As a whole: the message carries no tag to match.
    NoTag,
    /// As a whole: no entry matched.
    Unexpected,
    /// Without its header, into the buffer of the entry.
    Eager,
    /// The message asks for a READ into the buffer of the entry.
    Rendezvous(Rvh),
}

/// Why a post was refused. The refused request was not queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full (ENOMEM).
    QueueFull(Cause),
    /// The request is not allowed (EINVAL).
    Invalid(Cause),
}
