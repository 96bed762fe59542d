//! Posting: `ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`.
use crate::abi::*;
use crate::handles::{hot, maybe_in};
use crate::verbs::alone::Alone;
use crate::verbs::{count_of, mw, put};
use adverb_device::Error;
use adverb_device::engine::wr::{MwBind, Remote, UdDest};
use adverb_device::engine::{Access, Payload, QpType, RecvWr, SendFlags, SendOp, SendWr, Sge};
use adverb_device::qp::{PlainData, PlainOp, PlainPost, SendChain};
use core::ffi::c_int;

/// Most entries of an inline list. A longer list exceeds the device's inline data anyway, entry by
/// entry.
const MAX_INLINE_SGES: usize = 64;
/// Most inline entries that are copied together, so that their request may be performed at once.
const GATHERED: usize = 4;
/// Most bytes of these entries.
const GATHERED_BYTES: usize = 128;
/// The 24 bits of a queue pair's number that hardware keeps.
const QPN_MASK: u32 = 0x00ff_ffff;

// The engine's entry has the layout of the header's.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>());
    assert!(core::mem::offset_of!(Sge, length) == core::mem::offset_of!(ibv_sge, length));
    assert!(core::mem::offset_of!(Sge, lkey) == core::mem::offset_of!(ibv_sge, lkey));
};

/// Slot `post_send`: commits the chain at once (DEF-2). On a failure the requests before the bad
/// request are committed.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let refused = |wr, e: &Error| {
        // SAFETY: the program passes a place for the failed request.
        unsafe { put(bad_wr, wr) };
        super::failed("ibv_post_send", e)
    };
    let obj = match hot(qp) {
        Ok(obj) => obj,
        Err(e) => return refused(wr, &e),
    };
    super::order::posted();
    // Requests that another thread has staged between `wr_start` and `wr_complete` must not be
    // committed with these.
    let _alone = Alone::on(&obj);
    let mut chain = match obj.qp.send_chain() {
        Ok(chain) => chain,
        Err(e) => return refused(wr, &e),
    };
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: the program's list of requests, valid during the call.
        let request = unsafe { &*next };
        // SAFETY: as above.
        if !unsafe { perform(&mut chain, request) } {
            // SAFETY: as above.
            return match unsafe { post_rest(chain, next, obj.qp.qp_type()) } {
                Ok(()) => 0,
                Err((wr, e)) => refused(wr, &e),
            };
        }
        next = request.next;
    }
    chain.commit();
    0
}

/// Stages the requests from `next` on and commits the chain. A failure names the request.
///
/// # Safety
/// `next` is a valid list.
#[inline(never)]
unsafe fn post_rest(
    mut chain: SendChain<'_>,
    mut next: *mut ibv_send_wr,
    qp_type: QpType,
) -> Result<(), (*mut ibv_send_wr, Error)> {
    while !next.is_null() {
        let stage = |wr: &SendWr<'_>| {
            chain.stage(wr)?;
            if let SendOp::BindMw(bind) = wr.op {
                // SAFETY: set for this opcode. The key is shown before the commit, because a
                // thread that polls may read the key.
                mw::show_key_of(unsafe { (*next).op.bind_mw.mw }, bind.bound_key());
            }
            Ok(())
        };
        // SAFETY: the caller's promise.
        let staged = unsafe { with_request(&*next, qp_type == QpType::Ud, stage) };
        if let Err(e) = staged {
            chain.commit();
            return Err((next, e));
        }
        // SAFETY: as above.
        next = unsafe { (*next).next };
    }
    chain.commit();
    Ok(())
}

