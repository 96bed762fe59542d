//! Queue pairs of ids: creation, with defaults from the id, and state changes.

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::device::Depths;
use crate::error::{Errno, ErrnoResult, non_null, zero_or_minus_one};
use crate::id::{Group, Id};
use crate::query::set_bound_device;
use crate::{command, verbs};
use adverb_abi::rdma_user_cm::{Request, rdma_ucm_init_qp_attr};
use adverb_abi::*;

/// The attributes and mask that move the id's queue pair to a state.
pub fn attributes(id: &Id, state: u32) -> ErrnoResult<(ibv_qp_attr, c_int)> {
    let body = rdma_ucm_init_qp_attr { response: 0, id: id.handle.get(), qp_state: state };
    let found: ib_uverbs_qp_attr = command::ask(id.fd(), Request::InitQpAttr(body))?;
    let attr = ibv_qp_attr { qp_state: state, ..(&found).into() };
    Ok((attr, found.qp_attr_mask as c_int))
}

/// Moves a queue pair to a state with the attributes of the connection, or with other depths.
///
/// # Safety
/// The queue pair exists.
unsafe fn step(id: &Id, qp: *mut ibv_qp, state: u32, depths: Option<Depths>) -> ErrnoResult {
    // The mask has the first depth for RTR, and the second for RTS.
    let (mut attr, mask) = attributes(id, state)?;
    if let Some(depths) = depths {
        attr.max_dest_rd_atomic = depths.responder_resources;
        attr.max_rd_atomic = depths.initiator_depth;
    }
    // SAFETY: the caller's word.
    unsafe { verbs::modify_qp(qp, &raw mut attr, mask) }
}

/// Moves the id's queue pair, if any, to RTR and RTS. `depths`: values in place of the
/// connection's.
pub fn to_send(id: &Id, depths: Option<Depths>) -> ErrnoResult {
    let qp = id.public.qp.get();
    if qp.is_null() {
        return Ok(());
    }
    // INIT again, because the attributes were not known when the queue pair was created.
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        // SAFETY: the id's queue pair exists.
        unsafe { step(id, qp, state, depths) }?;
    }
    Ok(())
}

/// Moves the id's queue pair, if any, to the error state.
pub fn to_error(id: &Id) -> ErrnoResult {
    let qp = id.public.qp.get();
    if qp.is_null() {
        return Ok(());
    }
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::zeroed() };
    // SAFETY: the id's queue pair exists.
    unsafe { verbs::modify_qp(qp, &raw mut attr, IBV_QP_STATE as c_int) }
}

/// # Safety
/// The queue pair exists.
unsafe fn first_states(id: &Id, qp: *mut ibv_qp) -> ErrnoResult {
    // SAFETY: the caller's word.
    unsafe {
        step(id, qp, IBV_QPS_INIT, None)?;
        if !id.is_datagram() {
            return Ok(());
        }
        // A datagram queue pair needs no peer, so it can send at once.
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_RTR, ..ibv_qp_attr::zeroed() };
        verbs::modify_qp(qp, &raw mut attr, IBV_QP_STATE as c_int)?;
        attr.qp_state = IBV_QPS_RTS;
        verbs::modify_qp(qp, &raw mut attr, (IBV_QP_STATE | IBV_QP_SQ_PSN) as c_int)
    }
}

/// Handles a joined group: attaches the id's queue pair, unless the program joined only to send.
pub fn joined(id: &Id, group: &Group, gid: ibv_gid, lid: u16) -> ErrnoResult {
    group.gid.set(gid);
    group.lid.set(lid);
    let qp = id.public.qp.get();
    if qp.is_null() || group.flags == SEND_ONLY_MEMBER {
        return Ok(());
    }
    // SAFETY: the id's queue pair exists.
    unsafe { verbs::attach(qp, &gid, lid) }
}

/// Creates completion queues, each with its own channel. A length of zero creates none.
pub fn create_cqs(id: &Id, send: u32, recv: u32) -> ErrnoResult {
    let public = &id.public;
    let context = public.verbs.get();
    let make = || {
        for (length, channel, cq) in [
            (recv, &public.recv_cq_channel, &public.recv_cq),
            (send, &public.send_cq_channel, &public.send_cq),
        ] {
            if length > 0 {
                // SAFETY: the id's context is never closed; the channel was just created.
                unsafe {
                    channel.set(verbs::create_comp_channel(context)?);
                    let user = id.pointer().cast();
                    cq.set(verbs::create_cq(context, length, user, channel.get())?);
                }
            }
        }
        Ok(())
    };
    make().inspect_err(|_| destroy_cqs(id))
}

/// Destroys the completion queues of the id and their channels. Those of an XRC receiver are
/// destroyed with its SRQ.
pub fn destroy_cqs(id: &Id) {
    let public = &id.public;
    if public.qp_type.get() == IBV_QPT_XRC_RECV && !public.srq.get().is_null() {
        return;
    }
    let cqs = taken(&public.recv_cq, &public.send_cq);
    let channels = taken(&public.recv_cq_channel, &public.send_cq_channel);
    // SAFETY: the objects belong to the id. If another object still uses one of them, the call
    // refuses.
    unsafe {
        for cq in cqs {
            let _ = verbs::destroy_cq(cq);
        }
        for channel in channels {
            let _ = verbs::destroy_comp_channel(channel);
        }
    }
}

