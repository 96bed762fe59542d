//! Extended reliable connections (IBTA annex A14): one connection to a process reaches all shared
//! receive queues of the process.
use crate::device::Context;
use crate::error::Result;
use crate::handle::{Handle, ends};
use std::sync::Arc;

/// An XRC domain. A connection reaches the shared receive queues of its own domain
/// (`ibv_open_xrcd(3)`). A domain is cheap to clone.
#[derive(Clone, Debug)]
pub struct Xrcd(pub(crate) Handle<XrcdInner>);

#[derive(Debug)]
pub struct XrcdInner {
    context: Context,
    pub(crate) xrcd: Arc<adverb_device::Xrcd>,
}

ends!(XrcdInner = "the XRC domain" by xrcd.close);

impl Context {
    /// Opens a private XRC domain of this process (`ibv_open_xrcd(3)`).
    ///
    /// # Errors
    /// EIO in a child of `fork` that uses its parent's context.
    pub fn open_xrcd(&self) -> Result<Xrcd> {
        let xrcd = adverb_device::Xrcd::open(self.lower(), None)?;
        Ok(Xrcd(Handle::new(XrcdInner { context: self.clone(), xrcd })))
    }
}

impl Xrcd {
    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Closes the domain now.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if other handles or objects of the domain exist. The
    /// domain is then closed with the last of them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }
}
