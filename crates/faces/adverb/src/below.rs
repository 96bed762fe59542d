//! Access to the device's own objects below this API.
use crate::{CompChannel, Context, Cq, Pd, Qp, Srq, Xrcd, lower};
use std::sync::Arc;

macro_rules! lower {
    ($($object:ident)*) => { $(
        impl $object {
            /// The object of the device crate ([`lower`](crate::lower)), for functions that this
            /// crate does not offer. If the program ends the object there, all handles here lose
            /// it.
            #[must_use]
            pub fn lower(&self) -> &Arc<lower::$object> {
                self.raw()
            }
        }
    )* };
}
lower!(CompChannel Context Cq Pd Qp Srq Xrcd);
