//! Queue pairs: creation, state, attributes, end. Posting is in [`super::post`] and [`super::wr_api`].
use super::{failed, failed_null, wr_api};
use crate::abi::*;
use crate::objects::{ContextObj, CqObj, Object, PdObj, QpObj, SrqObj, XrcdObj};
use crate::verbs::address::{address_in, address_out};
use crate::verbs::pd::{custom_alloc, custom_free};
use adverb_device::engine::{Access, AttrMask, PathMtu, QpAttr, QpCap, QpState, QpType};
use adverb_device::{Error, Qp, QpInit};
use adverb_sync::lock_api::RawMutex as _;
use adverb_sync::{Mutex, RawMutex};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Resource type a parent domain's allocator is asked with: ours, outside the ranges of vendors' drivers.
const RESOURCE_QP: u64 = 0xadb0_0002;

/// `send_ops_flags` that a queue pair type offers.
const fn send_ops(qp_type: QpType) -> u64 {
    const SEND: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const UC: u64 = SEND
        | IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_LOCAL_INV
        | IBV_QP_EX_WITH_BIND_MW
        | IBV_QP_EX_WITH_SEND_WITH_INV;
    const RC: u64 = UC
        | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_FLUSH
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    match qp_type {
        QpType::Ud => SEND,
        QpType::Uc => UC,
        QpType::Rc | QpType::XrcSend => RC,
        QpType::XrcRecv => 0,
    }
}

/// Queue pairs that can have several handles, by address, and each handle. Events name the oldest that lives: the one of
/// the context they come from, as long as there is one.
static OPENED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

static NEXT_HANDLE: AtomicU32 = AtomicU32::new(1);

/// Creates a QP.
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the program's live handles and attributes; they are written only within the plain struct.
    unsafe {
        let plain = &mut *attr;
        let mut ex = ibv_qp_init_attr_ex::zeroed();
        ex.qp_context = plain.qp_context;
        ex.send_cq = plain.send_cq;
        ex.recv_cq = plain.recv_cq;
        ex.srq = plain.srq;
        ex.cap = plain.cap;
        ex.qp_type = plain.qp_type;
        ex.sq_sig_all = plain.sq_sig_all;
        ex.comp_mask = IBV_QP_INIT_ATTR_PD;
        ex.pd = pd;
        match create((*pd).context, &raw mut ex) {
            Ok(qp) => {
                plain.cap = ex.cap;
                qp
            }
            Err(e) => failed_null("ibv_create_qp", &e),
        }
    }
}

/// Slot `create_qp_ex`.
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the program's live handles; fields beyond those of version 17 are looked at as `comp_mask` says.
    unsafe { create(context, attr) }.unwrap_or_else(|e| failed_null("ibv_create_qp_ex", &e))
}

/// # Safety
/// Live handles and valid attributes, as long as `comp_mask` says.
unsafe fn create(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Error> {
    // SAFETY: the caller's promise. No reference to the whole: an old program's struct is shorter than ours.
    unsafe {
        let mask = (*attr).comp_mask;
        let has = |bit| mask & bit != 0;
        let known = IBV_QP_INIT_ATTR_PD
            | IBV_QP_INIT_ATTR_XRCD
            | IBV_QP_INIT_ATTR_CREATE_FLAGS
            | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if mask & !known != 0 {
            return Err(Error::unsupported(format!(
                "comp_mask {mask:#x}: TSO, indirection tables and receive hashing are not offered"
            )));
        }
        if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && (*attr).create_flags != 0 {
            return Err(Error::unsupported(format!(
                "create_flags {:#x}: none are offered",
                (*attr).create_flags
            )));
        }
        let qp_type = qp_type((*attr).qp_type)?;
        let send_ops_flags = if has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) { (*attr).send_ops_flags } else { 0 };
        if send_ops_flags & !send_ops(qp_type) != 0 {
            return Err(Error::unsupported(format!(
                "send_ops_flags {:#x} are not possible on {qp_type:?}",
                send_ops_flags & !send_ops(qp_type)
            )));
        }
        let pd_handle = if has(IBV_QP_INIT_ATTR_PD) { (*attr).pd } else { core::ptr::null_mut() };
        let xrcd_handle = if has(IBV_QP_INIT_ATTR_XRCD) { (*attr).xrcd } else { core::ptr::null_mut() };
        let init = QpInit {
            qp_type,
            cap: cap_in(&(*attr).cap),
            signal_all: (*attr).sq_sig_all != 0,
            send_cq: cq((*attr).send_cq, "send_cq")?,
            recv_cq: cq((*attr).recv_cq, "recv_cq")?,
            srq: (!(*attr).srq.is_null()).then(|| SrqObj::behind((*attr).srq).srq.clone()),
            xrcd: (!xrcd_handle.is_null()).then(|| XrcdObj::behind(xrcd_handle).xrcd.clone()),
        };
        let owner = ContextObj::behind(context);
        let pd: Option<&PdObj> = if pd_handle.is_null() { None } else { Some(PdObj::behind(pd_handle)) };
        let custom =
            if pd.is_some() { custom_alloc(pd_handle, size_of::<QpObj>(), 64, RESOURCE_QP)? } else { None };
        let qp = match Qp::new(&owner.context, pd.map(|p| &p.pd), &init) {
            Ok(qp) => qp,
            Err(e) => {
                custom.into_iter().for_each(|c| custom_free(c));
                return Err(e);
            }
        };
        (*attr).cap = cap_out(&qp.query().cap);
        let mut base = ibv_qp::zeroed();
        base.context = context;
        base.qp_context = (*attr).qp_context;
        base.pd = pd_handle;
        base.send_cq = (*attr).send_cq;
        base.recv_cq = (*attr).recv_cq;
        base.srq = (*attr).srq;
        base.qp_type = (*attr).qp_type;
        Ok(enter(base, qp, has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS), custom))
    }
}

