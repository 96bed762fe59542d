//! The function tables of a context.

use super::*;
use crate::abi::*;

/// The table inside every `ibv_context`. Programs call its data path functions without a null
/// check.
pub fn context_ops() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: Some(device::ibv_query_device),
        _compat_query_port: Some(device::ibv_query_port),
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
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
    let mut table = verbs_context {
        free_buf: Some(mr::ibv_free_buf),
        alloc_buf: Some(mr::ibv_alloc_buf),
        dm_export_dmabuf_fd: Some(dmabuf::ibv_dm_export_dmabuf_fd),
        reg_mr_ex: Some(mr::ibv_reg_mr_ex),
        dealloc_dmah: Some(dmah::ibv_dealloc_dmah),
        alloc_dmah: Some(dmah::ibv_alloc_dmah),
        query_port: Some(device::query_port),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        read_counters: Some(flow::read_counters),
        attach_counters_point_flow: Some(flow::attach_counters_point_flow),
        create_counters: Some(flow::create_counters),
        destroy_counters: Some(flow::destroy_counters),
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        modify_flow_action_esp: Some(flow::modify_flow_action_esp),
        destroy_flow_action: Some(flow::destroy_flow_action),
        create_flow_action_esp: Some(flow::create_flow_action_esp),
        modify_qp_rate_limit: Some(qp::modify_qp_rate_limit),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: Some(tags::post_srq_ops),
        destroy_rwq_ind_table: Some(wq::destroy_rwq_ind_table),
        create_rwq_ind_table: Some(wq::create_rwq_ind_table),
        destroy_wq: Some(wq::destroy_wq),
        modify_wq: Some(wq::modify_wq),
        create_wq: Some(wq::create_wq),
        query_rt_values: Some(device::query_rt_values),
        create_cq_ex: Some(cq::create_cq_ex),
        priv_: core::ptr::null_mut(),
        query_device_ex: Some(device::query_device_ex),
        ibv_destroy_flow: Some(flow::destroy_flow),
        ABI_placeholder2: Some(flow::destroy_flow),
        ibv_create_flow: Some(flow::create_flow),
        ABI_placeholder1: Some(flow::create_flow),
        open_qp: Some(qp::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrcd::open_xrcd),
        close_xrcd: Some(xrcd::close_xrcd),
        _ABI_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context,
    };
    observers::control::replace(&mut table);
    table
}