/// Takes the objects of two fields, which may be one object.
fn taken<T>(a: &Cell<*mut T>, b: &Cell<*mut T>) -> impl Iterator<Item = *mut T> {
    let (a, b) = (a.replace(null_mut()), b.replace(null_mut()));
    [a, if a == b { null_mut() } else { b }].into_iter().filter(|object| !object.is_null())
}

/// Creates the id's queue pair.
///
/// # Safety
/// The fields selected by `comp_mask` are valid, and their objects exist.
unsafe fn create(id: &Id, attr: *mut ibv_qp_init_attr_ex) -> ErrnoResult {
    set_bound_device(id)?;
    let public = &id.public;
    let differ = |a: *mut ibv_cq, b: *mut ibv_cq| !a.is_null() && !b.is_null() && a != b;
    // SAFETY: the caller's word.
    let (domain, own_domain, send_cq, recv_cq, cap) = unsafe {
        let domain =
            if (*attr).comp_mask & IBV_QP_INIT_ATTR_PD != 0 { (*attr).pd } else { null_mut() };
        let own = domain.is_null() || (*domain).context == public.verbs.get();
        (domain, own, (*attr).send_cq, (*attr).recv_cq, (*attr).cap)
    };
    if !public.qp.get().is_null()
        || public.verbs.get().is_null()
        || !own_domain
        || differ(public.recv_cq.get(), recv_cq)
        || differ(public.send_cq.get(), send_cq)
    {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's word; the domains belong to the id.
    unsafe {
        if domain.is_null() {
            (*attr).comp_mask |= IBV_QP_INIT_ATTR_PD;
            (*attr).pd = public.pd.get();
        }
        let lacks_xrcd = (*attr).comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || (*attr).xrcd.is_null();
        if public.qp_type.get() == IBV_QPT_XRC_RECV && lacks_xrcd {
            (*attr).xrcd = id.device(|device| device.xrcd())?;
            (*attr).comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        }
    }
    let wanted = |given: *mut ibv_cq, own: *mut ibv_cq, n: u32| {
        if given.is_null() && own.is_null() { n } else { 0 }
    };
    create_cqs(
        id,
        wanted(send_cq, public.send_cq.get(), cap.max_send_wr),
        wanted(recv_cq, public.recv_cq.get(), cap.max_recv_wr),
    )?;
    // SAFETY: the caller's word; the values filled in are objects of the id.
    let made = unsafe {
        if send_cq.is_null() {
            (*attr).send_cq = public.send_cq.get();
        }
        if recv_cq.is_null() {
            (*attr).recv_cq = public.recv_cq.get();
        }
        if (*attr).srq.is_null() {
            (*attr).srq = public.srq.get();
        }
        verbs::create_qp(public.verbs.get(), attr).and_then(|qp| {
            // The device has no options of enhanced connection establishment.
            id.with(|state| state.local_ece = ibv_ece::default());
            first_states(id, qp).map(|()| qp).inspect_err(|_| {
                let _ = verbs::destroy_qp(qp);
            })
        })
    };
    let qp = made.inspect_err(|_| destroy_cqs(id))?;
    // SAFETY: the queue pair was just created.
    public.pd.set(unsafe { (*qp).pd });
    public.qp.set(qp);
    Ok(())
}

/// Creates the id's queue pair from the short attributes, and writes the result back to them.
/// # Safety
/// The objects in the attributes exist. The domain exists or is null.
pub unsafe fn create_plain(id: &Id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> ErrnoResult {
    set_bound_device(id)?;
    // SAFETY: the long attributes begin with the short attributes, and zeros are valid for the
    // rest.
    unsafe {
        let mut long: ibv_qp_init_attr_ex = core::mem::zeroed();
        (&raw mut long).cast::<ibv_qp_init_attr>().write(*attr);
        long.comp_mask = IBV_QP_INIT_ATTR_PD;
        long.pd = if pd.is_null() { id.public.pd.get() } else { pd };
        let outcome = create(id, &raw mut long);
        attr.write((&raw const long).cast::<ibv_qp_init_attr>().read());
        outcome
    }
}

/// `rdma_create_qp_ex`: 0, or -1 with `errno` set. A UD queue pair is in RTS afterwards, all others
/// are in INIT.
pub unsafe extern "C-unwind" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| create(id, non_null(attr)?)) })
}

/// `rdma_create_qp`: 0, or -1 with `errno` set. A UD queue pair is in RTS afterwards, all others
/// are in INIT.
pub unsafe extern "C-unwind" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| create_plain(id, pd, non_null(attr)?)) })
}

/// `rdma_destroy_qp`: also destroys the completion queues that were created for the queue pair.
pub unsafe extern "C-unwind" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the caller's word; the queue pair is the id's.
    unsafe {
        let Ok(id) = Id::of(id) else { return };
        let qp = id.public.qp.replace(null_mut());
        if !qp.is_null() {
            let _ = verbs::destroy_qp(qp);
        }
        destroy_cqs(id);
    }
}

/// `rdma_init_qp_attr`: the attributes that move a queue pair to `attr->qp_state`, for programs
/// with their own queue pair.
pub unsafe extern "C-unwind" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    if attr.is_null() || mask.is_null() {
        return zero_or_minus_one(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller's word. The last field is newer than this call, so its value is kept.
    zero_or_minus_one(unsafe {
        Id::of(id).and_then(|id| attributes(id, (*attr).qp_state)).map(|(mut found, found_mask)| {
            found.rate_limit = (*attr).rate_limit;
            attr.write(found);
            mask.write(found_mask);
        })
    })
}
