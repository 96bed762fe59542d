//! Protection domains.
use crate::device::Context;
use crate::error::Result;
use crate::handle::{Handle, ends};
use std::sync::Arc;

/// A protection domain. A key of one domain gives no access to memory of another domain (IBTA
/// 10.2.3, `ibv_alloc_pd(3)`). A domain is cheap to clone, and is freed with its last handle or
/// object.
#[derive(Clone, Debug)]
pub struct Pd(pub(crate) Handle<PdInner>);

#[derive(Debug)]
pub struct PdInner {
    context: Context,
    pub(crate) pd: Arc<adverb_device::Pd>,
}

ends!(PdInner = "the protection domain" by pd.dealloc);

impl Context {
    /// Allocates a protection domain (`ibv_alloc_pd(3)`, IBTA 10.2.3).
    ///
    /// # Errors
    /// EIO in a child of `fork` that uses its parent's context.
    pub fn create_pd(&self) -> Result<Pd> {
        let pd = adverb_device::Pd::new(self.lower())?;
        Ok(Pd(Handle::new(PdInner { context: self.clone(), pd })))
    }
}

impl Pd {
    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Frees the domain now.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if other handles or objects of the domain exist. The
    /// domain is then freed with the last of them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }
}
