//! Memory regions, steering hints and shared buffers.

use core::ffi::{c_int, c_uint, c_void};

use libc::{EOPNOTSUPP, size_t};

use crate::abi::*;
use crate::errno;

/// Registers memory.
pub unsafe extern "C" fn ibv_reg_mr(
    _pd: *mut ibv_pd,
    _addr: *mut c_void,
    _length: size_t,
    _access: c_int,
) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Registers memory under another address.
pub unsafe extern "C" fn ibv_reg_mr_iova(
    _pd: *mut ibv_pd,
    _addr: *mut c_void,
    _length: size_t,
    _iova: u64,
    _access: c_int,
) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Registers memory under another address, with optional access bits.
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    _pd: *mut ibv_pd,
    _addr: *mut c_void,
    _length: size_t,
    _iova: u64,
    _access: c_uint,
) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Registers a DMA-BUF.
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: size_t,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Registers what the attributes say. Also slot `reg_mr_ex`.
pub unsafe extern "C" fn ibv_reg_mr_ex(
    _pd: *mut ibv_pd,
    _mr_init_attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Changes a registration; 0 or one of `ibv_rereg_mr_err_code`.
pub unsafe extern "C" fn ibv_rereg_mr(
    _mr: *mut ibv_mr,
    _flags: c_int,
    _pd: *mut ibv_pd,
    _addr: *mut c_void,
    _length: size_t,
    _access: c_int,
) -> c_int {
    IBV_REREG_MR_ERR_INPUT // PHASE 2
}

/// Ends a registration.
pub unsafe extern "C" fn ibv_dereg_mr(_mr: *mut ibv_mr) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Allocates a steering hint. Also slot `alloc_dmah`.
pub unsafe extern "C" fn ibv_alloc_dmah(
    _context: *mut ibv_context,
    _attr: *mut ibv_dmah_init_attr,
) -> *mut ibv_dmah {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Frees a steering hint. Also slot `dealloc_dmah`.
pub unsafe extern "C" fn ibv_dealloc_dmah(_dmah: *mut ibv_dmah) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Allocates memory that devices reach. Also slot `alloc_buf`.
pub unsafe extern "C" fn ibv_alloc_buf(
    _pd: *mut ibv_pd,
    _size: size_t,
    _buf: *mut *mut ibv_buf,
) -> *mut c_void {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Frees such memory. Also slot `free_buf`.
pub unsafe extern "C" fn ibv_free_buf(_buf: *mut ibv_buf) {} // PHASE 2

/// Registers such memory.
pub unsafe extern "C" fn ibv_reg_buf_mr(
    _pd: *mut ibv_pd,
    _buf: *mut ibv_buf,
    _addr: *mut c_void,
    _length: size_t,
    _access: c_int,
) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// A descriptor of such memory.
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut ibv_buf) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// Slot `advise_mr`: prefetch.
pub unsafe extern "C" fn advise_mr(
    _pd: *mut ibv_pd,
    _advice: ibv_advise_mr_advice,
    _flags: u32,
    _sg_list: *mut ibv_sge,
    _num_sges: u32,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `alloc_null_mr`.
pub unsafe extern "C" fn alloc_null_mr(_pd: *mut ibv_pd) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}
