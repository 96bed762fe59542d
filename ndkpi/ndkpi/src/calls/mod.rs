//! The functions in the tables, by object. NDKPI documents them as `NDK_FN_…`.

pub mod adapter;
pub mod connector;
pub mod cq;
pub mod endpoint;
pub mod listener;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
mod sgl;
pub mod srq;

use adverb_ndk::object::Completion;
use adverb_ndk::{NtStatus, RequestOutcome};

use crate::abi::*;
use crate::guard::{Context, create_completion, status};
use crate::kinds;
use crate::objects::{Kind, begin_close, behind, enter, object_type};

/// `SUCCESS` for a request that is done, `PENDING` for a request whose completion will be called.
fn outcome(outcome: RequestOutcome) -> NtStatus {
    match outcome {
        RequestOutcome::Done(()) => NtStatus::SUCCESS,
        RequestOutcome::Pending => NtStatus::PENDING,
    }
}

/// Creates an object with `make`. Writes the object to `out` if the creation is done in line.
///
/// # Safety
/// "What C promises", 2 and 3.
unsafe fn create<K: Kind>(
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut K::C,
    make: impl FnOnce(Completion<K::Inner>) -> Result<RequestOutcome<K::Inner>, NtStatus>,
) -> Result<NtStatus, NtStatus> {
    let completion = create_completion::<K>(completion, context)?;
    if out.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    match make(completion)? {
        RequestOutcome::Done(inner) => {
            // SAFETY: the caller promises a valid `out`, which was checked for null.
            unsafe { out.write(enter::<K>(inner)) };
            Ok(NtStatus::SUCCESS)
        }
        // From here on, the completion may have been called, and `out` may be invalid.
        RequestOutcome::Pending => Ok(NtStatus::PENDING),
    }
}

/// Closes an object with `close`. The object is freed before the completion is called, or before
/// this function returns.
///
/// # Safety
/// "What C promises", 1 and 3.
unsafe fn close<K: Kind>(
    object: *mut NDK_OBJECT_HEADER,
    completion: NDK_FN_CLOSE_COMPLETION,
    context: PVOID,
    close: impl FnOnce(K::Inner, Box<dyn FnOnce() + Send>) -> Result<RequestOutcome, NtStatus>,
) -> NTSTATUS {
    status(|| {
        let completion = completion.ok_or(NtStatus::INVALID_PARAMETER)?;
        let context = Context::new(context);
        // SAFETY: the caller promises a pointer from C. Every object begins with its header.
        let (closing, inner) = unsafe { begin_close::<K>(object.cast()) }?;
        let completed = Box::new(move || {
            drop(closing);
            // SAFETY: the caller's promise 3. The completion is called once, when the close is
            // complete.
            unsafe { completion(context.get()) };
        });
        Ok(outcome(close(inner, completed)?))
    })
}

/// Defines the function that closes objects of a kind.
macro_rules! close_function {
    ($kind:ident) => {
        unsafe extern "C" fn close(
            object: *mut NDK_OBJECT_HEADER,
            completion: NDK_FN_CLOSE_COMPLETION,
            context: PVOID,
        ) -> NTSTATUS {
            // SAFETY: "What C promises", 1 and 3.
            unsafe {
                super::close::<$crate::kinds::$kind>(
                    object,
                    completion,
                    context,
                    |inner, completed| inner.close(completed),
                )
            }
        }
    };
}
use close_function;

/// `NdkQueryExtension` of every object: there are no extensions.
unsafe extern "C" fn query_extension(
    object: *mut NDK_OBJECT_HEADER,
    id: *mut GUID,
    _version: NDK_VERSION,
    extension: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    status(|| {
        if object.is_null() || id.is_null() || extension.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: "What C promises", 1.
        let kind = unsafe { object_type(object) };
        let known = (NdkObjectTypeUndefined + 1..NdkObjectTypeMax).contains(&kind);
        Err(if known { NtStatus::NOT_SUPPORTED } else { NtStatus::INVALID_PARAMETER })
    })
}

/// The private data of a connection.
///
/// # Errors
/// `INVALID_PARAMETER`: null with a length.
///
/// # Safety
/// "What C promises", 2.
unsafe fn private_data<'a>(data: PVOID, length: ULONG) -> Result<&'a [u8], NtStatus> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(NtStatus::INVALID_PARAMETER),
        // SAFETY: the caller promises `length` readable bytes, and `data` is not null.
        (false, _) => Ok(unsafe { core::slice::from_raw_parts(data.cast(), length as usize) }),
    }
}

/// An object that can be invalidated.
enum MrOrMw<'a> {
    Mr(&'a adverb_ndk::Mr),
    Mw(&'a adverb_ndk::Mw),
}

/// The region or window with this header.
///
/// # Errors
/// `INVALID_PARAMETER` for any other object.
///
/// # Safety
/// "What C promises", 1.
unsafe fn mr_or_mw<'a>(header: *mut NDK_OBJECT_HEADER) -> Result<MrOrMw<'a>, NtStatus> {
    if header.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the caller promises a pointer from C, which is not null.
    unsafe {
        if object_type(header) == NdkObjectTypeMw {
            Ok(MrOrMw::Mw(behind::<kinds::Mw>(header.cast())?))
        } else {
            Ok(MrOrMw::Mr(behind::<kinds::Mr>(header.cast())?))
        }
    }
}
