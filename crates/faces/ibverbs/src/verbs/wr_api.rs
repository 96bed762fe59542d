//! The extended posting interface: `ibv_wr_start` … `ibv_wr_complete`.
//!
//! Requests are staged one by one. `ibv_wr_complete` commits them, and `ibv_wr_abort` forgets
//! them (DEF-2). The setters come after the operation. So a request is staged when the next request
//! begins or the chain ends.
use crate::abi::*;
use crate::handles::{Live, Session, hot, session, this_thread};
use crate::objects::QpObj;
use crate::verbs::builder::{Builder, Noted};
use crate::verbs::mw;
use crate::verbs::post::{bind_of, slice, ud_dest};
use adverb_device::Error;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendOp, Sge};
use adverb_sync::lock_api::RawMutex as _;
use core::ffi::{c_int, c_void};
use libc::size_t;

/// Fills in the function pointers.
pub fn extend(c: &mut ibv_qp_ex) {
    c.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    c.wr_bind_mw = Some(wr_bind_mw);
    c.wr_local_inv = Some(wr_local_inv);
    c.wr_rdma_read = Some(wr_rdma_read);
    c.wr_rdma_write = Some(wr_rdma_write);
    c.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    c.wr_send = Some(wr_send);
    c.wr_send_imm = Some(wr_send_imm);
    c.wr_send_inv = Some(wr_send_inv);
    c.wr_send_tso = Some(wr_send_tso);
    c.wr_set_ud_addr = Some(wr_set_ud_addr);
    c.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    c.wr_set_inline_data = Some(wr_set_inline_data);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    c.wr_set_sge = Some(wr_set_sge);
    c.wr_set_sge_list = Some(wr_set_sge_list);
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
    c.wr_abort = Some(wr_abort);
    c.wr_atomic_write = Some(wr_atomic_write);
    c.wr_flush = Some(wr_flush);
}

/// Opens a chain. The chain keeps the queue pair until complete or abort. On an invalid handle this
/// call and all further calls do nothing, and `wr_complete` reports the error.
pub(super) unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let obj = match hot(qp) {
        Ok(obj) => obj,
        Err(e) => {
            super::failed("ibv_wr_start", &e);
            return;
        }
    };
    let me = this_thread();
    // If this thread already has a chain open, the chain begins anew. This is an error of the
    // program, but no reason to hang.
    let anew = obj.holder() == me;
    if anew {
        obj.qp.abort_sends();
    } else {
        obj.wr_lock.lock();
    }
    // SAFETY: the lock makes this thread the only user of the builder until complete or abort.
    let builder = unsafe { &mut *obj.builder.get() };
    builder.open = false;
    builder.error = None;
    builder.binds.clear();
    if !anew {
        obj.enter(me);
    }
}

/// From here on the chain keeps its staged requests.
///
/// # Safety
/// Called between start and complete.
pub(super) unsafe fn note(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe { with_builder(qp, |b| b.noted = Some(Vec::new())) }
}

/// Stages the open request, and shows the kept requests of the chain. `None`: there is no chain, or
/// the chain keeps no requests.
///
/// # Safety
/// Called between start and complete.
pub(super) unsafe fn with_noted<R>(qp: *mut ibv_qp_ex, f: impl FnOnce(&[Noted]) -> R) -> Option<R> {
    let obj = chain(qp)?;
    // SAFETY: the caller's promise makes this thread the only user.
    let builder = unsafe { &mut *obj.builder.get() };
    builder.finish(&obj.qp);
    builder.noted.as_deref().map(f)
}

/// The chain of a queue pair.
#[inline]
fn chain(qp: *mut ibv_qp_ex) -> Option<Session<QpObj>> {
    session(qp, this_thread())
}

/// Explains why there is no chain.
fn no_chain(qp: *mut ibv_qp_ex) -> Error {
    let none = || Error::invalid(format!("the queue pair {qp:p}"), "ibv_wr_start comes first");
    hot(qp).err().unwrap_or_else(none)
}

pub(super) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let Some(obj) = chain(qp) else { return super::failed("ibv_wr_complete", &no_chain(qp)) };
    // SAFETY: between start and complete this thread is the only user of the builder and holds the
    // lock.
    let builder = unsafe { &mut *obj.builder.get() };
    builder.finish(&obj.qp);
    let mut failed = builder.error.take();
    if !obj.is_live() {
        failed = Some(no_chain(qp));
    }
    match &failed {
        None => {
            super::order::posted();
            for (window, key) in builder.binds.drain(..) {
                mw::show_key_of(window as *mut ibv_mw, key);
            }
            obj.qp.commit_sends();
        }
        // A single bad request voids the chain.
        Some(_) => obj.qp.abort_sends(),
    }
    leave(obj);
    failed.map_or(0, |e| super::failed("ibv_wr_complete", &e))
}

pub(super) unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    match chain(qp) {
        Some(obj) => abort(obj),
        None => {
            super::failed("ibv_wr_abort", &no_chain(qp));
        }
    }
}

/// Forgets the chain.
fn abort(obj: Session<QpObj>) {
    // SAFETY: as in `wr_complete`.
    unsafe { (*obj.builder.get()).open = false };
    obj.qp.abort_sends();
    leave(obj);
}

