//! Memory regions.

use adverb_ndk::MrFlags;

use super::{close_function, outcome, query_extension};
use crate::abi::*;
use crate::guard::{guarded, request_completion, status};
use crate::kinds::{Mr, kind};
use crate::mdl::describe;
use crate::objects::behind;

kind!(Mr: NDK_MR, adverb_ndk::Mr, NdkObjectTypeMr, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: close,
    NdkQueryExtension: query_extension,
    NdkRegisterMr: register,
    NdkDeregisterMr: deregister,
    NdkInitializeFastRegisterMr: initialize_fast_register,
    NdkGetRemoteTokenFromMr: get_remote_token,
    NdkGetLocalTokenFromMr: get_local_token,
};

close_function!(Mr);

unsafe extern "C" fn register(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: SIZE_T,
    flags: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1.
        let mr = unsafe { behind::<Mr>(mr) }?.clone();
        let completion = request_completion(completion, context)?;
        let flags = MrFlags::from_bits_retain(flags);
        let writable = flags.intersects(MrFlags::ALLOW_LOCAL_WRITE | MrFlags::RDMA_READ_SINK);
        // SAFETY: "What C promises", 2 and 4.
        let (mdl, _) = unsafe { describe(mdl, length, writable) }?;
        mr.register(&mdl, length as u64, flags, completion).map(outcome)
    })
}

unsafe extern "C" fn deregister(
    mr: *mut NDK_MR,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1.
        let mr = unsafe { behind::<Mr>(mr) }?.clone();
        mr.deregister(request_completion(completion, context)?).map(outcome)
    })
}

unsafe extern "C" fn initialize_fast_register(
    mr: *mut NDK_MR,
    pages: ULONG,
    remote_access: BOOLEAN,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1.
        let mr = unsafe { behind::<Mr>(mr) }?.clone();
        let completion = request_completion(completion, context)?;
        mr.initialize_fast_register(pages, remote_access != 0, completion).map(outcome)
    })
}

unsafe extern "C" fn get_remote_token(mr: *mut NDK_MR) -> u32 {
    // SAFETY: "What C promises", 1.
    guarded(0, || unsafe { behind::<Mr>(mr) }.map_or(0, |mr| mr.get_remote_token()))
}

unsafe extern "C" fn get_local_token(mr: *mut NDK_MR) -> u32 {
    // SAFETY: "What C promises", 1.
    guarded(0, || unsafe { behind::<Mr>(mr) }.map_or(0, |mr| mr.get_local_token()))
}
