/*
 * What a program in user space needs beside ndkpi.h: an adapter to begin with, and memory descriptors. Link with
 * -lndkpi.
 */
#ifndef ADVERB_NDK_H
#define ADVERB_NDK_H

#include "ndkpi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opens an adapter. Name is a device's name as `adverb devices` lists it ("adverb0"), an IP address of this machine
 * ("192.0.2.7", "::1"), or NULL for the first device. STATUS_NO_SUCH_DEVICE when there is none.
 */
NTSTATUS AdverbNdkOpenAdapter(const char *Name, NDK_ADAPTER **ppNdkAdapter);

/* When requests that may complete later do so: for testing a program's both ways. */
#define ADVERB_NDK_PENDING_NEVER     0 /* only where something must be waited for; what AdverbNdkOpenAdapter does */
#define ADVERB_NDK_PENDING_ALWAYS    1
#define ADVERB_NDK_PENDING_ALTERNATE 2 /* every other one */

/* The same with a choice of ADVERB_NDK_PENDING_*. Both open it as of NDKPI 1.2. */
NTSTATUS AdverbNdkOpenAdapterEx(const char *Name, ULONG PendingMode, NDK_ADAPTER **ppNdkAdapter);

/*
 * The same as of another version: 1.2, 2.0 or 2.1; STATUS_NOT_SUPPORTED for others. The headers of all objects and
 * NDK_ADAPTER_INFO say it. Functions and layouts are the same in all of them.
 */
NTSTATUS AdverbNdkOpenAdapterVersion(const char *Name, NDK_VERSION Version, ULONG PendingMode,
                                     NDK_ADAPTER **ppNdkAdapter);

/* ProviderDisconnectReason: why the peer is not there any more. */
#define ADVERB_NDK_DISCONNECT_BY_PEER   1 /* it disconnected */
#define ADVERB_NDK_DISCONNECT_PEER_LOST 2 /* its connector was closed, its queue pair failed, or its process ended */
#define ADVERB_NDK_DISCONNECT_QP_FAILED 3 /* a request failed here (see its ProviderErrorCode), or a flush */

/*
 * Closes an adapter: waits until everything made from it has been closed and every callback has returned. Never call it
 * from a callback: that fails with STATUS_POSSIBLE_DEADLOCK and closes nothing.
 */
NTSTATUS AdverbNdkCloseAdapter(NDK_ADAPTER *pNdkAdapter);

/* Describes Length bytes at Address; NULL for no bytes, more than MAXULONG, or a span beyond the address space. */
MDL *AdverbNdkBuildMdl(PVOID Address, SIZE_T Length);
/* Appends Next, and what is chained to it, to the end of Mdl's chain. */
VOID AdverbNdkChainMdl(MDL *Mdl, MDL *Next);
/* Frees a chain that AdverbNdkBuildMdl and AdverbNdkChainMdl made. NULL is allowed. */
VOID AdverbNdkFreeMdl(MDL *Mdl);

/* A status as the headers spell it, "STATUS_SUCCESS"; "STATUS_?" for one that is not among them. */
const char *AdverbNdkStatusName(NTSTATUS Status);

/* What this process's device has done so far. */
typedef struct _ADVERB_NDK_COUNTERS {
    UINT64 HandOvers;       /* batches of requests handed over to the device */
    UINT64 HandedOver;      /* requests in them */
    UINT64 SendCalls;       /* system calls that sent packets */
    UINT64 PacketsSent;
} ADVERB_NDK_COUNTERS;

NTSTATUS AdverbNdkQueryCounters(NDK_ADAPTER *pNdkAdapter, ADVERB_NDK_COUNTERS *pCounters);

#ifdef __cplusplus
}
#endif

#endif
