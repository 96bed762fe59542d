//! The private names, by their nodes. Programs call only `ibv_query_gid_type` and
//! `ibv_wr_opcode_str`, and provider libraries call `verbs_register_driver_N` when they are loaded.
//! `libmlx5` and `libefa`, to which perftest and other programs link, need all names to exist.
//!
//! Names occur under several nodes. The newest node is the default version, which `dlsym` finds.

at_nodes! { told ["IBVERBS_PRIVATE_22" "IBVERBS_PRIVATE_25" "IBVERBS_PRIVATE_33" "IBVERBS_PRIVATE_34" "IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    verbs::device: ibv_query_gid_type;
} }

same_target! { ["IBVERBS_PRIVATE_22" "IBVERBS_PRIVATE_25" "IBVERBS_PRIVATE_33" "IBVERBS_PRIVATE_34" "IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    zero: __ioctl_final_num_attrs;
    null: _verbs_init_and_alloc_context verbs_open_device;
    unsupported:
        execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd
        ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq
        ibv_cmd_create_cq_ex ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
        ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
        ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
        ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow
        ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq
        ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq
        ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
        ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv
        ibv_cmd_post_send ibv_cmd_post_srq_recv ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq
        ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_mr ibv_cmd_req_notify_cq ibv_cmd_rereg_mr
        ibv_cmd_resize_cq;
    nothing: verbs_init_cq verbs_set_ops verbs_uninit_context;
} }

same_target! { ["IBVERBS_PRIVATE_25" "IBVERBS_PRIVATE_33" "IBVERBS_PRIVATE_34" "IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    unsupported: ibv_cmd_query_context ibv_cmd_query_mr;
    minus_one: ibv_read_ibdev_sysfs_file;
} }

same_target! { ["IBVERBS_PRIVATE_33" "IBVERBS_PRIVATE_34" "IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    unsupported: ibv_cmd_query_device_any;
} }

at_nodes! { told ["IBVERBS_PRIVATE_34" "IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    pure::strings: ibv_wr_opcode_str;
} }

same_target! { ["IBVERBS_PRIVATE_34" "IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    nothing: __verbs_log;
    unsupported: ibv_cmd_create_cq_ex2 ibv_cmd_reg_dmabuf_mr;
} }

same_target! { ["IBVERBS_PRIVATE_22" "IBVERBS_PRIVATE_25" "IBVERBS_PRIVATE_33"; "IBVERBS_PRIVATE_34"] {
    unsupported: ibv_cmd_query_device;
} }

same_target! { ["IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    unsupported:
        ibv_cmd_alloc_dmah ibv_cmd_export_dmabuf_fd ibv_cmd_free_dmah ibv_cmd_query_port_speed
        ibv_cmd_reg_mr_ex;
} }

same_target! { ["IBVERBS_PRIVATE_22"; "IBVERBS_PRIVATE_25"] {
    unsupported: ibv_cmd_query_device_ex;
} }

same_target! { ["IBVERBS_PRIVATE_64"; "IBVERBS_PRIVATE_65"] {
    null: ibv_dmabuf_heap_alloc;
    unsupported: ibv_dmabuf_heap_cc_shared_init;
    nothing: ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free;
} }

same_target! { [; "IBVERBS_PRIVATE_25"] {
    minus_one: ibv_get_fw_ver;
} }

same_target! { [; "IBVERBS_PRIVATE_65"] {
    unsupported:
        ibv_cmd_create_comp_cntr ibv_cmd_destroy_comp_cntr ibv_cmd_inc_comp_cntr ibv_cmd_inc_err_comp_cntr
        ibv_cmd_qp_attach_comp_cntr ibv_cmd_query_comp_cntr_caps ibv_cmd_read_comp_cntr
        ibv_cmd_read_err_comp_cntr ibv_cmd_set_comp_cntr ibv_cmd_set_err_comp_cntr;
} }

trampoline!("verbs_register_driver_22", "IBVERBS_PRIVATE_22", "@@", super::private::nothing);
trampoline!("verbs_register_driver_25", "IBVERBS_PRIVATE_25", "@@", super::private::nothing);
trampoline!("verbs_register_driver_33", "IBVERBS_PRIVATE_33", "@@", super::private::nothing);
trampoline!("verbs_register_driver_34", "IBVERBS_PRIVATE_34", "@@", super::private::nothing);
trampoline!("verbs_register_driver_57", "IBVERBS_PRIVATE_57", "@@", super::private::nothing);
trampoline!("verbs_register_driver_59", "IBVERBS_PRIVATE_59", "@@", super::private::nothing);
trampoline!("verbs_register_driver_64", "IBVERBS_PRIVATE_64", "@@", super::private::nothing);
trampoline!("verbs_register_driver_65", "IBVERBS_PRIVATE_65", "@@", super::private::nothing);

/// Defines the only data object of the private nodes: a C `bool` that providers set.
macro_rules! data_object {
    ($($node:literal $at:literal)*) => {
        core::arch::global_asm!(
            ".pushsection .bss.adverb_exports,\"aw\",@nobits",
            $(
                concat!(".globl __v_data_at_", $node),
                concat!(".type __v_data_at_", $node, ",@object"),
                concat!("__v_data_at_", $node, ":"),
            )*
            ".zero 1",
            $(
                concat!(".size __v_data_at_", $node, ", 1"),
                concat!(".symver __v_data_at_", $node, ", verbs_allow_disassociate_destroy", $at, $node, ", remove"),
            )*
            ".popsection",
        );
    };
}

data_object! {
    "IBVERBS_PRIVATE_22" "@" "IBVERBS_PRIVATE_25" "@" "IBVERBS_PRIVATE_33" "@" "IBVERBS_PRIVATE_34" "@"
    "IBVERBS_PRIVATE_57" "@" "IBVERBS_PRIVATE_59" "@" "IBVERBS_PRIVATE_64" "@" "IBVERBS_PRIVATE_65" "@@"
}
