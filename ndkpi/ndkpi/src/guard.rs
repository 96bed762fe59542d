//! The boundary to C. Panics do not reach the consumer, and the consumer's callbacks become
//! closures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use adverb_ndk::NtStatus;
use adverb_ndk::connect::{Connector, DisconnectEvent};
use adverb_ndk::object::Completion;

use crate::abi::*;
use crate::kinds;
use crate::objects::{Kind, enter};

/// Runs the body of an entry point. If the body panics, the panic is caught and `otherwise` is
/// returned.
pub fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log::error!("a call of NDKPI panicked; it fails with STATUS_INTERNAL_ERROR");
        otherwise
    })
}

/// [`guarded`] for entry points that return a status.
pub fn status(body: impl FnOnce() -> Result<NtStatus, NtStatus>) -> NTSTATUS {
    guarded(NtStatus::INTERNAL_ERROR.0, || body().unwrap_or_else(|failure| failure).0)
}

/// A context of the consumer. The context is only passed back to the consumer, and never
/// dereferenced.
#[derive(Clone, Copy)]
pub struct Context(PVOID);

// SAFETY: the provider treats the context as an opaque value.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// From C.
    pub fn new(context: PVOID) -> Self {
        Context(context)
    }
    /// For C.
    pub fn get(self) -> PVOID {
        self.0
    }
}

/// The completion of a request.
///
/// # Errors
/// `INVALID_PARAMETER` for a null function.
pub fn request_completion(
    function: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> Result<Completion<()>, NtStatus> {
    let function = function.ok_or(NtStatus::INVALID_PARAMETER)?;
    let context = Context::new(context);
    Ok(Box::new(move |result| {
        let status = result.err().unwrap_or(NtStatus::SUCCESS);
        // SAFETY: the consumer passed the function to be called in this way, once.
        unsafe { function(context.get(), status.0) };
    }))
}

/// The completion of a creation: makes the C object and passes it to the consumer.
///
/// # Errors
/// `INVALID_PARAMETER` for a null function.
pub fn create_completion<K: Kind>(
    function: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
) -> Result<Completion<K::Inner>, NtStatus> {
    let function = function.ok_or(NtStatus::INVALID_PARAMETER)?;
    let context = Context::new(context);
    Ok(Box::new(move |result| {
        let (status, object) = match result {
            Ok(inner) => (NtStatus::SUCCESS, enter::<K>(inner).cast()),
            Err(status) => (status, core::ptr::null_mut()),
        };
        // SAFETY: as above. The object is live and begins with its header.
        unsafe { function(context.get(), status.0, object) };
    }))
}

/// The notification callback of a completion queue.
///
/// # Errors
/// `INVALID_PARAMETER` for a null function.
pub fn cq_notification(
    function: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    context: PVOID,
) -> Result<impl Fn(NtStatus) + Send + Sync + 'static, NtStatus> {
    let function = function.ok_or(NtStatus::INVALID_PARAMETER)?;
    let context = Context::new(context);
    Ok(move |status: NtStatus| {
        // SAFETY: the consumer passed the function to be called in this way, once for each arm.
        unsafe { function(context.get(), status.0) };
    })
}

/// The notification callback of a shared receive queue, which may be null.
pub fn srq_notification(
    function: NDK_FN_SRQ_NOTIFICATION_CALLBACK,
    context: PVOID,
) -> Option<Box<dyn Fn(NtStatus) + Send + Sync>> {
    let function = function?;
    let context = Context::new(context);
    Some(Box::new(move |status: NtStatus| {
        // SAFETY: the consumer passed the function to be called in this way.
        unsafe { function(context.get(), status.0) };
    }))
}

/// The connect event of a listener: makes the C connector and passes it to the consumer.
///
/// # Errors
/// `INVALID_PARAMETER` for a null function.
pub fn connect_event(
    function: NDK_FN_CONNECT_EVENT_CALLBACK,
    context: PVOID,
) -> Result<impl Fn(Connector) + Send + Sync + 'static, NtStatus> {
    let function = function.ok_or(NtStatus::INVALID_PARAMETER)?;
    let context = Context::new(context);
    Ok(move |connector: Connector| {
        let connector = enter::<kinds::Connector>(connector);
        // SAFETY: the consumer passed the function to be called in this way. The connector is live,
        // and the consumer closes it.
        unsafe { function(context.get(), connector) };
    })
}

/// The disconnect event of a connection, which may be null.
pub fn disconnect_event(
    function: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    context: PVOID,
) -> Option<DisconnectEvent> {
    let function = function?;
    let context = Context::new(context);
    Some(Box::new(move |_| {
        // SAFETY: the consumer passed the function to be called in this way, once.
        unsafe { function(context.get()) };
    }))
}

/// The disconnect event with a reason, which may be null.
pub fn disconnect_event_ex(
    function: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    context: PVOID,
) -> Option<DisconnectEvent> {
    let function = function?;
    let context = Context::new(context);
    Some(Box::new(move |reason| {
        // SAFETY: the consumer passed the function to be called in this way, once.
        unsafe { function(context.get(), reason as ULONG) };
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(status(|| panic!("as a test")), NtStatus::INTERNAL_ERROR.0);
        assert_eq!(guarded(7, || -> u32 { panic!("as a test") }), 7);
        assert_eq!(status(|| Ok(NtStatus::PENDING)), NtStatus::PENDING.0);
        assert_eq!(status(|| Err(NtStatus::CANCELLED)), NtStatus::CANCELLED.0);
    }

    #[test]
    fn completions_say_what_c_is_to_hear() {
        unsafe extern "C" fn note(context: PVOID, status: NTSTATUS) {
            // SAFETY: the test's own context.
            unsafe { *context.cast::<NTSTATUS>() = status };
        }
        let mut heard = 1;
        let context = (&raw mut heard).cast();
        let complete = |result| {
            request_completion(Some(note), context).map(|complete| complete(result)).is_ok()
        };
        assert!(complete(Ok(())));
        assert_eq!(heard, NtStatus::SUCCESS.0);
        assert!(complete(Err(NtStatus::IO_TIMEOUT)));
        assert_eq!(heard, NtStatus::IO_TIMEOUT.0);
        assert!(request_completion(None, context).is_err());
    }
}
