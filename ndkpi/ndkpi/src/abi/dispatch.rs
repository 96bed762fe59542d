//! The function tables of the objects, and the types of their functions.
//!
//! All functions are the provider's, and never null.

use super::macros::mirrors;
use super::*;

pub type NDK_FN_CLOSE_OBJECT = unsafe extern "C" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    CloseCompletion: NDK_FN_CLOSE_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_QUERY_EXTENSION_INTERFACE = unsafe extern "C" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    ExtensionInterfaceID: *mut GUID,
    ExtensionInterfaceVersion: NDK_VERSION,
    pExtensionInterface: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS;
pub type NDK_FN_RESIZE_CQ = unsafe extern "C" fn(
    pNdkCq: *mut NDK_CQ,
    CqDepth: ULONG,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_ARM_CQ = unsafe extern "C" fn(pNdkCq: *mut NDK_CQ, Type: ULONG);
pub type NDK_FN_GET_CQ_RESULTS =
    unsafe extern "C" fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT, nResults: ULONG) -> ULONG;
pub type NDK_FN_GET_CQ_RESULTS_EX = unsafe extern "C" fn(
    pNdkCq: *mut NDK_CQ,
    Results: *mut NDK_RESULT_EX,
    nResults: ULONG,
) -> ULONG;
pub type NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION = unsafe extern "C" fn(
    pNdkCq: *mut NDK_CQ,
    ModerationInterval: ULONG,
    ModerationCount: ULONG,
) -> NTSTATUS;
pub type NDK_FN_REGISTER_MR = unsafe extern "C" fn(
    pNdkMr: *mut NDK_MR,
    Mdl: *mut MDL,
    Length: SIZE_T,
    Flags: ULONG,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_DEREGISTER_MR = unsafe extern "C" fn(
    pNdkMr: *mut NDK_MR,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_INITIALIZE_FAST_REGISTER_MR = unsafe extern "C" fn(
    pNdkMr: *mut NDK_MR,
    AdapterPageCount: ULONG,
    RemoteAccess: BOOLEAN,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MR = unsafe extern "C" fn(pNdkMr: *mut NDK_MR) -> u32;
pub type NDK_FN_GET_LOCAL_TOKEN_FROM_MR = unsafe extern "C" fn(pNdkMr: *mut NDK_MR) -> u32;
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MW = unsafe extern "C" fn(pNdkMw: *mut NDK_MW) -> u32;
pub type NDK_FN_MODIFY_SRQ = unsafe extern "C" fn(
    pNdkSrq: *mut NDK_SRQ,
    SrqDepth: ULONG,
    NotifyThreshold: ULONG,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_SRQ_RECEIVE = unsafe extern "C" fn(
    pNdkSrq: *mut NDK_SRQ,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
) -> NTSTATUS;
pub type NDK_FN_FLUSH = unsafe extern "C" fn(pNdkQp: *mut NDK_QP);
pub type NDK_FN_SEND = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_RECEIVE = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
) -> NTSTATUS;
pub type NDK_FN_BIND = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pMr: *mut NDK_MR,
    pMw: *mut NDK_MW,
    VirtualAddress: PVOID,
    Length: SIZE_T,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_FAST_REGISTER = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pMr: *mut NDK_MR,
    AdapterPageCount: ULONG,
    AdapterPageArray: *const NDK_LOGICAL_ADDRESS,
    FBO: ULONG,
    Length: SIZE_T,
    BaseVirtualAddress: PVOID,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_INVALIDATE = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pNdkMrOrMw: *mut NDK_OBJECT_HEADER,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_READ = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    RemoteAddress: u64,
    RemoteToken: u32,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_WRITE = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    RemoteAddress: u64,
    RemoteToken: u32,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_SEND_AND_INVALIDATE = unsafe extern "C" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    Flags: ULONG,
    RemoteToken: u32,
) -> NTSTATUS;
pub type NDK_FN_CREATE_MR = unsafe extern "C" fn(
    pNdkPd: *mut NDK_PD,
    FastRegister: BOOLEAN,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkMr: *mut *mut NDK_MR,
) -> NTSTATUS;
pub type NDK_FN_CREATE_MW = unsafe extern "C" fn(
    pNdkPd: *mut NDK_PD,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkMw: *mut *mut NDK_MW,
) -> NTSTATUS;
pub type NDK_FN_CREATE_SRQ = unsafe extern "C" fn(
    pNdkPd: *mut NDK_PD,
    SrqDepth: ULONG,
    MaxReceiveRequestSge: ULONG,
    NotifyThreshold: ULONG,
    SrqNotification: NDK_FN_SRQ_NOTIFICATION_CALLBACK,
    SrqNotificationContext: PVOID,
    Affinity: *mut GROUP_AFFINITY,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkSrq: *mut *mut NDK_SRQ,
) -> NTSTATUS;
pub type NDK_FN_CREATE_QP = unsafe extern "C" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    QPContext: PVOID,
    ReceiveQueueDepth: ULONG,
    InitiatorQueueDepth: ULONG,
    MaxReceiveRequestSge: ULONG,
    MaxInitiatorRequestSge: ULONG,
    InlineDataSize: ULONG,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkQp: *mut *mut NDK_QP,
) -> NTSTATUS;
pub type NDK_FN_CREATE_QP_WITH_SRQ = unsafe extern "C" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    pSrq: *mut NDK_SRQ,
    QPContext: PVOID,
    InitiatorQueueDepth: ULONG,
    MaxInitiatorRequestSge: ULONG,
    InlineDataSize: ULONG,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkQp: *mut *mut NDK_QP,
) -> NTSTATUS;
pub type NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN =
    unsafe extern "C" fn(pNdkPd: *mut NDK_PD, pToken: *mut u32);
