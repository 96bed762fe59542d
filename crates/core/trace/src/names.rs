//! Names of numbers, as in verbs and IBTA.

/// An opcode of `ibv_send_wr`, or the opcode of a receive.
pub fn request(opcode: u32) -> &'static str {
    match opcode {
        0 => "RDMA_WRITE",
        1 => "RDMA_WRITE_WITH_IMM",
        2 => "SEND",
        3 => "SEND_WITH_IMM",
        4 => "RDMA_READ",
        5 => "ATOMIC_CMP_AND_SWP",
        6 => "ATOMIC_FETCH_AND_ADD",
        7 => "LOCAL_INV",
        8 => "BIND_MW",
        9 => "SEND_WITH_INV",
        10 => "TSO",
        14 => "FLUSH",
        15 => "ATOMIC_WRITE",
        128 => "RECV",
        _ => "request",
    }
}

/// A status of `ibv_wc`.
pub fn status(status: u32) -> &'static str {
    const ALL: [&str; 24] = [
        "SUCCESS",
        "LOC_LEN_ERR",
        "LOC_QP_OP_ERR",
        "LOC_EEC_OP_ERR",
        "LOC_PROT_ERR",
        "WR_FLUSH_ERR",
        "MW_BIND_ERR",
        "BAD_RESP_ERR",
        "LOC_ACCESS_ERR",
        "REM_INV_REQ_ERR",
        "REM_ACCESS_ERR",
        "REM_OP_ERR",
        "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR",
        "LOC_RDD_VIOL_ERR",
        "REM_INV_RD_REQ_ERR",
        "REM_ABORT_ERR",
        "INV_EECN_ERR",
        "INV_EEC_STATE_ERR",
        "FATAL_ERR",
        "RESP_TIMEOUT_ERR",
        "GENERAL_ERR",
        "TM_ERR",
        "TM_RNDV_INCOMPLETE",
    ];
    ALL.get(status as usize).copied().unwrap_or("unknown status")
}

/// An opcode of the base transport header.
pub fn packet(opcode: u8) -> String {
    const KINDS: [&str; 30] = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_LAST",
        "SEND_LAST_WITH_IMM",
        "SEND_ONLY",
        "SEND_ONLY_WITH_IMM",
        "RDMA_WRITE_FIRST",
        "RDMA_WRITE_MIDDLE",
        "RDMA_WRITE_LAST",
        "RDMA_WRITE_LAST_WITH_IMM",
        "RDMA_WRITE_ONLY",
        "RDMA_WRITE_ONLY_WITH_IMM",
        "RDMA_READ_REQUEST",
        "RDMA_READ_RESPONSE_FIRST",
        "RDMA_READ_RESPONSE_MIDDLE",
        "RDMA_READ_RESPONSE_LAST",
        "RDMA_READ_RESPONSE_ONLY",
        "ACKNOWLEDGE",
        "ATOMIC_ACKNOWLEDGE",
        "CMP_SWP",
        "FETCH_ADD",
        "RESYNC",
        "SEND_LAST_WITH_INV",
        "SEND_ONLY_WITH_INV",
        "24",
        "25",
        "26",
        "27",
        "FLUSH",
        "ATOMIC_WRITE",
    ];
    let transport = match opcode >> 5 {
        0 => "RC",
        1 => "UC",
        2 => "RD",
        3 => "UD",
        4 => return "CNP".into(),
        5 => "XRC",
        _ => "transport?",
    };
    match KINDS.get(usize::from(opcode & 0x1f)) {
        Some(kind) => format!("{transport} {kind}"),
        None => format!("{transport} {opcode:#04x}"),
    }
}

/// The meaning of an acknowledgement's syndrome.
pub fn syndrome(syndrome: u8) -> &'static str {
    match (syndrome >> 5 & 3, syndrome & 0x1f) {
        (0, _) => "ACK",
        (1, _) => "RNR NAK",
        (3, 0) => "NAK: PSN sequence error",
        (3, 1) => "NAK: invalid request",
        (3, 2) => "NAK: remote access error",
        (3, 3) => "NAK: remote operational error",
        (3, _) => "NAK",
        _ => "reserved",
    }
}
