//! Receive side scaling: work queues, indirection tables, and queue pairs that spread frames over
//! them.

use core::ffi::c_int;
use std::sync::Arc;

use super::post::{post_each, report, slice};
use super::qp::handle;
use super::{done, end, failed_null, files, only_bits};
use crate::abi::*;
use crate::handles::{FileId, Origin, hot, live, live_in, reserve};
use crate::objects::QpObj;
use adverb_device::raw::steering::{Fields, Hash, TOEPLITZ_KEY};
use adverb_device::raw::{IndTable, MAX_TABLE, Wq, WqState};
use adverb_device::{Context, Error, Qp};

/// XOR of all bytes, as a hash function. The header names only Toeplitz, and this is the next bit.
pub const HASH_XOR: u8 = 1 << 1;

/// Slot `create_wq`.
pub unsafe extern "C" fn create_wq(
    context: *mut ibv_context,
    attr: *mut ibv_wq_init_attr,
) -> *mut ibv_wq {
    // SAFETY: the program's attributes.
    unsafe { create(context, attr) }.unwrap_or_else(|e| failed_null("ibv_create_wq", &e))
}

/// # Safety
/// Valid attributes.
unsafe fn create(
    context: *mut ibv_context,
    attr: *const ibv_wq_init_attr,
) -> Result<*mut ibv_wq, Error> {
    let owner = live(context)?;
    // SAFETY: the caller's promise.
    let attr = unsafe { &*attr };
    let file = owner.file;
    if attr.wq_type != IBV_WQT_RQ {
        return Err(Error::invalid(
            format!("wq_type is {}", attr.wq_type),
            "there are receive queues alone",
        ));
    }
    if attr.comp_mask & !IBV_WQ_INIT_ATTR_FLAGS != 0 {
        return Err(Error::unsupported(format!("comp_mask {:#x} is not known", attr.comp_mask)));
    }
    if attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS != 0 && attr.create_flags != 0 {
        return Err(Error::unsupported(format!(
            "create_flags {:#x}: none are offered",
            attr.create_flags
        )));
    }
    let (pd, cq) = (live_in(attr.pd, file)?, live_in(attr.cq, file)?);
    let place = reserve()?;
    let wq = Wq::new(&owner.context, &pd.pd, &cq.cq, attr.max_wr, attr.max_sge)?;
    let handle = files::new_handle();
    let mut visible = ibv_wq::zeroed();
    visible.context = context;
    visible.wq_context = attr.wq_context;
    visible.pd = attr.pd;
    visible.cq = attr.cq;
    visible.wq_num = wq.number();
    visible.handle = handle;
    visible.state = IBV_WQS_RESET;
    visible.wq_type = attr.wq_type;
    visible.post_recv = Some(post_recv);
    visible.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    visible.cond = libc::PTHREAD_COND_INITIALIZER;
    Ok(place.fill(visible, wq, Origin { context, file, handle }))
}

unsafe extern "C" fn post_recv(
    wq: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let posted = match hot(wq) {
        // SAFETY: the program's list, valid during the call.
        Ok(obj) => unsafe { post_each(wr, |wr| obj.post_recv(wr)) },
        Err(e) => Err((wr, e)),
    };
    // SAFETY: the program passes a place for the failed request.
    unsafe { report("ibv_post_wq_recv", posted, bad_wr) }
}

/// Slot `modify_wq`.
pub unsafe extern "C" fn modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int {
    let modify = || {
        let obj = live(wq)?;
        // SAFETY: the program's attributes.
        let attr = unsafe { &*attr };
        if attr.attr_mask & !(IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE) != 0 {
            return Err(Error::unsupported(format!(
                "attr_mask {:#x}: only states change",
                attr.attr_mask
            )));
        }
        let state = |bit, what: &str, code| {
            let asked = (attr.attr_mask & bit != 0).then_some(code);
            let known = |code| {
                WqState::from_code(code)
                    .ok_or_else(|| Error::invalid(format!("{what} is {code}"), "no such state"))
            };
            asked.map(known).transpose()
        };
        let claimed = state(IBV_WQ_ATTR_CURR_STATE, "curr_wq_state", attr.curr_wq_state)?;
        obj.modify(claimed, state(IBV_WQ_ATTR_STATE, "wq_state", attr.wq_state)?)?;
        // SAFETY: a visible field of a live handle.
        unsafe { (*wq).state = obj.state() as u32 };
        Ok(())
    };
    done("ibv_modify_wq", modify())
}

/// Slot `destroy_wq`.
pub unsafe extern "C" fn destroy_wq(wq: *mut ibv_wq) -> c_int {
    end("ibv_destroy_wq", wq, |obj| obj.destroy())
}

