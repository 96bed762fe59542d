//! Buffers of `ibv_alloc_buf`: memory that any device reaches. Here that is plain pages.
use super::{failed_null, mr};
use crate::abi::*;
use crate::errno;
use adverb_device::Error;
use core::ffi::{c_int, c_void};
use libc::size_t;
use nix::errno::Errno;

/// A buffer; opaque to programs.
struct BufObj {
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: size_t,
}

/// Allocates memory that devices reach. Also slot `alloc_buf`.
pub unsafe extern "C" fn ibv_alloc_buf(pd: *mut ibv_pd, size: size_t, buf: *mut *mut ibv_buf) -> *mut c_void {
    if size == 0 {
        return failed_null("ibv_alloc_buf", &Error::invalid("size is 0", "a buffer has at least one byte"));
    }
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
        return failed_null(
            "ibv_alloc_buf",
            &Error::new(Errno::last(), format!("{size} bytes cannot be mapped")),
        );
    }
    let obj = Box::into_raw(Box::new(BufObj { pd, addr, size }));
    // SAFETY: the program's place for the handle.
    unsafe { buf.write(obj.cast()) };
    addr
}

/// Frees such memory. Also slot `free_buf`.
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    if buf.is_null() {
        return;
    }
    // SAFETY: a buffer of `ibv_alloc_buf` that the program gives up; its pages are ours.
    unsafe {
        let obj = Box::from_raw(buf.cast::<BufObj>());
        libc::munmap(obj.addr, obj.size);
    }
}

/// EINVAL unless a range lies in a buffer of the domain.
///
/// # Safety
/// A live buffer.
pub(super) unsafe fn check_inside(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: size_t,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let obj = unsafe { &*buf.cast::<BufObj>() };
    if obj.pd != pd {
        return Err(Error::invalid("pd", "the buffer was allocated in another domain"));
    }
    let inside = (addr as usize)
        .checked_sub(obj.addr as usize)
        .is_some_and(|offset| offset.checked_add(length).is_some_and(|end| end <= obj.size));
    if inside {
        Ok(())
    } else {
        Err(Error::invalid(format!("{length} bytes at {addr:p}"), "they are not within the buffer"))
    }
}

/// Registers such memory.
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's domain and buffer.
    unsafe {
        check_inside(pd, buf, addr, length)
            .and_then(|()| mr::register(pd, addr, length, addr as u64, access as u32))
    }
    .unwrap_or_else(|e| failed_null("ibv_reg_buf_mr", &e))
}

/// A descriptor of such memory: plain pages have none (ENODATA, as in rdma-core).
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut ibv_buf) -> c_int {
    errno::minus_one(libc::ENODATA)
}
