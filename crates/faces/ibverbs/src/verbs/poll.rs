//! Polling: `ibv_poll_cq` and the extended interface.
use super::failed;
use crate::abi::*;
use crate::errno;
use crate::handles::{Handle, Live, hot, session, this_thread};
use crate::objects::CqObj;
use adverb_device::Error;
use adverb_device::engine::{Cause, Completion};
use adverb_sync::lock_api::RawMutex as _;
use core::ffi::c_int;

/// Slot `poll_cq`: the number of completions, or a negative value if the queue overflowed or the
/// handle is invalid.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let obj = match hot(cq) {
        Ok(obj) => obj,
        Err(e) => return -failed("ibv_poll_cq", &e),
    };
    let Ok(max) = usize::try_from(num_entries) else { return -errno::code(libc::EINVAL) };
    let mut out = wc;
    let polled = obj.cq.poll(max, |c| {
        // SAFETY: the program passes room for `num_entries`, and `poll` calls this closure at most
        // that often.
        unsafe {
            out.write(wc_of(&c));
            out = out.add(1);
        }
    });
    match polled {
        Ok(0) => 0,
        Ok(n) => {
            super::order::completed();
            n as c_int
        }
        Err(_) => -errno::code(libc::EIO),
    }
}

pub(super) fn wc_of(c: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: c.wr_id,
        status: c.status as u32,
        opcode: c.opcode as u32,
        vendor_err: c.vendor_err,
        byte_len: c.byte_len,
        imm_data: c.imm,
        qp_num: c.qpn,
        src_qp: c.src_qpn,
        wc_flags: c.flags.bits(),
        pkey_index: 0,
        slid: 0,
        sl: c.sl,
        dlid_path_bits: 0,
    }
}

/// Fills in the function pointers and clears the current completion.
pub fn extend(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
    c.end_poll = Some(end_poll);
    c.read_opcode = Some(read_opcode);
    c.read_vendor_err = Some(read_vendor_err);
    c.read_byte_len = Some(read_byte_len);
    c.read_imm_data = Some(read_imm_data);
    c.read_qp_num = Some(read_qp_num);
    c.read_src_qp = Some(read_src_qp);
    c.read_wc_flags = Some(read_wc_flags);
    c.read_slid = Some(read_zero_u32);
    c.read_sl = Some(read_sl);
    c.read_dlid_path_bits = Some(read_dlid_path_bits);
    c.read_completion_ts = Some(read_completion_ts);
    c.read_cvlan = Some(read_cvlan);
    c.read_flow_tag = Some(read_zero_u32);
    c.read_tm_info = Some(read_tm_info);
    c.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

pub(super) unsafe extern "C" fn start_poll(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: the program passes attributes, or null like some older code.
    if !attr.is_null() && unsafe { (*attr).comp_mask } != 0 {
        return errno::code(libc::EINVAL);
    }
    let obj = match hot(cq) {
        Ok(obj) => obj,
        Err(e) => return failed("ibv_start_poll", &e),
    };
    if let Some(lock) = &obj.poll_lock {
        lock.lock();
    }
    let mut taken = None;
    let polled = obj.cq.poll(1, |c| taken = Some(c));
    // SAFETY: the lock (or the program's promise of one thread) makes this the only user.
    let rc = unsafe { present(&obj, cq, polled, taken) };
    if rc != 0 {
        if let Some(lock) = &obj.poll_lock {
            // SAFETY: locked above, by this thread.
            unsafe { lock.unlock() };
        }
    } else if obj.holder() == 0 {
        obj.enter(this_thread());
    }
    rc
}

/// Takes the next completion. While an event is unread, a completion may be left for the event,
/// once ([`adverb_device::Cq::poll_next`]).
pub(super) unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    let obj = match session(cq, this_thread()) {
        Some(obj) if obj.is_live() => obj,
        _ => return failed("ibv_next_poll", &no_poll(cq)),
    };
    let mut taken = None;
    // SAFETY: between start and end this thread is the only user.
    unsafe {
        let polled = obj.cq.poll_next(*obj.said_empty.get(), |c| taken = Some(c));
        present(&obj, cq, polled, taken)
    }
}

