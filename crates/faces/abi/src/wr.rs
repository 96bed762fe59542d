//! Work requests.

use core::ffi::{c_int, c_void};

use libc::size_t;

use super::*;
use crate::c_types;

c_types! {
    /// A scatter/gather element.
    struct ibv_sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    /// A buffer of inline data.
    struct ibv_data_buf {
        addr: *mut c_void,
        length: size_t,
    }

    /// Remote side of a read, a write or a flush.
    struct ibv_send_wr_rdma as "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)" {
        remote_addr: u64,
        rkey: u32,
    }

    /// Remote side of an atomic.
    struct ibv_send_wr_atomic as "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)" {
        remote_addr: u64,
        compare_add: u64,
        swap: u64,
        rkey: u32,
    }

    /// Destination of a datagram.
    struct ibv_send_wr_ud as "__typeof__(((struct ibv_send_wr *)0)->wr.ud)" {
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    }

    /// The part of a send request that depends on its opcode.
    union ibv_send_wr_wr as "__typeof__(((struct ibv_send_wr *)0)->wr)" {
        rdma: ibv_send_wr_rdma,
        atomic: ibv_send_wr_atomic,
        ud: ibv_send_wr_ud,
    }

    /// XRC destination.
    struct ibv_send_wr_xrc as "__typeof__(((struct ibv_send_wr *)0)->qp_type.xrc)" {
        remote_srqn: u32,
    }

    /// The part of a send request that depends on the type of its QP.
    union ibv_send_wr_qp_type as "__typeof__(((struct ibv_send_wr *)0)->qp_type)" {
        xrc: ibv_send_wr_xrc,
    }

    /// A bind as a send request.
    struct ibv_send_wr_bind_mw as "__typeof__(((struct ibv_send_wr *)0)->bind_mw)" {
        mw: *mut ibv_mw,
        rkey: u32,
        bind_info: ibv_mw_bind_info,
    }

    /// Segmentation offload of a send request.
    struct ibv_send_wr_tso as "__typeof__(((struct ibv_send_wr *)0)->tso)" {
        hdr: *mut c_void,
        hdr_sz: u16,
        mss: u16,
    }

    /// A send work request.
    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: ibv_wr_opcode,
        send_flags: u32,
        /// Immediate data in network byte order, or the RKey to invalidate.
        imm_data: u32,
        wr: ibv_send_wr_wr,
        qp_type: ibv_send_wr_qp_type,
        op as "bind_mw": ibv_send_wr_op,
    }

    /// A receive work request.
    struct ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }

    /// A tagged buffer.
    struct ibv_ops_wr_add as "__typeof__(((struct ibv_ops_wr *)0)->tm.add)" {
        recv_wr_id: u64,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        tag: u64,
        mask: u64,
    }

    /// The tag matching part of a list operation.
    struct ibv_ops_wr_tm as "__typeof__(((struct ibv_ops_wr *)0)->tm)" {
        unexpected_cnt: u32,
        handle: u32,
        add: ibv_ops_wr_add,
    }

    /// A list operation on a tag matching SRQ.
    struct ibv_ops_wr {
        wr_id: u64,
        next: *mut ibv_ops_wr,
        opcode: ibv_ops_wr_opcode,
        flags: c_int,
        tm: ibv_ops_wr_tm,
    }
}

/// The part of a send request that has no name in C: a bind or a segmentation offload.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_send_wr_op {
    /// Of `IBV_WR_BIND_MW`.
    pub bind_mw: ibv_send_wr_bind_mw,
    /// Of `IBV_WR_TSO`.
    pub tso: ibv_send_wr_tso,
}
