//! Flags and enumerations.

use super::macros::constants;

constants! {
    NdkObjectTypeUndefined: u32 = 0;
    NdkObjectTypeAdapter: u32 = 1;
    NdkObjectTypeQp: u32 = 2;
    NdkObjectTypeCq: u32 = 3;
    NdkObjectTypeMr: u32 = 4;
    NdkObjectTypeMw: u32 = 5;
    NdkObjectTypePd: u32 = 6;
    NdkObjectTypeSharedEndpoint: u32 = 7;
    NdkObjectTypeConnector: u32 = 8;
    NdkObjectTypeListener: u32 = 9;
    NdkObjectTypeSrq: u32 = 10;
    NdkObjectTypeMax: u32 = 11;

    NdkOperationTypeReceive: u32 = 1;
    NdkOperationTypeReceiveAndInvalidate: u32 = 32769;
    NdkOperationTypeSend: u32 = 2;
    NdkOperationTypeFastRegister: u32 = 4;
    NdkOperationTypeBind: u32 = 8;
    NdkOperationTypeInvalidate: u32 = 16;
    NdkOperationTypeRead: u32 = 32;
    NdkOperationTypeWrite: u32 = 64;

    NdkUndefined: u32 = 0;
    NdkiWarp: u32 = 1;
    NdkInfiniBand: u32 = 2;
    NdkRoCE: u32 = 3;
    NdkRoCEv2: u32 = 4;
    NdkMaxTechnology: u32 = 5;

    NDK_CQ_NOTIFY_ERRORS: u32 = 0;
    NDK_CQ_NOTIFY_ANY: u32 = 1;
    NDK_CQ_NOTIFY_SOLICITED: u32 = 2;

    ADVERB_NDK_PENDING_NEVER: u32 = 0;
    ADVERB_NDK_PENDING_ALWAYS: u32 = 1;
    ADVERB_NDK_PENDING_ALTERNATE: u32 = 2;

    ADVERB_NDK_DISCONNECT_BY_PEER: u32 = 1;
    ADVERB_NDK_DISCONNECT_PEER_LOST: u32 = 2;
    ADVERB_NDK_DISCONNECT_QP_FAILED: u32 = 3;
}
