//! The properties of an adapter (`NDK_ADAPTER_INFO`).
use crate::flags::AdapterFlags;
use crate::version::Version;
use adverb_device::Context;
use adverb_device::device::{VENDOR_ID, VENDOR_PART_ID};

/// Maximum size of the private data of a connect request, in bytes: the room in the connection
/// manager's REQ (IBTA A11).
pub const MAX_CALLER_DATA: u32 = 56;
/// Maximum size of the private data of an accept or a reject, in bytes: the room in the connection
/// manager's REJ (IBTA 12.6.7).
pub const MAX_CALLEE_DATA: u32 = 148;
/// Recommended number of pages of a fast registration: 1 MiB.
const FRMR_PAGES: u32 = 256;
/// Maximum size of a registration or window, in bytes: the user half of the address space.
const MAX_REGION: u64 = 1 << 47;
/// From this size on, a read or write moves bytes in larger runs than a send. A send needs a posted
/// receive for each message.
const LARGE_REQUEST: u32 = 16 << 10;

/// The technology of the transport (`NDK_RDMA_TECHNOLOGY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum RdmaTechnology {
    Undefined = 0,
    IWarp = 1,
    InfiniBand = 2,
    RoCE = 3,
    RoCEv2 = 4,
}

/// Limits and properties of an adapter; the fields of `NDK_ADAPTER_INFO` in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Version of NDKPI, major and minor.
    pub version: (u16, u16),
    /// Vendor.
    pub vendor_id: u32,
    /// Device.
    pub device_id: u32,
    /// Maximum size of a registration, in bytes.
    pub max_registration_size: u64,
    /// Maximum size of a window, in bytes.
    pub max_window_size: u64,
    /// Recommended number of pages of a fast registration.
    pub frmr_page_count: u32,
    /// Maximum number of entries of an initiator request.
    pub max_initiator_request_sge: u32,
    /// Maximum number of entries of a receive.
    pub max_receive_request_sge: u32,
    /// Maximum number of entries of a read.
    pub max_read_request_sge: u32,
    /// Maximum size of a request, in bytes.
    pub max_transfer_length: u32,
    /// Maximum size of an inline request, in bytes.
    pub max_inline_data_size: u32,
    /// Maximum number of the peer's reads in progress on a queue pair.
    pub max_inbound_read_limit: u32,
    /// Maximum number of a queue pair's own reads in progress.
    pub max_outbound_read_limit: u32,
    /// Maximum number of receives of a queue pair.
    pub max_receive_queue_depth: u32,
    /// Maximum number of initiator requests of a queue pair.
    pub max_initiator_queue_depth: u32,
    /// Maximum number of receives of a shared receive queue.
    pub max_srq_depth: u32,
    /// Maximum number of entries of a completion queue.
    pub max_cq_depth: u32,
    /// Size in bytes from which a read or write is faster than a send. A hint.
    pub large_request_threshold: u32,
    /// Maximum size of the private data of a connect request, in bytes.
    pub max_caller_data: u32,
    /// Maximum size of the private data of an accept or a reject, in bytes.
    pub max_callee_data: u32,
    /// Properties.
    pub adapter_flags: AdapterFlags,
    /// The technology of the transport.
    pub rdma_technology: RdmaTechnology,
}

impl AdapterInfo {
    pub(crate) fn of(context: &Context, version: Version) -> Self {
        let limits = context.limits();
        AdapterInfo {
            version: version.numbers(),
            vendor_id: VENDOR_ID,
            device_id: VENDOR_PART_ID,
            max_registration_size: MAX_REGION,
            max_window_size: MAX_REGION,
            frmr_page_count: FRMR_PAGES,
            max_initiator_request_sge: limits.max_sge,
            max_receive_request_sge: limits.max_sge,
            max_read_request_sge: limits.max_sge,
            max_transfer_length: limits.max_msg,
            max_inline_data_size: limits.max_inline,
            max_inbound_read_limit: limits.max_rd_atomic.into(),
            max_outbound_read_limit: limits.max_rd_atomic.into(),
            max_receive_queue_depth: limits.max_qp_wr,
            // A read that invalidates takes two entries of the device's queue.
            max_initiator_queue_depth: limits.max_qp_wr / 2,
            max_srq_depth: limits.max_srq_wr,
            max_cq_depth: limits.max_cqe,
            large_request_threshold: LARGE_REQUEST,
            max_caller_data: MAX_CALLER_DATA,
            max_callee_data: MAX_CALLEE_DATA,
            // A receiver places the packets of a message in order (PSN order), and the bytes of
            // each packet from the first on. A single engine serves all connections, so
            // MULTI_ENGINE is not set.
            adapter_flags: AdapterFlags::IN_ORDER_DMA_SUPPORTED
                | AdapterFlags::RDMA_READ_SINK_NOT_REQUIRED
                | AdapterFlags::CQ_INTERRUPT_MODERATION_SUPPORTED
                | AdapterFlags::RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
                | AdapterFlags::CQ_RESIZE_SUPPORTED
                | AdapterFlags::LOOPBACK_CONNECTIONS_SUPPORTED,
            rdma_technology: RdmaTechnology::RoCEv2,
        }
    }
}
