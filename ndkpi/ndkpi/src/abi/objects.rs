//! Objects and the values of requests.

use super::macros::mirrors;
use super::*;
use core::ffi::c_void;

mirrors! {
    NDK_OBJECT_HEADER_RESERVED_BLOCK {
        rf: [PVOID; 4],
    }

    NDK_OBJECT_HEADER {
        Version: NDK_VERSION,
        ObjectType: u32,
        NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK,
    }

    NDK_EXTENSION_INTERFACE {
        Dispatch: *const c_void,
    }

    NDK_LOGICAL_ADDRESS_MAPPING {
        AdapterContext: PVOID,
        AdapterPageCount: ULONG,
        AdapterPageArray: [NDK_LOGICAL_ADDRESS; 1],
    }

    #[derive(Clone, Copy, Debug)]
    NDK_SGE {
        /// The union of `VirtualAddress` and `LogicalAddress`.
        LogicalAddress: NDK_LOGICAL_ADDRESS,
        Length: ULONG,
        MemoryRegionToken: u32,
    }

    #[derive(Clone, Copy, Debug)]
    NDK_RESULT {
        Status: NTSTATUS,
        BytesTransferred: ULONG,
        QPContext: PVOID,
        RequestContext: PVOID,
    }

    #[derive(Clone, Copy, Debug)]
    NDK_RESULT_EX {
        Status: NTSTATUS,
        BytesTransferred: ULONG,
        QPContext: PVOID,
        RequestContext: PVOID,
        Type: u32,
        ProviderErrorCode: ULONG,
        TypeSpecificCompletionOutput: usize,
    }

    NDK_ADAPTER { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_ADAPTER_DISPATCH }
    NDK_PD { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_PD_DISPATCH }
    NDK_CQ { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_CQ_DISPATCH }
    NDK_MR { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_MR_DISPATCH }
    NDK_MW { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_MW_DISPATCH }
    NDK_SRQ { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_SRQ_DISPATCH }
    NDK_QP { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_QP_DISPATCH }
    NDK_SHARED_ENDPOINT { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_SHARED_ENDPOINT_DISPATCH }
    NDK_CONNECTOR { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_CONNECTOR_DISPATCH }
    NDK_LISTENER { Header: NDK_OBJECT_HEADER, Dispatch: &'static NDK_LISTENER_DISPATCH }
}
