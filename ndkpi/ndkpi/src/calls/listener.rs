//! Listeners.

use adverb_ndk::NtStatus;

use super::{close_function, outcome, query_extension};
use crate::abi::*;
use crate::guard::{guarded, request_completion, status};
use crate::kinds::{Listener, kind};
use crate::net;
use crate::objects::behind;

kind!(Listener: NDK_LISTENER, adverb_ndk::connect::Listener, NdkObjectTypeListener, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: close,
    NdkQueryExtension: query_extension,
    NdkListen: listen,
    NdkGetLocalAddress: get_local_address,
    NdkControlConnectEvents: control_connect_events,
};

close_function!(Listener);

unsafe extern "C" fn listen(
    listener: *mut NDK_LISTENER,
    address: PSOCKADDR,
    address_length: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let listener = behind::<Listener>(listener)?.clone();
        let address = net::read(address, address_length)?;
        listener.listen(address, request_completion(completion, context)?).map(outcome)
    })
}

unsafe extern "C" fn get_local_address(
    listener: *mut NDK_LISTENER,
    address: PSOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 2.
    status(|| unsafe {
        let local = behind::<Listener>(listener)?.get_local_address()?;
        net::write(local, address, length).map(|()| NtStatus::SUCCESS)
    })
}

unsafe extern "C" fn control_connect_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    guarded((), || {
        // SAFETY: "What C promises", 1. A clone, because the call may cause a callback that closes
        // the listener.
        if let Ok(listener) = unsafe { behind::<Listener>(listener) } {
            listener.clone().control_connect_events(pause != 0);
        }
    });
}
