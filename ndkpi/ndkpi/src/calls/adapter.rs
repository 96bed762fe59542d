//! Adapters.

use core::mem::{offset_of, size_of};

use adverb_ndk::{AdapterInfo, Lam, LogicalAddress, NtStatus, PAGE_SIZE, RequestOutcome};

use super::{create, query_extension};
use crate::abi::*;
use crate::guard::{Context, connect_event, cq_notification, guarded, status};
use crate::kinds::{Adapter, Connector, Cq, Listener, Pd, SharedEndpoint, kind};
use crate::mdl::describe;
use crate::net;
use crate::objects::behind;

kind!(Adapter: NDK_ADAPTER, crate::adapters::Open, NdkObjectTypeAdapter, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: query_extension,
    NdkQueryAdapterInfo: query_info,
    NdkCreateCq: create_cq,
    NdkCreatePd: create_pd,
    NdkCreateSharedEndpoint: create_shared_endpoint,
    NdkCreateConnector: create_connector,
    NdkCreateListener: create_listener,
    NdkBuildLAM: build_lam,
    NdkReleaseLAM: release_lam,
};

unsafe extern "C" fn query_info(
    adapter: *mut NDK_ADAPTER,
    out: *mut NDK_ADAPTER_INFO,
    size: *mut ULONG,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1 and 2.
        let (open, size) = unsafe { (behind::<Adapter>(adapter)?, size.as_mut()) };
        let size = size.ok_or(NtStatus::INVALID_PARAMETER)?;
        let needed = size_of::<NDK_ADAPTER_INFO>() as ULONG;
        let room = core::mem::replace(size, needed);
        if room < needed {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        // SAFETY: "What C promises", 2. `*size` says that the buffer has room.
        let out = unsafe { out.as_mut() }.ok_or(NtStatus::INVALID_PARAMETER)?;
        *out = mirror(&open.adapter.query_info());
        Ok(NtStatus::SUCCESS)
    })
}

fn mirror(info: &AdapterInfo) -> NDK_ADAPTER_INFO {
    NDK_ADAPTER_INFO {
        Version: NDK_VERSION { Major: info.version.0, Minor: info.version.1 },
        VendorId: info.vendor_id,
        DeviceId: info.device_id,
        MaxRegistrationSize: info.max_registration_size as SIZE_T,
        MaxWindowSize: info.max_window_size as SIZE_T,
        FRMRPageCount: info.frmr_page_count,
        MaxInitiatorRequestSge: info.max_initiator_request_sge,
        MaxReceiveRequestSge: info.max_receive_request_sge,
        MaxReadRequestSge: info.max_read_request_sge,
        MaxTransferLength: info.max_transfer_length,
        MaxInlineDataSize: info.max_inline_data_size,
        MaxInboundReadLimit: info.max_inbound_read_limit,
        MaxOutboundReadLimit: info.max_outbound_read_limit,
        MaxReceiveQueueDepth: info.max_receive_queue_depth,
        MaxInitiatorQueueDepth: info.max_initiator_queue_depth,
        MaxSrqDepth: info.max_srq_depth,
        MaxCqDepth: info.max_cq_depth,
        LargeRequestThreshold: info.large_request_threshold,
        MaxCallerData: info.max_caller_data,
        MaxCalleeData: info.max_callee_data,
        AdapterFlags: info.adapter_flags.bits(),
        RdmaTechnology: info.rdma_technology as u32,
    }
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_CREATE_CQ's")]
unsafe extern "C" fn create_cq(
    adapter: *mut NDK_ADAPTER,
    depth: ULONG,
    notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    notification_context: PVOID,
    // Preferred processors. The adapter's threads ignore this hint.
    _affinity: *mut GROUP_AFFINITY,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_CQ,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let adapter = behind::<Adapter>(adapter)?.adapter.clone();
        let notification = cq_notification(notification, notification_context)?;
        create::<Cq>(completion, context, out, |completion| {
            adapter.create_cq(depth, notification, completion)
        })
    })
}

unsafe extern "C" fn create_pd(
    adapter: *mut NDK_ADAPTER,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_PD,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let adapter = behind::<Adapter>(adapter)?.adapter.clone();
        create::<Pd>(completion, context, out, |completion| adapter.create_pd(completion))
    })
}

unsafe extern "C" fn create_shared_endpoint(
    adapter: *mut NDK_ADAPTER,
    address: PSOCKADDR,
    address_length: ULONG,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let adapter = behind::<Adapter>(adapter)?.adapter.clone();
        let address = net::read(address, address_length)?;
        create::<SharedEndpoint>(completion, context, out, |completion| {
            adapter.create_shared_endpoint(address, completion)
        })
    })
}

unsafe extern "C" fn create_connector(
    adapter: *mut NDK_ADAPTER,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let adapter = behind::<Adapter>(adapter)?.adapter.clone();
        create::<Connector>(completion, context, out, |completion| {
            adapter.create_connector(completion)
        })
    })
}

