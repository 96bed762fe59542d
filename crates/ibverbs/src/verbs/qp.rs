//! Queue pairs: creation, state, posting, multicast.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Creates a QP.
pub unsafe extern "C" fn ibv_create_qp(
    _pd: *mut ibv_pd,
    _qp_init_attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Changes the state or attributes of a QP.
pub unsafe extern "C" fn ibv_modify_qp(
    _qp: *mut ibv_qp,
    _attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// The attributes of a QP.
pub unsafe extern "C" fn ibv_query_qp(
    _qp: *mut ibv_qp,
    _attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    _init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Destroys a QP.
pub unsafe extern "C" fn ibv_destroy_qp(_qp: *mut ibv_qp) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// The extended face of a QP that was created with `send_ops_flags`, else null.
pub unsafe extern "C" fn ibv_qp_to_qp_ex(_qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Joins a multicast group.
pub unsafe extern "C" fn ibv_attach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Leaves a multicast group.
pub unsafe extern "C" fn ibv_detach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Sets the options of enhanced connection establishment.
pub unsafe extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// The options of enhanced connection establishment.
pub unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Whether data arrives in order; 0 for no promise.
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    0 // PHASE 2
}

/// Slot `create_qp_ex`.
pub unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    _attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `open_qp`: a shared XRC receive QP.
pub unsafe extern "C" fn open_qp(_context: *mut ibv_context, _attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `modify_qp_rate_limit`.
pub unsafe extern "C" fn modify_qp_rate_limit(_qp: *mut ibv_qp, _attr: *mut ibv_qp_rate_limit_attr) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `post_send`.
pub unsafe extern "C" fn post_send(
    _qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program passes a place for the request that failed.
    unsafe { bad_wr.write(wr) };
    EOPNOTSUPP // PHASE 2
}

/// Slot `post_recv`.
pub unsafe extern "C" fn post_recv(
    _qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a place for the request that failed.
    unsafe { bad_wr.write(wr) };
    EOPNOTSUPP // PHASE 2
}
