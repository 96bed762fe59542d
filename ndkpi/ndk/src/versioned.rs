//! The version of each object.
use crate::connect::{Connector, Listener, SharedEndpoint};
use crate::version::Version;
use crate::{Adapter, Cq, Mr, Mw, Pd, Qp, Srq};

/// Objects have the NDKPI version with which their adapter was opened.
pub trait Versioned {
    /// The object's version.
    fn version(&self) -> Version;
}

macro_rules! versioned {
    ($($object:ty),*) => { $(
        impl Versioned for $object {
            fn version(&self) -> Version {
                self.lifecycle().version()
            }
        }
    )* };
}
versioned!(Adapter, Connector, Cq, Listener, Mr, Mw, Pd, Qp, SharedEndpoint, Srq);
