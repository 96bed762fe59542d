//! Completion queues.

use adverb_ndk::{NdkResultEx, NotifyType, NtStatus, OperationType};

use super::{close_function, outcome, query_extension};
use crate::abi::*;
use crate::guard::{guarded, request_completion, status};
use crate::kinds::{Cq, kind};
use crate::objects::behind;

kind!(Cq: NDK_CQ, adverb_ndk::Cq, NdkObjectTypeCq, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: close,
    NdkQueryExtension: query_extension,
    NdkResizeCq: resize,
    NdkArmCq: arm,
    NdkGetCqResults: get_results,
    NdkControlCqInterruptModeration: control_interrupt_moderation,
    NdkGetCqResultsEx: get_results_ex,
};

close_function!(Cq);

unsafe extern "C" fn resize(
    cq: *mut NDK_CQ,
    depth: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1.
        let cq = unsafe { behind::<Cq>(cq) }?.clone();
        cq.resize(depth, request_completion(completion, context)?).map(outcome)
    })
}

unsafe extern "C" fn arm(cq: *mut NDK_CQ, notify: ULONG) {
    guarded((), || {
        let Some(notify) = NotifyType::from_code(notify) else {
            log::warn!("NdkArmCq: {notify} is none of NDK_CQ_NOTIFY_ERRORS, _ANY and _SOLICITED");
            return;
        };
        // SAFETY: "What C promises", 1. A clone, because the arm may cause a callback that closes
        // the queue.
        if let Ok(cq) = unsafe { behind::<Cq>(cq) } {
            cq.clone().arm(notify);
        }
    });
}

/// Results are taken in batches of this size, on the stack.
const BATCH: usize = 16;

const NONE: NdkResultEx = NdkResultEx {
    status: NtStatus::SUCCESS,
    bytes_transferred: 0,
    qp_context: 0,
    request_context: 0,
    operation: OperationType::Receive,
    provider_error_code: 0,
    type_specific_completion_output: 0,
};

/// Takes up to `max` results. Writes each to `results`, converted by `convert`.
///
/// # Safety
/// "What C promises", 1 and 2.
unsafe fn take<R>(
    cq: *mut NDK_CQ,
    results: *mut R,
    max: ULONG,
    convert: impl Fn(&NdkResultEx) -> R,
) -> ULONG {
    guarded(0, || {
        // SAFETY: the caller promises a pointer from C.
        let Ok(cq) = (unsafe { behind::<Cq>(cq) }) else { return 0 };
        if results.is_null() || !results.is_aligned() {
            return 0;
        }
        let max = max as usize;
        let mut taken = 0;
        let mut batch = [NONE; BATCH];
        while taken < max {
            let wanted = BATCH.min(max - taken);
            let got = cq.get_results_ex(&mut batch[..wanted]);
            for result in &batch[..got] {
                // SAFETY: the caller promises room for `max` results, and `taken` is below `max`.
                unsafe { results.add(taken).write(convert(result)) };
                taken += 1;
            }
            if got < wanted {
                break;
            }
        }
        taken as ULONG
    })
}

fn word(context: u64) -> PVOID {
    core::ptr::with_exposed_provenance_mut(context as usize)
}

unsafe extern "C" fn get_results(cq: *mut NDK_CQ, results: *mut NDK_RESULT, max: ULONG) -> ULONG {
    let convert = |r: &NdkResultEx| NDK_RESULT {
        Status: r.status.0,
        BytesTransferred: r.bytes_transferred,
        QPContext: word(r.qp_context),
        RequestContext: word(r.request_context),
    };
    // SAFETY: "What C promises", 1 and 2.
    unsafe { take(cq, results, max, convert) }
}

unsafe extern "C" fn get_results_ex(
    cq: *mut NDK_CQ,
    results: *mut NDK_RESULT_EX,
    max: ULONG,
) -> ULONG {
    let convert = |r: &NdkResultEx| NDK_RESULT_EX {
        Status: r.status.0,
        BytesTransferred: r.bytes_transferred,
        QPContext: word(r.qp_context),
        RequestContext: word(r.request_context),
        Type: r.operation as u32,
        ProviderErrorCode: r.provider_error_code,
        TypeSpecificCompletionOutput: r.type_specific_completion_output as usize,
    };
    // SAFETY: "What C promises", 1 and 2.
    unsafe { take(cq, results, max, convert) }
}

unsafe extern "C" fn control_interrupt_moderation(
    cq: *mut NDK_CQ,
    interval: ULONG,
    count: ULONG,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1.
        let cq = unsafe { behind::<Cq>(cq) }?;
        cq.control_interrupt_moderation(interval, count).map(|()| NtStatus::SUCCESS)
    })
}
