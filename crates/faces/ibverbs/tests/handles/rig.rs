//! The answers of a call that refuses, and one object of each kind.
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{from_mut, null_mut};

use ibverbs::abi::*;
use ibverbs::verbs::{ah, buf, comp_channel, cq, device, dm, mr, mw, pd, port, qp, srq, xrcd};
use libc::EINVAL;

pub const PORT: u8 = 1;
pub const RW: c_int =
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) as c_int;

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub fn set_errno(value: c_int) {
    unsafe { *libc::__errno_location() = value };
}

/// A call that returns an errno value refuses, with both numbers.
#[track_caller]
pub fn code(wanted: c_int, call: impl FnOnce() -> c_int) {
    set_errno(0);
    let got = call();
    assert_eq!((got, errno()), (wanted, wanted), "result and errno");
}

/// A call that returns -1 (or a negative errno value) refuses with EINVAL.
#[track_caller]
pub fn negative(wanted: c_int, call: impl FnOnce() -> c_int) {
    set_errno(0);
    let got = call();
    assert_eq!((got, errno()), (wanted, EINVAL), "result and errno");
}

/// A call that returns a pointer refuses with EINVAL.
#[track_caller]
pub fn pointer<T>(call: impl FnOnce() -> *mut T) {
    set_errno(0);
    let got = call();
    let now = errno();
    assert!(got.is_null(), "it was not refused");
    assert_eq!(now, EINVAL);
}

/// A call that returns nothing says EINVAL in `errno`.
#[track_caller]
pub fn silent(call: impl FnOnce()) {
    set_errno(0);
    call();
    assert_eq!(errno(), EINVAL);
}

/// The loopback device, opened.
pub fn open() -> *mut ibv_context {
    unsafe {
        adverb_device::selection::select("lo".parse().unwrap());
        let mut n = 0;
        let list = device::ibv_get_device_list(&raw mut n);
        let devices = std::slice::from_raw_parts(list, n as usize);
        let name =
            |d: &&*mut ibv_device| CStr::from_ptr(device::ibv_get_device_name(**d)) == c"adverb_lo";
        let context =
            device::ibv_open_device(*devices.iter().find(name).expect("the loopback device"));
        device::ibv_free_device_list(list);
        assert!(!context.is_null());
        context
    }
}

pub fn close(context: *mut ibv_context) {
    assert_eq!(unsafe { device::ibv_close_device(context) }, 0);
}

/// One object of each kind, made on a context.
pub struct Objects {
    pub pd: *mut ibv_pd,
    pub parent: *mut ibv_pd,
    pub td: *mut ibv_td,
    pub mr: *mut ibv_mr,
    pub dm: *mut ibv_dm,
    pub mw: *mut ibv_mw,
    pub ah: *mut ibv_ah,
    pub channel: *mut ibv_comp_channel,
    pub cq: *mut ibv_cq,
    pub cq_ex: *mut ibv_cq_ex,
    pub srq: *mut ibv_srq,
    pub qp: *mut ibv_qp,
    pub qp_ex: *mut ibv_qp_ex,
    pub xrcd: *mut ibv_xrcd,
    pub buf: *mut ibv_buf,
    pub memory: Vec<u8>,
}

pub fn qp_init(cq: *mut ibv_cq) -> ibv_qp_init_attr_ex {
    let mut init = ibv_qp_init_attr_ex::zeroed();
    (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
    init.cap = ibv_qp_cap {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    init
}

pub fn plain_qp(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
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

pub fn extended_qp(context: *mut ibv_context, pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp_ex {
    unsafe { qp::ibv_qp_to_qp_ex(qp_with_ops(context, pd, cq)) }
}

pub fn qp_with_ops(context: *mut ibv_context, pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let mut init = qp_init(cq);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    unsafe { qp::create_qp_ex(context, &raw mut init) }
}

pub fn address(context: *mut ibv_context) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    (attr.port_num, attr.is_global) = (PORT, 1);
    unsafe { assert_eq!(port::ibv_query_gid(context, PORT, 0, &raw mut attr.grh.dgid), 0) };
    attr
}

pub fn srq_of(pd: *mut ibv_pd) -> *mut ibv_srq {
    let mut attr = ibv_srq_init_attr::zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (4, 1);
    unsafe { srq::ibv_create_srq(pd, &raw mut attr) }
}

pub fn cq_of(context: *mut ibv_context) -> *mut ibv_cq {
    unsafe { cq::ibv_create_cq(context, 4, null_mut(), null_mut(), 0) }
}

impl Objects {
    pub fn new(context: *mut ibv_context) -> Self {
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
            assert!(!buf::ibv_alloc_buf(pd, 4096, &raw mut buf).is_null());
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
            Objects {
                pd,
                parent,
                td,
                mr,
                dm,
                mw,
                ah,
                channel,
                cq,
                cq_ex,
                srq,
                qp,
                qp_ex,
                xrcd,
                buf,
                memory,
            }
        }
    }
    /// Destroys everything, in order, and expects an answer of each.
    #[track_caller]
    pub fn destroy(&self, each: impl Fn(&dyn Fn() -> c_int)) {
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
    pub fn ended(context: *mut ibv_context) -> Self {
        let objects = Objects::new(context);
        unsafe { buf::ibv_free_buf(objects.buf) };
        objects.destroy(|call| assert_eq!(call(), 0));
        objects
    }
}
