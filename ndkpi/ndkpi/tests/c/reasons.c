/*
 * Functions of NDKPI 2.1: the versions of an adapter, the reason why a request failed, and the
 * reason why a connection ended. Also tests that a queue has exactly the requested depth. Usage:
 * reasons MODE, with MODE from ADVERB_NDK_PENDING_*.
 */
#include "ndk_test.h"

/* The disconnect event of an end, with its reason. */
struct end {
    struct event event;
    ULONG reason;
};

static void on_ended(PVOID context, ULONG reason)
{
    struct end *end = context;
    end->reason = reason;
    happened(&end->event, STATUS_SUCCESS, NULL);
}

/* Checks the version in the header of an object. */
#define VERSION_IS(object, major, minor)                                                                       \
    CHECK((object)->Header.Version.Major == (major) && (object)->Header.Version.Minor == (minor))

static void versions(const struct side *old)
{
    VERSION_IS(old->adapter, 1, 2);
    VERSION_IS(old->cq, 1, 2);
    NDK_VERSION asked[] = {{1, 2}, {2, 0}, {2, 1}};
    for (int i = 0; i < 3; i++) {
        NDK_ADAPTER *adapter;
        EXPECT(STATUS_SUCCESS,
               AdverbNdkOpenAdapterVersion("127.0.0.1", asked[i], ADVERB_NDK_PENDING_NEVER, &adapter));
        VERSION_IS(adapter, asked[i].Major, asked[i].Minor);
        NDK_ADAPTER_INFO info;
        ULONG size = sizeof info;
        EXPECT(STATUS_SUCCESS, adapter->Dispatch->NdkQueryAdapterInfo(adapter, &info, &size));
        CHECK(info.Version.Major == asked[i].Major && info.Version.Minor == asked[i].Minor);
        NDK_PD *pd;
        CREATE(NDK_PD, pd, adapter->Dispatch->NdkCreatePd(adapter, on_created, &done, &made));
        VERSION_IS(pd, asked[i].Major, asked[i].Minor);
        NDK_CONNECTOR *connector;
        CREATE(NDK_CONNECTOR, connector,
               adapter->Dispatch->NdkCreateConnector(adapter, on_created, &done, &made));
        VERSION_IS(connector, asked[i].Major, asked[i].Minor);
        CLOSE(connector, NdkCloseConnector);
        CLOSE(pd, NdkClosePd);
        EXPECT(STATUS_SUCCESS, AdverbNdkCloseAdapter(adapter));
    }
    NDK_VERSION unknown[] = {{1, 1}, {2, 2}, {3, 0}};
    for (int i = 0; i < 3; i++) {
        NDK_ADAPTER *adapter = NULL;
        EXPECT(STATUS_NOT_SUPPORTED,
               AdverbNdkOpenAdapterVersion("127.0.0.1", unknown[i], ADVERB_NDK_PENDING_NEVER, &adapter));
        CHECK(adapter == NULL);
    }
}

/* Like connect_sides, with the functions of 2.1. */
static void connect_ex(struct side *active, struct end *active_end, struct side *passive, struct end *passive_end)
{
    struct event incoming = EVENT, connected = EVENT, accepted = EVENT;
    NDK_ADAPTER *adapter = passive->adapter;
    CREATE(NDK_LISTENER, passive->listener,
           adapter->Dispatch->NdkCreateListener(adapter, on_connector, &incoming, on_created, &done, &made));
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, there;
    const NDK_LISTENER_DISPATCH *listening = passive->listener->Dispatch;
    DO(listening->NdkListen(passive->listener, (PSOCKADDR)&here, sizeof here, on_status, &done));
    ULONG length = sizeof there;
    EXPECT(STATUS_SUCCESS, listening->NdkGetLocalAddress(passive->listener, (PSOCKADDR)&there, &length));
    CREATE(NDK_CONNECTOR, active->connector,
           active->adapter->Dispatch->NdkCreateConnector(active->adapter, on_created, &done, &made));
    const NDK_CONNECTOR_DISPATCH *calls = active->connector->Dispatch;
    NTSTATUS connecting =
        calls->NdkConnect(active->connector, active->qp, (PSOCKADDR)&here, sizeof here, (PSOCKADDR)&there,
                          sizeof there, 4, 2, NULL, 0, on_status, &connected);
    EXPECT(STATUS_SUCCESS, wait_for(&incoming, 1));
    passive->connector = incoming.object;
    NTSTATUS accepting =
        passive->connector->Dispatch->NdkAcceptEx(passive->connector, passive->qp, 2, 4, NULL, 0, on_ended,
                                                  passive_end, on_status, &accepted);
    EXPECT(STATUS_SUCCESS, finish(&connected, connecting));
    EXPECT(STATUS_INVALID_PARAMETER, calls->NdkCompleteConnectEx(active->connector, on_ended, active_end, NULL, NULL));
    DO(calls->NdkCompleteConnectEx(active->connector, on_ended, active_end, on_status, &done));
    EXPECT(STATUS_SUCCESS, finish(&accepted, accepting));
}

/* Closes the connection and the queue pair of a side. Takes the results that are left in the CQ. */
static void close_qp(struct side *side)
{
    if (side->connector)
        close_connection(side);
    side->connector = NULL;
    side->listener = NULL;
    CLOSE(side->qp, NdkCloseQp);
    NDK_RESULT result;
    while (side->cq->Dispatch->NdkGetCqResults(side->cq, &result, 1))
        ;
}

