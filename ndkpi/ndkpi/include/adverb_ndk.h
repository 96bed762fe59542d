/*
 * Functions for programs in user space, in addition to NDKPI (ndkpi.h): opening an adapter, and
 * making memory descriptors. Link with -lndkpi.
 */
#ifndef ADVERB_NDK_H
#define ADVERB_NDK_H

#include "ndkpi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opens an adapter. Name is the name of a device in the list of `adverb devices` ("adverb0"), an IP
 * address of this machine ("192.0.2.7", "::1"), or NULL for the first device. Returns
 * STATUS_NO_SUCH_DEVICE if there is no such device.
 */
NTSTATUS AdverbNdkOpenAdapter(const char *Name, NDK_ADAPTER **ppNdkAdapter);

/* Some requests may complete at once or later. The mode decides which of these requests complete
 * later (STATUS_PENDING), so that a program can test both cases. */
#define ADVERB_NDK_PENDING_NEVER     0 /* only requests that must wait; the default */
#define ADVERB_NDK_PENDING_ALWAYS    1
#define ADVERB_NDK_PENDING_ALTERNATE 2 /* every second request */

/* Like AdverbNdkOpenAdapter, with a choice of ADVERB_NDK_PENDING_*. Both functions open an adapter
 * of NDKPI 1.2. */
NTSTATUS AdverbNdkOpenAdapterEx(const char *Name, ULONG PendingMode, NDK_ADAPTER **ppNdkAdapter);

/*
 * Like AdverbNdkOpenAdapterEx, for version 1.2, 2.0 or 2.1. Another version gives
 * STATUS_NOT_SUPPORTED. The headers of all objects and NDK_ADAPTER_INFO contain the version.
 * Functions and layouts are the same in all versions.
 */
NTSTATUS AdverbNdkOpenAdapterVersion(const char *Name, NDK_VERSION Version, ULONG PendingMode,
                                     NDK_ADAPTER **ppNdkAdapter);

/* ProviderDisconnectReason: why the connection ended.
 * - BY_PEER: the peer disconnected.
 * - PEER_LOST: the peer closed its connector, its queue pair failed, its process ended, or the peer
 *   broke the protocol.
 * - QP_FAILED: the queue pair of this end failed or was flushed. ProviderErrorCode of the first
 *   failed request gives the cause. */
#define ADVERB_NDK_DISCONNECT_BY_PEER   1
#define ADVERB_NDK_DISCONNECT_PEER_LOST 2
#define ADVERB_NDK_DISCONNECT_QP_FAILED 3

/*
 * Closes an adapter. The call waits until all objects of the adapter are closed and all callbacks
 * have returned. A call from a callback fails with STATUS_POSSIBLE_DEADLOCK and closes nothing.
 */
NTSTATUS AdverbNdkCloseAdapter(NDK_ADAPTER *pNdkAdapter);

/* Describes Length bytes at Address. Returns NULL if Address is null, if Length is 0 or more than
 * MAXULONG, or if the range exceeds the address space. */
MDL *AdverbNdkBuildMdl(PVOID Address, SIZE_T Length);
/* Appends the chain that begins with Next to the end of the chain of Mdl. */
VOID AdverbNdkChainMdl(MDL *Mdl, MDL *Next);
/* Frees a chain made by AdverbNdkBuildMdl and AdverbNdkChainMdl. NULL is allowed. */
VOID AdverbNdkFreeMdl(MDL *Mdl);

/* The name of a status, for example "STATUS_SUCCESS". An unknown status gives "STATUS_?". */
const char *AdverbNdkStatusName(NTSTATUS Status);

/* Counters of the device of this process. */
typedef struct _ADVERB_NDK_COUNTERS {
    UINT64 HandOvers;       /* batches of requests handed over to the device */
    UINT64 HandedOver;      /* requests in these batches */
    UINT64 SendCalls;       /* system calls that sent packets */
    UINT64 PacketsSent;
} ADVERB_NDK_COUNTERS;

NTSTATUS AdverbNdkQueryCounters(NDK_ADAPTER *pNdkAdapter, ADVERB_NDK_COUNTERS *pCounters);

#ifdef __cplusplus
}
#endif

#endif
