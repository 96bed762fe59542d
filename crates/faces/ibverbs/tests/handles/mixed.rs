//! Objects of another kind or context, and fields that were changed.
use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, null_mut};

use super::rig::*;
use ibverbs::abi::*;
use ibverbs::verbs::{ah, buf, comp_channel, cq, device, dm, mr, mw, pd, qp, srq};
use libc::{EINVAL, ENOENT};

#[test]
fn a_handle_of_one_kind_is_none_of_another() {
    let context = open();
    let o = Objects::new(context);
    unsafe {
        for p in [
            o.pd.cast::<c_void>(),
            o.mr.cast(),
            o.cq.cast(),
            o.srq.cast(),
            context.cast(),
            o.td.cast(),
        ] {
            code(EINVAL, || qp::ibv_destroy_qp(p.cast()));
            code(EINVAL, || ah::ibv_destroy_ah(p.cast()));
            code(EINVAL, || comp_channel::ibv_destroy_comp_channel(p.cast()));
            code(EINVAL, || mw::dealloc_mw(p.cast()));
        }
        for p in [
            o.qp.cast::<c_void>(),
            o.ah.cast(),
            o.mw.cast(),
            o.dm.cast(),
            o.xrcd.cast(),
            o.buf.cast(),
        ] {
            code(EINVAL, || pd::ibv_dealloc_pd(p.cast()));
            code(EINVAL, || mr::ibv_dereg_mr(p.cast()));
            code(EINVAL, || cq::ibv_destroy_cq(p.cast()));
            code(EINVAL, || srq::ibv_destroy_srq(p.cast()));
            code(EINVAL, || device::ibv_close_device(p.cast()));
            code(EINVAL, || pd::dealloc_td(p.cast()));
        }
    }
    o.end();
    close(context);
}

/// As the kernel finds objects by `context` and `handle`, an object whose fields say something else
/// is none.
#[test]
fn an_object_is_what_its_context_and_handle_say() {
    let (context, other) = (open(), open());
    let o = Objects::new(context);
    macro_rules! changed {
        ($($object:expr => $destroy:path;)*) => { $( unsafe {
            let object = $object;
            (*object).handle = (*object).handle.wrapping_add(1_000_000);
            code(ENOENT, || $destroy(object));
            (*object).handle = (*object).handle.wrapping_sub(1_000_000);
            (*object).context = other;
            code(EINVAL, || $destroy(object));
            (*object).context = context;
        } )* };
    }
    changed! {
        o.pd => pd::ibv_dealloc_pd;
        o.parent => pd::ibv_dealloc_pd;
        o.mr => mr::ibv_dereg_mr;
        o.mw => mw::dealloc_mw;
        o.dm => dm::free_dm;
        o.ah => ah::ibv_destroy_ah;
        o.cq => cq::ibv_destroy_cq;
        o.srq => srq::ibv_destroy_srq;
        o.qp => qp::ibv_destroy_qp;
    }
    o.end();
    close(context);
    close(other);
}

/// A call as (its result as an errno value, `errno`), whichever way it says that it failed.
fn said(call: &dyn Fn() -> c_int) -> (c_int, c_int) {
    set_errno(0);
    let got = call();
    (if got < 0 { errno() } else { got }, errno())
}

/// A pointer as the result of a call that returns -1 and sets `errno`.
fn int<T>(made: *mut T) -> c_int {
    if made.is_null() { -1 } else { 0 }
}

