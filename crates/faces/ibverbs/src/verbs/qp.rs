//! Queue pairs: creation, state, attributes, end. Posting is in [`super::post`] and
//! [`super::wr_api`].
mod attr;
pub mod handle;

use super::observers::call::Event;
use super::observers::list::tell;
use super::{done, failed, failed_null, wq, wr_api};
use crate::abi::*;
use crate::errno;
use crate::handles::{live, live_in, maybe_in, reserve};
use crate::objects::QpObj;
use crate::verbs::pd::{custom_alloc, custom_free};
use adverb_check::{Kind, Source};
use adverb_device::engine::{AttrMask, Gid, QpType};
use adverb_device::nic::room::{self, Operations};
use adverb_device::{Errno, Error, Qp, QpInit};
use attr::{attr_in, attr_out, cap_in, cap_out};
use core::ffi::c_int;
use handle::{enter, leave};

/// Resource type passed to a parent domain's allocator: the library's own, outside the ranges of
/// vendor drivers.
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
        QpType::RawPacket => IBV_QP_EX_WITH_SEND,
        QpType::Uc => UC,
        QpType::Rc | QpType::XrcSend => RC,
        QpType::XrcRecv => 0,
    }
}

/// Creates a QP.
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let context = match live(pd) {
        Ok(domain) => domain.origin().context,
        Err(e) => return failed_null("ibv_create_qp", &e),
    };
    // SAFETY: the program's attributes. The long attributes begin with the short attributes. Only
    // fields of the plain struct are written.
    unsafe {
        let plain = &mut *attr;
        let mut ex = ibv_qp_init_attr_ex::zeroed();
        (&raw mut ex).cast::<ibv_qp_init_attr>().write(*plain);
        ex.comp_mask = IBV_QP_INIT_ATTR_PD;
        ex.pd = pd;
        match create(context, &raw mut ex) {
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
    // SAFETY: the program's attributes. Fields beyond version 17 are read only if `comp_mask` names
    // them.
    unsafe { create(context, attr) }.unwrap_or_else(|e| failed_null("ibv_create_qp_ex", &e))
}

/// # Safety
/// The attributes are valid, as far as `comp_mask` says.
unsafe fn create(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Error> {
    let owner = live(context)?;
    let file = owner.file;
    // SAFETY: the caller's promise. There is no reference to the whole struct, because the struct
    // of an old program is shorter.
    unsafe {
        let mask = (*attr).comp_mask;
        let has = |bit| mask & bit != 0;
        let known = IBV_QP_INIT_ATTR_PD
            | IBV_QP_INIT_ATTR_XRCD
            | IBV_QP_INIT_ATTR_CREATE_FLAGS
            | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
            | IBV_QP_INIT_ATTR_IND_TABLE
            | IBV_QP_INIT_ATTR_RX_HASH;
        if mask & !known != 0 {
            return Err(Error::unsupported(format!(
                "comp_mask {mask:#x}: segmentation offload (TSO) and a source queue pair number are not offered"
            )));
        }
        let flags = if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) { (*attr).create_flags } else { 0 };
        let block = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
        if flags & !block != 0 || flags != 0 && (*attr).qp_type == IBV_QPT_RAW_PACKET {
            return Err(Error::unsupported(format!(
                "create_flags {flags:#x}: IBV_QP_CREATE_BLOCK_SELF_MCAST_LB alone is offered, and not for raw packets"
            )));
        }
        if mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH) != 0 {
            return wq::create_spreading(context, &owner.context, file, attr);
        }
        let qp_type = qp_type((*attr).qp_type)?;
        let ops = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then(|| (*attr).send_ops_flags);
        let send_ops_flags = ops.unwrap_or(0);
        if send_ops_flags & !send_ops(qp_type) != 0 {
            return Err(Error::unsupported(format!(
                "send_ops_flags {:#x} are not possible on {qp_type:?}",
                send_ops_flags & !send_ops(qp_type)
            )));
        }
        let pd_handle = if has(IBV_QP_INIT_ATTR_PD) { (*attr).pd } else { core::ptr::null_mut() };
        let xrcd_handle =
            if has(IBV_QP_INIT_ATTR_XRCD) { (*attr).xrcd } else { core::ptr::null_mut() };
        let cq = |handle: *mut ibv_cq| -> Result<_, Error> {
            Ok(maybe_in(handle, file)?.map(|cq| cq.cq.clone()))
        };
        let init = QpInit {
            qp_type,
            cap: room::grant(
                owner.context.nic(),
                owner.context.limits(),
                qp_type,
                operations(qp_type, ops),
                cap_in(&(*attr).cap),
            ),
            signal_all: (*attr).sq_sig_all != 0,
            send_cq: cq((*attr).send_cq)?,
            recv_cq: cq((*attr).recv_cq)?,
            srq: maybe_in((*attr).srq, file)?.map(|srq| srq.srq.clone()),
            xrcd: maybe_in(xrcd_handle, file)?.map(|xrcd| xrcd.xrcd.clone()),
        };
        let pd = maybe_in(pd_handle, file)?;
        let place = reserve()?;
        let custom = match &pd {
            Some(pd) => custom_alloc(pd, size_of::<QpObj>(), 64, RESOURCE_QP)?,
            None => None,
        };
        let qp = Qp::new(&owner.context, pd.as_ref().map(|p| &p.pd), &init)
            .inspect_err(|_| custom_free(custom))?;
        if flags & block != 0 {
            qp.block_own_multicast();
        }
        (*attr).cap = cap_out(&qp.query().cap);
        let mut base = ibv_qp::zeroed();
        base.context = context;
        base.qp_context = (*attr).qp_context;
        base.pd = pd_handle;
        base.send_cq = (*attr).send_cq;
        base.recv_cq = (*attr).recv_cq;
        base.srq = (*attr).srq;
        base.qp_type = (*attr).qp_type;
        let extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
        Ok(enter(place, base, file, qp, extended, custom))
    }
}

