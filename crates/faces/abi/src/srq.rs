//! Shared receive queues.

use core::ffi::c_void;

use libc::{pthread_cond_t, pthread_mutex_t};

use super::*;
use crate::c_types;

c_types! {
    /// A shared receive queue.
    object ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    /// Attributes of an SRQ.
    struct ibv_srq_attr {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    /// What to create as an SRQ.
    struct ibv_srq_init_attr {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    /// Tag matching lengths of an SRQ.
    struct ibv_tm_cap {
        max_num_tags: u32,
        max_ops: u32,
    }

    /// What to create as an extended SRQ.
    struct ibv_srq_init_attr_ex {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: ibv_srq_type,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }
}
