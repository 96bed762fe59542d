//! Device memory.
use crate::error::Error;
use crate::faults::Call;
use crate::nic::Has;
use crate::objects::context::Context;
use crate::objects::device::MAX_DM;
use crate::uses::Uses;
use adverb_memory::Pages;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Device memory.
#[derive(Debug)]
pub struct Dm {
    context: Arc<Context>,
    pub(super) pages: Pages,
    pub(super) uses: Uses,
}

impl Dm {
    /// Allocates zeroed device memory of `len` bytes. Needs no engine, so a child of `fork` may
    /// call this function, too.
    ///
    /// # Errors
    /// EINVAL for sizes out of range or an alignment above a page, ENOMEM when the device's memory
    /// is used up.
    pub fn alloc(context: &Arc<Context>, len: u64, log_align: u32) -> Result<Arc<Self>, Error> {
        context.needs(Has::DM)?;
        context.node().fault_call(Call::AllocDm)?;
        context.check_device()?;
        Error::check_size("length", len, MAX_DM)?;
        if log_align > 12 {
            let what = format!("log_align_req is {log_align}");
            return Err(Error::invalid(what, "at most 12 is possible"));
        }
        let used = context.dm_used.fetch_add(len as usize, Ordering::Relaxed);
        if used as u64 + len > MAX_DM {
            context.dm_used.fetch_sub(len as usize, Ordering::Relaxed);
            return Err(Error::no_memory(format!(
                "{used} of {MAX_DM} bytes of device memory are in use, {len} more do not fit"
            )));
        }
        let pages = crate::memory::pages(len as usize).inspect_err(|_| {
            context.dm_used.fetch_sub(len as usize, Ordering::Relaxed);
        })?;
        Ok(Arc::new(Dm { context: context.clone(), pages, uses: Uses::new("the device memory") }))
    }
    /// Copies in.
    ///
    /// # Errors
    /// EINVAL if the range leaves the memory.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let written = self.pages.write_at(offset as usize, from);
        written.then_some(()).ok_or_else(|| self.outside(offset, from.len() as u64))
    }
    /// Copies out.
    ///
    /// # Errors
    /// EINVAL if the range leaves the memory.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        let read = self.pages.read_at(offset as usize, to);
        read.then_some(()).ok_or_else(|| self.outside(offset, to.len() as u64))
    }
    pub(super) fn outside(&self, offset: u64, len: u64) -> Error {
        Error::invalid(
            format!("{len} bytes at offset {offset}"),
            format!("the device memory has {} bytes", self.pages.len()),
        )
    }
    /// Frees the memory. Refused while regions use the memory.
    ///
    /// # Errors
    /// EBUSY.
    pub fn free(&self) -> Result<(), Error> {
        self.uses.check_unused()?;
        self.context.dm_used.fetch_sub(self.pages.len(), Ordering::Relaxed);
        Ok(())
    }
}
