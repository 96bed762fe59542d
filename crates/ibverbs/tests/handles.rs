//! Handles that are none: destroyed once or twice, of another kind, of another context, changed, or
//! never ours. Each gives EINVAL (or ENOENT), in the result and in `errno`, and nothing is read,
//! written, ended or waited for (CQN-10 for all kinds).
#![allow(unsafe_code, reason = "it calls the C ABI")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the calls break the contract of their manual pages on purpose; the library must not mind"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{from_mut, null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use ibverbs::abi::*;
use ibverbs::verbs::{
    ah, async_event, comp_channel, cq, device, dm, dmabuf, dmah, extensions, flow, import, mr, mw, pd, port,
    qp, srq, tags, wq, xrcd,
};
use libc::{EBUSY, EINVAL, ENOENT};

const PORT: u8 = 1;
const RW: c_int = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) as c_int;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_errno(value: c_int) {
    unsafe { *libc::__errno_location() = value };
}

/// A call that returns an errno value refuses, with both numbers.
#[track_caller]
fn code(wanted: c_int, call: impl FnOnce() -> c_int) {
    set_errno(0);
    let got = call();
    assert_eq!((got, errno()), (wanted, wanted), "result and errno");
}

/// A call that returns -1 (or a negative errno value) refuses with EINVAL.
#[track_caller]
fn negative(wanted: c_int, call: impl FnOnce() -> c_int) {
    set_errno(0);
    let got = call();
    assert_eq!((got, errno()), (wanted, EINVAL), "result and errno");
}

/// A call that returns a pointer refuses with EINVAL.
#[track_caller]
fn pointer<T>(call: impl FnOnce() -> *mut T) {
    set_errno(0);
    let got = call();
    let now = errno();
    assert!(got.is_null(), "it was not refused");
    assert_eq!(now, EINVAL);
}

/// A call that returns nothing says EINVAL in `errno`.
#[track_caller]
fn silent(call: impl FnOnce()) {
    set_errno(0);
    call();
    assert_eq!(errno(), EINVAL);
}

/// The loopback device, opened.
fn open() -> *mut ibv_context {
    unsafe {
        let mut n = 0;
        let list = device::ibv_get_device_list(&raw mut n);
        let devices = std::slice::from_raw_parts(list, n as usize);
        let name = |d: &&*mut ibv_device| CStr::from_ptr(device::ibv_get_device_name(**d)) == c"adverb_lo";
        let context = device::ibv_open_device(*devices.iter().find(name).expect("the loopback device"));
        device::ibv_free_device_list(list);
        assert!(!context.is_null());
        context
    }
}

fn close(context: *mut ibv_context) {
    assert_eq!(unsafe { device::ibv_close_device(context) }, 0);
}

/// One object of each kind, made on a context.
struct Objects {
    pd: *mut ibv_pd,
    parent: *mut ibv_pd,
    td: *mut ibv_td,
    mr: *mut ibv_mr,
    dm: *mut ibv_dm,
    mw: *mut ibv_mw,
    ah: *mut ibv_ah,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    cq_ex: *mut ibv_cq_ex,
    srq: *mut ibv_srq,
    qp: *mut ibv_qp,
    qp_ex: *mut ibv_qp_ex,
    xrcd: *mut ibv_xrcd,
    buf: *mut ibv_buf,
    memory: Vec<u8>,
}

fn qp_init(cq: *mut ibv_cq) -> ibv_qp_init_attr_ex {
    let mut init = ibv_qp_init_attr_ex::zeroed();
    (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
    init.cap =
        ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    init
}

fn plain_qp(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let ex = qp_init(cq);
    let mut init = ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: null_mut(),
        cap: ex.cap,
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    };
    unsafe { qp::ibv_create_qp(pd, &raw mut init) }
}

fn extended_qp(context: *mut ibv_context, pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp_ex {
    unsafe { qp::ibv_qp_to_qp_ex(qp_with_ops(context, pd, cq)) }
}

fn qp_with_ops(context: *mut ibv_context, pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let mut init = qp_init(cq);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    unsafe { qp::create_qp_ex(context, &raw mut init) }
}

fn address(context: *mut ibv_context) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    (attr.port_num, attr.is_global) = (PORT, 1);
    unsafe { assert_eq!(device::ibv_query_gid(context, PORT, 0, &raw mut attr.grh.dgid), 0) };
    attr
}

