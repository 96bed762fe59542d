//! The answers of a call that refuses, and one object of each kind.
use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, null_mut};

pub use super::common::*;
use ibverbs::abi::*;
use ibverbs::verbs::{ah, buf, comp_channel, cq, dm, mr, mw, pd, port, qp, srq, xrcd};
use libc::EINVAL;

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

macro_rules! objects {
    ($($name:ident: $of:ty,)*) => {
        /// One object of each kind, made on a context.
        pub struct Objects {
            $(pub $name: *mut $of,)*
            pub memory: Vec<u8>,
        }

        impl Objects {
            /// Objects that are all one pointer.
            pub fn of_one_pointer(p: *mut c_void) -> Objects {
                Objects { $($name: p.cast(),)* memory: Vec::new() }
            }
            fn pointers(&self) -> Vec<(&'static str, *mut c_void)> {
                vec![$((stringify!($name), self.$name.cast()),)*]
            }
        }
    };
}
objects! {
    pd: ibv_pd,
    parent: ibv_pd,
    td: ibv_td,
    mr: ibv_mr,
    dm: ibv_dm,
    mw: ibv_mw,
    ah: ibv_ah,
    channel: ibv_comp_channel,
    cq: ibv_cq,
    cq_ex: ibv_cq_ex,
    srq: ibv_srq,
    qp: ibv_qp,
    qp_ex: ibv_qp_ex,
    xrcd: ibv_xrcd,
    buf: ibv_buf,
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
    let mut init = ibv_qp_init_attr::zeroed();
    (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
    init.cap = qp_init(cq).cap;
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

pub fn cq_of(context: *mut ibv_context) -> *mut ibv_cq {
    unsafe { cq::ibv_create_cq(context, 4, null_mut(), null_mut(), 0) }
}

impl Objects {
    pub fn new(context: *mut ibv_context) -> Self {
        let mut o = Objects::of_one_pointer(null_mut());
        o.memory = vec![0_u8; 8192];
        unsafe {
            o.pd = pd::ibv_alloc_pd(context);
            o.td = pd::alloc_td(context, from_mut(&mut ibv_td_init_attr { comp_mask: 0 }));
            let mut attr = ibv_parent_domain_init_attr::zeroed();
            (attr.pd, attr.td) = (o.pd, o.td);
            o.parent = pd::alloc_parent_domain(context, &raw mut attr);
            o.mr = mr::ibv_reg_mr(o.pd, o.memory.as_mut_ptr().cast(), o.memory.len(), RW);
            let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
            o.dm = dm::alloc_dm(context, &raw mut attr);
            o.mw = mw::alloc_mw(o.pd, IBV_MW_TYPE_1);
            o.ah = ah::ibv_create_ah(o.pd, from_mut(&mut address(context)));
            o.channel = comp_channel::ibv_create_comp_channel(context);
            o.cq = cq_of(context);
            let mut attr = ibv_cq_init_attr_ex::zeroed();
            attr.cqe = 4;
            o.cq_ex = cq::create_cq_ex(context, &raw mut attr);
            o.srq = srq_of(o.pd);
            let mut attr = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
            o.xrcd = xrcd::open_xrcd(context, &raw mut attr);
            assert!(!buf::ibv_alloc_buf(o.pd, 4096, &raw mut o.buf).is_null());
            (o.qp, o.qp_ex) = (plain_qp(o.pd, o.cq), extended_qp(context, o.pd, o.cq));
        }
        assert!(o.pointers().iter().all(|(_, p)| !p.is_null()), "{:?}", o.pointers());
        o
    }
    pub fn end(&self) {
        unsafe { buf::ibv_free_buf(self.buf) };
        self.destroy(|call| assert_eq!(call(), 0));
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
        objects.end();
        objects
    }
}
