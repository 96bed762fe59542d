//! Protection domains.

use adverb_ndk::QpSizes;

use super::{close_function, create, query_extension};
use crate::abi::*;
use crate::guard::{guarded, srq_notification, status};
use crate::kinds::{Cq, Mr, Mw, Pd, Qp, Srq, kind};
use crate::objects::behind;

kind!(Pd: NDK_PD, adverb_ndk::Pd, NdkObjectTypePd, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: close,
    NdkQueryExtension: query_extension,
    NdkCreateMr: create_mr,
    NdkCreateMw: create_mw,
    NdkCreateSrq: create_srq,
    NdkCreateQp: create_qp,
    NdkCreateQpWithSrq: create_qp_with_srq,
    NdkGetPrivilegedMemoryRegionToken: get_privileged_token,
};

close_function!(Pd);

unsafe extern "C" fn create_mr(
    pd: *mut NDK_PD,
    fast_register: BOOLEAN,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_MR,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let pd = behind::<Pd>(pd)?.clone();
        create::<Mr>(completion, context, out, |completion| {
            pd.create_mr(fast_register != 0, completion)
        })
    })
}

unsafe extern "C" fn create_mw(
    pd: *mut NDK_PD,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_MW,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let pd = behind::<Pd>(pd)?.clone();
        create::<Mw>(completion, context, out, |completion| pd.create_mw(completion))
    })
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_CREATE_SRQ's")]
unsafe extern "C" fn create_srq(
    pd: *mut NDK_PD,
    depth: ULONG,
    max_receive_request_sge: ULONG,
    notify_threshold: ULONG,
    notification: NDK_FN_SRQ_NOTIFICATION_CALLBACK,
    notification_context: PVOID,
    // Preferred processors. The adapter's threads ignore this hint.
    _affinity: *mut GROUP_AFFINITY,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_SRQ,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let pd = behind::<Pd>(pd)?.clone();
        let notification = srq_notification(notification, notification_context);
        create::<Srq>(completion, context, out, |completion| {
            pd.create_srq(
                depth,
                max_receive_request_sge,
                notify_threshold,
                notification,
                completion,
            )
        })
    })
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_CREATE_QP's")]
unsafe extern "C" fn create_qp(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: PVOID,
    receive_queue_depth: ULONG,
    initiator_queue_depth: ULONG,
    max_receive_request_sge: ULONG,
    max_initiator_request_sge: ULONG,
    inline_data_size: ULONG,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_QP,
) -> NTSTATUS {
    let sizes = QpSizes {
        receive_queue_depth,
        initiator_queue_depth,
        max_receive_request_sge,
        max_initiator_request_sge,
        inline_data_size,
    };
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let pd = behind::<Pd>(pd)?.clone();
        let (receive_cq, initiator_cq) =
            (behind::<Cq>(receive_cq)?.clone(), behind::<Cq>(initiator_cq)?.clone());
        create::<Qp>(completion, context, out, |completion| {
            pd.create_qp(&receive_cq, &initiator_cq, qp_context as u64, sizes, completion)
        })
    })
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_CREATE_QP_WITH_SRQ's")]
unsafe extern "C" fn create_qp_with_srq(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    srq: *mut NDK_SRQ,
    qp_context: PVOID,
    initiator_queue_depth: ULONG,
    max_initiator_request_sge: ULONG,
    inline_data_size: ULONG,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_QP,
) -> NTSTATUS {
    let sizes = QpSizes {
        initiator_queue_depth,
        max_initiator_request_sge,
        inline_data_size,
        ..QpSizes::default()
    };
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let pd = behind::<Pd>(pd)?.clone();
        let (receive_cq, initiator_cq) =
            (behind::<Cq>(receive_cq)?.clone(), behind::<Cq>(initiator_cq)?.clone());
        let srq = behind::<Srq>(srq)?.clone();
        create::<Qp>(completion, context, out, |completion| {
            pd.create_qp_with_srq(
                &receive_cq,
                &initiator_cq,
                &srq,
                qp_context as u64,
                sizes,
                completion,
            )
        })
    })
}

unsafe extern "C" fn get_privileged_token(pd: *mut NDK_PD, token: *mut u32) {
    guarded((), || {
        // SAFETY: "What C promises", 1 and 2.
        if let (Ok(pd), Some(token)) = unsafe { (behind::<Pd>(pd), token.as_mut()) } {
            *token = pd.get_privileged_memory_region_token();
        }
    });
}