fn srq_of(pd: *mut ibv_pd) -> *mut ibv_srq {
    let mut attr = ibv_srq_init_attr::zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (4, 1);
    unsafe { srq::ibv_create_srq(pd, &raw mut attr) }
}

fn cq_of(context: *mut ibv_context) -> *mut ibv_cq {
    unsafe { cq::ibv_create_cq(context, 4, null_mut(), null_mut(), 0) }
}

impl Objects {
    fn new(context: *mut ibv_context) -> Self {
        let mut memory = vec![0_u8; 8192];
        unsafe {
            let pd = pd::ibv_alloc_pd(context);
            let td = pd::alloc_td(context, from_mut(&mut ibv_td_init_attr { comp_mask: 0 }));
            let mut attr = ibv_parent_domain_init_attr::zeroed();
            (attr.pd, attr.td) = (pd, td);
            let parent = pd::alloc_parent_domain(context, &raw mut attr);
            let mr = mr::ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), RW);
            let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
            let dm = dm::alloc_dm(context, &raw mut attr);
            let mw = mw::alloc_mw(pd, IBV_MW_TYPE_1);
            let ah = ah::ibv_create_ah(pd, from_mut(&mut address(context)));
            let channel = comp_channel::ibv_create_comp_channel(context);
            let cq = cq_of(context);
            let mut attr = ibv_cq_init_attr_ex::zeroed();
            attr.cqe = 4;
            let cq_ex = cq::create_cq_ex(context, &raw mut attr);
            let srq = srq_of(pd);
            let mut attr = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
            let xrcd = xrcd::open_xrcd(context, &raw mut attr);
            let mut buf = null_mut();
            assert!(!mr::ibv_alloc_buf(pd, 4096, &raw mut buf).is_null());
            let (qp, qp_ex) = (plain_qp(pd, cq), extended_qp(context, pd, cq));
            let all: [*mut c_void; 15] = [
                pd.cast(),
                parent.cast(),
                td.cast(),
                mr.cast(),
                dm.cast(),
                mw.cast(),
                ah.cast(),
                channel.cast(),
                cq.cast(),
                cq_ex.cast(),
                srq.cast(),
                qp.cast(),
                qp_ex.cast(),
                xrcd.cast(),
                buf.cast(),
            ];
            assert!(all.iter().all(|p| !p.is_null()), "{all:?}");
            Objects { pd, parent, td, mr, dm, mw, ah, channel, cq, cq_ex, srq, qp, qp_ex, xrcd, buf, memory }
        }
    }
    /// Destroys everything, in order, and expects an answer of each.
    #[track_caller]
    fn destroy(&self, each: impl Fn(&dyn Fn() -> c_int)) {
        unsafe {
            each(&|| qp::ibv_destroy_qp(self.qp));
            each(&|| qp::ibv_destroy_qp(self.qp_ex.cast()));
            each(&|| srq::ibv_destroy_srq(self.srq));
            each(&|| cq::ibv_destroy_cq(self.cq_ex.cast()));
            each(&|| cq::ibv_destroy_cq(self.cq));
            each(&|| comp_channel::ibv_destroy_comp_channel(self.channel));
            each(&|| ah::ibv_destroy_ah(self.ah));
            each(&|| mw::dealloc_mw(self.mw));
            each(&|| mr::ibv_dereg_mr(self.mr));
            each(&|| dm::free_dm(self.dm));
            each(&|| xrcd::close_xrcd(self.xrcd));
            each(&|| pd::ibv_dealloc_pd(self.parent));
            each(&|| pd::dealloc_td(self.td));
            each(&|| pd::ibv_dealloc_pd(self.pd));
        }
    }
    fn gone(context: *mut ibv_context) -> Self {
        let objects = Objects::new(context);
        unsafe { mr::ibv_free_buf(objects.buf) };
        objects.destroy(|call| assert_eq!(call(), 0));
        objects
    }
}

