//! Memory windows.
use crate::buffer::{BufSlice, Buffer, RemoteBuf};
use crate::error::Result;
use crate::handle::{End, Handle};
use crate::pd::Pd;
use adverb_device::engine::wr::MwBind;
use adverb_device::engine::{Access, Key};
use adverb_sync::Mutex;
use std::sync::Arc;

pub use adverb_device::engine::keys::MwType;

/// A memory window: a key of its own to a part of a buffer, bound and taken back by work requests,
/// in order with the others of the queue pair (IBTA 10.6.7, `ibv_alloc_mw(3)`, `ibv_bind_mw(3)`).
/// Cheap to clone.
///
/// A window of type 2 opens only to the queue pair it was bound on, and a peer may invalidate it;
/// one of type 1 opens to all queue pairs of the domain.
///
/// It keeps the buffers it was ever bound to, so that none of them goes while the window opens it.
#[derive(Clone, Debug)]
pub struct Mw(Handle<MwInner>);

#[derive(Debug)]
pub struct MwInner {
    mw: Arc<adverb_device::Mw>,
    kept: Mutex<Vec<Buffer>>,
    _pd: Pd,
}

impl End for MwInner {
    const WHAT: &'static str = "the memory window";
    fn end(&mut self) -> Result<(), adverb_device::Error> {
        self.mw.dealloc()
    }
}

/// What peers may do through a memory window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct WindowRights(Access);

impl WindowRights {
    /// Peers may read through it.
    pub const READ: WindowRights = WindowRights(Access::REMOTE_READ);
    /// Peers may write through it. The buffer must be writable for the device, as all buffers here
    /// are.
    pub const WRITE: WindowRights = WindowRights(Access::REMOTE_WRITE);
    /// Peers may use atomics through it.
    pub const ATOMIC: WindowRights = WindowRights(Access::REMOTE_ATOMIC);

    /// These and those.
    pub const fn and(self, other: WindowRights) -> WindowRights {
        WindowRights(self.0.union(other.0))
    }
}

impl Pd {
    /// Allocates a memory window, bound to nothing (`ibv_alloc_mw(3)`).
    ///
    /// # Errors
    /// ENOMEM.
    pub fn create_mw(&self, ty: MwType) -> Result<Mw> {
        Mw::new(self, ty)
    }
}

impl Mw {
    pub(crate) fn new(pd: &Pd, ty: MwType) -> Result<Self> {
        let mw = pd.raw().alloc_mw(ty)?;
        Ok(Mw(Handle::new(MwInner { mw, kept: Mutex::default(), _pd: pd.clone() })))
    }

    /// Its key, as the last bind posted gave it. Each bind changes it: who kept the old key opens
    /// nothing.
    #[must_use]
    pub fn key(&self) -> Key {
        self.0.mw.key()
    }

    /// Type 1 or 2.
    #[must_use]
    pub fn ty(&self) -> MwType {
        self.0.mw.ty()
    }

    /// `slice` as peers name it through this window, by the key of the last bind posted. That bind
    /// should be of this slice.
    #[must_use]
    pub fn remote(&self, slice: BufSlice<'_>) -> RemoteBuf {
        RemoteBuf { key: self.key(), ..slice.remote() }
    }

    /// Frees it now, unbinding it.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if clones of it exist; it is freed with the last of
    /// them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    /// The request that binds it to `slice` (`None`: to nothing) under a new key.
    pub(crate) fn bind_request(&self, slice: Option<BufSlice<'_>>, rights: WindowRights) -> MwBind {
        match slice {
            Some(s) => {
                self.keep(s.buffer());
                self.0.mw.bind_request(s.buffer().key(), s.addr(), s.len() as u64, rights.0)
            }
            None => self.0.mw.bind_request(0, 0, 0, Access::empty()),
        }
    }

    /// Sets the key that a request gave it, or gives it back.
    pub(crate) fn set_key(&self, key: Key) {
        self.0.mw.set_key(key);
    }

    fn keep(&self, buffer: &Buffer) {
        let mut kept = self.0.kept.lock();
        if !kept.iter().any(|b| b.ptr_eq(buffer)) {
            kept.push(buffer.clone());
        }
    }
}
