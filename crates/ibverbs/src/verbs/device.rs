//! Devices: the list, opening and closing, attributes, ports, GIDs and PKeys.

use core::ffi::{c_char, c_int, c_uint};

use libc::{EOPNOTSUPP, size_t};

use crate::abi::*;
use crate::errno;

/// The devices of this process, null-terminated; `num_devices` may be null.
pub unsafe extern "C" fn ibv_get_device_list(_num_devices: *mut c_int) -> *mut *mut ibv_device {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Frees the list. Devices that are open stay.
pub unsafe extern "C" fn ibv_free_device_list(_list: *mut *mut ibv_device) {} // PHASE 2

/// The name of a device.
pub unsafe extern "C" fn ibv_get_device_name(_device: *mut ibv_device) -> *const c_char {
    errno::null::<c_char>(EOPNOTSUPP) // PHASE 2
}

/// The index of a device, -1 where there is none.
pub unsafe extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// The node GUID, in network byte order.
pub unsafe extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    0 // PHASE 2
}

/// Opens a device.
pub unsafe extern "C" fn ibv_open_device(_device: *mut ibv_device) -> *mut ibv_context {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Closes a device.
pub unsafe extern "C" fn ibv_close_device(_context: *mut ibv_context) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// The attributes of a device.
pub unsafe extern "C" fn ibv_query_device(
    _context: *mut ibv_context,
    _device_attr: *mut ibv_device_attr,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// The attributes of a port, of which only [`COMPAT_PORT_ATTR_SIZE`](crate::abi::COMPAT_PORT_ATTR_SIZE) bytes are written.
pub unsafe extern "C" fn ibv_query_port(
    _context: *mut ibv_context,
    _port_num: u8,
    _port_attr: *mut ibv_port_attr,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// The speed of a port in units of 100 Mb/s.
pub unsafe extern "C" fn ibv_query_port_speed(
    _context: *mut ibv_context,
    _port_num: u32,
    _port_speed: *mut u64,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// One GID.
pub unsafe extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    _port_num: u8,
    _index: c_int,
    _gid: *mut ibv_gid,
) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// One row of the GID table, of the size the program knows.
pub unsafe extern "C" fn _ibv_query_gid_ex(
    _context: *mut ibv_context,
    _port_num: u32,
    _gid_index: u32,
    _entry: *mut ibv_gid_entry,
    _flags: u32,
    _entry_size: size_t,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// All valid rows of the GID table; their number, or a negative errno value.
pub unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut ibv_context,
    _entries: *mut ibv_gid_entry,
    _max_entries: size_t,
    _flags: u32,
    _entry_size: size_t,
) -> isize {
    -(EOPNOTSUPP as isize) // PHASE 2
}

/// The type of a GID as sysfs counts them: 0 for IB and RoCE v1, 1 for RoCE v2. Private to rdma-core, which calls it from its programs.
pub unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    _port_num: u8,
    _index: c_uint,
    _gid_type: *mut u32,
) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// One PKey, in network byte order.
pub unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    _port_num: u8,
    _index: c_int,
    _pkey: *mut u16,
) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// The index of a PKey given in network byte order.
pub unsafe extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, _port_num: u8, _pkey: u16) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// Slot `query_port`: writes `port_attr_len` bytes.
pub unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    _port_num: u8,
    _port_attr: *mut ibv_port_attr,
    _port_attr_len: size_t,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `query_device_ex`: writes `attr_size` bytes; `input` may be null.
pub unsafe extern "C" fn query_device_ex(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    _attr: *mut ibv_device_attr_ex,
    _attr_size: size_t,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `query_rt_values`: the clock of the device.
pub unsafe extern "C" fn query_rt_values(_context: *mut ibv_context, _values: *mut ibv_values_ex) -> c_int {
    EOPNOTSUPP // PHASE 2
}
