//! Queue pairs.

use adverb_ndk::{Invalidated, LogicalAddress, NtStatus, OpFlags};

use super::{MrOrMw, close_function, mr_or_mw, query_extension, sgl};
use crate::abi::*;
use crate::guard::{guarded, status};
use crate::kinds::{Mr, Mw, Qp, kind};
use crate::objects::behind;

kind!(Qp: NDK_QP, adverb_ndk::Qp, NdkObjectTypeQp, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: close,
    NdkQueryExtension: query_extension,
    NdkFlush: flush,
    NdkSend: send,
    NdkReceive: receive,
    NdkBind: bind,
    NdkFastRegister: fast_register,
    NdkInvalidate: invalidate,
    NdkRead: read,
    NdkWrite: write,
    NdkSendAndInvalidate: send_and_invalidate,
};

close_function!(Qp);

unsafe extern "C" fn flush(qp: *mut NDK_QP) {
    guarded((), || {
        // SAFETY: "What C promises", 1.
        if let Ok(qp) = unsafe { behind::<Qp>(qp) } {
            qp.clone().flush();
        }
    });
}

/// Posts an initiator request. A request that is refused here ends the chain, like a request that
/// the queue pair refuses. The requests deferred before it are committed (DEF-4).
///
/// # Safety
/// "What C promises", 1.
unsafe fn initiate(
    qp: *mut NDK_QP,
    post: impl FnOnce(&adverb_ndk::Qp) -> Result<(), NtStatus>,
) -> NTSTATUS {
    status(|| {
        // SAFETY: the caller promises a pointer from C.
        let qp = unsafe { behind::<Qp>(qp) }?;
        post(qp).map(|()| NtStatus::SUCCESS).inspect_err(|_| qp.commit_deferred())
    })
}

unsafe extern "C" fn send(
    qp: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    flags: ULONG,
) -> NTSTATUS {
    let flags = OpFlags::from_bits_retain(flags);
    // SAFETY: "What C promises", 1 and 2.
    unsafe {
        initiate(qp, |qp| {
            sgl::with(list, count, flags.contains(OpFlags::INLINE), |list| {
                qp.send(context as u64, list, flags)
            })
        })
    }
}

unsafe extern "C" fn send_and_invalidate(
    qp: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    flags: ULONG,
    remote_token: u32,
) -> NTSTATUS {
    let flags = OpFlags::from_bits_retain(flags);
    // SAFETY: "What C promises", 1 and 2.
    unsafe {
        initiate(qp, |qp| {
            sgl::with(list, count, flags.contains(OpFlags::INLINE), |list| {
                qp.send_and_invalidate(context as u64, list, flags, remote_token)
            })
        })
    }
}

unsafe extern "C" fn write(
    qp: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    remote_address: u64,
    remote_token: u32,
    flags: ULONG,
) -> NTSTATUS {
    let flags = OpFlags::from_bits_retain(flags);
    // SAFETY: "What C promises", 1 and 2.
    unsafe {
        initiate(qp, |qp| {
            sgl::with(list, count, flags.contains(OpFlags::INLINE), |list| {
                qp.write(context as u64, list, remote_address, remote_token, flags)
            })
        })
    }
}

unsafe extern "C" fn read(
    qp: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    remote_address: u64,
    remote_token: u32,
    flags: ULONG,
) -> NTSTATUS {
    let flags = OpFlags::from_bits_retain(flags);
    // SAFETY: "What C promises", 1 and 2.
    unsafe {
        initiate(qp, |qp| {
            sgl::with(list, count, false, |list| {
                qp.read(context as u64, list, remote_address, remote_token, flags)
            })
        })
    }
}

unsafe extern "C" fn receive(
    qp: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1 and 2.
        unsafe {
            let qp = behind::<Qp>(qp)?;
            sgl::with(list, count, false, |list| qp.receive(context as u64, list))
        }
        .map(|()| NtStatus::SUCCESS)
    })
}

unsafe extern "C" fn bind(
    qp: *mut NDK_QP,
    context: PVOID,
    mr: *mut NDK_MR,
    mw: *mut NDK_MW,
    address: PVOID,
    length: SIZE_T,
    flags: ULONG,
) -> NTSTATUS {
    let flags = OpFlags::from_bits_retain(flags);
    // SAFETY: "What C promises", 1.
    unsafe {
        initiate(qp, |qp| {
            let (mr, mw) = (behind::<Mr>(mr)?, behind::<Mw>(mw)?);
            qp.bind(context as u64, mr, mw, address as u64, length as u64, flags)
        })
    }
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_FAST_REGISTER's")]
unsafe extern "C" fn fast_register(
    qp: *mut NDK_QP,
    context: PVOID,
    mr: *mut NDK_MR,
    page_count: ULONG,
    pages: *const NDK_LOGICAL_ADDRESS,
    fbo: ULONG,
    length: SIZE_T,
    base: PVOID,
    flags: ULONG,
) -> NTSTATUS {
    let flags = OpFlags::from_bits_retain(flags);
    // SAFETY: "What C promises", 1 and 2.
    unsafe {
        initiate(qp, |qp| {
            let mr = behind::<Mr>(mr)?;
            let pages = logical_addresses(pages, page_count)?;
            qp.fast_register(context as u64, mr, pages, fbo, length as u64, base as u64, flags)
        })
    }
}

/// An array of page addresses, without a copy.
///
/// # Safety
/// "What C promises", 2.
unsafe fn logical_addresses<'a>(
    pages: *const NDK_LOGICAL_ADDRESS,
    count: ULONG,
) -> Result<&'a [LogicalAddress], NtStatus> {
    if pages.is_null() || !pages.is_aligned() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the caller promises `count` readable entries. A `LogicalAddress` is
    // `repr(transparent)` over 64 bits, as an `NDK_LOGICAL_ADDRESS` is.
    Ok(unsafe { core::slice::from_raw_parts(pages.cast(), count as usize) })
}

unsafe extern "C" fn invalidate(
    qp: *mut NDK_QP,
    context: PVOID,
    object: *mut NDK_OBJECT_HEADER,
    flags: ULONG,
) -> NTSTATUS {
    let flags = OpFlags::from_bits_retain(flags);
    // SAFETY: "What C promises", 1.
    unsafe {
        initiate(qp, |qp| match mr_or_mw(object)? {
            MrOrMw::Mr(mr) => qp.invalidate(context as u64, Invalidated::Mr(mr), flags),
            MrOrMw::Mw(mw) => qp.invalidate(context as u64, Invalidated::Mw(mw), flags),
        })
    }
}
