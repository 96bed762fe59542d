//! XRC domains.
use crate::error::Error;
use crate::faults::Call;
use crate::objects::context::Context;
use crate::uses::Uses;
use std::sync::Arc;

/// An XRC domain. Target QPs and XRC SRQs of the same domain find each other. Domains opened on the
/// same file are the same domain.
#[derive(Debug)]
pub struct Xrcd {
    context: Arc<Context>,
    /// Device and inode of the domain's file.
    file: Option<(u64, u64)>,
    pub(crate) uses: Uses,
}

impl Xrcd {
    /// Opens a domain. With `file` (device and inode) the domain is the same as other domains of
    /// this file.
    ///
    /// # Errors
    /// EIO in a child of `fork` if the context belongs to the parent.
    pub fn open(context: &Arc<Context>, file: Option<(u64, u64)>) -> Result<Arc<Self>, Error> {
        context.fault_call(Call::OpenXrcd)?;
        Ok(Arc::new(Xrcd { context: context.clone(), file, uses: Uses::new("the XRC domain") }))
    }
    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
    /// Are both the same domain?
    #[must_use]
    pub fn same(a: &Arc<Xrcd>, b: &Arc<Xrcd>) -> bool {
        Arc::ptr_eq(a, b) || (a.file.is_some() && a.file == b.file)
    }
    /// Closes the domain. Refused while objects use the domain.
    ///
    /// # Errors
    /// EBUSY.
    pub fn close(&self) -> Result<(), Error> {
        if self.context.node().is_stale() {
            return Ok(());
        }
        self.uses.check_unused()
    }
}
