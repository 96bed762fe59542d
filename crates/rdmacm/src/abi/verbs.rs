//! The types of `infiniband/verbs.h` and `infiniband/sa.h` that are used here; objects as far as
//! they are looked at.

use core::ffi::{c_int, c_void};

use super::macros::c_types;

macro_rules! opaque {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => { $(
        $(#[$meta])*
        #[repr(C)]
        pub struct $name { _private: [u8; 0] }
    )* };
}

opaque! {
    /// A protection domain.
    ibv_xrcd,
    /// A completion channel.
    ibv_comp_channel,
    /// A completion queue.
    ibv_cq,
    /// A shared receive queue.
    ibv_srq,
}

/// `IBV_QPT_RC`.
pub const QPT_RC: u32 = 2;
/// `IBV_QPT_UC`.
pub const QPT_UC: u32 = 3;
/// `IBV_QPT_UD`.
pub const QPT_UD: u32 = 4;
/// `IBV_QPT_XRC_SEND`.
pub const QPT_XRC_SEND: u32 = 9;
/// `IBV_QPT_XRC_RECV`.
pub const QPT_XRC_RECV: u32 = 10;

/// `IBV_QPS_INIT`.
pub const QPS_INIT: u32 = 1;
/// `IBV_QPS_RTR`.
pub const QPS_RTR: u32 = 2;
/// `IBV_QPS_RTS`.
pub const QPS_RTS: u32 = 3;
/// `IBV_QPS_ERR`.
pub const QPS_ERR: u32 = 6;

/// `IBV_QP_STATE`.
pub const QP_STATE: c_int = 1;
/// `IBV_QP_SQ_PSN`.
pub const QP_SQ_PSN: c_int = 1 << 16;

/// `IBV_QP_INIT_ATTR_PD`.
pub const QP_INIT_PD: u32 = 1;
/// `IBV_QP_INIT_ATTR_XRCD`.
pub const QP_INIT_XRCD: u32 = 2;
/// `IBV_SRQ_INIT_ATTR_TYPE`.
pub const SRQ_INIT_TYPE: u32 = 1;
/// `IBV_SRQ_INIT_ATTR_PD`.
pub const SRQ_INIT_PD: u32 = 2;
/// `IBV_SRQ_INIT_ATTR_XRCD`.
pub const SRQ_INIT_XRCD: u32 = 4;
/// `IBV_SRQ_INIT_ATTR_CQ`.
pub const SRQ_INIT_CQ: u32 = 8;
/// `IBV_SRQT_BASIC`.
pub const SRQT_BASIC: u32 = 0;
/// `IBV_SRQT_XRC`.
pub const SRQT_XRC: u32 = 1;
/// `IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS`.
pub const XRCD_INIT_ALL: u32 = 3;

/// A GID.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ibv_gid(pub [u8; 16]);

/// A device; more follows that is not looked at.
#[repr(C)]
pub struct ibv_device {
    _ops: [*mut c_void; 2],
    /// `ibv_node_type`.
    pub node_type: c_int,
    /// `ibv_transport_type`.
    pub transport_type: c_int,
}

/// An open device, up to the first table; more follows.
#[repr(C)]
pub struct ibv_context {
    /// The device.
    pub device: *mut ibv_device,
}

/// A protection domain.
#[repr(C)]
pub struct ibv_pd {
    /// Whose it is.
    pub context: *mut ibv_context,
}

/// A queue pair; more follows.
#[repr(C)]
pub struct ibv_qp {
    /// Whose it is.
    pub context: *mut ibv_context,
    _qp_context: *mut c_void,
    /// Its protection domain.
    pub pd: *mut ibv_pd,
    _cqs: [*mut ibv_cq; 2],
    /// Its shared receive queue.
    pub srq: *mut ibv_srq,
    _handle: u32,
    /// Its number.
    pub qp_num: u32,
}

c_types! {
    /// Limits of a device.
    #[derive(Clone, Copy)]
    struct ibv_device_attr as "struct ibv_device_attr" {
        fw_ver: [u8; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: u32,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: u32,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    /// Lengths of a QP's queues.
    #[derive(Clone, Copy)]
    struct ibv_qp_cap as "struct ibv_qp_cap" {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// What to create as a QP.
    #[derive(Clone, Copy)]
    struct ibv_qp_init_attr as "struct ibv_qp_init_attr" {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
    }

    /// What to create as an extended QP.
    #[derive(Clone, Copy)]
    struct ibv_qp_init_attr_ex as "struct ibv_qp_init_attr_ex" {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: [u64; 3],
        source_qpn: u32,
        send_ops_flags: u64,
    }

    /// Lengths of an SRQ.
    #[derive(Clone, Copy)]
    struct ibv_srq_attr as "struct ibv_srq_attr" {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    /// What to create as an SRQ.
    #[derive(Clone, Copy)]
    struct ibv_srq_init_attr as "struct ibv_srq_init_attr" {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    /// What to create as an extended SRQ.
    #[derive(Clone, Copy)]
    struct ibv_srq_init_attr_ex as "struct ibv_srq_init_attr_ex" {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: [u32; 2],
    }

    /// What to open as an XRC domain.
    #[derive(Clone, Copy)]
    struct ibv_xrcd_init_attr as "struct ibv_xrcd_init_attr" {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }

    /// A global route.
    #[derive(Clone, Copy)]
    struct ibv_global_route as "struct ibv_global_route" {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// An address.
    #[derive(Clone, Copy)]
    struct ibv_ah_attr as "struct ibv_ah_attr" {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// Attributes of a QP.
    #[derive(Clone, Copy)]
    struct ibv_qp_attr as "struct ibv_qp_attr" {
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
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
        rate_limit: u32,
    }

    /// Enhanced connection establishment.
    #[derive(Clone, Copy, Default, Debug)]
    struct ibv_ece as "struct ibv_ece" {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    /// A path as the subnet's administrator describes it.
    #[derive(Clone, Copy)]
    struct ibv_sa_path_rec as "struct ibv_sa_path_rec" {
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
