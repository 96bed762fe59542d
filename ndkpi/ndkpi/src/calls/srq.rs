//! Shared receive queues.

use adverb_ndk::NtStatus;

use super::{close_function, outcome, query_extension, sgl};
use crate::abi::*;
use crate::guard::{request_completion, status};
use crate::kinds::{Srq, kind};
use crate::objects::behind;

kind!(Srq: NDK_SRQ, adverb_ndk::Srq, NdkObjectTypeSrq, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: close,
    NdkQueryExtension: query_extension,
    NdkModifySrq: modify,
    NdkSrqReceive: receive,
};

close_function!(Srq);

unsafe extern "C" fn modify(
    srq: *mut NDK_SRQ,
    depth: ULONG,
    notify_threshold: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1.
        let srq = unsafe { behind::<Srq>(srq) }?.clone();
        srq.modify(depth, notify_threshold, request_completion(completion, context)?).map(outcome)
    })
}

unsafe extern "C" fn receive(
    srq: *mut NDK_SRQ,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1 and 2.
        unsafe {
            let srq = behind::<Srq>(srq)?;
            sgl::with(list, count, false, |list| srq.receive(context as u64, list))
        }
        .map(|()| NtStatus::SUCCESS)
    })
}