pub type NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS = unsafe extern "C" fn(
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pAddress: PSOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_CONNECT = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pSrcAddress: PSOCKADDR,
    SrcAddressLength: ULONG,
    pDestAddress: PSOCKADDR,
    DestAddressLength: ULONG,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: PVOID,
    PrivateDataLength: ULONG,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_CONNECT_WITH_SHARED_ENDPOINT = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pDestAddress: PSOCKADDR,
    DestAddressLength: ULONG,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: PVOID,
    PrivateDataLength: ULONG,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_COMPLETE_CONNECT = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    DisconnectEventContext: PVOID,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_ACCEPT = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: PVOID,
    PrivateDataLength: ULONG,
    DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    DisconnectEventContext: PVOID,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_COMPLETE_CONNECT_EX = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    DisconnectEventContext: PVOID,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_ACCEPT_EX = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: PVOID,
    PrivateDataLength: ULONG,
    DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    DisconnectEventContext: PVOID,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_REJECT = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pPrivateData: PVOID,
    PrivateDataLength: ULONG,
) -> NTSTATUS;
pub type NDK_FN_GET_CONNECTION_DATA = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pInboundReadLimit: *mut ULONG,
    pOutboundReadLimit: *mut ULONG,
    pPrivateData: PVOID,
    pPrivateDataLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_GET_LOCAL_ADDRESS = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: PSOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_GET_PEER_ADDRESS = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: PSOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_DISCONNECT = unsafe extern "C" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_LISTEN = unsafe extern "C" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: PSOCKADDR,
    AddressLength: ULONG,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_GET_LISTENER_LOCAL_ADDRESS = unsafe extern "C" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: PSOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_CONTROL_CONNECT_EVENTS =
    unsafe extern "C" fn(pNdkListener: *mut NDK_LISTENER, Pause: BOOLEAN);
pub type NDK_FN_QUERY_ADAPTER_INFO = unsafe extern "C" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pInfo: *mut NDK_ADAPTER_INFO,
    pBufferSize: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_CREATE_CQ = unsafe extern "C" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CqDepth: ULONG,
    CqNotification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    CqNotificationContext: PVOID,
    Affinity: *mut GROUP_AFFINITY,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkCq: *mut *mut NDK_CQ,
) -> NTSTATUS;
pub type NDK_FN_CREATE_PD = unsafe extern "C" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkPd: *mut *mut NDK_PD,
) -> NTSTATUS;
pub type NDK_FN_CREATE_SHARED_ENDPOINT = unsafe extern "C" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pAddress: PSOCKADDR,
    AddressLength: ULONG,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkSharedEndpoint: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS;
pub type NDK_FN_CREATE_CONNECTOR = unsafe extern "C" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkConnector: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS;
pub type NDK_FN_CREATE_LISTENER = unsafe extern "C" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    ConnectEvent: NDK_FN_CONNECT_EVENT_CALLBACK,
    ConnectEventContext: PVOID,
    CreateCompletion: NDK_FN_CREATE_COMPLETION,
    RequestContext: PVOID,
    ppNdkListener: *mut *mut NDK_LISTENER,
) -> NTSTATUS;
pub type NDK_FN_BUILD_LAM = unsafe extern "C" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    Mdl: *mut MDL,
    Length: SIZE_T,
    RequestCompletion: NDK_FN_REQUEST_COMPLETION,
    RequestContext: PVOID,
    pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    pLAMSize: *mut ULONG,
    pFBO: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_RELEASE_LAM =
    unsafe extern "C" fn(pNdkAdapter: *mut NDK_ADAPTER, pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING);