fn qp_type(value: ibv_qp_type) -> Result<QpType, Error> {
    Ok(match value {
        IBV_QPT_RC => QpType::Rc,
        IBV_QPT_UC => QpType::Uc,
        IBV_QPT_UD => QpType::Ud,
        IBV_QPT_XRC_SEND => QpType::XrcSend,
        IBV_QPT_XRC_RECV => QpType::XrcRecv,
        IBV_QPT_RAW_PACKET => QpType::RawPacket,
        IBV_QPT_DRIVER => {
            return Err(Error::unsupported("driver queue pairs are not offered"));
        }
        other => return Err(Error::invalid(format!("qp_type is {other}"), "no such type")),
    })
}

/// The operations of a queue pair by `send_ops_flags`.
fn operations(kind: QpType, flags: Option<u64>) -> Operations {
    flags.map_or(Operations::all(kind), |flags| Operations {
        rdma: flags
            & (IBV_QP_EX_WITH_RDMA_WRITE
                | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
                | IBV_QP_EX_WITH_RDMA_READ)
            != 0,
        atomic: flags & (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
            != 0,
        keys: flags & (IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV) != 0,
    })
}

/// Changes the state or attributes of a QP.
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    let modify = || {
        let obj = live(qp)?;
        let mask = AttrMask::from_bits(attr_mask as u32).ok_or_else(|| {
            Error::invalid(format!("attr_mask is {attr_mask:#x}"), "unknown bits are set")
        })?;
        // SAFETY: the program's attributes.
        let values = attr_in(&obj.qp, unsafe { &*attr }, mask)?;
        obj.qp.modify(&values, mask)?;
        tell(Event::Modified { qp: &obj.qp, attr: &values, mask });
        if mask.contains(AttrMask::STATE) {
            // The visible state is the last requested state. A program that posts while the queue
            // pair fails must not see the state change.
            // SAFETY: a visible field.
            unsafe { (*qp).state = (*attr).qp_state };
        }
        Ok(())
    };
    done("ibv_modify_qp", modify())
}

/// The attributes of a QP.
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let query = || {
        let obj = live(qp)?;
        if obj.qp.context().node().is_stale() {
            return Err(Error::new(Errno::EIO, "the queue pair belongs to the parent"));
        }
        obj.qp.context().check_device()?;
        let now = obj.qp.query();
        let out = attr_out(&now);
        // SAFETY: the program's places; the visible fields of a live handle.
        unsafe {
            if attr_mask as u32 & AttrMask::STATE.bits() != 0 {
                (*qp).state = out.qp_state;
            }
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
        Ok(())
    };
    done("ibv_query_qp", query())
}

/// Destroys a QP.
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    done("ibv_destroy_qp", destroy(qp))
}

