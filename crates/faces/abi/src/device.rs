//! Devices, their attributes, ports and GIDs.

use core::ffi::{c_char, c_int, c_void};

use super::constants::*;
use crate::c_types;

c_types! {
    /// A GID's two halves, in network byte order.
    struct ibv_gid_global as "__typeof__(((union ibv_gid *)0)->global)" {
        subnet_prefix: u64,
        interface_id: u64,
    }

    /// A GID.
    union ibv_gid {
        raw: [u8; 16],
        global: ibv_gid_global,
    }

    /// One row of a GID table.
    struct ibv_gid_entry {
        gid: ibv_gid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    /// Two unused pointers at the start of a device.
    struct _ibv_device_ops {
        _dummy1: *mut c_void,
        _dummy2: *mut c_void,
    }

    /// A device as programs see it. Provider libraries read the word behind the device.
    struct ibv_device {
        _ops: _ibv_device_ops,
        node_type: ibv_node_type,
        transport_type: ibv_transport_type,
        /// Name of the RDMA device.
        name: [c_char; IBV_SYSFS_NAME_MAX],
        /// Name of the character device, such as `uverbs0`.
        dev_name: [c_char; IBV_SYSFS_NAME_MAX],
        /// Directory of the character device in sysfs.
        dev_path: [c_char; IBV_SYSFS_PATH_MAX],
        /// Directory of the RDMA device in sysfs.
        ibdev_path: [c_char; IBV_SYSFS_PATH_MAX],
    }

    /// Device attributes.
    struct ibv_device_attr {
        fw_ver: [c_char; 64],
        /// Network byte order.
        node_guid: u64,
        /// Network byte order.
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
        atomic_cap: ibv_atomic_cap,
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

    /// Input of `ibv_query_device_ex`.
    struct ibv_query_device_ex_input {
        comp_mask: u32,
    }

    /// On-demand paging support by transport.
    struct ibv_odp_transport_caps as "__typeof__(((struct ibv_odp_caps *)0)->per_transport_caps)" {
        rc_odp_caps: u32,
        uc_odp_caps: u32,
        ud_odp_caps: u32,
    }

    /// On-demand paging support.
    struct ibv_odp_caps {
        general_caps: u64,
        per_transport_caps: ibv_odp_transport_caps,
    }

    /// TCP segmentation offload.
    struct ibv_tso_caps {
        max_tso: u32,
        supported_qpts: u32,
    }

    /// Receive side scaling.
    struct ibv_rss_caps {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
    }

    /// Packet pacing, rates in kb/s.
    struct ibv_packet_pacing_caps {
        qp_rate_limit_min: u32,
        qp_rate_limit_max: u32,
        supported_qpts: u32,
    }

    /// Tag matching.
    struct ibv_tm_caps {
        max_rndv_hdr_size: u32,
        max_num_tags: u32,
        flags: u32,
        max_ops: u32,
        max_sge: u32,
    }

    /// Completion moderation; the period in microseconds.
    struct ibv_cq_moderation_caps {
        max_cq_count: u16,
        max_cq_period: u16,
    }

    /// PCI atomics, masks of operand sizes.
    struct ibv_pci_atomic_caps {
        fetch_add: u16,
        swap: u16,
        compare_swap: u16,
    }

    /// Extended device attributes.
    struct ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        completion_timestamp_mask: u64,
        /// kHz.
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: ibv_tso_caps,
        rss_caps: ibv_rss_caps,
        max_wq_type_rq: u32,
        packet_pacing_caps: ibv_packet_pacing_caps,
        raw_packet_caps: u32,
        tm_caps: ibv_tm_caps,
        cq_mod_caps: ibv_cq_moderation_caps,
        max_dm_size: u64,
        pci_atomic_caps: ibv_pci_atomic_caps,
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }

    /// Port attributes.
    struct ibv_port_attr {
        state: ibv_port_state,
        max_mtu: ibv_mtu,
        active_mtu: ibv_mtu,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
        active_speed_ex: u32,
    }
}

/// What `ibv_query_port@IBVERBS_1.1` may write: [`ibv_port_attr`] up to and with `flags`, padded,
/// in bytes.
pub const COMPAT_PORT_ATTR_SIZE: usize = 48;

impl ibv_gid {
    /// The sixteen bytes of the GID, in network order.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 16] {
        // SAFETY: any bytes are a valid value of both fields, and both fields are as long as the
        // union.
        unsafe { self.raw }
    }
}

impl core::fmt::Debug for ibv_gid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ibv_gid").field(&self.bytes()).finish()
    }
}
