//! Protection domains and what belongs to them: memory, windows, device memory, address handles.

use core::ffi::{c_int, c_void};

use libc::size_t;

use super::*;
use crate::c_types;

/// Memory of `ibv_alloc_buf`; opaque to programs.
#[repr(C)]
pub struct ibv_buf {
    _opaque: [u8; 0],
}

/// `ibv_parent_domain_init_attr::alloc` returns this to leave an allocation to the library.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

c_types! {
    /// What to allocate as device memory.
    struct ibv_alloc_dm_attr {
        length: size_t,
        log_align_req: u32,
        comp_mask: u32,
    }

    /// Device memory. Both functions are called without a null check.
    object ibv_dm {
        context: *mut ibv_context,
        memcpy_to_dm: Option<unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, size_t) -> c_int>,
        memcpy_from_dm: Option<unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, size_t) -> c_int>,
        comp_mask: u32,
        handle: u32,
    }

    /// A steering hint.
    object ibv_dmah {
        context: *mut ibv_context,
    }

    /// A protection domain, or a parent domain.
    object ibv_pd {
        context: *mut ibv_context,
        handle: u32,
    }

    /// What to allocate as a thread domain.
    struct ibv_td_init_attr {
        comp_mask: u32,
    }

    /// A thread domain.
    object ibv_td {
        context: *mut ibv_context,
    }

    /// What to open as an XRC domain.
    struct ibv_xrcd_init_attr {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }

    /// An XRC domain.
    object ibv_xrcd {
        context: *mut ibv_context,
    }

    /// A memory region.
    object ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// What to register, for `ibv_reg_mr_ex`.
    struct ibv_mr_init_attr {
        length: size_t,
        access: c_int,
        comp_mask: u64,
        iova: u64,
        addr: *mut c_void,
        fd: c_int,
        fd_offset: u64,
        dmah: *mut ibv_dmah,
        buf: *mut ibv_buf,
    }

    /// A memory window.
    object ibv_mw {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        type_ as "type": ibv_mw_type,
    }

    /// What a window is bound to.
    struct ibv_mw_bind_info {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: u32,
    }

    /// A bind request, for windows of type 1.
    struct ibv_mw_bind {
        wr_id: u64,
        send_flags: u32,
        bind_info: ibv_mw_bind_info,
    }

    /// Global routing of an address.
    struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// A GRH as it lies in the first 40 bytes of a UD receive buffer, in network byte order.
    struct ibv_grh {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }

    /// An address.
    struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// An address handle.
    object ibv_ah {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }

    /// What to allocate as a parent domain.
    struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, size_t, size_t, u64) -> *mut c_void>,
        free: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64)>,
        pd_context: *mut c_void,
    }

    /// What to allocate as a steering hint.
    struct ibv_dmah_init_attr {
        comp_mask: u32,
        cpu_id: u32,
        ph: u8,
        tph_mem_type: u8,
    }
}
