//! Memory regions over descriptors (`ibv_reg_dmabuf_mr`).
use crate::error::Error;
use crate::mapping::Mapping;
use crate::objects::pd::{Dm, Mr, Pd};
use adverb_engine::Access;
use adverb_engine::keys::PAGE;
use adverb_memory::{FdError, FdPages};
use nix::errno::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;

impl Pd {
    /// Registers `len` bytes from `offset` of a descriptor's memory. Keys see the bytes at `iova`.
    /// The descriptor is a DMA-BUF, or a file that can be mapped, such as a memfd. The caller may
    /// close the descriptor afterwards. The offsets of `iova` and of `offset` within a page are
    /// equal, as on NICs.
    ///
    /// # Errors
    /// EBADF (no descriptor), EACCES (not opened with the requested access), ENOMEM. EINVAL (the
    /// descriptor cannot be mapped, bytes beyond its end, an `iova` that does not fit, rights that
    /// a DMA-BUF cannot have).
    pub fn reg_fd(
        self: &Arc<Self>,
        fd: RawFd,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        check_fd_range(offset, len, iova, access)?;
        let pages =
            FdPages::new(fd, offset, len, access.contains(Access::LOCAL_WRITE)).map_err(|e| {
                let name = format!("the descriptor {fd}");
                match e {
                    FdError::Descriptor(e) => Error::new(e, format!("{name}: {}", e.desc())),
                    FdError::NoMemory(Errno::ENOMEM) => {
                        Error::new(Errno::ENOMEM, format!("{name}: {len} bytes cannot be mapped"))
                    }
                    FdError::NoMemory(e) => Error::invalid(
                        name,
                        format!("a DMA-BUF, or a file that can be mapped, is needed: {}", e.desc()),
                    ),
                    FdError::Short(size) => Error::invalid(
                        format!("{len} bytes at offset {offset} of {name}"),
                        format!("the descriptor has {size} bytes"),
                    ),
                }
            })?;
        self.reg_mapping(&Mapping::of_fd(pages), 0, len, iova, access)
    }

    /// As [`Pd::reg_fd`], for device memory exported as a descriptor.
    ///
    /// # Errors
    /// EINVAL as there.
    pub fn reg_exported_dm(
        self: &Arc<Self>,
        dm: &Arc<Dm>,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        check_fd_range(offset, len, iova, access)?;
        self.reg_dm(dm, offset, len, iova, access)
    }
}

/// The range and rights allowed for a descriptor's memory.
fn check_fd_range(offset: u64, len: u64, iova: u64, access: Access) -> Result<(), Error> {
    let rights = Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::RELAXED_ORDERING;
    if !rights.contains(access) {
        let what = format!("access has {:#x}", (access - rights).bits());
        let rule = "a DMA-BUF has local and remote rights and relaxed ordering alone";
        return Err(Error::invalid(what, rule));
    }
    if len == 0 {
        return Err(Error::invalid("length is 0", "a DMA-BUF is registered by at least one byte"));
    }
    if (offset ^ iova) & (PAGE - 1) != 0 {
        let what = format!("iova {iova:#x} with offset {offset:#x}");
        return Err(Error::invalid(what, "both have the same offset in a page"));
    }
    Ok(())
}