/// Slot `create_rwq_ind_table`.
pub unsafe extern "C" fn create_rwq_ind_table(
    context: *mut ibv_context,
    attr: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    // SAFETY: the program's attributes.
    unsafe { create_table(context, attr) }
        .unwrap_or_else(|e| failed_null("ibv_create_rwq_ind_table", &e))
}

/// # Safety
/// `attr` names as many work queues as its count states.
unsafe fn create_table(
    context: *mut ibv_context,
    attr: *const ibv_rwq_ind_table_init_attr,
) -> Result<*mut ibv_rwq_ind_table, Error> {
    let owner = live(context)?;
    // SAFETY: the caller's promise.
    let attr = unsafe { &*attr };
    let file = owner.file;
    let log = attr.log_ind_tbl_size;
    only_bits("comp_mask is", attr.comp_mask, 0)?;
    if log > MAX_TABLE.ilog2() {
        let rule = format!("at most {} is possible", MAX_TABLE.ilog2());
        return Err(Error::invalid(format!("log_ind_tbl_size is {log}"), rule));
    }
    // SAFETY: the caller's promise.
    let handles = unsafe { slice(attr.ind_tbl.cast_const(), 1 << log) };
    let queues = handles.iter().map(|wq| live_in(*wq, file).map(|obj| Arc::clone(&obj)));
    let place = reserve()?;
    let table = IndTable::new(&owner.context, queues.collect::<Result<_, _>>()?)?;
    let handle = files::new_handle();
    let visible = ibv_rwq_ind_table {
        context,
        ind_tbl_handle: handle as c_int,
        ind_tbl_num: handle as c_int,
        comp_mask: 0,
    };
    Ok(place.fill(visible, table, Origin { context, file, handle }))
}

/// Slot `destroy_rwq_ind_table`.
pub unsafe extern "C" fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    end("ibv_destroy_rwq_ind_table", table, |obj| obj.destroy())
}

/// A queue pair that spreads frames over the work queues of a table.
///
/// # Safety
/// Valid attributes, of the size that `comp_mask` states.
pub(super) unsafe fn create_spreading(
    context: *mut ibv_context,
    device: &Arc<Context>,
    file: FileId,
    attr: *const ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Error> {
    const NEEDED: u32 = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_PD;
    // SAFETY: the caller's promise. Each field is read only if the mask names it.
    let (mask, qp_type) = unsafe { ((*attr).comp_mask, (*attr).qp_type) };
    if qp_type != IBV_QPT_RAW_PACKET {
        return Err(Error::unsupported("only raw packet queue pairs spread received frames"));
    }
    if mask & NEEDED != NEEDED {
        let rule = "an indirection table, a hash and a protection domain are needed together";
        return Err(Error::invalid(format!("comp_mask is {mask:#x}"), rule));
    }
    // SAFETY: as above.
    let (pd_handle, table, hash) = unsafe {
        let conf = (*attr).rx_hash_conf;
        let key = slice(conf.rx_hash_key.cast_const(), conf.rx_hash_key_len.into());
        ((*attr).pd, live_in((*attr).rwq_ind_tbl, file)?, hash(&conf, key)?)
    };
    let pd = live_in(pd_handle, file)?;
    let place = reserve::<QpObj>()?;
    let spreading = Qp::spreading(device, &pd.pd, &table, hash)?;
    let mut base = ibv_qp::zeroed();
    base.context = context;
    // SAFETY: as above.
    base.qp_context = unsafe { (*attr).qp_context };
    base.pd = pd_handle;
    base.qp_type = IBV_QPT_RAW_PACKET;
    Ok(handle::enter(place, base, file, spreading, false, None))
}

fn hash(conf: &ibv_rx_hash_conf, key: &[u8]) -> Result<Hash, Error> {
    let fields = Fields(conf.rx_hash_fields_mask);
    if fields.0 & !Fields::ALL.0 != 0 {
        let text = format!("rx_hash_fields_mask {:#x}: {:#x} is offered", fields.0, Fields::ALL.0);
        return Err(Error::unsupported(text));
    }
    match conf.rx_hash_function {
        IBV_RX_HASH_FUNC_TOEPLITZ => Hash::toeplitz(key, fields).map_err(|_| {
            let what = format!("rx_hash_key_len is {}", key.len());
            Error::invalid(what, format!("Toeplitz needs {TOEPLITZ_KEY} bytes"))
        }),
        HASH_XOR => Ok(Hash::xor(fields)),
        other => Err(Error::unsupported(format!(
            "rx_hash_function {other}: Toeplitz and XOR are offered"
        ))),
    }
}
