//! Names of kinds of events.

use core::ffi::{CStr, c_char};

use crate::abi::cma::*;

/// The name of a kind.
fn name(kind: EventType) -> &'static CStr {
    match kind {
        ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        7 => c"RDMA_CM_EVENT_UNREACHABLE",
        REJECTED => c"RDMA_CM_EVENT_REJECTED",
        ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
        15 => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        ADDRINFO_RESOLVED => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        ADDRINFO_ERROR => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        USER => c"RDMA_CM_EVENT_USER",
        INTERNAL => c"RDMA_CM_EVENT_INTERNAL",
        _ => c"UNKNOWN EVENT",
    }
}

/// The name of a kind, as text.
pub fn name_of(kind: EventType) -> &'static str {
    name(kind).to_str().unwrap_or_default()
}

/// `rdma_event_str`.
pub extern "C" fn rdma_event_str(kind: EventType) -> *const c_char {
    name(kind).as_ptr()
}
