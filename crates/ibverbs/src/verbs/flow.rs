//! Flow rules, flow counters, work queues and indirection tables: not offered. The device steers by QP number alone.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Slot `ibv_create_flow`.
pub unsafe extern "C" fn create_flow(_qp: *mut ibv_qp, _attr: *mut ibv_flow_attr) -> *mut ibv_flow {
    errno::null(EOPNOTSUPP)
}

/// Slot `ibv_destroy_flow`.
pub unsafe extern "C" fn destroy_flow(_flow: *mut ibv_flow) -> c_int {
    EOPNOTSUPP
}

/// Slot `create_flow_action_esp`.
pub unsafe extern "C" fn create_flow_action_esp(
    _context: *mut ibv_context,
    _attr: *mut ibv_flow_action_esp_attr,
) -> *mut ibv_flow_action {
    errno::null(EOPNOTSUPP)
}

/// Slot `modify_flow_action_esp`.
pub unsafe extern "C" fn modify_flow_action_esp(
    _action: *mut ibv_flow_action,
    _attr: *mut ibv_flow_action_esp_attr,
) -> c_int {
    EOPNOTSUPP
}

/// Slot `destroy_flow_action`.
pub unsafe extern "C" fn destroy_flow_action(_action: *mut ibv_flow_action) -> c_int {
    EOPNOTSUPP
}

/// Slot `create_counters`.
pub unsafe extern "C" fn create_counters(
    _context: *mut ibv_context,
    _attr: *mut ibv_counters_init_attr,
) -> *mut ibv_counters {
    errno::null(EOPNOTSUPP)
}

/// Slot `destroy_counters`.
pub unsafe extern "C" fn destroy_counters(_counters: *mut ibv_counters) -> c_int {
    EOPNOTSUPP
}

/// Slot `attach_counters_point_flow`.
pub unsafe extern "C" fn attach_counters_point_flow(
    _counters: *mut ibv_counters,
    _attr: *mut ibv_counter_attach_attr,
    _flow: *mut ibv_flow,
) -> c_int {
    EOPNOTSUPP
}

/// Slot `read_counters`.
pub unsafe extern "C" fn read_counters(
    _counters: *mut ibv_counters,
    _values: *mut u64,
    _ncounters: u32,
    _flags: u32,
) -> c_int {
    EOPNOTSUPP
}

/// Slot `create_wq`.
pub unsafe extern "C" fn create_wq(_context: *mut ibv_context, _attr: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    errno::null(EOPNOTSUPP)
}

/// Slot `modify_wq`.
pub unsafe extern "C" fn modify_wq(_wq: *mut ibv_wq, _attr: *mut ibv_wq_attr) -> c_int {
    EOPNOTSUPP
}

/// Slot `destroy_wq`.
pub unsafe extern "C" fn destroy_wq(_wq: *mut ibv_wq) -> c_int {
    EOPNOTSUPP
}

/// Slot `create_rwq_ind_table`.
pub unsafe extern "C" fn create_rwq_ind_table(
    _context: *mut ibv_context,
    _attr: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    errno::null(EOPNOTSUPP)
}

/// Slot `destroy_rwq_ind_table`.
pub unsafe extern "C" fn destroy_rwq_ind_table(_table: *mut ibv_rwq_ind_table) -> c_int {
    EOPNOTSUPP
}
