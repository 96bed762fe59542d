//! The statuses of completions.
use super::topic::Topic;

/// Name, meaning, and the usual reason, by number.
pub type Status = (&'static str, &'static str, &'static str);

pub fn topic(status: &Status) -> Topic {
    let (name, meaning, why) = *status;
    let number = ALL.iter().position(|other| other.0 == name).unwrap_or_default();
    let order = match name {
        "IBV_WC_SUCCESS" => {
            "ibv_poll_cq(cq, 1, &wc);\nif (wc.status == IBV_WC_SUCCESS) handle(wc.opcode, wc.byte_len);"
        }
        "IBV_WC_RNR_RETRY_EXC_ERR" => {
            "ibv_post_recv(qp, &wr, &bad);   /* before the peer can send */\nattr.rnr_retry = 7;             /* no limit */\nattr.min_rnr_timer = 12;        /* 0 is the longest, 655 ms */"
        }
        "IBV_WC_LOC_LEN_ERR" | "IBV_WC_REM_INV_REQ_ERR" => {
            "sge.length = LONGEST_MESSAGE;   /* on UD 40 bytes more */\nibv_post_recv(qp, &wr, &bad);"
        }
        "IBV_WC_LOC_PROT_ERR" | "IBV_WC_REM_ACCESS_ERR" => {
            "mr = ibv_reg_mr(pd, buf, WHOLE_LENGTH, IBV_ACCESS_LOCAL_WRITE | RIGHTS);\n/* send mr->rkey and the address to the peer */\npoll the completion of each request that uses mr;\nibv_dereg_mr(mr);"
        }
        _ => {
            "ibv_poll_cq(cq, 1, &wc);\nif (wc.status != IBV_WC_SUCCESS)\n    /* valid: wr_id, status, qp_num, vendor_err; the first failure counts */\n    fail(wc.wr_id, ibv_wc_status_str(wc.status), wc.vendor_err);"
        }
    };
    Topic {
        title: format!("{name} ({number})"),
        meaning,
        why,
        order,
        suppress: "a status is no report; of a failed completion adverb run --check makes the \
                   report completion-failed, if the program then fails"
            .into(),
    }
}

pub const ALL: [Status; 24] = [
    (
        "IBV_WC_SUCCESS",
        "The request succeeded.",
        "all fields of the completion are defined. A SEND of UC and UD succeeds when the message leaves.",
    ),
    (
        "IBV_WC_LOC_LEN_ERR",
        "A message was longer than the posted receive, or than the port's limit.",
        "the responder may not cut a message, so both queue pairs fail.",
    ),
    (
        "IBV_WC_LOC_QP_OP_ERR",
        "The queue pair cannot carry out the request.",
        "the request does not fit the queue pair's type, state or attributes.",
    ),
    (
        "IBV_WC_LOC_EEC_OP_ERR",
        "An operation of an end-to-end context failed (RD only).",
        "RD is not used by any current device.",
    ),
    (
        "IBV_WC_LOC_PROT_ERR",
        "An lkey of the request is not valid for the memory of its entry.",
        "the region is unknown, was deregistered, is of another protection domain, or is too short.",
    ),
    (
        "IBV_WC_WR_FLUSH_ERR",
        "The request was not carried out, because the queue pair is in the error state.",
        "the first completion with another status has the reason. Flushed completions may come late.",
    ),
    (
        "IBV_WC_MW_BIND_ERR",
        "A memory window could not be bound.",
        "the region needs IBV_ACCESS_MW_BIND, and the range must be within the region.",
    ),
    (
        "IBV_WC_BAD_RESP_ERR",
        "The answer of the peer was not what the request needs.",
        "the peers do not agree on the connection, or a packet is not of this connection.",
    ),
    (
        "IBV_WC_LOC_ACCESS_ERR",
        "A local access error while data of the peer was received.",
        "the receive or the region of an RDMA WRITE with immediate is not valid.",
    ),
    (
        "IBV_WC_REM_INV_REQ_ERR",
        "The peer refused the request as invalid.",
        "the message is longer than the receive, or the peer's queue pair does not allow the operation.",
    ),
    (
        "IBV_WC_REM_ACCESS_ERR",
        "The peer refused the rkey, the bounds or the right.",
        "the peer's region was deregistered, is too short, or lacks the remote right.",
    ),
    (
        "IBV_WC_REM_OP_ERR",
        "The peer could not carry the request out.",
        "memory of the peer's receive could not be written. The peer's own completions say more.",
    ),
    (
        "IBV_WC_RETRY_EXC_ERR",
        "No acknowledgement came after all retransmissions.",
        "the peer ended, was never connected, or packets are lost on the way.",
    ),
    (
        "IBV_WC_RNR_RETRY_EXC_ERR",
        "The peer had no receive posted, in all attempts.",
        "rnr_retry limits the attempts, and 7 means no limit.",
    ),
    (
        "IBV_WC_LOC_RDD_VIOL_ERR",
        "The RD domains differ (RD only).",
        "RD is not used by any current device.",
    ),
    (
        "IBV_WC_REM_INV_RD_REQ_ERR",
        "The peer refused an RD message (RD only).",
        "RD is not used by any current device.",
    ),
    (
        "IBV_WC_REM_ABORT_ERR",
        "The peer or this side aborted the operation.",
        "an operation that was in progress was ended, as by a reset of the queue pair.",
    ),
    (
        "IBV_WC_INV_EECN_ERR",
        "The end-to-end context number is not valid (RD only).",
        "RD is not used by any current device.",
    ),
    (
        "IBV_WC_INV_EEC_STATE_ERR",
        "The end-to-end context is in a wrong state (RD only).",
        "RD is not used by any current device.",
    ),
    (
        "IBV_WC_FATAL_ERR",
        "The device has failed.",
        "a device may fail at any time; the program closes the context.",
    ),
    (
        "IBV_WC_RESP_TIMEOUT_ERR",
        "The answer did not come in time.",
        "the peer received the request and did not answer.",
    ),
    ("IBV_WC_GENERAL_ERR", "An error without its own status.", "vendor_err says more."),
    (
        "IBV_WC_TM_ERR",
        "An operation of tag matching failed.",
        "the list of tags was not in the expected state.",
    ),
    (
        "IBV_WC_TM_RNDV_INCOMPLETE",
        "A rendezvous of tag matching did not end by itself.",
        "the buffer is too short for the data, so the program reads the data itself.",
    ),
];
