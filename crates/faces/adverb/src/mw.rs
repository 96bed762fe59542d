//! Memory windows.
use crate::buffer::{BufSlice, Buffer, RemoteBuf};
use crate::error::Result;
use crate::handle::{Handle, ends};
use crate::pd::Pd;
use adverb_device::engine::wr::MwBind;
use adverb_device::engine::{Access, Key};
use adverb_sync::Mutex;
use std::sync::Arc;

pub use adverb_device::engine::keys::MwType;

/// A memory window: a separate key to a part of a buffer. Work requests bind and unbind the window,
/// in order with the other requests of the queue pair (IBTA 10.6.7, `ibv_alloc_mw(3)`,
/// `ibv_bind_mw(3)`). A window is cheap to clone.
///
/// A window of type 2 is open only to the queue pair on which it was bound, and a peer may
/// invalidate the window. A window of type 1 is open to all queue pairs of the protection domain.
///
/// A window keeps all buffers to which it was ever bound, so no buffer ends while the window gives
/// access to it.
#[derive(Clone, Debug)]
pub struct Mw(Handle<MwInner>);

#[derive(Debug)]
pub struct MwInner {
    mw: Arc<adverb_device::Mw>,
    kept: Mutex<Vec<Buffer>>,
    _pd: Pd,
}

ends!(MwInner = "the memory window" by mw.dealloc);

/// What peers may do through a memory window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct WindowRights(Access);

impl WindowRights {
    /// Peers may read through the window.
    pub const READ: WindowRights = WindowRights(Access::REMOTE_READ);
    /// Peers may write through the window. The device must be allowed to write the buffer, which is
    /// so for all buffers of this crate.
    pub const WRITE: WindowRights = WindowRights(Access::REMOTE_WRITE);
    /// Peers may use atomics through the window.
    pub const ATOMIC: WindowRights = WindowRights(Access::REMOTE_ATOMIC);

    /// The rights of both values.
    pub const fn and(self, other: WindowRights) -> WindowRights {
        WindowRights(self.0.union(other.0))
    }
}

impl Pd {
    /// Allocates an unbound memory window (`ibv_alloc_mw(3)`).
    ///
    /// # Errors
    /// ENOMEM.
    pub fn create_mw(&self, ty: MwType) -> Result<Mw> {
        let mw = self.lower().alloc_mw(ty)?;
        Ok(Mw(Handle::new(MwInner { mw, kept: Mutex::default(), _pd: self.clone() })))
    }
}

impl Mw {
    /// The key of the last posted bind. Each bind changes the key, and the old key gives no access.
    #[must_use]
    pub fn key(&self) -> Key {
        self.0.mw.key()
    }

    /// Type 1 or 2.
    #[must_use]
    pub fn ty(&self) -> MwType {
        self.0.mw.ty()
    }

    /// `slice` as peers name it through this window, with the key of the last posted bind. That
    /// bind must be of this slice.
    #[must_use]
    pub fn remote(&self, slice: BufSlice<'_>) -> RemoteBuf {
        RemoteBuf { key: self.key(), ..slice.remote() }
    }

    /// Unbinds and frees the window now.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if clones of the window exist. The window is then freed
    /// with the last clone.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    /// The request that binds the window to `slice` under a new key (`None`: unbinds the window).
    pub(crate) fn bind_request(&self, slice: Option<BufSlice<'_>>, rights: WindowRights) -> MwBind {
        match slice {
            Some(s) => {
                self.keep(s.buffer());
                self.0.mw.bind_request(s.buffer().key(), s.addr(), s.len() as u64, rights.0)
            }
            None => self.0.mw.bind_request(0, 0, 0, Access::empty()),
        }
    }

    /// Sets the key of a staged bind, or restores the previous key.
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