/// Gives a queue pair to the program.
fn enter(
    mut base: ibv_qp,
    qp: Arc<Qp>,
    extended: bool,
    custom: Option<crate::objects::CustomMemory>,
) -> *mut ibv_qp {
    base.handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    base.qp_num = qp.number();
    base.state = qp.state() as u32;
    base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    base.cond = libc::PTHREAD_COND_INITIALIZER;
    let mut c = ibv_qp_ex::zeroed();
    c.qp_base = base;
    wr_api::extend(&mut c);
    let shared = qp.clone();
    let opened = (qp.qp_type() == QpType::XrcRecv).then_some(&OPENED);
    let handle: *mut ibv_qp = QpObj {
        c,
        qp,
        extended,
        wr_lock: RawMutex::INIT,
        wr_holder: AtomicUsize::new(0),
        builder: UnsafeCell::default(),
        custom,
    }
    .into_handle();
    match opened {
        None => shared.set_cookie(handle as usize),
        Some(opened) => {
            let mut opened = opened.lock();
            let place = Arc::as_ptr(&shared) as usize;
            if !opened.iter().any(|(qp, _)| *qp == place) {
                shared.set_cookie(handle as usize);
            }
            opened.push((place, handle as usize));
        }
    }
    handle
}

/// Events do not name this handle from here on, if its queue pair has another.
fn leave(handle: *mut ibv_qp, qp: &Arc<Qp>) {
    if qp.qp_type() != QpType::XrcRecv {
        return;
    }
    let mut opened = OPENED.lock();
    opened.retain(|(_, other)| *other != handle as usize);
    let place = Arc::as_ptr(qp) as usize;
    if qp.cookie() == handle as usize
        && let Some((_, other)) = opened.iter().find(|(qp, _)| *qp == place)
    {
        qp.set_cookie(*other);
    }
}

fn qp_type(value: ibv_qp_type) -> Result<QpType, Error> {
    Ok(match value {
        IBV_QPT_RC => QpType::Rc,
        IBV_QPT_UC => QpType::Uc,
        IBV_QPT_UD => QpType::Ud,
        IBV_QPT_XRC_SEND => QpType::XrcSend,
        IBV_QPT_XRC_RECV => QpType::XrcRecv,
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => {
            return Err(Error::unsupported("raw packet and driver queue pairs are not offered"));
        }
        other => return Err(Error::invalid(format!("qp_type is {other}"), "it is not a type")),
    })
}

/// # Safety
/// A handle of the program's, or null.
unsafe fn cq(handle: *mut ibv_cq, what: &str) -> Result<Option<Arc<adverb_device::Cq>>, Error> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    match unsafe { CqObj::living(handle) } {
        Some(obj) => Ok(Some(Arc::clone(&obj.cq))),
        None => Err(Error::invalid(what, "the handle is no living completion queue")),
    }
}

fn cap_in(c: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: c.max_send_wr,
        max_recv_wr: c.max_recv_wr,
        max_send_sge: c.max_send_sge,
        max_recv_sge: c.max_recv_sge,
        max_inline_data: c.max_inline_data,
    }
}

