//! The consumer's functions. `None` is C's null pointer.

use super::*;

pub type NDK_FN_CLOSE_COMPLETION = Option<unsafe extern "C" fn(Context: PVOID)>;
pub type NDK_FN_REQUEST_COMPLETION = Option<unsafe extern "C" fn(Context: PVOID, Status: NTSTATUS)>;
pub type NDK_FN_CREATE_COMPLETION = Option<
    unsafe extern "C" fn(Context: PVOID, Status: NTSTATUS, pNdkObject: *mut NDK_OBJECT_HEADER),
>;
pub type NDK_FN_CQ_NOTIFICATION_CALLBACK =
    Option<unsafe extern "C" fn(CqNotificationContext: PVOID, CqStatus: NTSTATUS)>;
pub type NDK_FN_SRQ_NOTIFICATION_CALLBACK =
    Option<unsafe extern "C" fn(SrqNotificationContext: PVOID, SrqStatus: NTSTATUS)>;
pub type NDK_FN_CONNECT_EVENT_CALLBACK =
    Option<unsafe extern "C" fn(ConnectEventContext: PVOID, pNdkConnector: *mut NDK_CONNECTOR)>;
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK =
    Option<unsafe extern "C" fn(DisconnectEventContext: PVOID)>;
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK_EX =
    Option<unsafe extern "C" fn(DisconnectEventContext: PVOID, ProviderDisconnectReason: ULONG)>;
