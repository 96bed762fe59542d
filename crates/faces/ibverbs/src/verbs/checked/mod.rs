//! The data path of a program that is checked (`adverb run --check`): the same calls, which tell
//! the ledger what they are given and answer. They stand in a context's tables only in such a
//! process, as those of a hunt do ([`super::hunt`]).
mod extended;
mod sums;

use self::sums::sum;
use super::check::{Check, check, set_extend};
use super::failure;
use crate::abi::*;
use crate::handles::hot;
use crate::verbs::{hunt, poll, post, put};
use adverb_check::{Completed, Piece, Place, Refused, Request};
use adverb_device::cq::hunt::hunt;
use adverb_device::engine::QpState;
use adverb_device::{Cq, Qp};
use core::ffi::c_int;
pub(super) use extended::{next_at, start_at};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Puts the calls of a check into a context's table, if the process is checked.
pub fn replace(ops: &mut ibv_context_ops) {
    if check().is_some() {
        ops.poll_cq = Some(poll_cq);
        ops.post_send = Some(post_send);
        ops.post_recv = Some(post_recv);
        ops.post_srq_recv = Some(post_srq_recv);
        set_extend(extended::extend_cq, extended::extend_qp);
    }
}

hunt::with_address!(poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) => poll_at, "rcx", "x3");
hunt::with_address!(
    post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) => post_at, "rcx", "x3"
);
hunt::with_address!(
    post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) => receive_at, "rcx", "x3"
);
hunt::with_address!(
    post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) => share_at, "rcx", "x3"
);

/// Can the queue pair do nothing but flush?
fn is_in_error(qp: &Qp) -> bool {
    matches!(qp.state(), QpState::Err | QpState::Sqe)
}

pub(super) unsafe extern "C" fn poll_at(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc, address: usize) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe {
        if hunt().is_some() { hunt::poll_at(cq, n, wc, address) } else { poll::poll_cq(cq, n, wc) }
    };
    let queue = hot(cq).ok().map(|obj| obj.cq.clone());
    if let (Some(check), Some(queue), Ok(found)) = (check(), queue, usize::try_from(found)) {
        for i in 0..found {
            // SAFETY: so many were written.
            let wc = unsafe { &mut *wc.add(i) };
            let ok = wc.status == IBV_WC_SUCCESS;
            let receive = wc.opcode & IBV_WC_RECV != 0;
            check.polled(&queue, wc.qp_num, wc.wr_id, ok, receive, address.wrapping_sub(1));
            if !ok {
                hunt::scramble(wc, check.garbage());
            }
        }
    }
    found
}

impl Check {
    /// Something that a program cannot take for a value.
    pub(super) fn garbage(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        hash.write_u64(self.filled.fetch_add(1, Ordering::Relaxed));
        hash.finish()
    }

    /// The program gets a completion.
    pub(super) fn polled(
        &self,
        cq: &Arc<Cq>,
        queue_pair: u32,
        wr_id: u64,
        ok: bool,
        receive: bool,
        at: Place,
    ) {
        let done = Completed { queue_pair, wr_id, ok, receive };
        let freed = self.tell(|ledger| {
            let freed = ledger.polled(cq.number(), done, at);
            let summed = freed.into_iter().filter(|r| r.sum.is_some());
            summed.filter_map(|r| Some((ledger.bytes_of(&r)?, r))).collect::<Vec<_>>()
        });
        for (bytes, request) in freed {
            if let Some(now) = sum(&bytes)
                && Some(now) != request.sum
            {
                self.tell(|ledger| ledger.changed(queue_pair, &request, at));
            }
        }
    }

    /// Notes what the bytes of requests are.
    pub(super) fn sum_up(&self, requests: &mut [Request]) {
        for request in requests {
            let bytes = self.tell(|ledger| ledger.bytes_of(request));
            request.sum = bytes.and_then(|bytes| sum(&bytes));
        }
    }

