//! What all objects of the API have in common: shared handles, and an end that comes by itself.
use crate::error::Error;
use std::sync::Arc;

/// An object of the device that has to be ended.
pub trait End {
    /// What it is, in words, for errors.
    const WHAT: &'static str;
    /// Ends it. Called once, before the fields are dropped: parents still live.
    fn end(&mut self) -> Result<(), adverb_device::Error>;
}

/// An object and whether it was ended.
#[derive(Debug)]
pub struct Owned<T: End> {
    object: T,
    ended: bool,
}

impl<T: End> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.ended
            && let Err(e) = self.object.end()
        {
            log::warn!("dropping {}: {e}", T::WHAT);
        }
    }
}

/// A handle on a shared object. The object ends with its last handle; children hold handles on
/// their parents, so handles may be dropped in any order.
#[derive(Debug)]
pub struct Handle<T: End>(Arc<Owned<T>>);

/// A reference that does not keep the object.
pub type WeakHandle<T> = std::sync::Weak<Owned<T>>;

impl<T: End> Handle<T> {
    pub fn new(object: T) -> Self {
        Handle(Arc::new(Owned { object, ended: false }))
    }

    /// Makes the object with a weak handle on itself.
    pub fn downgrade(&self) -> WeakHandle<T> {
        Arc::downgrade(&self.0)
    }

    pub fn upgrade(weak: &WeakHandle<T>) -> Option<Self> {
        weak.upgrade().map(Handle)
    }

    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends the object now, if this is its last handle.
    pub fn destroy(self) -> Result<(), Error> {
        let users = Arc::strong_count(&self.0) - 1;
        let mut owned = Arc::into_inner(self.0).ok_or(Error::Busy { what: T::WHAT, users: users.max(1) })?;
        owned.ended = true;
        Ok(owned.object.end()?)
    }
}

impl<T: End> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

impl<T: End> std::ops::Deref for Handle<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.object
    }
}