/// Performs a WRITE or READ of one entry, or of a few inline entries, at once if possible.
/// Unusual requests are left to [`with_request`], which reports errors.
///
/// # Safety
/// `wr` and its pointers are valid.
#[inline]
unsafe fn perform(chain: &mut SendChain<'_>, wr: &ibv_send_wr) -> bool {
    let flags = SendFlags::from_bits_truncate(wr.send_flags) - SendFlags::RENDEZVOUS;
    let count = wr.num_sge as usize;
    let gathers = flags.contains(SendFlags::INLINE) && (2..=GATHERED).contains(&count);
    if wr.sg_list.is_null() || (count != 1 && !gathers) {
        return false;
    }
    // SAFETY: plain words; the opcode says which of them are meaningful.
    let rdma = unsafe { wr.wr.rdma };
    let remote = Remote { va: rdma.remote_addr, rkey: rdma.rkey };
    let op = match wr.opcode {
        IBV_WR_RDMA_WRITE => PlainOp::Write(remote),
        IBV_WR_RDMA_READ => PlainOp::Read(remote),
        _ => return false,
    };
    if gathers {
        // SAFETY: `count` entries; the layouts agree (above).
        let entries = unsafe { slice(wr.sg_list.cast::<Sge>(), count) };
        let (mut bytes, mut len) = ([0; GATHERED_BYTES], 0);
        for entry in entries {
            // SAFETY: an inline entry is a plain address of the program's memory.
            let part = unsafe { bytes_of(entry) };
            let Some(place) = bytes.get_mut(len..len + part.len()) else { return false };
            place.copy_from_slice(part);
            len += part.len();
        }
        let data = PlainData::Inline(&bytes[..len]);
        return chain.perform(&PlainPost { wr_id: wr.wr_id, flags, op, data });
    }
    // SAFETY: one entry; the layouts agree (above).
    let entry = unsafe { &*wr.sg_list.cast::<Sge>() };
    let data = if flags.contains(SendFlags::INLINE) {
        // SAFETY: an inline entry is a plain address of the program's memory.
        PlainData::Inline(unsafe { bytes_of(entry) })
    } else {
        PlainData::Entry(*entry)
    };
    chain.perform(&PlainPost { wr_id: wr.wr_id, flags, op, data })
}

/// Reads a request of the program and passes it to `f` as the engine's.
///
/// # Safety
/// `wr` and its pointers are valid.
unsafe fn with_request<R>(
    wr: &ibv_send_wr,
    is_ud: bool,
    f: impl FnOnce(&SendWr<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    // SAFETY: the opcode says which parts of the unions are set.
    let op = unsafe { operation(wr) }?;
    let ud = if is_ud {
        // SAFETY: the program sets the destination on UD, and only there.
        let to = unsafe { wr.wr.ud };
        ud_dest(to.ah, to.remote_qpn, to.remote_qkey)?
    } else {
        None
    };
    let flags = SendFlags::from_bits_truncate(wr.send_flags) - SendFlags::RENDEZVOUS;
    let count = count_of("num_sge", wr.num_sge)?;
    // SAFETY: the program passes `num_sge` entries; the layouts agree (above).
    let sges = unsafe { slice(wr.sg_list.cast::<Sge>(), count) };
    // SAFETY: a plain word of the union.
    let xrc_srqn = unsafe { wr.qp_type.xrc.remote_srqn };
    let request = SendWr { wr_id: wr.wr_id, flags, op, data: Payload::Sges(sges), ud, xrc_srqn };
    match sges {
        _ if !flags.contains(SendFlags::INLINE) => f(&request),
        // SAFETY: inline entries are plain addresses of the program's memory.
        [sge] => f(&SendWr { data: Payload::Inline(&[unsafe { bytes_of(sge) }]), ..request }),
        _ if count > MAX_INLINE_SGES => Err(Error::invalid(
            format!("num_sge is {count}"),
            format!("inline data has at most {MAX_INLINE_SGES} entries"),
        )),
        _ => {
            let mut inline = [&[][..]; MAX_INLINE_SGES];
            for (slot, sge) in inline.iter_mut().zip(sges) {
                // SAFETY: as above.
                *slot = unsafe { bytes_of(sge) };
            }
            f(&SendWr { data: Payload::Inline(&inline[..count]), ..request })
        }
    }
}

/// The bytes of an inline entry.
///
/// # Safety
/// The entry is an address and a length of the program's memory, valid as long as the answer is
/// used.
unsafe fn bytes_of<'a>(sge: &Sge) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { slice(sge.addr as *const u8, sge.length as usize) }
}

/// # Safety
/// The program has set the parts of the unions that the opcode uses.
unsafe fn operation(wr: &ibv_send_wr) -> Result<SendOp, Error> {
    // SAFETY: plain words; the opcode says which of them are meaningful.
    let rdma = unsafe { wr.wr.rdma };
    let remote = Remote { va: rdma.remote_addr, rkey: rdma.rkey };
    // SAFETY: as above.
    let atomic = unsafe { wr.wr.atomic };
    let at = Remote { va: atomic.remote_addr, rkey: atomic.rkey };
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(wr.imm_data),
        IBV_WR_SEND_WITH_INV => SendOp::SendInv(wr.imm_data),
        IBV_WR_RDMA_WRITE => SendOp::Write(remote),
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm(remote, wr.imm_data),
        IBV_WR_RDMA_READ => SendOp::Read(remote),
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            SendOp::CompareSwap { remote: at, compare: atomic.compare_add, swap: atomic.swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd { remote: at, add: atomic.compare_add },
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite(remote),
        IBV_WR_LOCAL_INV => SendOp::LocalInv(wr.imm_data),
        IBV_WR_BIND_MW => {
            // SAFETY: set for this opcode.
            let bind = unsafe { wr.op.bind_mw };
            if bind.mw.is_null() || (bind.bind_info.mr.is_null() && bind.bind_info.length != 0) {
                return Err(Error::invalid("bind_mw", "the window and the region must be given"));
            }
            SendOp::BindMw(bind_of(bind.mw, bind.rkey, &bind.bind_info)?)
        }
        other @ (IBV_WR_TSO | IBV_WR_DRIVER1) => {
            return Err(Error::unsupported(format!("send opcode {other} is not offered")));
        }
        other => {
            return Err(Error::invalid(format!("opcode is {other}"), "there is no such request"));
        }
    })
}

