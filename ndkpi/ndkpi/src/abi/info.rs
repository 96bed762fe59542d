//! Types of `ndkinfo.h`, and the counters of `adverb_ndk.h`.

use super::macros::mirrors;
use super::{SIZE_T, ULONG};

mirrors! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    NDK_VERSION {
        Major: u16,
        Minor: u16,
    }

    #[derive(Clone, Copy, Debug)]
    NDK_ADAPTER_INFO {
        Version: NDK_VERSION,
        VendorId: u32,
        DeviceId: u32,
        MaxRegistrationSize: SIZE_T,
        MaxWindowSize: SIZE_T,
        FRMRPageCount: ULONG,
        MaxInitiatorRequestSge: ULONG,
        MaxReceiveRequestSge: ULONG,
        MaxReadRequestSge: ULONG,
        MaxTransferLength: ULONG,
        MaxInlineDataSize: ULONG,
        MaxInboundReadLimit: ULONG,
        MaxOutboundReadLimit: ULONG,
        MaxReceiveQueueDepth: ULONG,
        MaxInitiatorQueueDepth: ULONG,
        MaxSrqDepth: ULONG,
        MaxCqDepth: ULONG,
        LargeRequestThreshold: ULONG,
        MaxCallerData: ULONG,
        MaxCalleeData: ULONG,
        AdapterFlags: ULONG,
        RdmaTechnology: u32,
    }

    #[derive(Clone, Copy, Debug)]
    ADVERB_NDK_COUNTERS {
        HandOvers: u64,
        HandedOver: u64,
        SendCalls: u64,
        PacketsSent: u64,
    }
}
