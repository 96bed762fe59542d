//! The objects shared by a peer, each apart from the [`Peer`](super::Peer), so each can end before
//! the peer's value.
use crate::ranks;
use adverb_engine::{Qpn, Range};
use adverb_local::{Doorbell, DoorbellHandle, PeerFd};
use adverb_memory::{KeepsFd, PeerMemory, Window};
use adverb_shm::Producer;
use adverb_sync::RankedGuard;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The descriptors by which this process and a peer wake each other and see each other's end.
pub(crate) struct Links {
    /// The doorbell rung by this peer alone.
    pub(crate) doorbell: Doorbell,
    /// The peer's doorbell, which also shows the end of the peer's program.
    pub(super) handle: DoorbellHandle,
    /// Readable when the peer's process has ended. `None` for this process itself.
    pub(super) end: Option<Arc<PeerFd>>,
}

impl Links {
    pub(super) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref()?.borrow()
    }
}

/// A peer's memory, as far as this process has mapped it.
#[derive(Default)]
pub(super) struct Memory {
    /// `None` for this process itself, and after `Peer::let_go`.
    pub(super) file: Option<Arc<PeerMemory>>,
    /// The mapped pieces of the file, by offset and length.
    pub(super) chunks: HashMap<(u64, u64), Arc<Window>>,
}

#[derive(Debug)]
pub(super) struct File(pub(super) PeerFd);

impl KeepsFd for File {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.borrow()
    }
}

/// The ring to a peer, locked.
pub(crate) struct TxRing<'a>(RankedGuard<'a, Option<Producer>, ranks::TxRing>);

impl<'a> TxRing<'a> {
    /// `None`: the peer was left.
    pub(super) fn new(tx: RankedGuard<'a, Option<Producer>, ranks::TxRing>) -> Option<Self> {
        tx.is_some().then(|| TxRing(tx))
    }
}

impl Deref for TxRing<'_> {
    type Target = Producer;
    fn deref(&self) -> &Producer {
        self.0.as_ref().expect("the ring to a peer that was not left")
    }
}

impl DerefMut for TxRing<'_> {
    fn deref_mut(&mut self) -> &mut Producer {
        self.0.as_mut().expect("the ring to a peer that was not left")
    }
}

/// A payload outside the ring, named by a record in a peer's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Referred {
    /// The ring position behind the record.
    pub(crate) position: u64,
    /// The sending queue pair of this process.
    pub(crate) qpn: Qpn,
    pub(crate) memory: Range,
}

impl Referred {
    /// Does the payload lie in the range, at least in part?
    pub(crate) fn overlaps(&self, addr: u64, len: u64) -> bool {
        let end = self.memory.addr.saturating_add(self.memory.len.into());
        self.memory.addr < addr.saturating_add(len) && addr < end
    }
}
