//! Layouts that the stock `librdmacm` passes through this library: the kernel's QP attributes and
//! path records.

use core::ffi::c_int;

use super::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap};
use crate::c_types;

c_types! {
    /// The kernel's global route.
    struct ib_uverbs_global_route {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved: u8,
    }

    /// The kernel's address.
    struct ib_uverbs_ah_attr {
        grh: ib_uverbs_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved: u8,
    }

    /// The kernel's QP attributes.
    struct ib_uverbs_qp_attr {
        qp_attr_mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah_attr: ib_uverbs_ah_attr,
        alt_ah_attr: ib_uverbs_ah_attr,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 5],
    }

    /// The kernel's path record.
    struct ib_user_path_rec {
        dgid: [u8; 16],
        sgid: [u8; 16],
        /// Network byte order, as are `slid`, `flow_label` and `pkey`.
        dlid: u16,
        slid: u16,
        raw_traffic: u32,
        flow_label: u32,
        reversible: u32,
        mtu: u32,
        pkey: u16,
        hop_limit: u8,
        traffic_class: u8,
        numb_path: u8,
        sl: u8,
        mtu_selector: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }

    /// The path record of `infiniband/sa.h`.
    struct ibv_sa_path_rec {
        dgid: ibv_gid,
        sgid: ibv_gid,
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
}

impl From<&ib_uverbs_ah_attr> for ibv_ah_attr {
    fn from(kern: &ib_uverbs_ah_attr) -> Self {
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: kern.grh.dgid },
                flow_label: kern.grh.flow_label,
                sgid_index: kern.grh.sgid_index,
                hop_limit: kern.grh.hop_limit,
                traffic_class: kern.grh.traffic_class,
            },
            dlid: kern.dlid,
            sl: kern.sl,
            src_path_bits: kern.src_path_bits,
            static_rate: kern.static_rate,
            is_global: kern.is_global,
            port_num: kern.port_num,
        }
    }
}

impl From<&ib_uverbs_qp_attr> for ibv_qp_attr {
    fn from(kern: &ib_uverbs_qp_attr) -> Self {
        ibv_qp_attr {
            qp_state: kern.qp_state,
            cur_qp_state: kern.cur_qp_state,
            path_mtu: kern.path_mtu,
            path_mig_state: kern.path_mig_state,
            qkey: kern.qkey,
            rq_psn: kern.rq_psn,
            sq_psn: kern.sq_psn,
            dest_qp_num: kern.dest_qp_num,
            qp_access_flags: kern.qp_access_flags,
            cap: ibv_qp_cap {
                max_send_wr: kern.max_send_wr,
                max_recv_wr: kern.max_recv_wr,
                max_send_sge: kern.max_send_sge,
                max_recv_sge: kern.max_recv_sge,
                max_inline_data: kern.max_inline_data,
            },
            ah_attr: (&kern.ah_attr).into(),
            alt_ah_attr: (&kern.alt_ah_attr).into(),
            pkey_index: kern.pkey_index,
            alt_pkey_index: kern.alt_pkey_index,
            en_sqd_async_notify: kern.en_sqd_async_notify,
            sq_draining: kern.sq_draining,
            max_rd_atomic: kern.max_rd_atomic,
            max_dest_rd_atomic: kern.max_dest_rd_atomic,
            min_rnr_timer: kern.min_rnr_timer,
            port_num: kern.port_num,
            timeout: kern.timeout,
            retry_cnt: kern.retry_cnt,
            rnr_retry: kern.rnr_retry,
            alt_port_num: kern.alt_port_num,
            alt_timeout: kern.alt_timeout,
            rate_limit: 0,
        }
    }
}
