//! Connections: listen, connect, accept, reject, disconnect.

use core::ffi::{c_int, c_void};

use crate::abi::cma::*;
use crate::confirm::confirm;
use crate::device::Depths;
use crate::error::{Errno, ErrnoResult, zero_or_minus_one};
use crate::id::Id;
use crate::query::query_address;
use crate::{command, event, qp};
use adverb_abi::Plain;
use adverb_abi::rdma_user_cm::*;

/// IBTA's reject reason for a vendor option, which `rdma_reject_ece` sends. The header has no
/// `RDMA_*` name for it.
const REJECT_VENDOR_OPTION: u8 = 35;
/// Default number of retries of a request.
const RETRIES: u8 = 7;

/// Checks the depths in the program's parameters against the limits of the device.
fn check(id: &Id, param: Option<&rdma_conn_param>) -> ErrnoResult {
    if id.public.ps.get() != PS_TCP {
        return Ok(());
    }
    let Some(param) = param else {
        // Without parameters, the id needs a queue pair, because the message carries the queue
        // pair's number.
        return if id.public.qp.get().is_null() { Err(Errno(libc::EINVAL)) } else { Ok(()) };
    };
    let limits = id.device(|device| Ok(device.limits))?;
    let too_many = |asked: u8, any: u8, limit: u8| asked != any && asked > limit;
    if too_many(param.responder_resources, MAX_RESP_RES, limits.responder_resources)
        || too_many(param.initiator_depth, MAX_INIT_DEPTH, limits.initiator_depth)
    {
        return Err(Errno(libc::EINVAL));
    }
    Ok(())
}

/// The parameters for the message. The depths and the header before the private data come from the
/// id.
///
/// # Safety
/// The private data has the length in the parameters.
unsafe fn to_send(id: &Id, param: Option<&rdma_conn_param>) -> ErrnoResult<rdma_ucm_conn_param> {
    let (mut sent, mut len) = id.with(|state| {
        let mut sent = rdma_ucm_conn_param {
            responder_resources: state.depths.responder_resources,
            initiator_depth: state.depths.initiator_depth,
            valid: 1,
            ..rdma_ucm_conn_param::zeroed()
        };
        let len = state.connect.len().min(RDMA_MAX_PRIVATE_DATA);
        sent.private_data[..len].copy_from_slice(&state.connect[..len]);
        (sent, len)
    });
    if let Some(param) = param {
        sent.qp_num = param.qp_num;
        sent.srq = param.srq;
        sent.flow_control = param.flow_control;
        sent.retry_count = param.retry_count;
        sent.rnr_retry_count = param.rnr_retry_count;
        let more = usize::from(param.private_data_len);
        if !param.private_data.is_null() && more > 0 {
            let room = sent.private_data.get_mut(len..len + more).ok_or(Errno(libc::EINVAL))?;
            // SAFETY: the caller's word.
            room.copy_from_slice(unsafe {
                core::slice::from_raw_parts(param.private_data.cast::<u8>(), more)
            });
            len += more;
        }
    } else {
        sent.retry_count = RETRIES;
        sent.rnr_retry_count = RETRIES;
    }
    // SAFETY: the id's queue pair exists.
    if let Some(qp) = unsafe { id.public.qp.get().as_ref() } {
        sent.qp_num = qp.qp_num;
        sent.srq = u8::from(!qp.srq.is_null());
    }
    sent.private_data_len = u8::try_from(len).map_err(|_| Errno(libc::EINVAL))?;
    Ok(sent)
}

/// The depths that the program chooses, or `others` where the program leaves the choice.
fn chosen(param: Option<&rdma_conn_param>, others: Depths) -> Depths {
    let Some(param) = param else { return others };
    let or = |asked: u8, any: u8, other: u8| if asked == any { other } else { asked };
    let Depths { responder_resources, initiator_depth } = others;
    Depths {
        responder_resources: or(param.responder_resources, MAX_RESP_RES, responder_resources),
        initiator_depth: or(param.initiator_depth, MAX_INIT_DEPTH, initiator_depth),
    }
}

/// # Safety
/// The private data has the length in the parameters.
unsafe fn connect(id: &Id, param: Option<&rdma_conn_param>) -> ErrnoResult {
    check(id, param)?;
    let limits = id.device(|device| Ok(device.limits))?;
    let ece = id.with(|state| {
        state.depths = chosen(param, limits);
        rdma_ucm_ece { vendor_id: state.local_ece.vendor_id, attr_mod: state.local_ece.options }
    });
    // SAFETY: the caller's word.
    let conn_param = unsafe { to_send(id, param) }?;
    let body = rdma_ucm_connect { conn_param, id: id.handle.get(), reserved: 0, ece };
    command::perform(id.fd(), Request::Connect(body))?;
    id.with(|state| state.connect.clear());
    event::complete(id)
}