mirrors! {
    NDK_CQ_DISPATCH {
        NdkCloseCq: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkResizeCq: NDK_FN_RESIZE_CQ,
        NdkArmCq: NDK_FN_ARM_CQ,
        NdkGetCqResults: NDK_FN_GET_CQ_RESULTS,
        NdkControlCqInterruptModeration: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION,
        NdkGetCqResultsEx: NDK_FN_GET_CQ_RESULTS_EX,
    }
    NDK_MR_DISPATCH {
        NdkCloseMr: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkRegisterMr: NDK_FN_REGISTER_MR,
        NdkDeregisterMr: NDK_FN_DEREGISTER_MR,
        NdkInitializeFastRegisterMr: NDK_FN_INITIALIZE_FAST_REGISTER_MR,
        NdkGetRemoteTokenFromMr: NDK_FN_GET_REMOTE_TOKEN_FROM_MR,
        NdkGetLocalTokenFromMr: NDK_FN_GET_LOCAL_TOKEN_FROM_MR,
    }
    NDK_MW_DISPATCH {
        NdkCloseMw: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkGetRemoteTokenFromMw: NDK_FN_GET_REMOTE_TOKEN_FROM_MW,
    }
    NDK_SRQ_DISPATCH {
        NdkCloseSrq: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkModifySrq: NDK_FN_MODIFY_SRQ,
        NdkSrqReceive: NDK_FN_SRQ_RECEIVE,
    }
    NDK_QP_DISPATCH {
        NdkCloseQp: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkFlush: NDK_FN_FLUSH,
        NdkSend: NDK_FN_SEND,
        NdkReceive: NDK_FN_RECEIVE,
        NdkBind: NDK_FN_BIND,
        NdkFastRegister: NDK_FN_FAST_REGISTER,
        NdkInvalidate: NDK_FN_INVALIDATE,
        NdkRead: NDK_FN_READ,
        NdkWrite: NDK_FN_WRITE,
        NdkSendAndInvalidate: NDK_FN_SEND_AND_INVALIDATE,
    }
    NDK_PD_DISPATCH {
        NdkClosePd: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkCreateMr: NDK_FN_CREATE_MR,
        NdkCreateMw: NDK_FN_CREATE_MW,
        NdkCreateSrq: NDK_FN_CREATE_SRQ,
        NdkCreateQp: NDK_FN_CREATE_QP,
        NdkCreateQpWithSrq: NDK_FN_CREATE_QP_WITH_SRQ,
        NdkGetPrivilegedMemoryRegionToken: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN,
    }
    NDK_SHARED_ENDPOINT_DISPATCH {
        NdkCloseSharedEndpoint: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkGetLocalAddress: NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS,
    }
    NDK_CONNECTOR_DISPATCH {
        NdkCloseConnector: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkConnect: NDK_FN_CONNECT,
        NdkConnectWithSharedEndpoint: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT,
        NdkCompleteConnect: NDK_FN_COMPLETE_CONNECT,
        NdkAccept: NDK_FN_ACCEPT,
        NdkReject: NDK_FN_REJECT,
        NdkGetConnectionData: NDK_FN_GET_CONNECTION_DATA,
        NdkGetLocalAddress: NDK_FN_GET_LOCAL_ADDRESS,
        NdkGetPeerAddress: NDK_FN_GET_PEER_ADDRESS,
        NdkDisconnect: NDK_FN_DISCONNECT,
        NdkCompleteConnectEx: NDK_FN_COMPLETE_CONNECT_EX,
        NdkAcceptEx: NDK_FN_ACCEPT_EX,
    }
    NDK_LISTENER_DISPATCH {
        NdkCloseListener: NDK_FN_CLOSE_OBJECT,
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkListen: NDK_FN_LISTEN,
        NdkGetLocalAddress: NDK_FN_GET_LISTENER_LOCAL_ADDRESS,
        NdkControlConnectEvents: NDK_FN_CONTROL_CONNECT_EVENTS,
    }
    NDK_ADAPTER_DISPATCH {
        NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        NdkQueryAdapterInfo: NDK_FN_QUERY_ADAPTER_INFO,
        NdkCreateCq: NDK_FN_CREATE_CQ,
        NdkCreatePd: NDK_FN_CREATE_PD,
        NdkCreateSharedEndpoint: NDK_FN_CREATE_SHARED_ENDPOINT,
        NdkCreateConnector: NDK_FN_CREATE_CONNECTOR,
        NdkCreateListener: NDK_FN_CREATE_LISTENER,
        NdkBuildLAM: NDK_FN_BUILD_LAM,
        NdkReleaseLAM: NDK_FN_RELEASE_LAM,
    }
}