    /// Posts requests to a send queue as a NIC would, where a place is free when a completion that
    /// frees it was polled: `post` is told how many of the requests there is room for, and answers
    /// the errno and how many were taken.
    pub(super) fn posts(
        &self,
        qp: &Qp,
        mut requests: Vec<Request>,
        targets: &[Piece],
        place: Place,
        post: impl FnOnce(usize) -> (c_int, usize),
    ) -> c_int {
        let number = qp.number();
        let _alone = self.alone(number);
        self.sum_up(&mut requests);
        let in_error = is_in_error(qp);
        let room = self.tell(|ledger| {
            targets.iter().for_each(|target| ledger.write_to(*target));
            let room = ledger.room(number, in_error).unwrap_or(usize::MAX);
            ledger.posting(number, &requests, in_error, place);
            room.min(requests.len())
        });
        let (mut result, mut taken) = post(room);
        if result == 0 && room < requests.len() {
            (result, taken) = (libc::ENOMEM, room);
        }
        let refused =
            (result != 0).then(|| Refused { taken, full: result == libc::ENOMEM, why: failure::last() });
        self.tell(|ledger| ledger.posted(number, &requests, refused.as_ref(), place));
        result
    }
}

pub(super) fn piece_of(sge: &ibv_sge) -> Piece {
    Piece { addr: sge.addr, length: sge.length, lkey: sge.lkey }
}

/// # Safety
/// `num` entries at `list`, if it is positive.
unsafe fn pieces(list: *const ibv_sge, num: c_int) -> Vec<Piece> {
    // SAFETY: the caller's promise.
    unsafe { post::slice(list, usize::try_from(num).unwrap_or(0)) }.iter().map(piece_of).collect()
}

/// A request, and the memory that it writes to if its key is one of ours.
///
/// # Safety
/// A valid request of the program's.
unsafe fn request_of(wr: &ibv_send_wr, signals_all: bool, place: Place) -> (Request, Option<Piece>) {
    let has = |flag: u32| wr.send_flags & flag != 0;
    let reads =
        matches!(wr.opcode, IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
    let without_data = has(IBV_SEND_INLINE) || matches!(wr.opcode, IBV_WR_LOCAL_INV | IBV_WR_BIND_MW);
    // SAFETY: the caller's promise.
    let pieces = if without_data { Vec::new() } else { unsafe { pieces(wr.sg_list, wr.num_sge) } };
    // SAFETY: plain words of the union; the opcode says which are set.
    let target = unsafe {
        let length = pieces.iter().fold(0_u32, |sum, p| sum.saturating_add(p.length));
        match wr.opcode {
            IBV_WR_ATOMIC_WRITE => {
                Some(Piece { addr: wr.wr.rdma.remote_addr, length: 8, lkey: wr.wr.rdma.rkey })
            }
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => {
                Some(Piece { addr: wr.wr.rdma.remote_addr, length, lkey: wr.wr.rdma.rkey })
            }
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                Some(Piece { addr: wr.wr.atomic.remote_addr, length: 8, lkey: wr.wr.atomic.rkey })
            }
            _ => None,
        }
    };
    let request = Request {
        wr_id: wr.wr_id,
        at: core::ptr::from_ref(wr) as usize,
        signaled: signals_all || has(IBV_SEND_SIGNALED),
        pieces,
        writes: reads,
        sum: None,
        place,
    };
    (request, target)
}