/// # Safety
/// The private data has the length in the parameters.
unsafe fn accept(id: &Id, param: Option<&rdma_conn_param>) -> ErrnoResult {
    check(id, param)?;
    if id.public.qp.get().is_null() && param.is_none() {
        return Err(Errno(libc::EINVAL));
    }
    let limits = id.device(|device| Ok(device.limits))?;
    let (depths, ece) = id.with(|state| {
        // Defaults are the peer's values, limited by the device.
        let Depths { responder_resources, initiator_depth } = state.depths;
        let others = Depths {
            responder_resources: responder_resources.min(limits.responder_resources),
            initiator_depth: initiator_depth.min(limits.initiator_depth),
        };
        state.depths = chosen(param, others);
        // The answer names the vendor of the request, so that the peer knows the vendor of the
        // options.
        let ece = rdma_ucm_ece {
            vendor_id: state.remote_ece.vendor_id,
            attr_mod: state.local_ece.options,
        };
        (state.depths, ece)
    });
    if !id.is_datagram() {
        qp::to_send(id, Some(depths))?;
    }
    // SAFETY: the caller's word.
    let conn_param = unsafe { to_send(id, param) }?;
    let uid = id.pointer().expose_provenance() as u64;
    let body = rdma_ucm_accept { uid, conn_param, id: id.handle.get(), reserved: 0, ece };
    command::perform(id.fd(), Request::Accept(body)).inspect_err(|_| {
        let _ = qp::to_error(id);
    })?;
    if id.is_datagram() {
        // A datagram id has no event to wait for.
        if id.with(|s| s.sync) {
            event::object::drop_of(id);
        }
        return Ok(());
    }
    event::complete(id)
}

/// # Safety
/// `data` is null, or points to `len` bytes.
unsafe fn reject(id: &Id, data: *const c_void, len: u8, reason: u8) -> ErrnoResult {
    let mut body = rdma_ucm_reject { id: id.handle.get(), reason, ..rdma_ucm_reject::zeroed() };
    if !data.is_null() && len > 0 {
        // SAFETY: the caller's word.
        let data = unsafe { core::slice::from_raw_parts(data.cast::<u8>(), usize::from(len)) };
        body.private_data[..data.len()].copy_from_slice(data);
        body.private_data_len = len;
    }
    command::perform(id.fd(), Request::Reject(body))
}

fn disconnect(id: &Id) -> ErrnoResult {
    if id.public.verbs.get().is_null() {
        return Err(Errno(libc::EINVAL));
    }
    qp::to_error(id)?;
    command::perform(id.fd(), Request::Disconnect(rdma_ucm_disconnect { id: id.handle.get() }))?;
    event::complete(id)
}

/// `rdma_connect`: 0, or -1 with `errno` set. Without parameters, the id needs a queue pair.
pub unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| connect(id, param.as_ref())) })
}

/// `rdma_listen`: 0, or -1 with `errno` set.
pub unsafe extern "C-unwind" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| {
        let body = rdma_ucm_listen { id: id.handle.get(), backlog: backlog as u32 };
        command::perform(id.fd(), Request::Listen(body))?;
        query_address(id)
    }))
}

/// `rdma_accept`: 0, or -1 with `errno` set. Without parameters, the id needs a queue pair.
pub unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| accept(id, param.as_ref())) })
}

/// `rdma_establish`: confirms a connection for programs with their own queue pair. 0, or -1 with
/// `errno` set.
pub unsafe extern "C-unwind" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| {
        if id.public.qp.get().is_null() { confirm(id) } else { Err(Errno(libc::EINVAL)) }
    }))
}

/// `rdma_reject`: 0, or -1 with `errno` set.
pub unsafe extern "C-unwind" fn rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| reject(id, data, len, 0)) })
}

/// `rdma_reject_ece`: rejects because the two ends cannot agree on the vendor's options. 0, or -1
/// with `errno` set.
pub unsafe extern "C-unwind" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe {
        Id::of(id).and_then(|id| reject(id, data, len, REJECT_VENDOR_OPTION))
    })
}

/// `rdma_notify`: reports an asynchronous event of the queue pair. 0, or -1 with `errno` set.
pub unsafe extern "C-unwind" fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| {
        command::perform(id.fd(), Request::Notify(rdma_ucm_notify { id: id.handle.get(), event }))
    }))
}

/// `rdma_disconnect`: moves the queue pair to the error state and tells the peer. 0, or -1 with
/// `errno` set.
pub unsafe extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(disconnect))
}
