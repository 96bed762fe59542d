//! Every call, with objects that it has to refuse.
use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, null, null_mut};

use super::rig::*;
use ibverbs::abi::*;
use ibverbs::verbs::{
    ah, async_event, attributes, buf, comp_channel, cq, device, dm, dmabuf, dmah, extensions, flow,
    import, mr, mw, pd, port, qp, srq, tags, wq, xrcd,
};
use libc::EINVAL;

/// Every verb that takes an object of its own, on objects of whatever kind: all refuse.
pub fn every_verb_refuses(o: &Objects, memory: *mut c_void) {
    let at = memory as u64;
    unsafe {
        // Domains.
        let pds = [o.pd, o.parent];
        for dead in pds {
            pointer(|| mr::ibv_reg_mr(dead, memory, 8, RW));
            pointer(|| mr::ibv_reg_mr_iova(dead, memory, 8, at, RW));
            pointer(|| mr::ibv_reg_mr_iova2(dead, memory, 8, at, RW as u32));
            pointer(|| dmabuf::ibv_reg_dmabuf_mr(dead, 0, 8, 0, 0, RW));
            let mut attr = ibv_mr_init_attr::zeroed();
            (attr.comp_mask, attr.addr, attr.length) = (IBV_REG_MR_MASK_ADDR, memory, 8);
            pointer(|| mr::ibv_reg_mr_ex(dead, &raw mut attr));
            pointer(|| mr::alloc_null_mr(dead));
            pointer(|| mw::alloc_mw(dead, IBV_MW_TYPE_1));
            pointer(|| srq_of(dead));
            pointer(|| ah::ibv_create_ah(dead, from_mut(&mut ibv_ah_attr::zeroed())));
            let (mut wc, mut grh) = (ibv_wc::zeroed(), ibv_grh::zeroed());
            pointer(|| ah::ibv_create_ah_from_wc(dead, &raw mut wc, &raw mut grh, PORT));
            pointer(|| plain_qp(dead, o.cq));
            pointer(|| import::ibv_import_mr(dead, 1));
            let mut buf = null_mut();
            pointer(|| buf::ibv_alloc_buf(dead, 8, &raw mut buf));
            pointer(|| buf::ibv_reg_buf_mr(dead, o.buf, memory, 8, RW));
            pointer(|| dm::reg_dm_mr(dead, o.dm, 0, 8, IBV_ACCESS_ZERO_BASED));
            let mut sge = ibv_sge { addr: at, length: 8, lkey: 0 };
            code(EINVAL, || mr::advise_mr(dead, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &raw mut sge, 1));
        }
        // Regions, windows, device memory, buffers.
        set_errno(0);
        let flags = IBV_REREG_MR_CHANGE_TRANSLATION as c_int;
        let rereg = mr::ibv_rereg_mr(o.mr, flags, null_mut(), memory, 8, 0);
        assert_eq!((rereg, errno()), (IBV_REREG_MR_ERR_INPUT, EINVAL));
        code(EINVAL, || mw::bind_mw(o.qp, o.mw, from_mut(&mut ibv_mw_bind::zeroed())));
        code(EINVAL, || dm::memcpy_to_dm(o.dm, 0, memory, 8));
        code(EINVAL, || dm::memcpy_from_dm(memory, o.dm, 0, 8));
        negative(-1, || dmabuf::ibv_dm_export_dmabuf_fd(o.dm));
        negative(-1, || buf::ibv_export_buf_dmabuf_fd(o.buf));
        // Channels and completion queues.
        let (mut found, mut cookie) = (null_mut(), null_mut());
        negative(-1, || comp_channel::ibv_get_cq_event(o.channel, &raw mut found, &raw mut cookie));
        negative(-EINVAL, || extensions::adverb_overlooked(o.channel));
        for dead in [o.cq, o.cq_ex.cast()] {
            code(EINVAL, || cq::ibv_resize_cq(dead, 8));
            code(EINVAL, || cq::modify_cq(dead, from_mut(&mut ibv_modify_cq_attr::zeroed())));
            silent(|| comp_channel::ibv_ack_cq_events(dead, 1));
            negative(-EINVAL, || {
                extensions::adverb_peek_cq(dead, 1, from_mut(&mut ibv_wc::zeroed()))
            });
            code(EINVAL, || extensions::adverb_disarm_cq(dead));
            code(EINVAL, || extensions::adverb_notify_cq(dead, 0, 0));
        }
        // Shared receive queues.
        let mut attr = ibv_srq_attr::zeroed();
        code(EINVAL, || srq::ibv_query_srq(o.srq, &raw mut attr));
        code(EINVAL, || srq::ibv_modify_srq(o.srq, &raw mut attr, IBV_SRQ_LIMIT as c_int));
        let mut number = 0;
        code(EINVAL, || srq::get_srq_num(o.srq, &raw mut number));
        let mut bad = null_mut();
        code(EINVAL, || tags::post_srq_ops(o.srq, null_mut(), &raw mut bad));
        // Queue pairs.
        for dead in [o.qp, o.qp_ex.cast()] {
            let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
            code(EINVAL, || qp::ibv_modify_qp(dead, &raw mut attr, IBV_QP_STATE as c_int));
            code(EINVAL, || qp::ibv_query_qp(dead, &raw mut attr, 0, &raw mut init));
            pointer(|| qp::ibv_qp_to_qp_ex(dead));
            code(EINVAL, || qp::ibv_attach_mcast(dead, null(), 0));
            code(EINVAL, || qp::ibv_detach_mcast(dead, null(), 0));
            let mut ece = ibv_ece::zeroed();
            code(EINVAL, || qp::ibv_set_ece(dead, &raw mut ece));
            code(EINVAL, || qp::ibv_query_ece(dead, &raw mut ece));
            set_errno(0);
            assert_eq!((qp::ibv_query_qp_data_in_order(dead, 0, 0), errno()), (0, EINVAL));
            code(EINVAL, || qp::modify_qp_rate_limit(dead, null_mut()));
            pointer(|| flow::create_flow(dead, null_mut()));
        }
    }
}

