//! Memory windows.
use super::Pd;
use crate::error::Error;
use crate::ranks;
use adverb_engine::keys::MwType;
use adverb_engine::wr::MwBind;
use adverb_engine::{Access, Key};
use adverb_sync::Ranked;
use std::sync::Arc;

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    pub(super) pd: Arc<Pd>,
    pub(super) ty: MwType,
    pub(super) key: Ranked<Key, ranks::MemoryWindow>,
}

impl Mw {
    /// The window's current key.
    #[must_use]
    pub fn key(&self) -> Key {
        *self.key.lock()
    }
    /// Type 1 or 2.
    #[must_use]
    pub fn ty(&self) -> MwType {
        self.ty
    }
    /// The window's protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
    /// The request that binds the window anew with a fresh tag, as `ibv_bind_mw` does.
    #[must_use]
    pub fn bind_request(&self, mr: Key, addr: u64, len: u64, access: Access) -> MwBind {
        let key = self.key();
        MwBind {
            mw: key,
            new_key: (key & !0xff) | (key.wrapping_add(1) & 0xff),
            mr,
            addr,
            len,
            access,
        }
    }
    /// Sets the window's key after a bind was posted.
    pub fn set_key(&self, key: Key) {
        *self.key.lock() = key;
    }
    /// Frees the window and unbinds it.
    ///
    /// # Errors
    /// EINVAL if the window was freed already.
    pub fn dealloc(&self) -> Result<(), Error> {
        let node = self.pd.context.node();
        if node.is_stale() {
            return Ok(());
        }
        node.keys.write().dealloc_mw(self.key())?;
        self.pd.uses.remove();
        Ok(())
    }
}
