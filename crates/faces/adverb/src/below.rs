//! The device's own objects below ours.
use crate::{CompChannel, Context, Cq, Pd, Qp, Srq, Xrcd, lower};
use std::sync::Arc;

macro_rules! lower {
    ($($object:ident)*) => { $(
        impl $object {
            /// The device's own object ([`lower`](crate::lower)), for what this crate does not
            /// offer. Ending it there takes it away from under all handles here.
            #[must_use]
            pub fn lower(&self) -> &Arc<lower::$object> {
                self.raw()
            }
        }
    )* };
}
lower!(CompChannel Context Cq Pd Qp Srq Xrcd);
