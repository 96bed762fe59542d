//! Memory regions over descriptors, and descriptors of device memory.
//!
//! The exported file of device memory has no bytes of its own, like that of the kernel: it cannot
//! be mapped. It can only be registered, and only in the process that the device memory belongs to.
use super::files::{Inode, inode};
use super::region::{access_of, give};
use super::{failed_minus_one, failed_null};
use crate::abi::*;
use crate::handles::{live, reserve};
use crate::objects::{InUse, MrKind, MrObj};
use adverb_device::{Dm, Errno, Error};
use adverb_sync::Mutex;
use core::ffi::{c_int, c_void};
use libc::size_t;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

/// Device memory that was exported.
struct Exported {
    /// Kept open, so that no other file gets the same inode.
    _fd: OwnedFd,
    inode: Inode,
    dm: Weak<Dm>,
}

static EXPORTED: Mutex<Vec<Exported>> = Mutex::new(Vec::new());

/// The part of a descriptor's memory to register.
pub(super) struct DmabufRange {
    pub(super) fd: RawFd,
    pub(super) offset: u64,
    pub(super) length: size_t,
    pub(super) iova: u64,
    pub(super) access: u32,
}

/// Registers a part of a descriptor's memory.
pub(super) fn register(
    pd: *mut ibv_pd,
    part: &DmabufRange,
    dmah: Option<InUse>,
) -> Result<*mut ibv_mr, Error> {
    let obj = live(pd)?;
    if part.fd < 0 {
        // NCCL and others ask in this way whether the memory of GPUs can be registered. A driver
        // without DMA-BUFs answers EOPNOTSUPP.
        return Err(Error::unsupported(format!(
            "descriptor {}: DMA-BUFs of devices cannot be mapped; a DMA-BUF or a file that can be mapped is needed",
            part.fd
        )));
    }
    let access = access_of(part.access)?;
    let place = reserve::<MrObj>()?;
    let length = part.length as u64;
    let found = inode(part.fd)?;
    let exported = EXPORTED.lock().iter().find(|e| e.inode == found).map(|e| e.dm.upgrade());
    let mr = match exported {
        Some(Some(dm)) => obj.pd.reg_exported_dm(&dm, part.offset, length, part.iova, access)?,
        Some(None) => return Err(Error::invalid("fd", "the device memory was freed")),
        None => obj.pd.reg_fd(part.fd, part.offset, length, part.iova, access)?,
    };
    // As in rdma-core, the offset is reported, because there is no address.
    let addr = part.offset as *mut c_void;
    Ok(give(place, &obj, addr, part.length, MrObj { mr, kind: MrKind::Fd, _dmah: dmah }))
}

/// Registers a DMA-BUF, or a file that can be mapped.
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: size_t,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let part = DmabufRange { fd, offset, length, iova, access: access as u32 };
    register(pd, &part, None).unwrap_or_else(|e| failed_null("ibv_reg_dmabuf_mr", &e))
}

/// A descriptor of device memory, for registrations. Also slot `dm_export_dmabuf_fd`.
pub unsafe extern "C" fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int {
    export(dm).unwrap_or_else(|e| failed_minus_one("ibv_dm_export_dmabuf_fd", &e))
}

fn io(e: std::io::Error) -> Error {
    Errno::from_raw(e.raw_os_error().unwrap_or(libc::EMFILE)).into()
}

fn export(dm: *mut ibv_dm) -> Result<c_int, Error> {
    let obj = live(dm)?;
    // A new descriptor that cannot be mapped. Its inode is unique.
    let (given, _) = UnixStream::pair().map_err(io)?;
    let kept = given.try_clone().map_err(io)?.into();
    let exported =
        Exported { _fd: kept, inode: inode(given.as_raw_fd())?, dm: Arc::downgrade(&obj) };
    let mut all = EXPORTED.lock();
    all.retain(|e| e.dm.strong_count() > 0);
    all.push(exported);
    Ok(given.into_raw_fd())
}

/// The part of a descriptor that the attributes name.
pub(super) fn part_of(attr: &ibv_mr_init_attr) -> Result<DmabufRange, Error> {
    let has = |bit| attr.comp_mask & bit != 0;
    let complete = has(IBV_REG_MR_MASK_FD_OFFSET) && has(IBV_REG_MR_MASK_IOVA);
    if !has(IBV_REG_MR_MASK_FD) || !complete || has(IBV_REG_MR_MASK_ADDR) {
        return Err(Error::invalid(
            format!("comp_mask is {:#x}", attr.comp_mask),
            "a descriptor comes with IBV_REG_MR_MASK_FD, FD_OFFSET and IOVA, and without ADDR",
        ));
    }
    Ok(DmabufRange {
        fd: attr.fd,
        offset: attr.fd_offset,
        length: attr.length,
        iova: attr.iova,
        access: attr.access as u32,
    })
}