/// All calls that ask the kernel about an object find it by these fields, not only its end.
#[test]
fn every_call_finds_its_objects_by_context_and_handle() {
    let (context, other) = (open(), open());
    let mut o = Objects::new(context);
    let memory = o.memory.as_mut_ptr().cast::<c_void>();
    let whole = ibv_sge { addr: memory as u64, length: 8, lkey: 0 };
    macro_rules! changed {
        ($($object:expr => [$($call:expr),* $(,)?];)*) => { $( unsafe {
            let object = $object;
            let calls: &[&dyn Fn() -> c_int] = &[$( &|| $call ),*];
            for (n, call) in calls.iter().enumerate() {
                let what = format!("{} call {n}", stringify!($object));
                (*object).handle = (*object).handle.wrapping_add(1_000_000);
                assert_eq!(said(call), (ENOENT, ENOENT), "{what}, handle");
                (*object).handle = (*object).handle.wrapping_sub(1_000_000);
                (*object).context = other;
                assert_eq!(said(call), (EINVAL, EINVAL), "{what}, context");
                (*object).context = context;
            }
        } )* };
    }
    changed! {
        o.pd => [
            int(mr::ibv_reg_mr(o.pd, memory, 8, RW)),
            int(mr::ibv_reg_mr_iova(o.pd, memory, 8, 0, RW)),
            int(mr::alloc_null_mr(o.pd)),
            int(mw::alloc_mw(o.pd, IBV_MW_TYPE_2)),
            int(srq_of(o.pd)),
            int(ah::ibv_create_ah(o.pd, from_mut(&mut address(context)))),
            int(plain_qp(o.pd, o.cq)),
            int(qp_with_ops(context, o.pd, o.cq)),
            int(dm::reg_dm_mr(o.pd, o.dm, 0, 8, IBV_ACCESS_ZERO_BASED)),
            mr::advise_mr(o.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, from_mut(&mut whole.clone()), 1),
            pd::ibv_dealloc_pd(o.pd),
        ];
        o.mr => [mr::ibv_dereg_mr(o.mr)];
        o.dm => [
            int(dm::reg_dm_mr(o.pd, o.dm, 0, 8, IBV_ACCESS_ZERO_BASED)),
            dm::memcpy_to_dm(o.dm, 0, memory, 8),
            dm::memcpy_from_dm(memory, o.dm, 0, 8),
            dm::free_dm(o.dm),
        ];
        o.mw => [mw::bind_mw(o.qp, o.mw, from_mut(&mut ibv_mw_bind::zeroed())), mw::dealloc_mw(o.mw)];
        o.ah => [ah::ibv_destroy_ah(o.ah)];
        o.cq => [
            int(plain_qp(o.pd, o.cq)),
            int(qp_with_ops(context, o.pd, o.cq)),
            cq::ibv_resize_cq(o.cq, 8),
            cq::modify_cq(o.cq, from_mut(&mut ibv_modify_cq_attr::zeroed())),
            cq::ibv_destroy_cq(o.cq),
        ];
        o.srq => [
            srq::ibv_query_srq(o.srq, from_mut(&mut ibv_srq_attr::zeroed())),
            srq::ibv_modify_srq(o.srq, from_mut(&mut ibv_srq_attr::zeroed()), IBV_SRQ_LIMIT as c_int),
            srq::get_srq_num(o.srq, from_mut(&mut 0)),
            srq::ibv_destroy_srq(o.srq),
        ];
        o.qp => [
            qp::ibv_modify_qp(o.qp, from_mut(&mut ibv_qp_attr::zeroed()), IBV_QP_STATE as c_int),
            qp::ibv_query_qp(o.qp, from_mut(&mut ibv_qp_attr::zeroed()), 0, from_mut(&mut ibv_qp_init_attr::zeroed())),
            qp::ibv_query_ece(o.qp, from_mut(&mut ibv_ece::zeroed())),
            int(qp::ibv_qp_to_qp_ex(o.qp)),
            qp::ibv_attach_mcast(o.qp, from_mut(&mut ibv_gid { raw: [0xff; 16] }), 0),
            qp::ibv_destroy_qp(o.qp),
        ];
    }
    o.end();
    close(context);
    close(other);
}

