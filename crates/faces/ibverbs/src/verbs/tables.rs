//! The function tables of a context. The functions of the data path stand in the tables themselves.
//! Stubs stand for all other functions ([`observers::control`]).

use super::observers::control::stub;
use super::*;
use crate::abi::*;

/// The table inside every `ibv_context`. Programs call its data path functions without a null
/// check.
pub fn context_ops() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: stub!(attributes::ibv_query_device as "ibv_query_device"),
        _compat_query_port: stub!(port::ibv_query_port as "ibv_query_port"),
        alloc_mw: stub!(mw::alloc_mw as "ibv_alloc_mw"),
        bind_mw: stub!(mw::bind_mw as "ibv_bind_mw"),
        dealloc_mw: stub!(mw::dealloc_mw as "ibv_dealloc_mw"),
        poll_cq: Some(poll::poll_cq),
        req_notify_cq: Some(notify::req_notify_cq),
        post_srq_recv: Some(post::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..ibv_context_ops::zeroed()
    }
}

/// A context with both tables filled. The caller sets device, descriptors, vectors and mutex.
pub fn verbs_context() -> verbs_context {
    let mut context = ibv_context::zeroed();
    context.ops = context_ops();
    observers::table::replace(&mut context.ops);
    context.abi_compat = ABI_IS_EXTENDED;
    verbs_context {
        free_buf: stub!(buf::ibv_free_buf as "ibv_free_buf"),
        alloc_buf: stub!(buf::ibv_alloc_buf as "ibv_alloc_buf"),
        dm_export_dmabuf_fd: stub!(dmabuf::ibv_dm_export_dmabuf_fd as "ibv_dm_export_dmabuf_fd"),
        reg_mr_ex: stub!(mr::ibv_reg_mr_ex as "ibv_reg_mr_ex"),
        dealloc_dmah: stub!(dmah::ibv_dealloc_dmah as "ibv_dealloc_dmah"),
        alloc_dmah: stub!(dmah::ibv_alloc_dmah as "ibv_alloc_dmah"),
        query_port: stub!(port::query_port as "ibv_query_port"),
        advise_mr: stub!(mr::advise_mr as "ibv_advise_mr"),
        alloc_null_mr: stub!(mr::alloc_null_mr as "ibv_alloc_null_mr"),
        read_counters: stub!(flow::read_counters as "ibv_read_counters"),
        attach_counters_point_flow: stub!(flow::attach_counters_point_flow as "ibv_attach_counters_point_flow"),
        create_counters: stub!(flow::create_counters as "ibv_create_counters"),
        destroy_counters: stub!(flow::destroy_counters as "ibv_destroy_counters"),
        reg_dm_mr: stub!(dm::reg_dm_mr as "ibv_reg_dm_mr"),
        alloc_dm: stub!(dm::alloc_dm as "ibv_alloc_dm"),
        free_dm: stub!(dm::free_dm as "ibv_free_dm"),
        modify_flow_action_esp: stub!(flow::modify_flow_action_esp as "ibv_modify_flow_action_esp"),
        destroy_flow_action: stub!(flow::destroy_flow_action as "ibv_destroy_flow_action"),
        create_flow_action_esp: stub!(flow::create_flow_action_esp as "ibv_create_flow_action_esp"),
        modify_qp_rate_limit: stub!(qp::modify_qp_rate_limit as "ibv_modify_qp_rate_limit"),
        alloc_parent_domain: stub!(pd::alloc_parent_domain as "ibv_alloc_parent_domain"),
        dealloc_td: stub!(pd::dealloc_td as "ibv_dealloc_td"),
        alloc_td: stub!(pd::alloc_td as "ibv_alloc_td"),
        modify_cq: stub!(cq::modify_cq as "ibv_modify_cq"),
        post_srq_ops: stub!(tags::post_srq_ops as "ibv_post_srq_ops"),
        destroy_rwq_ind_table: stub!(wq::destroy_rwq_ind_table as "ibv_destroy_rwq_ind_table"),
        create_rwq_ind_table: stub!(wq::create_rwq_ind_table as "ibv_create_rwq_ind_table"),
        destroy_wq: stub!(wq::destroy_wq as "ibv_destroy_wq"),
        modify_wq: stub!(wq::modify_wq as "ibv_modify_wq"),
        create_wq: stub!(wq::create_wq as "ibv_create_wq"),
        query_rt_values: stub!(attributes::query_rt_values as "ibv_query_rt_values_ex"),
        create_cq_ex: stub!(cq::create_cq_ex as "ibv_create_cq_ex"),
        priv_: core::ptr::null_mut(),
        query_device_ex: stub!(attributes::query_device_ex as "ibv_query_device_ex"),
        ibv_destroy_flow: stub!(flow::destroy_flow as "ibv_destroy_flow"),
        ABI_placeholder2: stub!(flow::destroy_flow as "ibv_destroy_flow"),
        ibv_create_flow: stub!(flow::create_flow as "ibv_create_flow"),
        ABI_placeholder1: stub!(flow::create_flow as "ibv_create_flow"),
        open_qp: stub!(qp::open_qp as "ibv_open_qp"),
        create_qp_ex: stub!(qp::create_qp_ex as "ibv_create_qp_ex"),
        get_srq_num: stub!(srq::get_srq_num as "ibv_get_srq_num"),
        create_srq_ex: stub!(srq::create_srq_ex as "ibv_create_srq_ex"),
        open_xrcd: stub!(xrcd::open_xrcd as "ibv_open_xrcd"),
        close_xrcd: stub!(xrcd::close_xrcd as "ibv_close_xrcd"),
        _ABI_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}
