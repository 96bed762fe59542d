//! Tag matching: operations on the matching list of an SRQ.
use super::post::slice;
use super::{count_of, done, only_bits, put};
use crate::abi::*;
use crate::handles::live;
use adverb_device::Error;
use adverb_device::engine::Sge;
use adverb_device::engine::tags::{ListOp, TaggedBuffer};
use core::ffi::c_int;

/// The number of list operations that may be outstanding, as the device reports it. An operation
/// ends when it is posted.
pub const MAX_TAG_OPS: u32 = 1024;

/// Slot `post_srq_ops`.
pub unsafe extern "C" fn post_srq_ops(
    srq: *mut ibv_srq,
    wr: *mut ibv_ops_wr,
    bad_wr: *mut *mut ibv_ops_wr,
) -> c_int {
    let mut next = wr;
    let mut post = || {
        let obj = live(srq)?;
        super::order::posted();
        while !next.is_null() {
            // SAFETY: the program's list, valid during the call.
            unsafe {
                let done = perform(&obj.srq, &*next)?;
                if (*next).opcode == IBV_WR_TAG_ADD {
                    (*next).tm.handle = done;
                }
                next = (*next).next;
            }
        }
        Ok(())
    };
    let result = post();
    if result.is_err() {
        // SAFETY: the program passes a place for the request that failed.
        unsafe { put(bad_wr, next) };
    }
    done("ibv_post_srq_ops", result)
}

/// Performs one operation and returns its handle.
///
/// # Safety
/// A valid request.
unsafe fn perform(srq: &adverb_device::Srq, wr: &ibv_ops_wr) -> Result<u32, Error> {
    let flags = wr.flags as u32;
    only_bits("flags are", flags, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC)?;
    let op = match wr.opcode {
        IBV_WR_TAG_ADD => {
            let add = &wr.tm.add;
            let count = count_of("num_sge", add.num_sge)?;
            // SAFETY: `num_sge` entries; the layouts agree.
            let sges = unsafe { slice(add.sg_list.cast::<Sge>(), count) };
            ListOp::Add(TaggedBuffer {
                recv_wr_id: add.recv_wr_id,
                sges,
                tag: add.tag,
                mask: add.mask,
            })
        }
        IBV_WR_TAG_DEL => ListOp::Remove(wr.tm.handle),
        IBV_WR_TAG_SYNC => ListOp::Sync,
        other => return Err(Error::invalid(format!("opcode is {other}"), "unknown value")),
    };
    // A request with the synchronisation opcode synchronises, even without the flag.
    let reports = flags & IBV_OPS_TM_SYNC != 0 || wr.opcode == IBV_WR_TAG_SYNC;
    let known = reports.then_some(wr.tm.unexpected_cnt);
    Ok(srq.tag_op(wr.wr_id, op, known, flags & IBV_OPS_SIGNALED != 0)?.handle)
}