/// # Errors
/// EINVAL if `mw` or `info.mr` (unless null) is no object.
pub fn bind_of(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Result<MwBind, Error> {
    let window = hot(mw)?;
    let region = maybe_in(info.mr, window.origin().file)?;
    Ok(MwBind {
        mw: window.key(),
        new_key: rkey,
        mr: region.map_or(0, |region| region.mr.key()),
        addr: info.addr,
        len: info.length,
        access: Access::from_bits_truncate(info.mw_access_flags),
    })
}

/// # Errors
/// EINVAL if `ah` (unless null) is no address handle.
#[inline]
pub fn ud_dest(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<Option<UdDest>, Error> {
    if ah.is_null() {
        return Ok(None);
    }
    Ok(Some(UdDest { av: hot(ah)?.av, qpn: qpn & QPN_MASK, qkey }))
}

/// Slot `post_recv`.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let posted = match hot(qp) {
        // SAFETY: the program's list, valid during the call.
        Ok(obj) => unsafe { post_each(wr, |wr| obj.qp.post_recv(wr)) },
        Err(e) => Err((wr, e)),
    };
    // SAFETY: the program's place.
    unsafe { report("ibv_post_recv", posted, bad_wr) }
}

/// Slot `post_srq_recv`.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let posted = match hot(srq) {
        // SAFETY: the program's list, valid during the call.
        Ok(obj) => unsafe { post_each(wr, |wr| obj.srq.post_recv(wr)) },
        Err(e) => Err((wr, e)),
    };
    // SAFETY: the program's place.
    unsafe { report("ibv_post_srq_recv", posted, bad_wr) }
}

/// # Safety
/// `bad_wr` is null or a place to write to.
pub(super) unsafe fn report(
    call: &str,
    posted: Result<(), (*mut ibv_recv_wr, Error)>,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    match posted {
        Ok(()) => 0,
        Err((wr, e)) => {
            // SAFETY: the caller's promise.
            unsafe { put(bad_wr, wr) };
            super::failed(call, &e)
        }
    }
}

/// Posts a list. A failure names the request.
///
/// # Safety
/// `wr` is a valid list.
pub(super) unsafe fn post_each(
    wr: *mut ibv_recv_wr,
    post: impl Fn(&RecvWr<'_>) -> Result<(), Error>,
) -> Result<(), (*mut ibv_recv_wr, Error)> {
    super::order::posted();
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let request = unsafe { &*next };
        let posted = count_of("num_sge", request.num_sge).and_then(|count| {
            // SAFETY: `num_sge` entries; the layouts agree (above).
            let sges = unsafe { slice(request.sg_list.cast::<Sge>(), count) };
            post(&RecvWr { wr_id: request.wr_id, sges })
        });
        if let Err(e) = posted {
            return Err((next, e));
        }
        next = request.next;
    }
    Ok(())
}

/// A work request in a list of the program.
pub trait WorkRequest: 'static {
    /// The number that its completion has.
    fn wr_id(&self) -> u64;
    /// The next request; null at the end.
    fn next(&self) -> *mut Self;
}

macro_rules! work_requests {
    ($($ty:ty)*) => { $(
        impl WorkRequest for $ty {
            fn wr_id(&self) -> u64 {
                self.wr_id
            }
            fn next(&self) -> *mut Self {
                self.next
            }
        }
    )* };
}

work_requests! { ibv_send_wr ibv_recv_wr }

/// The requests of a list.
///
/// # Safety
/// `first` is a valid list of the program, as long as the answer is used.
pub unsafe fn requests<T: WorkRequest>(first: *mut T) -> impl Iterator<Item = &'static T> + Clone {
    // SAFETY: the caller's promise.
    let at = |wr: *mut T| unsafe { wr.as_ref() };
    core::iter::successors(at(first), move |wr| at(wr.next()))
}

/// A list of the program; a null pointer is an empty list.
///
/// # Safety
/// `count` valid elements at `start`, unless `start` is null.
pub unsafe fn slice<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(start, count) }
}