static void the_peer_disconnects(struct side *a, struct side *b, struct end *ends)
{
    connect_ex(a, &ends[0], b, &ends[1]);
    DO(a->connector->Dispatch->NdkDisconnect(a->connector, on_status, &done));
    EXPECT(STATUS_SUCCESS, wait_for(&ends[1].event, 1));
    CHECK(ends[1].reason == ADVERB_NDK_DISCONNECT_BY_PEER);
    CHECK(times(&ends[0].event) == 0);
}

static void the_peer_is_lost(struct side *a, struct side *b, struct end *ends)
{
    connect_ex(a, &ends[0], b, &ends[1]);
    CLOSE(a->connector, NdkCloseConnector);
    a->connector = NULL;
    EXPECT(STATUS_SUCCESS, wait_for(&ends[1].event, 1));
    CHECK(ends[1].reason == ADVERB_NDK_DISCONNECT_PEER_LOST);
}

static void a_request_fails(struct side *a, struct side *b, struct end *ends)
{
    connect_ex(a, &ends[0], b, &ends[1]);
    NDK_SGE at = sge(a->memory, 8, a->local);
    const NDK_QP_DISPATCH *calls = a->qp->Dispatch;
    EXPECT(STATUS_SUCCESS, calls->NdkWrite(a->qp, a, &at, 1, (UINT64)b->memory, b->remote, 0));
    NDK_RESULT_EX result = good_result(a, NdkOperationTypeWrite, a);
    CHECK(result.ProviderErrorCode == 0);
    /* The local token is wrong. The request fails here and does not reach the peer. */
    at.MemoryRegionToken ^= 0x100;
    EXPECT(STATUS_SUCCESS, calls->NdkWrite(a->qp, b, &at, 1, (UINT64)b->memory, b->remote, 0));
    result = next_result(a->cq);
    EXPECT(STATUS_ACCESS_VIOLATION, result.Status);
    CHECK(result.RequestContext == b && result.ProviderErrorCode != 0);
    printf("a write from a wrong token: 0x%x\n", (unsigned)result.ProviderErrorCode);
    EXPECT(STATUS_SUCCESS, wait_for(&ends[0].event, 1));
    CHECK(ends[0].reason == ADVERB_NDK_DISCONNECT_QP_FAILED);
    EXPECT(STATUS_SUCCESS, wait_for(&ends[1].event, 1));
    CHECK(ends[1].reason == ADVERB_NDK_DISCONNECT_PEER_LOST);
}

/* A queue pair takes exactly the requested number of requests. Silent requests count too. */
static void depths(struct side *a, struct side *b, struct end *ends)
{
    CLOSE(a->qp, NdkCloseQp);
    CREATE(NDK_QP, a->qp,
           a->pd->Dispatch->NdkCreateQp(a->pd, a->cq, a->cq, a, 3, 2, 1, 1, 16, on_created, &done, &made));
    connect_ex(a, &ends[0], b, &ends[1]);
    NDK_SGE at = sge(a->memory, 8, a->local);
    const NDK_QP_DISPATCH *calls = a->qp->Dispatch;
    for (int i = 0; i < 3; i++)
        EXPECT(STATUS_SUCCESS, calls->NdkReceive(a->qp, NULL, &at, 1));
    EXPECT(STATUS_INSUFFICIENT_RESOURCES, calls->NdkReceive(a->qp, NULL, &at, 1));
    /* The writes are deferred, so neither completes before the third call. The third call ends the
     * chain. */
    ULONG flags = NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER;
    for (int i = 0; i < 2; i++)
        EXPECT(STATUS_SUCCESS, calls->NdkWrite(a->qp, NULL, &at, 1, (UINT64)b->memory, b->remote, flags));
    EXPECT(STATUS_INSUFFICIENT_RESOURCES,
           calls->NdkWrite(a->qp, NULL, &at, 1, (UINT64)b->memory, b->remote, flags));
    /* The queue has room again when the writes have completed. The writes are silent, so the CQ
     * must have no result. */
    struct timespec until = deadline();
    NTSTATUS status;
    do {
        CHECK(!past(&until));
        NDK_RESULT result;
        CHECK(a->cq->Dispatch->NdkGetCqResults(a->cq, &result, 1) == 0);
        status = calls->NdkWrite(a->qp, a, &at, 1, (UINT64)b->memory, b->remote, 0);
    } while (status == STATUS_INSUFFICIENT_RESOURCES);
    EXPECT(STATUS_SUCCESS, status);
    good_result(a, NdkOperationTypeWrite, a);
}

int main(int argc, char **argv)
{
    ULONG mode = argc > 1 ? (ULONG)atoi(argv[1]) : ADVERB_NDK_PENDING_NEVER;
    struct side a, b;
    open_side(&a, mode);
    open_side(&b, mode);
    versions(&a);
    void (*cases[])(struct side *, struct side *, struct end *) = {the_peer_disconnects, the_peer_is_lost, a_request_fails, depths};
    for (int i = 0; i < 4; i++) {
        create_qp(&a);
        create_qp(&b);
        /* `ends` must live until both connectors are closed. A disconnect event may come until
         * then. */
        struct end ends[2] = {{.event = EVENT}, {.event = EVENT}};
        cases[i](&a, &b, ends);
        close_qp(&a);
        close_qp(&b);
    }
    create_qp(&a);
    create_qp(&b);
    close_side(&a);
    close_side(&b);
    printf("done\n");
    return 0;
}
