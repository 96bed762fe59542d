//! Address handles.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Creates an address handle.
pub unsafe extern "C" fn ibv_create_ah(_pd: *mut ibv_pd, _attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// The address a datagram came from.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    _port_num: u8,
    _wc: *mut ibv_wc,
    _grh: *mut ibv_grh,
    _ah_attr: *mut ibv_ah_attr,
) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// Creates an address handle for the sender of a datagram.
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    _pd: *mut ibv_pd,
    _wc: *mut ibv_wc,
    _grh: *mut ibv_grh,
    _port_num: u8,
) -> *mut ibv_ah {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Destroys an address handle.
pub unsafe extern "C" fn ibv_destroy_ah(_ah: *mut ibv_ah) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// The Ethernet address and VLAN behind a GID.
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _eth_mac: *mut u8,
    _vid: *mut u16,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}