unsafe extern "C" fn create_listener(
    adapter: *mut NDK_ADAPTER,
    event: NDK_FN_CONNECT_EVENT_CALLBACK,
    event_context: PVOID,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    out: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    // SAFETY: "What C promises", 1 to 3.
    status(|| unsafe {
        let adapter = behind::<Adapter>(adapter)?.adapter.clone();
        let event = connect_event(event, event_context)?;
        create::<Listener>(completion, context, out, |completion| {
            adapter.create_listener(event, completion)
        })
    })
}

/// Size of a mapping of `pages` pages, in bytes.
fn lam_size(pages: u64) -> Result<ULONG, NtStatus> {
    let size = pages.checked_mul(size_of::<NDK_LOGICAL_ADDRESS>() as u64);
    let size = size.and_then(|s| {
        s.checked_add(offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) as u64)
    });
    size.and_then(|s| ULONG::try_from(s).ok()).ok_or(NtStatus::INVALID_PARAMETER)
}

/// The destination of a mapping.
#[derive(Clone, Copy)]
struct LamOut {
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    fbo: *mut ULONG,
}

// SAFETY: every thread may write there ("What C promises", 2).
unsafe impl Send for LamOut {}

impl LamOut {
    /// Writes a mapping.
    ///
    /// # Safety
    /// The buffers have room for all pages of the mapping.
    unsafe fn write(self, lam: &Lam) {
        // The provider's context in the mapping is the first page's address. The context identifies
        // the mapping when it is released.
        let base = lam.pages.first().map_or(0, |p| p.0);
        // SAFETY: the caller promises room for all pages. Writes go through raw pointers, because
        // the array is longer than its type says.
        unsafe {
            (&raw mut (*self.lam).AdapterContext)
                .write(core::ptr::without_provenance_mut(base as usize));
            (&raw mut (*self.lam).AdapterPageCount).write(lam.pages.len() as ULONG);
            let array = (&raw mut (*self.lam).AdapterPageArray).cast::<NDK_LOGICAL_ADDRESS>();
            for (i, page) in lam.pages.iter().enumerate() {
                array.add(i).write(page.0 as NDK_LOGICAL_ADDRESS);
            }
            self.fbo.write(lam.fbo);
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "NDK_FN_BUILD_LAM's")]
unsafe extern "C" fn build_lam(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    length: SIZE_T,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    lam_bytes: *mut ULONG,
    fbo: *mut ULONG,
) -> NTSTATUS {
    status(|| {
        // SAFETY: "What C promises", 1 and 2.
        let (open, bytes) = unsafe { (behind::<Adapter>(adapter)?.clone(), lam_bytes.as_mut()) };
        let bytes = bytes.ok_or(NtStatus::INVALID_PARAMETER)?;
        if fbo.is_null() || !lam.is_aligned() || (completion.is_none() && !open.in_line) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: "What C promises", 2 and 4. The memory must be writable, because the rights of
        // keys are chosen only later.
        let (mdl, address) = unsafe { describe(mdl, length, true) }?;
        let pages = (address % PAGE_SIZE + length as u64).div_ceil(PAGE_SIZE);
        let needed = lam_size(pages)?;
        let room = core::mem::replace(bytes, needed);
        if lam.is_null() || room < needed {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        let out = LamOut { lam, fbo };
        let context = Context::new(context);
        let built = open.adapter.build_lam(&mdl, length as u64, move |built| {
            let status = built.map(|lam| {
                // SAFETY: there was room. The buffers stay valid until the request is complete
                // ("What C promises", 2).
                unsafe { out.write(&lam) };
            });
            if let Some(completion) = completion {
                let status = status.err().unwrap_or(NtStatus::SUCCESS);
                // SAFETY: "What C promises", 3.
                unsafe { completion(context.get(), status.0) };
            }
        })?;
        match built {
            RequestOutcome::Done(lam) => {
                // SAFETY: as above.
                unsafe { out.write(&lam) };
                Ok(NtStatus::SUCCESS)
            }
            RequestOutcome::Pending => Ok(NtStatus::PENDING),
        }
    })
}

unsafe extern "C" fn release_lam(adapter: *mut NDK_ADAPTER, lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
    guarded((), || {
        // SAFETY: "What C promises", 1.
        let Ok(open) = (unsafe { behind::<Adapter>(adapter) }) else { return };
        if lam.is_null() || !lam.is_aligned() {
            return;
        }
        // SAFETY: "What C promises", 2.
        let base = unsafe { (&raw const (*lam).AdapterContext).read() } as u64;
        // A context that belongs to no mapping releases nothing.
        open.adapter.release_lam(&Lam { pages: vec![LogicalAddress(base)], fbo: 0 });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_takes_eight_bytes_a_page_behind_its_head() {
        assert_eq!(lam_size(1), Ok(0x18));
        assert_eq!(lam_size(256), Ok(0x10 + 8 * 256));
        assert_eq!(lam_size(1 << 29), Err(NtStatus::INVALID_PARAMETER));
        assert_eq!(lam_size(u64::MAX), Err(NtStatus::INVALID_PARAMETER));
    }
}
