//! Flow rules, their specifications and actions. The library offers flow rules, but no flow
//! actions.

use core::ffi::c_void;

use super::*;
use crate::c_types;

c_types! {
    /// Ethernet fields to match.
    struct ibv_flow_eth_filter {
        dst_mac: [u8; 6],
        src_mac: [u8; 6],
        ether_type: u16,
        vlan_tag: u16,
    }

    /// Ethernet match: values and masks.
    struct ibv_flow_spec_eth {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_eth_filter,
        mask: ibv_flow_eth_filter,
    }

    /// IPv4 fields to match.
    struct ibv_flow_ipv4_filter {
        src_ip: u32,
        dst_ip: u32,
    }

    /// IPv4 match: values and masks.
    struct ibv_flow_spec_ipv4 {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_ipv4_filter,
        mask: ibv_flow_ipv4_filter,
    }

    /// IPv4 with more fields fields to match.
    struct ibv_flow_ipv4_ext_filter {
        src_ip: u32,
        dst_ip: u32,
        proto: u8,
        tos: u8,
        ttl: u8,
        flags: u8,
    }

    /// IPv4 with more fields match: values and masks.
    struct ibv_flow_spec_ipv4_ext {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_ipv4_ext_filter,
        mask: ibv_flow_ipv4_ext_filter,
    }

    /// IPv6 fields to match.
    struct ibv_flow_ipv6_filter {
        src_ip: [u8; 16],
        dst_ip: [u8; 16],
        flow_label: u32,
        next_hdr: u8,
        traffic_class: u8,
        hop_limit: u8,
    }

    /// IPv6 match: values and masks.
    struct ibv_flow_spec_ipv6 {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_ipv6_filter,
        mask: ibv_flow_ipv6_filter,
    }

    /// ESP fields to match.
    struct ibv_flow_esp_filter {
        spi: u32,
        seq: u32,
    }

    /// ESP match: values and masks.
    struct ibv_flow_spec_esp {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_esp_filter,
        mask: ibv_flow_esp_filter,
    }

    /// TCP or UDP fields to match.
    struct ibv_flow_tcp_udp_filter {
        dst_port: u16,
        src_port: u16,
    }

    /// TCP or UDP match: values and masks.
    struct ibv_flow_spec_tcp_udp {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_tcp_udp_filter,
        mask: ibv_flow_tcp_udp_filter,
    }

    /// GRE fields to match.
    struct ibv_flow_gre_filter {
        c_ks_res0_ver: u16,
        protocol: u16,
        key: u32,
    }

    /// GRE match: values and masks.
    struct ibv_flow_spec_gre {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_gre_filter,
        mask: ibv_flow_gre_filter,
    }

    /// MPLS fields to match.
    struct ibv_flow_mpls_filter {
        label: u32,
    }

    /// MPLS match: values and masks.
    struct ibv_flow_spec_mpls {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_mpls_filter,
        mask: ibv_flow_mpls_filter,
    }

    /// VXLAN tunnel fields to match.
    struct ibv_flow_tunnel_filter {
        tunnel_id: u32,
    }

    /// VXLAN tunnel match: values and masks.
    struct ibv_flow_spec_tunnel {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        val: ibv_flow_tunnel_filter,
        mask: ibv_flow_tunnel_filter,
    }

    /// Marks packets.
    struct ibv_flow_spec_action_tag {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        tag_id: u32,
    }

    /// Drops packets.
    struct ibv_flow_spec_action_drop {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
    }

    /// Applies an action.
    struct ibv_flow_spec_action_handle {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        action: *const ibv_flow_action,
    }

    /// Counts packets.
    struct ibv_flow_spec_counter_action {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
        counters: *mut ibv_counters,
    }

    /// The common start of all specifications.
    struct ibv_flow_spec_hdr as "__typeof__(((struct ibv_flow_spec *)0)->hdr)" {
        type_ as "type": ibv_flow_spec_type,
        size: u16,
    }

    /// A flow rule; specifications follow it in memory.
    struct ibv_flow_attr {
        comp_mask: u32,
        type_ as "type": ibv_flow_attr_type,
        size: u16,
        priority: u16,
        num_of_specs: u8,
        port: u8,
        flags: u32,
    }

    /// A flow rule in force.
    object ibv_flow {
        comp_mask: u32,
        context: *mut ibv_context,
        handle: u32,
    }

    /// A flow action.
    object ibv_flow_action {
        context: *mut ibv_context,
    }

    /// What to create as an ESP action.
    struct ibv_flow_action_esp_attr {
        esp_attr: *mut c_void,
        keymat_proto: ibv_flow_action_esp_keymat,
        keymat_len: u16,
        keymat_ptr: *mut c_void,
        replay_proto: ibv_flow_action_esp_replay,
        replay_len: u16,
        replay_ptr: *mut c_void,
        esp_encap: *mut c_void,
        comp_mask: u32,
        esn: u32,
    }
}