pub(super) unsafe extern "C" fn post_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    address: usize,
) -> c_int {
    let mut refused: *mut ibv_send_wr = core::ptr::null_mut();
    let place = &raw mut refused;
    // SAFETY: the caller's promise.
    let post = || unsafe {
        if hunt().is_some() { hunt::post_at(qp, wr, place, address) } else { post::post_send(qp, wr, place) }
    };
    let queue_pair = hot(qp).ok().map(|obj| obj.qp.clone());
    let result = match (check(), queue_pair) {
        (Some(check), Some(queue_pair)) => {
            let (mut requests, mut targets) = (Vec::new(), Vec::new());
            let mut next = wr;
            while !next.is_null() {
                // SAFETY: the program's list of requests, valid during the call.
                let (request, target) =
                    unsafe { request_of(&*next, queue_pair.signals_all(), address.wrapping_sub(1)) };
                requests.push(request);
                targets.extend(target);
                // SAFETY: as above.
                next = unsafe { (*next).next };
            }
            let all: Vec<_> = requests.iter().map(|r| r.at).collect();
            check.posts(&queue_pair, requests, &targets, address.wrapping_sub(1), |room| {
                let next = all.get(room).map_or(core::ptr::null_mut(), |at| *at as *mut ibv_send_wr);
                if room == 0 && !next.is_null() {
                    // SAFETY: our own word.
                    unsafe { place.write(next) };
                    return (libc::ENOMEM, 0);
                }
                // The chain ends here for as long as the call lasts.
                let last = all[..room].last().map(|at| *at as *mut ibv_send_wr).filter(|_| !next.is_null());
                if let Some(last) = last {
                    // SAFETY: a request of the program's, which is ours during the call.
                    unsafe { (*last).next = core::ptr::null_mut() };
                }
                let result = post();
                if let Some(last) = last {
                    // SAFETY: as above; our own word.
                    unsafe {
                        (*last).next = next;
                        if result == 0 {
                            place.write(next);
                            return (libc::ENOMEM, room);
                        }
                    }
                }
                // SAFETY: our own word, which the call may have written.
                let first = unsafe { place.read() } as usize;
                (result, all.iter().position(|at| *at == first).unwrap_or(0))
            })
        }
        _ => post(),
    };
    if result != 0 {
        // SAFETY: the program's place; our own word.
        unsafe { put(bad, place.read()) };
    }
    result
}

/// # Safety
/// A valid list of the program's.
unsafe fn receives(wr: *mut ibv_recv_wr, place: Place) -> Vec<Request> {
    let mut all = Vec::new();
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let (wr, pieces) = unsafe { (&*next, pieces((*next).sg_list, (*next).num_sge)) };
        let at = next as usize;
        all.push(Request { wr_id: wr.wr_id, at, signaled: true, pieces, writes: true, sum: None, place });
        next = wr.next;
    }
    all
}

pub(super) unsafe extern "C" fn receive_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    address: usize,
) -> c_int {
    let place = address.wrapping_sub(1);
    let queue_pair = hot(qp).ok().map(|obj| obj.qp.clone());
    let (Some(check), Some(queue_pair)) = (check(), queue_pair) else {
        // SAFETY: the caller's promise.
        return unsafe { post::post_recv(qp, wr, bad) };
    };
    // SAFETY: the program's list, valid during the call.
    let requests = unsafe { receives(wr, place) };
    let number = queue_pair.number();
    let _alone = check.alone(number);
    let in_error = is_in_error(&queue_pair);
    let late = queue_pair.counters().naks_sent > 0;
    check.tell(|ledger| {
        if late {
            ledger.receive_was_late(number);
        }
        ledger.receiving(number, &requests, in_error, place);
    });
    let mut refused: *mut ibv_recv_wr = core::ptr::null_mut();
    // SAFETY: the caller's promise, and a place of our own.
    let result = unsafe {
        let first = &raw mut refused;
        if hunt().is_some() {
            hunt::receive_at(qp, wr, first, address)
        } else {
            post::post_recv(qp, wr, first)
        }
    };
    if result != 0 {
        let taken = requests.iter().position(|r| r.at == refused as usize).unwrap_or(0);
        let why = Refused { taken, full: result == libc::ENOMEM, why: failure::last() };
        check.tell(|ledger| ledger.received(number, requests.len(), Some(&why), place));
        // SAFETY: the program's place.
        unsafe { put(bad, refused) };
    }
    result
}

pub(super) unsafe extern "C" fn share_at(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    address: usize,
) -> c_int {
    if let Some(check) = check() {
        // SAFETY: the program's list, valid during the call.
        let requests = unsafe { receives(wr, address.wrapping_sub(1)) };
        check.tell(|ledger| ledger.shared_receiving(&requests));
    }
    // SAFETY: the caller's promise.
    unsafe { post::post_srq_recv(srq, wr, bad) }
}