/// Explains why there is no open poll.
fn no_poll<H: Handle<Object = CqObj>>(cq: *mut H) -> Error {
    let none =
        || Error::invalid(format!("the completion queue {cq:p}"), "ibv_start_poll comes first");
    hot(cq).err().unwrap_or_else(none)
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let Some(obj) = session(cq, this_thread()) else {
        failed("ibv_end_poll", &no_poll(cq));
        return;
    };
    // SAFETY: between start and end this thread is the only user.
    unsafe { *obj.current.get() = None };
    if let Some(obj) = obj.leave() {
        unlock(&obj);
    }
}

/// Ends the open poll of this thread.
pub fn leave_own(obj: &Live<CqObj>) {
    if obj.holder() == this_thread()
        && let Some(obj) = session(obj.visible(), this_thread()).and_then(|open| open.leave())
    {
        unlock(&obj);
    }
}

/// Allows the next thread to poll.
fn unlock(obj: &CqObj) {
    if let Some(lock) = &obj.poll_lock {
        // SAFETY: locked in `start_poll`, by the poll that just ended.
        unsafe { lock.unlock() };
    }
}

/// Makes the polled completion the current completion; ENOENT without a completion.
///
/// # Safety
/// `cq` is the handle of `obj`, and only this thread polls it.
#[inline]
unsafe fn present(
    obj: &CqObj,
    cq: *mut ibv_cq_ex,
    polled: Result<usize, Cause>,
    taken: Option<Completion>,
) -> c_int {
    if polled.is_err() {
        return errno::code(libc::EIO);
    }
    // SAFETY: the caller's promise. The visible fields are written through the raw handle, and the
    // others by their only user.
    unsafe {
        *obj.said_empty.get() = taken.is_none();
        let Some(c) = taken else { return libc::ENOENT };
        super::order::completed();
        (*cq).wr_id = c.wr_id;
        (*cq).status = c.status as u32;
        *obj.current.get() = Some(c);
    }
    0
}

/// Reads from the current completion. The answer is zero without a completion.
///
/// # Safety
/// Called by the thread that polls.
#[inline]
pub(super) unsafe fn current<R: Default>(
    cq: *mut ibv_cq_ex,
    f: impl FnOnce(&CqObj, &Completion) -> R,
) -> R {
    let Some(obj) = session(cq, this_thread()) else { return R::default() };
    // SAFETY: the caller's promise.
    unsafe { (*obj.current.get()).as_ref().map_or_else(R::default, |c| f(&obj, c)) }
}

macro_rules! readers {
    ($($name:ident -> $ty:ty = $read:expr;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: readers are called between start and end, by the thread that polls.
            unsafe { current(cq, $read) }
        }
    )* };
}

readers! {
    read_opcode -> ibv_wc_opcode = |_, c| c.opcode as u32;
    read_vendor_err -> u32 = |_, c| c.vendor_err;
    read_byte_len -> u32 = |_, c| c.byte_len;
    read_imm_data -> u32 = |_, c| c.imm;
    read_qp_num -> u32 = |_, c| c.qpn;
    read_src_qp -> u32 = |_, c| c.src_qpn;
    read_wc_flags -> u32 = |_, c| c.flags.bits();
    read_zero_u32 -> u32 = |_, _| 0;
    read_sl -> u8 = |_, c| c.sl;
    read_dlid_path_bits -> u8 = |_, _| 0;
    read_completion_ts -> u64 = |_, c| c.timestamp.0;
    read_cvlan -> u16 = |_, _| 0;
    read_completion_wallclock_ns -> u64 = |o, c| c.timestamp.0.wrapping_add_signed(o.wallclock_offset);
}

/// Pointer `read_tm_info` of extended CQs.
unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: readers are called between start and end, by the polling thread, and the program
    // passes a place.
    unsafe {
        let (tag, priv_) = current(cq, |_, c| c.tag());
        info.write(ibv_wc_tm_info { tag, priv_ });
    }
}
