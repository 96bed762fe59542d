//! Shared endpoints.

use adverb_ndk::NtStatus;

use super::{close_function, query_extension};
use crate::abi::*;
use crate::guard::status;
use crate::kinds::{SharedEndpoint, kind};
use crate::net;
use crate::objects::behind;

kind!(SharedEndpoint: NDK_SHARED_ENDPOINT, adverb_ndk::connect::SharedEndpoint, NdkObjectTypeSharedEndpoint, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: close,
    NdkQueryExtension: query_extension,
    NdkGetLocalAddress: get_local_address,
};

close_function!(SharedEndpoint);

unsafe extern "C" fn get_local_address(
    endpoint: *mut NDK_SHARED_ENDPOINT,
    address: PSOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 and 2.
    status(|| unsafe {
        let local = behind::<SharedEndpoint>(endpoint)?.get_local_address();
        net::write(local, address, length).map(|()| NtStatus::SUCCESS)
    })
}