/// A call with several objects refuses as soon as one of them is destroyed, and the others are as
/// they were.
#[test]
fn one_object_that_has_ended_among_living_ones_is_enough() {
    let context = open();
    let (dead, mut o) = (Objects::ended(context), Objects::new(context));
    let memory = o.memory.as_mut_ptr().cast::<c_void>();
    unsafe {
        let qp = |send: *mut ibv_cq, recv, srq| {
            let mut init = ibv_qp_init_attr::zeroed();
            (init.send_cq, init.recv_cq, init.srq, init.qp_type) = (send, recv, srq, IBV_QPT_RC);
            (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
            qp::ibv_create_qp(o.pd, &raw mut init)
        };
        pointer(|| qp(dead.cq, o.cq, null_mut()));
        pointer(|| qp(o.cq, dead.cq, null_mut()));
        pointer(|| qp(o.cq, dead.cq_ex.cast(), null_mut()));
        pointer(|| qp(o.cq, o.cq, dead.srq));
        let mut init = ibv_qp_init_attr_ex::zeroed();
        (init.qp_type, init.comp_mask, init.xrcd) =
            (IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, dead.xrcd);
        pointer(|| qp::create_qp_ex(context, &raw mut init));
        let mut attr = ibv_qp_open_attr::zeroed();
        (attr.comp_mask, attr.xrcd) = (IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD, dead.xrcd);
        pointer(|| qp::open_qp(context, &raw mut attr));
        let srq = |pd, xrcd, cq| {
            let mut init = ibv_srq_init_attr_ex::zeroed();
            (init.attr.max_wr, init.attr.max_sge, init.srq_type) = (4, 1, IBV_SRQT_XRC);
            (init.pd, init.xrcd, init.cq) = (pd, xrcd, cq);
            init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
                | IBV_SRQ_INIT_ATTR_PD
                | IBV_SRQ_INIT_ATTR_XRCD
                | IBV_SRQ_INIT_ATTR_CQ;
            srq::create_srq_ex(context, &raw mut init)
        };
        pointer(|| srq(dead.pd, o.xrcd, o.cq));
        pointer(|| srq(o.pd, dead.xrcd, o.cq));
        pointer(|| srq(o.pd, o.xrcd, dead.cq));
        pointer(|| dm::reg_dm_mr(o.pd, dead.dm, 0, 8, IBV_ACCESS_ZERO_BASED));
        pointer(|| cq::ibv_create_cq(context, 4, null_mut(), dead.channel, 0));
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        (attr.cqe, attr.comp_mask, attr.parent_domain) = (4, IBV_CQ_INIT_ATTR_MASK_PD, dead.parent);
        pointer(|| cq::create_cq_ex(context, &raw mut attr));
        (attr.comp_mask, attr.channel) = (0, dead.channel);
        pointer(|| cq::create_cq_ex(context, &raw mut attr));
        let mut attr = ibv_parent_domain_init_attr::zeroed();
        (attr.pd, attr.td) = (dead.pd, o.td);
        pointer(|| pd::alloc_parent_domain(context, &raw mut attr));
        (attr.pd, attr.td) = (o.pd, dead.td);
        pointer(|| pd::alloc_parent_domain(context, &raw mut attr));
        set_errno(0);
        let flags = IBV_REREG_MR_CHANGE_PD as c_int;
        let rereg = mr::ibv_rereg_mr(o.mr, flags, dead.pd, null_mut(), 0, 0);
        assert_eq!((rereg, errno()), (IBV_REREG_MR_ERR_INPUT, EINVAL));
        pointer(|| buf::ibv_reg_buf_mr(o.pd, dead.buf, memory, 8, RW));
        let mut bind = ibv_mw_bind::zeroed();
        code(EINVAL, || mw::bind_mw(o.qp, dead.mw, &raw mut bind));
        (bind.bind_info.mr, bind.bind_info.addr, bind.bind_info.length) =
            (dead.mr, memory as u64, 8);
        code(EINVAL, || mw::bind_mw(o.qp, o.mw, &raw mut bind));
        let post = (*context).ops.post_send.unwrap();
        for (window, region) in [(dead.mw, o.mr), (o.mw, dead.mr)] {
            let (mut wr, mut bad) = (ibv_send_wr::zeroed(), null_mut());
            wr.opcode = IBV_WR_BIND_MW;
            wr.op.bind_mw.mw = window;
            wr.op.bind_mw.bind_info.mr = region;
            code(EINVAL, || post(o.qp, &raw mut wr, &raw mut bad));
            assert_eq!(bad, &raw mut wr);
        }
    }
    o.end();
    close(context);
}

#[test]
fn objects_of_another_context_do_not_go_together() {
    let (context, other) = (open(), open());
    let (o, strange) = (Objects::new(context), Objects::new(other));
    unsafe {
        pointer(|| plain_qp(o.pd, strange.cq));
        pointer(|| extended_qp(context, strange.pd, o.cq));
        pointer(|| dm::reg_dm_mr(o.pd, strange.dm, 0, 8, IBV_ACCESS_ZERO_BASED));
        pointer(|| cq::ibv_create_cq(context, 4, null_mut(), strange.channel, 0));
        let mut attr = ibv_parent_domain_init_attr::zeroed();
        attr.pd = strange.pd;
        pointer(|| pd::alloc_parent_domain(context, &raw mut attr));
        (attr.pd, attr.td) = (o.pd, strange.td);
        pointer(|| pd::alloc_parent_domain(context, &raw mut attr));
        set_errno(0);
        let flags = IBV_REREG_MR_CHANGE_PD as c_int;
        let rereg = mr::ibv_rereg_mr(o.mr, flags, strange.pd, null_mut(), 0, 0);
        assert_eq!((rereg, errno()), (IBV_REREG_MR_ERR_INPUT, EINVAL));
    }
    o.end();
    strange.end();
    close(context);
    close(other);
}
