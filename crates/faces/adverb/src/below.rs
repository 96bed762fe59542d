//! Access to the device's own objects below this API.
use crate::{CompChannel, Context, Cq, Pd, Qp, Srq, Xrcd, lower};
use std::sync::Arc;

macro_rules! lower {
    ($($object:ident.$field:ident)*) => { $(
        impl $object {
            /// The object of the device crate ([`lower`](crate::lower)), for functions that this
            /// crate does not offer. If the program ends the object there, all handles here lose
            /// it.
            #[must_use]
            pub fn lower(&self) -> &Arc<lower::$object> {
                &self.0.$field
            }
        }
    )* };
}
lower!(CompChannel.channel Cq.cq Pd.pd Qp.qp Srq.srq Xrcd.xrcd);

impl Context {
    /// The object of the device crate ([`lower`](crate::lower)), as in the other objects.
    #[must_use]
    pub fn lower(&self) -> &Arc<lower::Context> {
        &self.0
    }
}
