//! The public names, node by node.

at_nodes! { told ["IBVERBS_1.0"] "@@" {
    pure::marshal: ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern;
    pure::rate: ibv_rate_to_mult mult_to_ibv_rate;
    pure::sysfs: ibv_get_sysfs_path ibv_read_sysfs_file;
    verbs::comp_channel: ibv_create_comp_channel ibv_destroy_comp_channel;
} }

at_nodes! { told ["IBVERBS_1.1"] "@@" {
    pure::fork: ibv_dofork_range ibv_dontfork_range ibv_fork_init;
    pure::marshal: ibv_copy_ah_attr_from_kern;
    pure::rate: ibv_rate_to_mbps mbps_to_ibv_rate;
    pure::strings: ibv_event_type_str ibv_node_type_str ibv_port_state_str ibv_wc_status_str;
    verbs::ah:
        ibv_create_ah ibv_create_ah_from_wc ibv_destroy_ah ibv_init_ah_from_wc
        ibv_resolve_eth_l2_from_gid;
    verbs::async_event: ibv_ack_async_event;
    verbs::comp_channel: ibv_ack_cq_events;
    verbs::cq: ibv_create_cq ibv_destroy_cq ibv_resize_cq;
    verbs::device:
        ibv_close_device ibv_free_device_list ibv_get_device_guid ibv_get_device_list
        ibv_get_device_name ibv_open_device ibv_query_device ibv_query_gid ibv_query_pkey ibv_query_port;
    verbs::mr: ibv_dereg_mr ibv_reg_mr ibv_rereg_mr;
    verbs::pd: ibv_alloc_pd ibv_dealloc_pd;
    verbs::qp:
        ibv_attach_mcast ibv_create_qp ibv_destroy_qp ibv_detach_mcast ibv_modify_qp ibv_query_qp;
    verbs::srq: ibv_create_srq ibv_destroy_srq ibv_modify_srq ibv_query_srq;
} }

// The waiting calls. A thread can be cancelled while it waits. These functions read their return
// addresses, and call the instruments themselves.
at_nodes! { ["IBVERBS_1.1"] "@@" {
    verbs::async_event: ibv_get_async_event;
    verbs::comp_channel: ibv_get_cq_event;
} }

at_nodes! { told ["IBVERBS_1.5"] "@@" {
    verbs::device: ibv_get_pkey_index;
} }

at_nodes! { told ["IBVERBS_1.6"] "@@" {
    verbs::qp: ibv_qp_to_qp_ex;
} }

at_nodes! { told ["IBVERBS_1.7"] "@@" {
    verbs::mr: ibv_reg_mr_iova;
} }

at_nodes! { told ["IBVERBS_1.8"] "@@" {
    verbs::mr: ibv_reg_mr_iova2;
} }

at_nodes! { told ["IBVERBS_1.9"] "@@" {
    verbs::device: ibv_get_device_index;
} }

at_nodes! { told ["IBVERBS_1.10"] "@@" {
    verbs::import: ibv_import_device ibv_import_mr ibv_import_pd ibv_unimport_mr ibv_unimport_pd;
    verbs::qp: ibv_query_ece ibv_set_ece;
} }

at_nodes! { told ["IBVERBS_1.11"] "@@" {
    verbs::device: _ibv_query_gid_ex _ibv_query_gid_table;
} }

at_nodes! { told ["IBVERBS_1.12"] "@@" {
    verbs::dmabuf: ibv_reg_dmabuf_mr;
} }

at_nodes! { told ["IBVERBS_1.13"] "@@" {
    pure::fork: ibv_is_fork_initialized;
    verbs::import: ibv_import_dm ibv_unimport_dm;
} }

at_nodes! { told ["IBVERBS_1.14"] "@@" {
    verbs::qp: ibv_query_qp_data_in_order;
} }

at_nodes! { told ["IBVERBS_1.15"] "@@" {
    verbs::dmah: ibv_alloc_dmah ibv_dealloc_dmah;
    verbs::mr: ibv_reg_mr_ex;
} }

at_nodes! { told ["IBVERBS_1.16"] "@@" {
    verbs::device: ibv_query_port_speed;
    verbs::dmabuf: ibv_dm_export_dmabuf_fd;
} }

at_nodes! { told ["IBVERBS_1.17"] "@@" {
    verbs::mr: ibv_alloc_buf ibv_free_buf ibv_reg_buf_mr;
} }

at_nodes! { told ["IBVERBS_1.18"] "@@" {
    verbs::comp_cntr:
        _ibv_query_comp_cntr_caps ibv_create_comp_cntr ibv_destroy_comp_cntr ibv_inc_comp_cntr
        ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr
        ibv_set_comp_cntr ibv_set_err_comp_cntr;
    verbs::mr: ibv_export_buf_dmabuf_fd;
} }

// An empty function that an old provider of libfabric binds to.
at_nodes! { ["IBVERBS_1.1"] "@@" {
    exports::private: ibv_register_driver;
} }

at_nodes! { ["ADVERB_1.0"] "@@" {
    verbs::extensions: adverb_disarm_cq adverb_notify_cq adverb_overlooked adverb_peek_cq;
} }

at_nodes! { ["ADVERB_PRIVATE"] "@@" {
    verbs::ucma: adverb_ucma_close adverb_ucma_event_acknowledged adverb_ucma_event_at adverb_ucma_event_read
        adverb_ucma_event_taken adverb_ucma_events_awaited adverb_ucma_open adverb_ucma_perform adverb_ucma_write;
} }