fn destroy(qp: *mut ibv_qp) -> Result<(), Error> {
    let obj = live(qp)?;
    // The kernel's rule: attached groups have to be detached first.
    if let groups @ 1.. = obj.qp.multicast_groups() {
        return Err(Error::new(
            Errno::EBUSY,
            format!(
                "the queue pair is attached to {groups} multicast group(s): ibv_detach_mcast first"
            ),
        ));
    }
    if let flows @ 1.. = obj.qp.flows() {
        return Err(Error::new(
            Errno::EBUSY,
            format!("the queue pair has {flows} flow(s): ibv_destroy_flow first"),
        ));
    }
    let obj = obj.end()?;
    leave(qp, &obj.qp);
    let number = obj.qp.number();
    tell(Event::Destroying(&[Source::QueuePair(number)]));
    obj.qp.destroy()?;
    tell(Event::QueuePairDestroyed(number));
    tell(Event::Ended(Kind::QueuePair, qp as usize));
    let custom = obj.custom;
    wr_api::leave_own(&obj);
    obj.finish();
    // SAFETY: the program's memory of the queue pair, which is no longer used. It is freed once, by
    // the thread that ended the queue pair.
    unsafe { custom_free(custom) };
    Ok(())
}

/// The extended interface of a QP created with `send_ops_flags`, else null.
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    match live(qp) {
        Ok(obj) if obj.extended => qp.cast(),
        Ok(_) => core::ptr::null_mut(),
        Err(e) => failed_null("ibv_qp_to_qp_ex", &e),
    }
}

/// Attaches a UD queue pair to a multicast group, to receive the group's packets.
pub unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the program's GID.
    let attach = |qp: &Qp| qp.attach_mcast(unsafe { gid_in(gid) }, lid);
    done("ibv_attach_mcast", live(qp).and_then(|obj| attach(&obj.qp)))
}

/// Detaches a UD queue pair from a multicast group.
pub unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the program's GID.
    let detach = |qp: &Qp| qp.detach_mcast(unsafe { gid_in(gid) }, lid);
    done("ibv_detach_mcast", live(qp).and_then(|obj| detach(&obj.qp)))
}

/// # Safety
/// `gid` points to a GID.
unsafe fn gid_in(gid: *const ibv_gid) -> Gid {
    // SAFETY: the caller's promise. Both members of the union are plain bytes.
    Gid(unsafe { (*gid).raw })
}

/// The reason why there are no options of enhanced connection establishment.
const NO_ECE: &str = "enhanced connection establishment is not offered";

/// Sets the options of enhanced connection establishment. The device has none, so the answer is
/// EOPNOTSUPP, as with a NIC's driver without such options.
pub unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    if let Err(e) = live(qp) {
        return failed("ibv_set_ece", &e);
    }
    // SAFETY: the program's options.
    if unsafe { (*ece).comp_mask } != 0 {
        return errno::code(libc::EINVAL);
    }
    failed("ibv_set_ece", &Error::unsupported(NO_ECE))
}

/// The options of enhanced connection establishment. EOPNOTSUPP tells programs that there are none.
pub unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    done("ibv_query_ece", live(qp).and(Err(Error::unsupported(NO_ECE))))
}

/// Does data arrive in order? 0 means no promise, because a retransmission may write again.
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    if let Err(e) = live(qp) {
        failed("ibv_query_qp_data_in_order", &e);
    }
    0
}

/// Slot `open_qp`: a shared XRC receive QP.
pub unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: the program's attributes.
    open(context, unsafe { &*attr }).unwrap_or_else(|e| failed_null("ibv_open_qp", &e))
}

fn open(context: *mut ibv_context, attr: &ibv_qp_open_attr) -> Result<*mut ibv_qp, Error> {
    let file = live(context)?.file;
    let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD;
    let known = needed | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;
    if attr.comp_mask & needed != needed || attr.comp_mask & !known != 0 {
        return Err(Error::invalid(
            format!("comp_mask is {:#x}", attr.comp_mask),
            "number and XRC domain are needed",
        ));
    }
    if attr.comp_mask & IBV_QP_OPEN_ATTR_TYPE != 0 && attr.qp_type != IBV_QPT_XRC_RECV {
        let what = format!("qp_type is {}", attr.qp_type);
        return Err(Error::invalid(what, "only XRC targets can be opened"));
    }
    let domain = live_in(attr.xrcd, file)?;
    let place = reserve()?;
    let qp = Qp::open(&domain.xrcd, attr.qp_num)?;
    let mut base = ibv_qp::zeroed();
    base.context = context;
    if attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0 {
        base.qp_context = attr.qp_context;
    }
    base.qp_type = IBV_QPT_XRC_RECV;
    Ok(enter(place, base, file, qp, false, None))
}

/// Slot `modify_qp_rate_limit`: pacing is not offered.
pub unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut ibv_qp,
    _attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    done(
        "ibv_modify_qp_rate_limit",
        live(qp).and(Err(Error::unsupported("packet pacing is not offered"))),
    )
}
