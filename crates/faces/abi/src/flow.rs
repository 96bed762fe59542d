//! Flow rules, their specifications and actions. The library offers flow rules, but no flow
//! actions.

use core::ffi::c_void;

use super::*;
use crate::c_types;

/// Defines filters with their fields, each with a specification that has values and masks of the
/// filter. Then other types, as [`c_types!`] does.
macro_rules! types_with_filters {
    (
        { $($what:literal $filter:ident $spec:ident { $($field:ident: $ty:ty),* })* }
        $($rest:tt)*
    ) => {
        c_types! {
            $(
                #[doc = concat!($what, " fields to match.")]
                struct $filter { $($field: $ty),* }

                #[doc = concat!($what, " match: values and masks.")]
                struct $spec {
                    type_ as "type": ibv_flow_spec_type,
                    size: u16,
                    val: $filter,
                    mask: $filter,
                }
            )*
            $($rest)*
        }
    };
}

types_with_filters! {
    {
        "Ethernet" ibv_flow_eth_filter ibv_flow_spec_eth {
            dst_mac: [u8; 6], src_mac: [u8; 6], ether_type: u16, vlan_tag: u16
        }
        "IPv4" ibv_flow_ipv4_filter ibv_flow_spec_ipv4 { src_ip: u32, dst_ip: u32 }
        "IPv4 with more fields" ibv_flow_ipv4_ext_filter ibv_flow_spec_ipv4_ext {
            src_ip: u32, dst_ip: u32, proto: u8, tos: u8, ttl: u8, flags: u8
        }
        "IPv6" ibv_flow_ipv6_filter ibv_flow_spec_ipv6 {
            src_ip: [u8; 16], dst_ip: [u8; 16], flow_label: u32, next_hdr: u8, traffic_class: u8,
            hop_limit: u8
        }
        "ESP" ibv_flow_esp_filter ibv_flow_spec_esp { spi: u32, seq: u32 }
        "TCP or UDP" ibv_flow_tcp_udp_filter ibv_flow_spec_tcp_udp { dst_port: u16, src_port: u16 }
        "GRE" ibv_flow_gre_filter ibv_flow_spec_gre { c_ks_res0_ver: u16, protocol: u16, key: u32 }
        "MPLS" ibv_flow_mpls_filter ibv_flow_spec_mpls { label: u32 }
        "VXLAN tunnel" ibv_flow_tunnel_filter ibv_flow_spec_tunnel { tunnel_id: u32 }
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