/// The calls that the header's inline functions make through the tables of a destroyed object's
/// context.
pub fn every_inline_call_refuses(o: &Objects) {
    unsafe {
        for dead in [o.qp, o.qp_ex.cast()] {
            let ops = (*(*dead).context).ops;
            let (mut wr, mut bad) = (ibv_send_wr::zeroed(), null_mut());
            code(EINVAL, || ops.post_send.unwrap()(dead, &raw mut wr, &raw mut bad));
            assert_eq!(bad, &raw mut wr, "the first request is named");
            let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), null_mut());
            code(EINVAL, || ops.post_recv.unwrap()(dead, &raw mut wr, &raw mut bad));
            assert_eq!(bad, &raw mut wr, "the first request is named");
            code(EINVAL, || ops.bind_mw.unwrap()(dead, o.mw, from_mut(&mut ibv_mw_bind::zeroed())));
        }
        let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), null_mut());
        let ops = (*(*o.srq).context).ops;
        code(EINVAL, || ops.post_srq_recv.unwrap()(o.srq, &raw mut wr, &raw mut bad));
        assert_eq!(bad, &raw mut wr, "the first request is named");
        for dead in [o.cq, o.cq_ex.cast()] {
            let ops = (*(*dead).context).ops;
            negative(-EINVAL, || ops.poll_cq.unwrap()(dead, 1, from_mut(&mut ibv_wc::zeroed())));
            code(EINVAL, || ops.req_notify_cq.unwrap()(dead, 0));
        }
        // Extended polling and posting go through the object's own pointers.
        let q = o.cq_ex;
        code(EINVAL, || (*q).start_poll.unwrap()(q, null_mut()));
        code(EINVAL, || (*q).next_poll.unwrap()(q));
        assert_eq!((*q).read_byte_len.unwrap()(q), 0);
        silent(|| (*q).end_poll.unwrap()(q));
        let p = o.qp_ex;
        silent(|| (*p).wr_start.unwrap()(p));
        (*p).wr_send.unwrap()(p);
        (*p).wr_set_sge.unwrap()(p, 1, 2, 3);
        code(EINVAL, || (*p).wr_complete.unwrap()(p));
        silent(|| (*p).wr_abort.unwrap()(p));
    }
}

pub fn every_call_on_the_context_refuses(context: *mut ibv_context) {
    unsafe {
        pointer(|| pd::ibv_alloc_pd(context));
        pointer(|| pd::alloc_td(context, from_mut(&mut ibv_td_init_attr { comp_mask: 0 })));
        pointer(|| {
            pd::alloc_parent_domain(context, from_mut(&mut ibv_parent_domain_init_attr::zeroed()))
        });
        pointer(|| cq_of(context));
        pointer(|| cq::create_cq_ex(context, from_mut(&mut ibv_cq_init_attr_ex::zeroed())));
        pointer(|| comp_channel::ibv_create_comp_channel(context));
        pointer(|| qp::create_qp_ex(context, from_mut(&mut qp_init(null_mut()))));
        pointer(|| qp::open_qp(context, from_mut(&mut ibv_qp_open_attr::zeroed())));
        pointer(|| srq::create_srq_ex(context, from_mut(&mut ibv_srq_init_attr_ex::zeroed())));
        pointer(|| {
            xrcd::open_xrcd(
                context,
                from_mut(&mut ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: 0 }),
            )
        });
        pointer(|| dm::alloc_dm(context, from_mut(&mut ibv_alloc_dm_attr::zeroed())));
        pointer(|| dmah::ibv_alloc_dmah(context, null_mut()));
        pointer(|| import::ibv_import_pd(context, 1));
        pointer(|| import::ibv_import_dm(context, 1));
        pointer(|| wq::create_wq(context, null_mut()));
        code(EINVAL, || {
            attributes::ibv_query_device(context, from_mut(&mut ibv_device_attr::zeroed()))
        });
        let mut attr = ibv_device_attr_ex::zeroed();
        let size = size_of::<ibv_device_attr_ex>();
        code(EINVAL, || attributes::query_device_ex(context, null(), &raw mut attr, size));
        code(EINVAL, || {
            attributes::query_rt_values(context, from_mut(&mut ibv_values_ex::zeroed()))
        });
        code(EINVAL, || {
            port::ibv_query_port(context, PORT, from_mut(&mut ibv_port_attr::zeroed()))
        });
        let mut gid = ibv_gid { raw: [0; 16] };
        negative(-1, || port::ibv_query_gid(context, PORT, 0, &raw mut gid));
        let mut key = 0;
        negative(-1, || port::ibv_query_pkey(context, PORT, 0, &raw mut key));
        negative(-1, || port::ibv_get_pkey_index(context, PORT, 0));
        let mut event = ibv_async_event::zeroed();
        negative(-1, || async_event::ibv_get_async_event(context, &raw mut event));
        let (mut wc, mut grh, mut to) =
            (ibv_wc::zeroed(), ibv_grh::zeroed(), ibv_ah_attr::zeroed());
        negative(-1, || {
            ah::ibv_init_ah_from_wc(context, PORT, &raw mut wc, &raw mut grh, &raw mut to)
        });
        code(EINVAL, || device::ibv_close_device(context));
    }
}
