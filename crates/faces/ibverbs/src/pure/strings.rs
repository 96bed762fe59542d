//! Texts for codes. Scripts compare them, so they are the same as in all other implementations.

use core::ffi::{CStr, c_char};

use crate::abi::*;

const UNKNOWN: &CStr = c"unknown";

const NODE_TYPES: [&CStr; 7] = [
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const EVENTS: [&CStr; 21] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
    c"Device link speed change",
];

const WC_STATUS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// Opcodes 12 and 13 do not exist.
const WR_OPCODES: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    UNKNOWN,
    UNKNOWN,
    c"flush",
    c"atomic-write",
];

fn text(table: &[&'static CStr], index: Option<usize>) -> *const c_char {
    index.and_then(|i| table.get(i)).unwrap_or(&UNKNOWN).as_ptr()
}

/// The text of a node type.
pub extern "C" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
    text(&NODE_TYPES, node_type.checked_sub(IBV_NODE_CA).and_then(|i| usize::try_from(i).ok()))
}

/// The text of a port state.
pub extern "C" fn ibv_port_state_str(state: ibv_port_state) -> *const c_char {
    text(&PORT_STATES, usize::try_from(state).ok())
}

/// The text of an asynchronous event.
pub extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    text(&EVENTS, usize::try_from(event).ok())
}

/// The text of a completion status.
pub extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    text(&WC_STATUS, usize::try_from(status).ok())
}

/// The text of a send opcode. Private to rdma-core's own programs.
pub extern "C" fn ibv_wr_opcode_str(opcode: ibv_wr_opcode) -> *const c_char {
    text(&WR_OPCODES, usize::try_from(opcode).ok())
}
