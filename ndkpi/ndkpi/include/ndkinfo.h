/*
 * The abilities of an NDK adapter: NDK_ADAPTER_INFO and its flags, in NDKPI 1.2 to 2.1.
 */
#ifndef ADVERB_NDKINFO_H
#define ADVERB_NDKINFO_H

#include "adverb_nt.h"

typedef struct {
    USHORT Major;
    USHORT Minor;
} NDK_VERSION;

typedef enum _NDK_RDMA_TECHNOLOGY {
    NdkUndefined = 0,
    NdkiWarp = 1,
    NdkInfiniBand = 2,
    NdkRoCE = 3,
    NdkRoCEv2 = 4,
    NdkMaxTechnology = 5
} NDK_RDMA_TECHNOLOGY;

/* Bits of NDK_ADAPTER_INFO.AdapterFlags. */
/* Incoming data is written in order, the last byte last. */
#define NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED               0x00000001
/* The sink of a read needs no special access right. */
#define NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED          0x00000002
/* NdkControlCqInterruptModeration works. */
#define NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED    0x00000004
/* Several connections in parallel are faster than a single connection. */
#define NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED               0x00000008
/* NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE works. */
#define NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED 0x00000010
/* NdkResizeCq works. */
#define NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED                  0x00000100
/* An address of the adapter may connect to the same address. */
#define NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED       0x00010000

/* Sizes and lengths are in bytes, depths and counts in entries. */
typedef struct _NDK_ADAPTER_INFO {
    NDK_VERSION Version;
    UINT32 VendorId;
    UINT32 DeviceId;
    SIZE_T MaxRegistrationSize;
    SIZE_T MaxWindowSize;
    ULONG FRMRPageCount;          /* best size of a fast-register region, in pages */
    ULONG MaxInitiatorRequestSge;
    ULONG MaxReceiveRequestSge;
    ULONG MaxReadRequestSge;      /* for NdkRead, in place of MaxInitiatorRequestSge */
    ULONG MaxTransferLength;
    ULONG MaxInlineDataSize;
    ULONG MaxInboundReadLimit;
    ULONG MaxOutboundReadLimit;
    ULONG MaxReceiveQueueDepth;
    ULONG MaxInitiatorQueueDepth;
    ULONG MaxSrqDepth;            /* zero: no shared receive queues */
    ULONG MaxCqDepth;
    ULONG LargeRequestThreshold;  /* from this size on, read and write are faster */
    ULONG MaxCallerData;          /* private data of a connect request */
    ULONG MaxCalleeData;          /* private data of an accept or reject */
    ULONG AdapterFlags;
    NDK_RDMA_TECHNOLOGY RdmaTechnology;
} NDK_ADAPTER_INFO;

#endif
