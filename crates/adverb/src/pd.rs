//! Protection domains.
use crate::ah::Ah;
use crate::buffer::{Buffer, BufferBuilder};
use crate::device::Context;
use crate::error::Result;
use crate::handle::{End, Handle};
use crate::mw::{Mw, MwType};
use crate::qp::QpBuilder;
use crate::srq::SrqBuilder;
use adverb_device::engine::Gid;
use std::sync::Arc;

/// A protection domain: keys of one never open memory of another (IBTA 10.2.3, `ibv_alloc_pd(3)`).
/// Cheap to clone; freed with the last handle or object of it.
#[derive(Clone, Debug)]
pub struct Pd(Handle<PdInner>);

#[derive(Debug)]
pub struct PdInner {
    context: Context,
    pd: Arc<adverb_device::Pd>,
}

impl End for PdInner {
    const WHAT: &'static str = "the protection domain";
    fn end(&mut self) -> Result<(), adverb_device::Error> {
        self.pd.dealloc()
    }
}

impl Pd {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        let pd = adverb_device::Pd::new(context.raw())?;
        Ok(Pd(Handle::new(PdInner { context: context.clone(), pd })))
    }

    pub(crate) fn raw(&self) -> &Arc<adverb_device::Pd> {
        &self.0.pd
    }

    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Allocates and registers `len` zeroed bytes for local use: sent from, received into, but out
    /// of peers' reach.
    ///
    /// # Errors
    /// ENOMEM when the memory cannot be had.
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.create_buffer(len).build()
    }

    /// Starts allocating and registering `len` zeroed bytes, with rights for peers.
    pub fn create_buffer(&self, len: usize) -> BufferBuilder<'_> {
        BufferBuilder::new(self, len)
    }

    /// Starts making a queue pair, reliable connected unless told otherwise (`ibv_create_qp(3)`).
    pub fn create_qp(&self) -> QpBuilder<'_> {
        QpBuilder::new(self)
    }

    /// Starts making a shared receive queue (`ibv_create_srq(3)`).
    pub fn create_srq(&self) -> SrqBuilder<'_> {
        SrqBuilder::new(self)
    }

    /// Allocates a memory window, bound to nothing (`ibv_alloc_mw(3)`).
    ///
    /// # Errors
    /// ENOMEM.
    pub fn create_mw(&self, ty: MwType) -> Result<Mw> {
        Mw::new(self, ty)
    }

    /// Makes an address handle for datagrams to `gid`, sent from the default GID of `gid`'s family
    /// (`ibv_create_ah(3)`).
    ///
    /// # Errors
    /// [`Error::NoAddress`](crate::Error::NoAddress) if the device has no address of that family,
    /// EINVAL for the zero GID.
    pub fn create_ah(&self, gid: Gid) -> Result<Ah> {
        Ah::new(self, gid)
    }

    /// Frees it now.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if other handles or objects of it exist; it is freed
    /// with the last of them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }
}