#[test]
fn what_was_destroyed_twice_or_more_is_einval() {
    let context = open();
    let gone = Objects::gone(context);
    for _ in 0..3 {
        gone.destroy(|call| code(EINVAL, call));
        silent(|| unsafe { mr::ibv_free_buf(gone.buf) });
        silent(|| unsafe { import::ibv_unimport_pd(gone.pd) });
        silent(|| unsafe { import::ibv_unimport_mr(gone.mr) });
        silent(|| unsafe { import::ibv_unimport_dm(gone.dm) });
    }
    // New objects live beside them.
    Objects::gone(context).destroy(|call| code(EINVAL, call));
    close(context);
    for _ in 0..3 {
        code(EINVAL, || unsafe { device::ibv_close_device(context) });
    }
    gone.destroy(|call| code(EINVAL, call));
}

/// Every verb that takes an object of its own, on objects of whatever kind: all refuse.
fn every_verb_refuses(o: &Objects, memory: *mut c_void) {
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
            pointer(|| mr::ibv_alloc_buf(dead, 8, &raw mut buf));
            pointer(|| mr::ibv_reg_buf_mr(dead, o.buf, memory, 8, RW));
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
        negative(-1, || mr::ibv_export_buf_dmabuf_fd(o.buf));
        // Channels and completion queues.
        let (mut found, mut cookie) = (null_mut(), null_mut());
        negative(-1, || comp_channel::ibv_get_cq_event(o.channel, &raw mut found, &raw mut cookie));
        negative(-EINVAL, || extensions::adverb_overlooked(o.channel));
        for dead in [o.cq, o.cq_ex.cast()] {
            code(EINVAL, || cq::ibv_resize_cq(dead, 8));
            code(EINVAL, || cq::modify_cq(dead, from_mut(&mut ibv_modify_cq_attr::zeroed())));
            silent(|| comp_channel::ibv_ack_cq_events(dead, 1));
            negative(-EINVAL, || extensions::adverb_peek_cq(dead, 1, from_mut(&mut ibv_wc::zeroed())));
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
fn every_inline_call_refuses(o: &Objects) {
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

fn every_call_on_the_context_refuses(context: *mut ibv_context) {
    unsafe {
        pointer(|| pd::ibv_alloc_pd(context));
        pointer(|| pd::alloc_td(context, from_mut(&mut ibv_td_init_attr { comp_mask: 0 })));
        pointer(|| pd::alloc_parent_domain(context, from_mut(&mut ibv_parent_domain_init_attr::zeroed())));
        pointer(|| cq_of(context));
        pointer(|| cq::create_cq_ex(context, from_mut(&mut ibv_cq_init_attr_ex::zeroed())));
        pointer(|| comp_channel::ibv_create_comp_channel(context));
        pointer(|| qp::create_qp_ex(context, from_mut(&mut qp_init(null_mut()))));
        pointer(|| qp::open_qp(context, from_mut(&mut ibv_qp_open_attr::zeroed())));
        pointer(|| srq::create_srq_ex(context, from_mut(&mut ibv_srq_init_attr_ex::zeroed())));
        pointer(|| {
            xrcd::open_xrcd(context, from_mut(&mut ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: 0 }))
        });
        pointer(|| dm::alloc_dm(context, from_mut(&mut ibv_alloc_dm_attr::zeroed())));
        pointer(|| dmah::ibv_alloc_dmah(context, null_mut()));
        pointer(|| import::ibv_import_pd(context, 1));
        pointer(|| import::ibv_import_dm(context, 1));
        pointer(|| wq::create_wq(context, null_mut()));
        code(EINVAL, || device::ibv_query_device(context, from_mut(&mut ibv_device_attr::zeroed())));
        let mut attr = ibv_device_attr_ex::zeroed();
        let size = size_of::<ibv_device_attr_ex>();
        code(EINVAL, || device::query_device_ex(context, null(), &raw mut attr, size));
        code(EINVAL, || device::query_rt_values(context, from_mut(&mut ibv_values_ex::zeroed())));
        code(EINVAL, || port::ibv_query_port(context, PORT, from_mut(&mut ibv_port_attr::zeroed())));
        let mut gid = ibv_gid { raw: [0; 16] };
        negative(-1, || device::ibv_query_gid(context, PORT, 0, &raw mut gid));
        let mut key = 0;
        negative(-1, || device::ibv_query_pkey(context, PORT, 0, &raw mut key));
        negative(-1, || device::ibv_get_pkey_index(context, PORT, 0));
        let mut event = ibv_async_event::zeroed();
        negative(-1, || async_event::ibv_get_async_event(context, &raw mut event));
        let (mut wc, mut grh, mut to) = (ibv_wc::zeroed(), ibv_grh::zeroed(), ibv_ah_attr::zeroed());
        negative(-1, || ah::ibv_init_ah_from_wc(context, PORT, &raw mut wc, &raw mut grh, &raw mut to));
        code(EINVAL, || device::ibv_close_device(context));
    }
}

#[test]
fn every_verb_refuses_what_was_destroyed_also_after_the_device_was_closed() {
    let context = open();
    let mut gone = Objects::gone(context);
    let memory = gone.memory.as_mut_ptr().cast();
    every_verb_refuses(&gone, memory);
    every_inline_call_refuses(&gone);
    // Objects of their own beside them change nothing.
    let living = Objects::new(context);
    every_verb_refuses(&gone, memory);
    unsafe { mr::ibv_free_buf(living.buf) };
    living.destroy(|call| assert_eq!(call(), 0));
    close(context);
    every_verb_refuses(&gone, memory);
    every_inline_call_refuses(&gone);
    every_call_on_the_context_refuses(context);
    for event_type in [IBV_EVENT_QP_FATAL, IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR] {
        let element = ibv_async_event_element { qp: gone.qp };
        silent(|| unsafe {
            async_event::ibv_ack_async_event(from_mut(&mut ibv_async_event { element, event_type }));
        });
    }
}

/// Pointers that no call gave: null, unmapped, on the stack, on the heap, between objects, in the
/// middle of one.
#[test]
fn what_was_never_a_handle_is_refused_without_a_look_at_it() {
    let context = open();
    let living = Objects::new(context);
    let mut stack = [0_u64; 512];
    let mut heap = vec![0xff_u8; 4096];
    let nowhere = std::ptr::without_provenance_mut::<c_void>(0x10_0000);
    let wild = std::ptr::without_provenance_mut::<c_void>(usize::MAX - 7);
    let copy = unsafe { living.qp.read() };
    let mut memory = [0_u8; 64];
    let memory = memory.as_mut_ptr().cast::<c_void>();
    let strange: [*mut c_void; 9] = [
        null_mut(),
        nowhere,
        wild,
        (&raw mut stack).cast(),
        heap.as_mut_ptr().cast(),
        (&raw const copy).cast_mut().cast(),
        unsafe { living.qp.cast::<c_void>().byte_add(8) },
        unsafe { living.qp.cast::<c_void>().byte_add(64) },
        unsafe { living.cq.cast::<c_void>().byte_add(200_000) },
    ];
    for p in strange {
        let fake = of_one_pointer(p);
        fake.destroy(|call| code(EINVAL, call));
        every_verb_refuses(&fake, memory);
        every_call_on_the_context_refuses(p.cast());
        let (mut wr, mut bad) = (ibv_send_wr::zeroed(), null_mut());
        let ops = unsafe { (*context).ops };
        code(EINVAL, || unsafe { ops.post_send.unwrap()(p.cast(), &raw mut wr, &raw mut bad) });
        assert_eq!(bad, &raw mut wr);
        negative(-EINVAL, || unsafe { ops.poll_cq.unwrap()(p.cast(), 1, from_mut(&mut ibv_wc::zeroed())) });
    }
    unsafe { mr::ibv_free_buf(living.buf) };
    living.destroy(|call| assert_eq!(call(), 0));
    close(context);
}

/// Objects that are all one pointer.
fn of_one_pointer(p: *mut c_void) -> Objects {
    Objects {
        pd: p.cast(),
        parent: p.cast(),
        td: p.cast(),
        mr: p.cast(),
        dm: p.cast(),
        mw: p.cast(),
        ah: p.cast(),
        channel: p.cast(),
        cq: p.cast(),
        cq_ex: p.cast(),
        srq: p.cast(),
        qp: p.cast(),
        qp_ex: p.cast(),
        xrcd: p.cast(),
        buf: p.cast(),
        memory: Vec::new(),
    }
}

#[test]
fn a_handle_of_one_kind_is_none_of_another() {
    let context = open();
    let o = Objects::new(context);
    unsafe {
        for p in [o.pd.cast::<c_void>(), o.mr.cast(), o.cq.cast(), o.srq.cast(), context.cast(), o.td.cast()]
        {
            code(EINVAL, || qp::ibv_destroy_qp(p.cast()));
            code(EINVAL, || ah::ibv_destroy_ah(p.cast()));
            code(EINVAL, || comp_channel::ibv_destroy_comp_channel(p.cast()));
            code(EINVAL, || mw::dealloc_mw(p.cast()));
        }
        for p in [o.qp.cast::<c_void>(), o.ah.cast(), o.mw.cast(), o.dm.cast(), o.xrcd.cast(), o.buf.cast()] {
            code(EINVAL, || pd::ibv_dealloc_pd(p.cast()));
            code(EINVAL, || mr::ibv_dereg_mr(p.cast()));
            code(EINVAL, || cq::ibv_destroy_cq(p.cast()));
            code(EINVAL, || srq::ibv_destroy_srq(p.cast()));
            code(EINVAL, || device::ibv_close_device(p.cast()));
            code(EINVAL, || pd::dealloc_td(p.cast()));
        }
        mr::ibv_free_buf(o.buf);
    }
    o.destroy(|call| assert_eq!(call(), 0));
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
    unsafe { mr::ibv_free_buf(o.buf) };
    o.destroy(|call| assert_eq!(call(), 0));
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
    unsafe { mr::ibv_free_buf(o.buf) };
    o.destroy(|call| assert_eq!(call(), 0));
    close(context);
    close(other);
}

/// A call with several objects refuses as soon as one of them is gone, and the others are as they
/// were.
#[test]
fn one_object_that_is_gone_among_living_ones_is_enough() {
    let context = open();
    let (dead, mut o) = (Objects::gone(context), Objects::new(context));
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
        (init.qp_type, init.comp_mask, init.xrcd) = (IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, dead.xrcd);
        pointer(|| qp::create_qp_ex(context, &raw mut init));
        let mut attr = ibv_qp_open_attr::zeroed();
        (attr.comp_mask, attr.xrcd) = (IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD, dead.xrcd);
        pointer(|| qp::open_qp(context, &raw mut attr));
        let srq = |pd, xrcd, cq| {
            let mut init = ibv_srq_init_attr_ex::zeroed();
            (init.attr.max_wr, init.attr.max_sge, init.srq_type) = (4, 1, IBV_SRQT_XRC);
            (init.pd, init.xrcd, init.cq) = (pd, xrcd, cq);
            init.comp_mask =
                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
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
        pointer(|| mr::ibv_reg_buf_mr(o.pd, dead.buf, memory, 8, RW));
        let mut bind = ibv_mw_bind::zeroed();
        code(EINVAL, || mw::bind_mw(o.qp, dead.mw, &raw mut bind));
        (bind.bind_info.mr, bind.bind_info.addr, bind.bind_info.length) = (dead.mr, memory as u64, 8);
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
        mr::ibv_free_buf(o.buf);
    }
    o.destroy(|call| assert_eq!(call(), 0));
    close(context);
}

/// Objects of kinds that the device does not make cannot exist: whatever is passed for one is none.
#[test]
fn what_is_passed_for_an_object_that_is_never_made_is_einval() {
    let context = open();
    let o = Objects::new(context);
    let mut stack = [0_u64; 64];
    for p in [null_mut(), o.pd.cast::<c_void>(), (&raw mut stack).cast()] {
        unsafe {
            code(EINVAL, || flow::destroy_flow(p.cast()));
            code(EINVAL, || flow::destroy_flow_action(p.cast()));
            code(EINVAL, || flow::modify_flow_action_esp(p.cast(), null_mut()));
            code(EINVAL, || flow::destroy_counters(p.cast()));
            code(EINVAL, || flow::attach_counters_point_flow(p.cast(), null_mut(), null_mut()));
            code(EINVAL, || flow::read_counters(p.cast(), null_mut(), 0, 0));
            code(EINVAL, || wq::modify_wq(p.cast(), null_mut()));
            code(EINVAL, || wq::destroy_wq(p.cast()));
            code(EINVAL, || wq::destroy_rwq_ind_table(p.cast()));
        }
    }
    unsafe { mr::ibv_free_buf(o.buf) };
    o.destroy(|call| assert_eq!(call(), 0));
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
        mr::ibv_free_buf(o.buf);
        mr::ibv_free_buf(strange.buf);
    }
    o.destroy(|call| assert_eq!(call(), 0));
    strange.destroy(|call| assert_eq!(call(), 0));
    close(context);
    close(other);
}

#[test]
fn a_refused_destroy_sets_errno_and_leaves_the_object() {
    let context = open();
    let o = Objects::new(context);
    unsafe {
        let channel = o.channel;
        let on_channel = cq::ibv_create_cq(context, 4, null_mut(), channel, 0);
        for _ in 0..2 {
            code(EBUSY, || pd::ibv_dealloc_pd(o.pd));
            code(EBUSY, || pd::dealloc_td(o.td));
            code(EBUSY, || cq::ibv_destroy_cq(o.cq));
            code(EBUSY, || comp_channel::ibv_destroy_comp_channel(channel));
        }
        let more = mr::ibv_reg_mr(o.pd, o.memory.as_ptr().cast_mut().cast(), 8, RW);
        assert!(!more.is_null(), "the domain lives");
        assert_eq!((mr::ibv_dereg_mr(more), cq::ibv_resize_cq(o.cq, 8)), (0, 0));
        assert_eq!(cq::ibv_destroy_cq(on_channel), 0);
        mr::ibv_free_buf(o.buf);
    }
    o.destroy(|call| assert_eq!(call(), 0));
    close(context);
}

/// What ended through one of its handles is ENOENT through the other, and ends nothing else.
#[test]
fn what_was_taken_over_ends_once() {
    let context = open();
    let mut memory = vec![0_u8; 64];
    unsafe {
        let imported = import::ibv_import_device(libc::dup((*context).cmd_fd));
        let pd = pd::ibv_alloc_pd(context);
        let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
        let dm = dm::alloc_dm(context, &raw mut attr);
        let mr = mr::ibv_reg_mr(pd, memory.as_mut_ptr().cast(), 64, RW);
        let pd2 = import::ibv_import_pd(imported, (*pd).handle);
        let mr2 = import::ibv_import_mr(pd2, (*mr).handle);
        let dm2 = import::ibv_import_dm(imported, (*dm).handle);
        assert_eq!((mr::ibv_dereg_mr(mr2), dm::free_dm(dm2)), (0, 0));
        let new = mr::ibv_reg_mr(pd, memory.as_mut_ptr().cast(), 64, RW);
        code(ENOENT, || mr::ibv_dereg_mr(mr));
        code(ENOENT, || dm::free_dm(dm));
        assert_eq!(mr::ibv_dereg_mr(new), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd2), 0);
        code(ENOENT, || pd::ibv_dealloc_pd(pd));
        close(imported);
    }
    close(context);
}

