//! Connectors.

use adverb_ndk::NtStatus;
use adverb_ndk::connect::{DisconnectEvent, ReadLimits};

use super::{close_function, outcome, private_data, query_extension};
use crate::abi::*;
use crate::guard::{disconnect_event, disconnect_event_ex, request_completion, status};
use crate::kinds::{Connector, Qp, SharedEndpoint, kind};
use crate::net;
use crate::objects::behind;

kind!(Connector: NDK_CONNECTOR, adverb_ndk::connect::Connector, NdkObjectTypeConnector, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: close,
    NdkQueryExtension: query_extension,
    NdkConnect: connect,
    NdkConnectWithSharedEndpoint: connect_with_shared_endpoint,
    NdkCompleteConnect: complete_connect,
    NdkAccept: accept,
    NdkReject: reject,
    NdkGetConnectionData: get_connection_data,
    NdkGetLocalAddress: get_local_address,
    NdkGetPeerAddress: get_peer_address,
    NdkDisconnect: disconnect,
    NdkCompleteConnectEx: complete_connect_ex,
    NdkAcceptEx: accept_ex,
};

close_function!(Connector);

#[allow(clippy::too_many_arguments, reason = "NDK_FN_CONNECT's")]
unsafe extern "C" fn connect(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    source: PSOCKADDR,
    source_length: ULONG,
    destination: PSOCKADDR,
    destination_length: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    data: PVOID,
    data_length: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3. Clones, because the completion may close the objects
    // before the call returns.
    status(|| unsafe {
        let (connector, qp) = (behind::<Connector>(connector)?.clone(), behind::<Qp>(qp)?.clone());
        let source = net::read(source, source_length)?;
        let destination = net::read(destination, destination_length)?;
        let data = private_data(data, data_length)?;
        let completion = request_completion(completion, context)?;
        connector
            .connect(&qp, source, destination, ReadLimits { inbound, outbound }, data, completion)
            .map(outcome)
    })
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_CONNECT_WITH_SHARED_ENDPOINT's")]
unsafe extern "C" fn connect_with_shared_endpoint(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    destination: PSOCKADDR,
    destination_length: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    data: PVOID,
    data_length: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3. Clones as for `connect`.
    status(|| unsafe {
        let (connector, qp) = (behind::<Connector>(connector)?.clone(), behind::<Qp>(qp)?.clone());
        let endpoint = behind::<SharedEndpoint>(endpoint)?.clone();
        let destination = net::read(destination, destination_length)?;
        let data = private_data(data, data_length)?;
        let completion = request_completion(completion, context)?;
        let reads = ReadLimits { inbound, outbound };
        connector
            .connect_with_shared_endpoint(&qp, &endpoint, destination, reads, data, completion)
            .map(outcome)
    })
}

/// Completes a connection, with either kind of disconnect event.
///
/// # Safety
/// "What C promises", 1 and 3.
unsafe fn complete_with(
    connector: *mut NDK_CONNECTOR,
    event: Option<DisconnectEvent>,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the caller promises valid pointers and callbacks, as above.
    status(|| unsafe {
        let connector = behind::<Connector>(connector)?.clone();
        let completion = request_completion(completion, context)?;
        connector.complete_connect(event, completion).map(outcome)
    })
}

unsafe extern "C" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 3.
    unsafe { complete_with(connector, disconnect_event(event, event_context), completion, context) }
}

unsafe extern "C" fn complete_connect_ex(
    connector: *mut NDK_CONNECTOR,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 3.
    unsafe {
        complete_with(connector, disconnect_event_ex(event, event_context), completion, context)
    }
}

/// The parameters of an accept.
struct Acceptance {
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    reads: ReadLimits,
    data: PVOID,
    data_length: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
}

impl Acceptance {
    /// Accepts, with either kind of disconnect event.
    ///
    /// # Safety
    /// "What C promises", 1 to 3.
    unsafe fn with(self, event: Option<DisconnectEvent>) -> NTSTATUS {
        // SAFETY: the caller promises valid pointers and callbacks, as above.
        status(|| unsafe {
            let (connector, qp) =
                (behind::<Connector>(self.connector)?.clone(), behind::<Qp>(self.qp)?.clone());
            let data = private_data(self.data, self.data_length)?;
            let completion = request_completion(self.completion, self.context)?;
            connector.accept(&qp, self.reads, data, event, completion).map(outcome)
        })
    }
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_ACCEPT's")]
unsafe extern "C" fn accept(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    data: PVOID,
    data_length: ULONG,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    let reads = ReadLimits { inbound, outbound };
    let accepted = Acceptance { connector, qp, reads, data, data_length, completion, context };
    // SAFETY: "What C promises", 1 to 3.
    unsafe { accepted.with(disconnect_event(event, event_context)) }
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_ACCEPT_EX's")]
unsafe extern "C" fn accept_ex(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    data: PVOID,
    data_length: ULONG,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    let reads = ReadLimits { inbound, outbound };
    let accepted = Acceptance { connector, qp, reads, data, data_length, completion, context };
    // SAFETY: "What C promises", 1 to 3.
    unsafe { accepted.with(disconnect_event_ex(event, event_context)) }
}

unsafe extern "C" fn reject(
    connector: *mut NDK_CONNECTOR,
    data: PVOID,
    data_length: ULONG,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 2.
    status(|| unsafe {
        let connector = behind::<Connector>(connector)?.clone();
        connector.reject(private_data(data, data_length)?).map(|()| NtStatus::SUCCESS)
    })
}

unsafe extern "C" fn get_connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut ULONG,
    outbound: *mut ULONG,
    data: PVOID,
    data_length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 2.
    status(|| unsafe {
        let connector = behind::<Connector>(connector)?;
        let length = data_length.as_mut().ok_or(NtStatus::INVALID_PARAMETER)?;
        if data.is_null() && *length > 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let known = connector.get_connection_data()?;
        if let Some(inbound) = inbound.as_mut() {
            *inbound = known.reads.inbound;
        }
        if let Some(outbound) = outbound.as_mut() {
            *outbound = known.reads.outbound;
        }
        let bytes = &known.private_data;
        let room = core::mem::replace(length, bytes.len() as ULONG) as usize;
        if data.is_null() {
            return Ok(NtStatus::SUCCESS);
        }
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len().min(room));
        if room < bytes.len() { Err(NtStatus::BUFFER_TOO_SMALL) } else { Ok(NtStatus::SUCCESS) }
    })
}

unsafe extern "C" fn get_local_address(
    connector: *mut NDK_CONNECTOR,
    address: PSOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 2.
    status(|| unsafe {
        let local = behind::<Connector>(connector)?.get_local_address()?;
        net::write(local, address, length).map(|()| NtStatus::SUCCESS)
    })
}

unsafe extern "C" fn get_peer_address(
    connector: *mut NDK_CONNECTOR,
    address: PSOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 2.
    status(|| unsafe {
        let peer = behind::<Connector>(connector)?.get_peer_address()?;
        net::write(peer, address, length).map(|()| NtStatus::SUCCESS)
    })
}

unsafe extern "C" fn disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 3.
    status(|| unsafe {
        let connector = behind::<Connector>(connector)?.clone();
        connector.disconnect(request_completion(completion, context)?).map(outcome)
    })
}
