//! Constants of flow steering, work queues, counters and tag matching.

use crate::c_enums;

c_enums! {
    /// Receive hash functions.
    ibv_rx_hash_function_flags: u8 {
        IBV_RX_HASH_FUNC_TOEPLITZ = 1 << 0,
    }

    /// Packet fields a receive hash can cover.
    ibv_rx_hash_fields: u64 {
        IBV_RX_HASH_SRC_IPV4 = 1 << 0,
        IBV_RX_HASH_DST_IPV4 = 1 << 1,
        IBV_RX_HASH_SRC_IPV6 = 1 << 2,
        IBV_RX_HASH_DST_IPV6 = 1 << 3,
        IBV_RX_HASH_SRC_PORT_TCP = 1 << 4,
        IBV_RX_HASH_DST_PORT_TCP = 1 << 5,
        IBV_RX_HASH_SRC_PORT_UDP = 1 << 6,
        IBV_RX_HASH_DST_PORT_UDP = 1 << 7,
        IBV_RX_HASH_IPSEC_SPI = 1 << 8,
        IBV_RX_HASH_INNER = 1 << 31,
    }

    /// Raw packet offloads.
    ibv_raw_packet_caps: u32 {
        IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0,
        IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1,
        IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2,
        IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3,
    }

    /// Tag matching support.
    ibv_tm_cap_flags: u32 {
        IBV_TM_CAP_RC = 1 << 0,
    }

    /// Work queue types.
    ibv_wq_type: u32 {
        IBV_WQT_RQ = 0,
    }

    /// `ibv_wq_init_attr::comp_mask`.
    ibv_wq_init_attr_mask: u32 {
        IBV_WQ_INIT_ATTR_FLAGS = 1 << 0,
        IBV_WQ_INIT_ATTR_RESERVED = 1 << 1,
    }

    /// Work queue creation flags.
    ibv_wq_flags: u32 {
        IBV_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0,
        IBV_WQ_FLAGS_SCATTER_FCS = 1 << 1,
        IBV_WQ_FLAGS_DELAY_DROP = 1 << 2,
        IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3,
        IBV_WQ_FLAGS_RESERVED = 1 << 4,
    }

    /// Work queue states.
    ibv_wq_state: u32 {
        IBV_WQS_RESET = 0,
        IBV_WQS_RDY = 1,
        IBV_WQS_ERR = 2,
        IBV_WQS_UNKNOWN = 3,
    }

    /// `ibv_wq_attr::attr_mask`.
    ibv_wq_attr_mask: u32 {
        IBV_WQ_ATTR_STATE = 1 << 0,
        IBV_WQ_ATTR_CURR_STATE = 1 << 1,
        IBV_WQ_ATTR_FLAGS = 1 << 2,
        IBV_WQ_ATTR_RESERVED = 1 << 3,
    }

    /// `ibv_rwq_ind_table_init_attr::comp_mask`.
    ibv_ind_table_init_attr_mask: u32 {
        IBV_CREATE_IND_TABLE_RESERVED = 1 << 0,
    }

    /// `ibv_qp_init_attr_ex::send_ops_flags`.
    ibv_qp_create_send_ops_flags: u64 {
        IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
        IBV_QP_EX_WITH_SEND = 1 << 2,
        IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
        IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
        IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
        IBV_QP_EX_WITH_BIND_MW = 1 << 8,
        IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
        IBV_QP_EX_WITH_TSO = 1 << 10,
        IBV_QP_EX_WITH_FLUSH = 1 << 11,
        IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
    }

    /// Tag matching list operations.
    ibv_ops_wr_opcode: u32 {
        IBV_WR_TAG_ADD = 0,
        IBV_WR_TAG_DEL = 1,
        IBV_WR_TAG_SYNC = 2,
    }

    /// Flags of a list operation.
    ibv_ops_flags: u32 {
        IBV_OPS_SIGNALED = 1 << 0,
        IBV_OPS_TM_SYNC = 1 << 1,
    }

    /// Flow rule flags.
    ibv_flow_flags: u32 {
        IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1,
        IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
    }

    /// Flow rule types.
    ibv_flow_attr_type: u32 {
        IBV_FLOW_ATTR_NORMAL = 0,
        IBV_FLOW_ATTR_ALL_DEFAULT = 1,
        IBV_FLOW_ATTR_MC_DEFAULT = 2,
        IBV_FLOW_ATTR_SNIFFER = 3,
    }

    /// Flow specification types.
    ibv_flow_spec_type: u32 {
        IBV_FLOW_SPEC_ETH = 32,
        IBV_FLOW_SPEC_IPV4 = 48,
        IBV_FLOW_SPEC_IPV6 = 49,
        IBV_FLOW_SPEC_IPV4_EXT = 50,
        IBV_FLOW_SPEC_ESP = 52,
        IBV_FLOW_SPEC_TCP = 64,
        IBV_FLOW_SPEC_UDP = 65,
        IBV_FLOW_SPEC_VXLAN_TUNNEL = 80,
        IBV_FLOW_SPEC_GRE = 81,
        IBV_FLOW_SPEC_MPLS = 96,
        IBV_FLOW_SPEC_INNER = 256,
        IBV_FLOW_SPEC_ACTION_TAG = 4096,
        IBV_FLOW_SPEC_ACTION_DROP = 4097,
        IBV_FLOW_SPEC_ACTION_HANDLE = 4098,
        IBV_FLOW_SPEC_ACTION_COUNT = 4099,
    }

    /// `ibv_flow_action_esp_attr::comp_mask`.
    ibv_flow_action_esp_mask: u32 {
        IBV_FLOW_ACTION_ESP_MASK_ESN = 1 << 0,
    }

    /// Operations a completion counter counts.
    ibv_qp_attach_comp_cntr_op: u32 {
        IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1 << 0,
        IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1,
        IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2,
        IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3,
        IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4,
        IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5,
    }

    /// Completion counter types.
    ibv_comp_cntr_type: u32 {
        IBV_COMP_CNTR_TYPE_WRS = 0,
        IBV_COMP_CNTR_TYPE_BYTES = 1,
    }

    /// Flow counter kinds.
    ibv_counter_description: u32 {
        IBV_COUNTER_PACKETS = 0,
        IBV_COUNTER_BYTES = 1,
    }

    /// Flags of `ibv_read_counters`.
    ibv_read_counters_flags: u32 {
        IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0,
    }

    /// ESP key material.
    ibv_flow_action_esp_keymat: u32 {
        IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM = 0,
    }

    /// ESP replay protection.
    ibv_flow_action_esp_replay: u32 {
        IBV_FLOW_ACTION_ESP_REPLAY_NONE = 0,
        IBV_FLOW_ACTION_ESP_REPLAY_BMP = 1,
    }
}
