//! What all objects of the API share: handles, and the end with the last handle.
use crate::error::Error;
use std::sync::Arc;

/// An object of the device that must be ended.
pub trait DeviceObject {
    /// The name of the object, for errors.
    const WHAT: &'static str;
    /// Ends the object. Called once, before the fields are dropped, so parents still exist.
    fn end(&mut self) -> Result<(), adverb_device::Error>;
}

/// Implements [`DeviceObject`] for an object that one call of the device ends.
macro_rules! ends {
    ($inner:ident = $what:literal by $field:ident.$end:ident) => {
        impl $crate::handle::DeviceObject for $inner {
            const WHAT: &'static str = $what;
            fn end(&mut self) -> Result<(), adverb_device::Error> {
                self.$field.$end()
            }
        }
    };
}
pub(crate) use ends;

/// An object, and whether it was ended.
#[derive(Debug)]
pub struct Owned<T: DeviceObject> {
    object: T,
    ended: bool,
}

impl<T: DeviceObject> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.ended
            && let Err(e) = self.object.end()
        {
            log::warn!("dropping {}: {e}", T::WHAT);
        }
    }
}

/// A handle on a shared object. The object ends with its last handle. Children hold handles on
/// their parents, so handles may be dropped in any order.
#[derive(Debug)]
pub struct Handle<T: DeviceObject>(Arc<Owned<T>>);

/// A reference that does not keep the object alive.
pub type WeakHandle<T> = std::sync::Weak<Owned<T>>;

impl<T: DeviceObject> Handle<T> {
    pub fn new(object: T) -> Self {
        Handle(Arc::new(Owned { object, ended: false }))
    }

    /// A weak handle on the object.
    pub fn downgrade(&self) -> WeakHandle<T> {
        Arc::downgrade(&self.0)
    }

    pub fn upgrade(weak: &WeakHandle<T>) -> Option<Self> {
        weak.upgrade().map(Handle)
    }

    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends the object now, if this is the last handle.
    pub fn destroy(self) -> Result<(), Error> {
        let users = Arc::strong_count(&self.0) - 1;
        let mut owned =
            Arc::into_inner(self.0).ok_or(Error::Busy { what: T::WHAT, users: users.max(1) })?;
        owned.ended = true;
        Ok(owned.object.end()?)
    }
}

impl<T: DeviceObject> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

impl<T: DeviceObject> std::ops::Deref for Handle<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.object
    }
}