fn cap_out(c: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: c.max_send_wr,
        max_recv_wr: c.max_recv_wr,
        max_send_sge: c.max_send_sge,
        max_recv_sge: c.max_recv_sge,
        max_inline_data: c.max_inline_data,
    }
}

/// Changes the state or attributes of a QP.
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
    // SAFETY: the program's live handle and attributes.
    let (obj, attr): (&QpObj, &ibv_qp_attr) = unsafe { (QpObj::behind(qp), &*attr) };
    let modified = AttrMask::from_bits(attr_mask as u32)
        .ok_or_else(|| {
            Error::invalid(format!("attr_mask is {attr_mask:#x}"), "it has bits that are not known")
        })
        .and_then(|mask| Ok((attr_in(&obj.qp, attr, mask)?, mask)))
        .and_then(|(values, mask)| obj.qp.modify(&values, mask));
    match modified {
        Ok(()) => {
            // SAFETY: the visible field of a live handle.
            unsafe { (*qp).state = obj.qp.state() as u32 };
            0
        }
        Err(e) => failed("ibv_modify_qp", &e),
    }
}

/// Reads the fields that the mask names.
fn attr_in(qp: &Qp, a: &ibv_qp_attr, mask: AttrMask) -> Result<QpAttr, Error> {
    let mut out = QpAttr::default();
    let state = |what: &str, value: u32| {
        QpState::from_code(value)
            .ok_or_else(|| Error::invalid(format!("{what} is {value}"), "it is not a state"))
    };
    if mask.contains(AttrMask::STATE) {
        out.state = state("qp_state", a.qp_state)?;
    }
    if mask.contains(AttrMask::CUR_STATE) {
        out.cur_state = state("cur_qp_state", a.cur_qp_state)?;
    }
    if mask.contains(AttrMask::PATH_MTU) {
        out.path_mtu = PathMtu::from_code(a.path_mtu).ok_or_else(|| {
            Error::invalid(format!("path_mtu is {}", a.path_mtu), "1 (256) to 5 (4096) are possible")
        })?;
    }
    if mask.contains(AttrMask::AV) {
        out.av = qp.context().resolve(&address_in(&a.ah_attr))?;
    }
    if mask.contains(AttrMask::ALT_PATH) {
        out.alt_av = qp.context().resolve(&address_in(&a.alt_ah_attr))?;
    }
    out.path_mig_state = a.path_mig_state as u8;
    out.qkey = a.qkey;
    out.rq_psn = a.rq_psn;
    out.sq_psn = a.sq_psn;
    out.dest_qpn = a.dest_qp_num;
    out.access = Access::from_bits_truncate(a.qp_access_flags);
    out.cap = cap_in(&a.cap);
    out.pkey_index = a.pkey_index;
    out.alt_pkey_index = a.alt_pkey_index;
    out.en_sqd_async_notify = a.en_sqd_async_notify != 0;
    out.max_rd_atomic = a.max_rd_atomic;
    out.max_dest_rd_atomic = a.max_dest_rd_atomic;
    out.min_rnr_timer = a.min_rnr_timer;
    out.port_num = a.port_num;
    out.timeout = a.timeout;
    out.retry_cnt = a.retry_cnt;
    out.rnr_retry = a.rnr_retry;
    out.alt_port_num = a.alt_port_num;
    out.alt_timeout = a.alt_timeout;
    out.rate_limit = a.rate_limit;
    Ok(out)
}

/// The attributes of a QP.
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program's live handle.
    let obj: &QpObj = unsafe { QpObj::behind(qp) };
    if obj.qp.context().node().is_stale() {
        return failed(
            "ibv_query_qp",
            &Error::new(adverb_device::Errno::EIO, "the queue pair belongs to the parent"),
        );
    }
    let now = obj.qp.query();
    let mut out = ibv_qp_attr::zeroed();
    attr_out(&now, &mut out);
    // SAFETY: the program's places; the visible fields of a live handle.
    unsafe {
        (*qp).state = out.qp_state;
        attr.write(out);
        init_attr.write(ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap: cap_out(&now.cap),
            qp_type: (*qp).qp_type,
            sq_sig_all: c_int::from(obj.qp.signals_all()),
        });
    }
    0
}