/// Allows the next thread to begin.
#[inline]
fn leave(obj: Session<QpObj>) {
    if let Some(obj) = obj.leave() {
        // SAFETY: locked in `wr_start` for the chain that just ended.
        unsafe { obj.wr_lock.unlock() };
    }
}

/// Ends the open chain of this thread.
pub fn leave_own(obj: &Live<QpObj>) {
    if obj.holder() == this_thread()
        && let Some(open) = chain(obj.visible())
    {
        abort(open);
    }
}

/// Stages the previous request and begins a new request.
///
/// # Safety
/// Called between start and complete.
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, op: Result<SendOp, Error>) {
    let Some(obj) = chain(qp) else { return };
    // SAFETY: the caller's promise makes this thread the only user. The visible words are read
    // through the raw handle.
    unsafe {
        let builder = &mut *obj.builder.get();
        builder.finish(&obj.qp);
        builder.begin((*qp).wr_id, (*qp).wr_flags, op);
    }
}

/// # Safety
/// Called between start and complete.
#[inline]
unsafe fn with_builder(qp: *mut ibv_qp_ex, f: impl FnOnce(&mut Builder)) {
    if let Some(obj) = chain(qp) {
        // SAFETY: the caller's promise makes this thread the only user.
        unsafe { f(&mut *obj.builder.get()) }
    }
}

macro_rules! operations {
    ($($name:ident($($arg:ident: $ty:ty),*) = $op:expr;)*) => { $(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($arg: $ty),*) {
            // SAFETY: the interface is used between start and complete.
            unsafe { begin(qp, Ok($op)) }
        }
    )* };
}

operations! {
    wr_send() = SendOp::Send;
    wr_send_imm(imm: u32) = SendOp::SendImm(imm);
    wr_send_inv(rkey: u32) = SendOp::SendInv(rkey);
    wr_rdma_read(rkey: u32, va: u64) = SendOp::Read(Remote { va, rkey });
    wr_rdma_write(rkey: u32, va: u64) = SendOp::Write(Remote { va, rkey });
    wr_rdma_write_imm(rkey: u32, va: u64, imm: u32) = SendOp::WriteImm(Remote { va, rkey }, imm);
    wr_atomic_cmp_swp(rkey: u32, va: u64, compare: u64, swap: u64) =
        SendOp::CompareSwap { remote: Remote { va, rkey }, compare, swap };
    wr_atomic_fetch_add(rkey: u32, va: u64, add: u64) = SendOp::FetchAdd { remote: Remote { va, rkey }, add };
    wr_local_inv(rkey: u32) = SendOp::LocalInv(rkey);
}

unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, va: u64, value: *const c_void) {
    // SAFETY: used between start and complete; the program passes eight bytes.
    unsafe {
        begin(qp, Ok(SendOp::AtomicWrite(Remote { va, rkey })));
        let bytes = slice(value.cast::<u8>(), 8);
        with_builder(qp, |b| b.set_inline(std::iter::once(bytes)));
    }
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    va: u64,
    len: size_t,
    kind: u8,
    level: u8,
) {
    let op = u32::try_from(len)
        .map(|len| SendOp::Flush {
            remote: Remote { va, rkey },
            len,
            placement: kind,
            selectivity: level,
        })
        .map_err(|_| Error::invalid(format!("flush length is {len}"), "the field has 32 bits"));
    // SAFETY: used between start and complete.
    unsafe { begin(qp, op) }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: used between start and complete, with the program's bind information.
    unsafe {
        let bind = bind_of(mw, rkey, &*info);
        if let Ok(bind) = &bind {
            with_builder(qp, |b| b.binds.push((mw as usize, bind.bound_key())));
        }
        begin(qp, bind.map(SendOp::BindMw));
    }
}

unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, _header: *mut c_void, _size: u16, _mss: u16) {
    // SAFETY: used between start and complete.
    unsafe { begin(qp, Err(Error::unsupported("segmentation offload (TSO) is not offered"))) }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    let to = |b: &mut Builder| match ud_dest(ah, qpn, qkey) {
        Ok(ud) => b.ud = ud,
        Err(e) => {
            b.error.get_or_insert(e);
        }
    };
    // SAFETY: used between start and complete.
    unsafe { with_builder(qp, to) }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: used between start and complete.
    unsafe { with_builder(qp, |b| b.srqn = srqn) }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, len: size_t) {
    // SAFETY: used between start and complete; the program passes `len` bytes.
    unsafe {
        let bytes = slice(addr.cast_const().cast::<u8>(), len);
        with_builder(qp, |b| b.set_inline(std::iter::once(bytes)));
    }
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: size_t,
    list: *const ibv_data_buf,
) {
    // SAFETY: used between start and complete; the program passes `count` valid buffers.
    unsafe {
        let buffers = slice(list, count);
        with_builder(qp, |b| {
            b.set_inline(buffers.iter().map(|p| slice(p.addr.cast_const().cast::<u8>(), p.length)));
        });
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: used between start and complete.
    unsafe {
        with_builder(qp, |b| {
            b.sges.clear();
            b.sges.push(Sge { addr, length, lkey });
        });
    }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: size_t, list: *const ibv_sge) {
    // SAFETY: used between start and complete. The program passes `count` entries, in the engine's
    // layout.
    unsafe {
        let sges = slice(list.cast::<Sge>(), count);
        with_builder(qp, |b| {
            b.sges.clear();
            b.sges.extend_from_slice(sges);
        });
    }
}