#[test]
fn devices_are_those_of_lists() {
    let mut stack = [0_u64; 128];
    unsafe {
        for p in [null_mut(), (&raw mut stack).cast(), std::ptr::without_provenance_mut(0x10_0000)] {
            pointer(|| device::ibv_open_device(p));
            negative(-1, || device::ibv_get_device_index(p));
            silent(|| assert_eq!(device::ibv_get_device_guid(p), 0));
        }
        // A name is in the structure, which is public: OBJ-6.
        pointer(|| device::ibv_get_device_name(null_mut()).cast_mut());
        let mut own: ibv_device = Plain::zeroed();
        own.name[..4].copy_from_slice(&b"mock".map(|b| b as c_char));
        assert_eq!(CStr::from_ptr(device::ibv_get_device_name(&raw mut own)), c"mock");
        let list = device::ibv_get_device_list(null_mut());
        let first = *list;
        device::ibv_free_device_list(list);
        silent(|| device::ibv_free_device_list(list));
        silent(|| device::ibv_free_device_list((&raw mut stack).cast()));
        // Programs open what they found in a list they have freed.
        let context = device::ibv_open_device(first);
        assert!(!context.is_null());
        close(context);
    }
}

#[test]
fn an_open_chain_or_poll_outlives_its_object_and_then_ends() {
    let context = open();
    unsafe {
        let pd = pd::ibv_alloc_pd(context);
        let cq = cq_of(context);
        // Destroyed by the thread that has the chain open.
        let p = extended_qp(context, pd, cq);
        (*p).wr_start.unwrap()(p);
        (*p).wr_send.unwrap()(p);
        assert_eq!(qp::ibv_destroy_qp(p.cast()), 0);
        (*p).wr_send.unwrap()(p);
        code(EINVAL, || (*p).wr_complete.unwrap()(p));
        // By another thread, while a third waits for its turn.
        let p = extended_qp(context, pd, cq);
        let (own, waits) = (AtomicPtr::new(p), AtomicBool::new(false));
        (*p).wr_start.unwrap()(p);
        (*p).wr_send.unwrap()(p);
        std::thread::scope(|s| {
            let waiting = s.spawn(|| {
                let p = own.load(Ordering::Relaxed);
                waits.store(true, Ordering::SeqCst);
                (*p).wr_start.unwrap()(p);
                (*p).wr_send.unwrap()(p);
                (*p).wr_complete.unwrap()(p)
            });
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let ended = s.spawn(|| qp::ibv_destroy_qp(own.load(Ordering::Relaxed).cast()));
            assert_eq!(ended.join().unwrap(), 0);
            code(EINVAL, || (*p).wr_complete.unwrap()(p));
            code(EINVAL, || (*p).wr_complete.unwrap()(p));
            assert_eq!(waiting.join().unwrap(), EINVAL);
        });
        assert_eq!(cq::ibv_destroy_cq(cq), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
    close(context);
}

/// A sequence that depends on the seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const SHARED: usize = 24;

/// Four threads make, use and destroy what they share, and mistake the kinds. Nothing may crash,
/// each object ends once, and at the end the domain they all lie in has no user left.
#[test]
fn threads_that_destroy_what_others_use() {
    let rounds: u64 =
        std::env::var("ADVERB_HANDLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let context = open();
    let pd = unsafe { pd::ibv_alloc_pd(context) };
    let shared: [[AtomicPtr<c_void>; SHARED]; 6] = Default::default();
    let counts = [(); 6].map(|()| (AtomicUsize::new(0), AtomicUsize::new(0)));
    let mut bytes = vec![0_u8; 4096];
    let memory = AtomicPtr::new(bytes.as_mut_ptr());
    let (context_at, pd_at) = (AtomicPtr::new(context), AtomicPtr::new(pd));
    let left = Mutex::new(Vec::new());
    let attr = address(context);
    let kinds: [fn(*mut c_void) -> c_int; 6] = unsafe {
        [
            |p| qp::ibv_destroy_qp(p.cast()),
            |p| cq::ibv_destroy_cq(p.cast()),
            |p| srq::ibv_destroy_srq(p.cast()),
            |p| mr::ibv_dereg_mr(p.cast()),
            |p| ah::ibv_destroy_ah(p.cast()),
            |p| mw::dealloc_mw(p.cast()),
        ]
    };
    std::thread::scope(|s| {
        for seed in 1..=4_u64 {
            let (shared, counts, memory, attr, left) = (&shared, &counts, &memory, &attr, &left);
            let (context_at, pd_at) = (&context_at, &pd_at);
            s.spawn(move || unsafe {
                let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let (context, pd) = (context_at.load(Ordering::Relaxed), pd_at.load(Ordering::Relaxed));
                let memory = memory.load(Ordering::Relaxed).cast::<c_void>();
                for _ in 0..rounds {
                    let kind = random.below(6) as usize;
                    let slot = &shared[kind][random.below(SHARED as u64) as usize];
                    // Now and then a handle of another kind.
                    let from = if random.below(16) == 0 { random.below(6) as usize } else { kind };
                    let used = shared[from][random.below(SHARED as u64) as usize].load(Ordering::SeqCst);
                    match random.below(4) {
                        0 => {
                            let cq = shared[1][random.below(SHARED as u64) as usize].load(Ordering::SeqCst);
                            let new: *mut c_void = match kind {
                                0 => extended_qp(context, pd, cq.cast()).cast(),
                                1 => {
                                    let mut attr = ibv_cq_init_attr_ex::zeroed();
                                    attr.cqe = 4;
                                    cq::create_cq_ex(context, &raw mut attr).cast()
                                }
                                2 => srq_of(pd).cast(),
                                3 => mr::ibv_reg_mr(pd, memory, 4096, RW).cast(),
                                4 => ah::ibv_create_ah(pd, from_mut(&mut attr.clone())).cast(),
                                _ => mw::alloc_mw(pd, IBV_MW_TYPE_2).cast(),
                            };
                            if !new.is_null() {
                                counts[kind].0.fetch_add(1, Ordering::SeqCst);
                                // What the place held goes, or is kept for the end if it is in use.
                                let old = slot.swap(new, Ordering::SeqCst);
                                if kinds[kind](old) == 0 {
                                    counts[kind].1.fetch_add(1, Ordering::SeqCst);
                                } else if !old.is_null() {
                                    left.lock().unwrap().push((kind, old as usize));
                                }
                            }
                        }
                        1 => {
                            if kinds[kind](used) == 0 {
                                counts[kind].1.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        _ => use_it(context, kind, used),
                    }
                }
            });
        }
    });
    // Queue pairs first, then all else; what is gone says EINVAL.
    let left = left.into_inner().unwrap();
    for (kind, destroy) in kinds.iter().enumerate() {
        let kept = left.iter().filter(|(of, _)| *of == kind).map(|(_, p)| *p as *mut c_void);
        for p in shared[kind].iter().map(|place| place.load(Ordering::SeqCst)).chain(kept) {
            match destroy(p) {
                0 => {
                    counts[kind].1.fetch_add(1, Ordering::SeqCst);
                    code(EINVAL, || destroy(p));
                }
                other => assert_eq!(other, EINVAL, "kind {kind}"),
            }
        }
    }
    for (kind, (made, ended)) in counts.iter().enumerate() {
        let (made, ended) = (made.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
        assert!(made > 0, "none of kind {kind} was made");
        assert_eq!(made, ended, "kind {kind}: each object ends once");
    }
    assert_eq!(unsafe { pd::ibv_dealloc_pd(pd) }, 0, "nothing uses the domain");
    close(context);
}

/// Uses what may be dead, or of another kind.
unsafe fn use_it(context: *mut ibv_context, kind: usize, p: *mut c_void) {
    unsafe {
        let ops = (*context).ops;
        match kind {
            0 => {
                let (mut wr, mut bad) = (ibv_send_wr::zeroed(), null_mut());
                ops.post_send.unwrap()(p.cast(), &raw mut wr, &raw mut bad);
                let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), null_mut());
                ops.post_recv.unwrap()(p.cast(), &raw mut wr, &raw mut bad);
                let ex = qp::ibv_qp_to_qp_ex(p.cast());
                if !ex.is_null() {
                    (*ex).wr_start.unwrap()(ex);
                    (*ex).wr_send.unwrap()(ex);
                    (*ex).wr_set_sge.unwrap()(ex, 1, 2, 3);
                    (*ex).wr_complete.unwrap()(ex);
                }
            }
            1 => {
                let mut wc = ibv_wc::zeroed();
                ops.poll_cq.unwrap()(p.cast(), 1, &raw mut wc);
                ops.req_notify_cq.unwrap()(p.cast(), 0);
                cq::ibv_resize_cq(p.cast(), 8);
            }
            2 => {
                let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), null_mut());
                ops.post_srq_recv.unwrap()(p.cast(), &raw mut wr, &raw mut bad);
                srq::ibv_query_srq(p.cast(), from_mut(&mut ibv_srq_attr::zeroed()));
            }
            3 => {
                mr::ibv_rereg_mr(
                    p.cast(),
                    IBV_REREG_MR_CHANGE_ACCESS as c_int,
                    null_mut(),
                    null_mut(),
                    0,
                    RW,
                );
            }
            _ => {
                mw::bind_mw(p.cast(), p.cast(), from_mut(&mut ibv_mw_bind::zeroed()));
            }
        }
    }
}

/// A child of a process whose other threads make and destroy objects can do so, too, at once.
#[test]
fn a_fork_beside_threads_that_make_objects_leaves_the_child_able_to() {
    let context = open();
    let (at, ends) = (AtomicPtr::new(context), AtomicBool::new(false));
    let make = |context: *mut ibv_context| unsafe {
        let td = pd::alloc_td(context, from_mut(&mut ibv_td_init_attr { comp_mask: 0 }));
        assert_eq!(pd::dealloc_td(td), 0);
    };
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    make(at.load(Ordering::SeqCst));
                }
            });
        }
        for _ in 0..100 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                // A lock that nobody opens ends the child by the alarm.
                unsafe { libc::alarm(30) };
                for _ in 0..10 {
                    make(context);
                }
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            if status != 0 {
                ends.store(true, Ordering::SeqCst);
            }
            assert_eq!(status, 0, "the child did not end well");
        }
        ends.store(true, Ordering::SeqCst);
    });
    close(context);
}