fn attr_out(a: &QpAttr, out: &mut ibv_qp_attr) {
    out.qp_state = a.state as u32;
    out.cur_qp_state = a.state as u32;
    out.path_mtu = a.path_mtu as u32;
    out.path_mig_state = a.path_mig_state.into();
    out.qkey = a.qkey;
    out.rq_psn = a.rq_psn;
    out.sq_psn = a.sq_psn;
    out.dest_qp_num = a.dest_qpn;
    out.qp_access_flags = a.access.bits();
    out.cap = cap_out(&a.cap);
    out.ah_attr = address_out(&a.av);
    out.alt_ah_attr = address_out(&a.alt_av);
    out.pkey_index = a.pkey_index;
    out.alt_pkey_index = a.alt_pkey_index;
    out.en_sqd_async_notify = a.en_sqd_async_notify.into();
    out.sq_draining = a.sq_draining.into();
    out.max_rd_atomic = a.max_rd_atomic;
    out.max_dest_rd_atomic = a.max_dest_rd_atomic;
    out.min_rnr_timer = a.min_rnr_timer;
    out.port_num = a.port_num;
    out.timeout = a.timeout;
    out.retry_cnt = a.retry_cnt;
    out.rnr_retry = a.rnr_retry;
    out.alt_port_num = a.alt_port_num;
    out.alt_timeout = a.alt_timeout;
    out.rate_limit = a.rate_limit;
}

/// Destroys a QP.
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the program's live handle.
    let obj: &QpObj = unsafe { QpObj::behind(qp) };
    leave(qp, &obj.qp);
    if let Err(e) = obj.qp.destroy() {
        return failed("ibv_destroy_qp", &e);
    }
    let custom = obj.custom;
    // SAFETY: destroyed, and the program gave up the handle.
    unsafe {
        <QpObj as Object<ibv_qp>>::free(qp);
        custom.into_iter().for_each(|c| custom_free(c));
    }
    0
}

/// The extended face of a QP that was created with `send_ops_flags`, else null.
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the program's live handle.
    let obj: &QpObj = unsafe { QpObj::behind(qp) };
    if obj.extended { qp.cast() } else { core::ptr::null_mut() }
}

/// Joins a multicast group: not offered (`max_mcast_grp` is 0).
pub unsafe extern "C" fn ibv_attach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    failed("ibv_attach_mcast", &Error::unsupported("multicast is not offered"))
}

/// Leaves a multicast group.
pub unsafe extern "C" fn ibv_detach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    failed("ibv_detach_mcast", &Error::unsupported("multicast is not offered"))
}

/// Sets the options of enhanced connection establishment: the device has none, so only "none" can be set.
pub unsafe extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program's options.
    let ece = unsafe { &mut *ece };
    if ece.comp_mask != 0 {
        return libc::EINVAL;
    }
    if ece.vendor_id == 0 {
        return 0;
    }
    failed("ibv_set_ece", &Error::unsupported("enhanced connection establishment is not offered"))
}

/// The options of enhanced connection establishment: none.
pub unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program's place.
    unsafe { ece.write(ibv_ece::zeroed()) };
    0
}

/// Whether data arrives in order; 0 for no promise: retransmission may write again.
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    0
}

/// Slot `open_qp`: a shared XRC receive QP.
pub unsafe extern "C" fn open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    // SAFETY: the program's live handles and attributes.
    unsafe {
        let attr = &*attr;
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD;
        let known = needed | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;
        if attr.comp_mask & needed != needed || attr.comp_mask & !known != 0 {
            let e = Error::invalid(
                format!("comp_mask is {:#x}", attr.comp_mask),
                "number and XRC domain are needed",
            );
            return failed_null("ibv_open_qp", &e);
        }
        if attr.comp_mask & IBV_QP_OPEN_ATTR_TYPE != 0 && attr.qp_type != IBV_QPT_XRC_RECV {
            let e = Error::invalid(format!("qp_type is {}", attr.qp_type), "only XRC targets can be opened");
            return failed_null("ibv_open_qp", &e);
        }
        match Qp::open(&XrcdObj::behind(attr.xrcd).xrcd, attr.qp_num) {
            Ok(qp) => {
                let mut base = ibv_qp::zeroed();
                base.context = context;
                base.qp_context = if attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0 {
                    attr.qp_context
                } else {
                    core::ptr::null_mut::<c_void>()
                };
                base.qp_type = IBV_QPT_XRC_RECV;
                enter(base, qp, false, None)
            }
            Err(e) => failed_null("ibv_open_qp", &e),
        }
    }
}

/// Slot `modify_qp_rate_limit`: pacing is not offered.
pub unsafe extern "C" fn modify_qp_rate_limit(_qp: *mut ibv_qp, _attr: *mut ibv_qp_rate_limit_attr) -> c_int {
    failed("ibv_modify_qp_rate_limit", &Error::unsupported("packet pacing is not offered"))
}
