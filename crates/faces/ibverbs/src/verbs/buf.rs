//! Buffers of `ibv_alloc_buf`: memory that any device can reach. In this library it is ordinary
//! pages.
use super::{end, failed_minus_one, failed_null, region};
use crate::abi::*;
use crate::handles::{live, reserve};
use crate::objects::BufObj;
use adverb_device::Error;
use core::ffi::{c_int, c_void};
use libc::size_t;
use nix::errno::Errno;

/// Allocates memory that devices can reach. Also slot `alloc_buf`.
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: size_t,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    match alloc(pd, size) {
        Ok((handle, addr)) => {
            // SAFETY: the program passes a place for the handle.
            unsafe { buf.write(handle) };
            addr
        }
        Err(e) => failed_null("ibv_alloc_buf", &e),
    }
}

fn alloc(pd: *mut ibv_pd, size: size_t) -> Result<(*mut ibv_buf, *mut c_void), Error> {
    let domain = live(pd)?;
    if size == 0 {
        return Err(Error::invalid("size is 0", "a buffer has at least one byte"));
    }
    let place = reserve::<BufObj>()?;
    // SAFETY: new anonymous pages, checked below.
    let addr = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if addr == libc::MAP_FAILED {
        return Err(Error::new(Errno::last(), format!("{size} bytes cannot be mapped")));
    }
    Ok((place.fill([0], BufObj { pd, addr, size }, domain.origin()).cast(), addr))
}

/// Frees memory of `ibv_alloc_buf`. Also slot `free_buf`.
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    if buf.is_null() {
        return;
    }
    end("ibv_free_buf", buf, |_| Ok(()));
}

/// Returns EINVAL unless the range lies in a buffer of the domain.
pub(super) fn check_inside(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: size_t,
) -> Result<(), Error> {
    let obj = live(buf)?;
    if obj.pd != pd {
        return Err(Error::invalid("pd", "the buffer was allocated in another domain"));
    }
    let inside = (addr as usize)
        .checked_sub(obj.addr as usize)
        .is_some_and(|offset| offset.checked_add(length).is_some_and(|end| end <= obj.size));
    if inside {
        Ok(())
    } else {
        Err(Error::invalid(
            format!("{length} bytes at {addr:p}"),
            "the range is not within the buffer",
        ))
    }
}

/// Registers memory of `ibv_alloc_buf`.
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    check_inside(pd, buf, addr, length)
        // SAFETY: the buffer's pages, which the program keeps, like any registered memory.
        .and_then(|()| unsafe {
            region::register(pd, addr, length, addr as u64, access as u32, None)
        })
        .unwrap_or_else(|e| failed_null("ibv_reg_buf_mr", &e))
}

/// A descriptor of such memory. Ordinary pages have none (ENODATA, as in rdma-core).
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    let none = || Error::new(Errno::ENODATA, "plain pages have no DMA-BUF");
    failed_minus_one("ibv_export_buf_dmabuf_fd", &live(buf).err().unwrap_or_else(none))
}
