/*
 * Null pointers, objects of a wrong type, closed objects, and values that break a rule. Each call
 * is refused and has no effect.
 */
#include "ndk_test.h"

#define REFUSED(call) EXPECT(STATUS_INVALID_PARAMETER, call)

static struct event never = EVENT;

static void opening(void)
{
    NDK_ADAPTER *adapter = NULL;
    EXPECT(STATUS_NO_SUCH_DEVICE, AdverbNdkOpenAdapter("no-such-device", &adapter));
    EXPECT(STATUS_NO_SUCH_DEVICE, AdverbNdkOpenAdapter("192.0.2.77", &adapter));
    REFUSED(AdverbNdkOpenAdapter("127.0.0.1", NULL));
    REFUSED(AdverbNdkOpenAdapterEx("127.0.0.1", 99, &adapter));
    REFUSED(AdverbNdkCloseAdapter(NULL));
    CHECK(adapter == NULL);
    CHECK(strcmp(AdverbNdkStatusName(STATUS_IO_TIMEOUT), "STATUS_IO_TIMEOUT") == 0);
    CHECK(strcmp(AdverbNdkStatusName(0x12345), "STATUS_?") == 0);
}

static void null_arguments(struct side *s)
{
    const NDK_ADAPTER_DISPATCH *adapter = s->adapter->Dispatch;
    const NDK_PD_DISPATCH *pd = s->pd->Dispatch;
    const NDK_CQ_DISPATCH *cq = s->cq->Dispatch;
    const NDK_QP_DISPATCH *qp = s->qp->Dispatch;
    NDK_CQ *new_cq = NULL;
    NDK_QP *new_qp = NULL;
    NDK_MR *new_mr = NULL;
    ULONG size = sizeof(NDK_ADAPTER_INFO);

    REFUSED(adapter->NdkQueryAdapterInfo(NULL, NULL, &size));
    REFUSED(adapter->NdkQueryAdapterInfo(s->adapter, NULL, NULL));
    REFUSED(adapter->NdkCreateCq(NULL, 16, on_status, &never, NULL, on_created, &never, &new_cq));
    REFUSED(adapter->NdkCreateCq(s->adapter, 16, NULL, &never, NULL, on_created, &never, &new_cq));
    REFUSED(adapter->NdkCreateCq(s->adapter, 16, on_status, &never, NULL, NULL, NULL, &new_cq));
    REFUSED(adapter->NdkCreateCq(s->adapter, 16, on_status, &never, NULL, on_created, &never, NULL));
    REFUSED(adapter->NdkCreateCq(s->adapter, MAXULONG, on_status, &never, NULL, on_created, &never, &new_cq));
    REFUSED(pd->NdkCreateMr(NULL, FALSE, on_created, &never, &new_mr));
    REFUSED(pd->NdkCreateQp(s->pd, NULL, s->cq, NULL, 1, 1, 1, 1, 0, on_created, &never, &new_qp));
    REFUSED(pd->NdkCreateQp(s->pd, s->cq, (NDK_CQ *)s->pd, NULL, 1, 1, 1, 1, 0, on_created, &never, &new_qp));
    REFUSED(pd->NdkCreateQp(s->pd, s->cq, s->cq, NULL, MAXULONG, 1, 1, 1, 0, on_created, &never, &new_qp));
    REFUSED(cq->NdkCloseCq(NULL, on_closed, &never));
    REFUSED(cq->NdkCloseCq(&s->cq->Header, NULL, &never));
    REFUSED(cq->NdkResizeCq(s->cq, MAXULONG, on_status, &never));
    EXPECT(STATUS_INVALID_PARAMETER_MIX, cq->NdkControlCqInterruptModeration(s->cq, MAXULONG, MAXULONG));
    REFUSED(s->mr->Dispatch->NdkRegisterMr(s->mr, NULL, 10, 0, on_status, &never));
    REFUSED(qp->NdkSend(NULL, NULL, NULL, 0, 0));
    REFUSED(qp->NdkReceive(s->qp, NULL, NULL, 1));

    /* Functions that return no status must do nothing with such arguments. */
    cq->NdkArmCq(NULL, NDK_CQ_NOTIFY_ANY);
    cq->NdkArmCq(s->cq, 99);
    CHECK(cq->NdkGetCqResults(NULL, NULL, 1) == 0);
    CHECK(cq->NdkGetCqResults(s->cq, NULL, 1) == 0);
    CHECK(s->mr->Dispatch->NdkGetLocalTokenFromMr(NULL) == 0);
    qp->NdkFlush(NULL);
    adapter->NdkReleaseLAM(s->adapter, NULL);
    NDK_LOGICAL_ADDRESS_MAPPING forged = {.AdapterContext = (PVOID)0x1234, .AdapterPageCount = 1};
    adapter->NdkReleaseLAM(s->adapter, &forged);
    CHECK(new_cq == NULL && new_qp == NULL && new_mr == NULL);
}

/* Calls with objects of another type, with forged objects, and with closed objects. */
static void wrong_objects(struct side *s)
{
    REFUSED(s->cq->Dispatch->NdkCloseCq(&s->pd->Header, on_closed, &never));
    REFUSED(s->qp->Dispatch->NdkSend((NDK_QP *)s->mr, NULL, NULL, 0, 0));
    REFUSED(s->qp->Dispatch->NdkInvalidate(s->qp, NULL, &s->cq->Header, 0));
    struct {
        NDK_QP qp;
        char rest[256];
    } forged;
    memset(&forged, 0, sizeof forged);
    forged.qp = *s->qp;
    REFUSED(s->qp->Dispatch->NdkSend(&forged.qp, NULL, NULL, 0, 0));
    forged.qp.Header.Version.Major = 9;
    REFUSED(s->qp->Dispatch->NdkSend(&forged.qp, NULL, NULL, 0, 0));

    NDK_CQ *cq;
    CREATE(NDK_CQ, cq, s->adapter->Dispatch->NdkCreateCq(s->adapter, 16, on_status, &never, NULL, on_created, &done,
                                                         &made));
    CHECK(cq->Header.Version.Major == 1 && cq->Header.Version.Minor == 2 && cq->Header.ObjectType == NdkObjectTypeCq);
    for (int i = 0; i < 4; i++)
        CHECK(cq->Header.NdkReserved.rf[i] == NULL);
    const NDK_CQ_DISPATCH *calls = cq->Dispatch;
    CLOSE(cq, NdkCloseCq);
    REFUSED(calls->NdkCloseCq(&cq->Header, on_closed, &never));
    REFUSED(calls->NdkResizeCq(cq, 32, on_status, &never));
    calls->NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);

    NDK_EXTENSION_INTERFACE interface;
    GUID id = {1, 2, 3, {4}};
    NDK_VERSION version = {1, 0};
    EXPECT(STATUS_NOT_SUPPORTED, s->qp->Dispatch->NdkQueryExtension(&s->qp->Header, &id, version, &interface));
    REFUSED(s->qp->Dispatch->NdkQueryExtension(NULL, &id, version, &interface));
}

static void memory(struct side *s)
{
    char bytes[64];
    CHECK(AdverbNdkBuildMdl(bytes, 0) == NULL);
    CHECK(AdverbNdkBuildMdl((PVOID)-8, 64) == NULL);
    AdverbNdkFreeMdl(NULL);
    /* The provider must refuse a chain with a gap, a length beyond the chain, and an unknown
     * flag. */
    MDL *gap = AdverbNdkBuildMdl(bytes, 16), *whole = AdverbNdkBuildMdl(bytes, 64);
    CHECK(MmGetMdlVirtualAddress(whole) == bytes && MmGetMdlByteCount(whole) == 64);
    AdverbNdkChainMdl(gap, AdverbNdkBuildMdl(bytes + 32, 16));
    NDK_MR *mr;
    CREATE(NDK_MR, mr, s->pd->Dispatch->NdkCreateMr(s->pd, FALSE, on_created, &done, &made));
    struct event done = EVENT;
    REFUSED(finish(&done, mr->Dispatch->NdkRegisterMr(mr, gap, 32, 0, on_status, &done)));
    REFUSED(finish(&done, mr->Dispatch->NdkRegisterMr(mr, whole, 65, 0, on_status, &done)));
    REFUSED(finish(&done, mr->Dispatch->NdkRegisterMr(mr, whole, 64, 0x80000000, on_status, &done)));
    ULONG size = 4096, fbo = 0;
    char lam[4096];
    REFUSED(finish(&done, s->adapter->Dispatch->NdkBuildLAM(s->adapter, gap, 32, on_status, &done,
                                                            (NDK_LOGICAL_ADDRESS_MAPPING *)lam, &size, &fbo)));
    /* The provider must refuse a circular chain, because a walk along it would never end. */
    MDL loop = *whole;
    loop.Next = &loop;
    REFUSED(finish(&done, mr->Dispatch->NdkRegisterMr(mr, &loop, 128, 0, on_status, &done)));
    CLOSE(mr, NdkCloseMr);
    AdverbNdkFreeMdl(gap);
    AdverbNdkFreeMdl(whole);
}

static void requests(struct side *s)
{
    NDK_SGE one = sge(s->memory, 8, s->local);
    /* The queue pair is not connected yet. */
    EXPECT(STATUS_CONNECTION_INVALID, s->qp->Dispatch->NdkSend(s->qp, NULL, &one, 1, 0));
    EXPECT(STATUS_CONNECTION_INVALID, s->qp->Dispatch->NdkRead(s->qp, NULL, &one, 1, 0, 0, 0));

    NDK_CONNECTOR *connector;
    CREATE(NDK_CONNECTOR, connector,
           s->adapter->Dispatch->NdkCreateConnector(s->adapter, on_created, &done, &made));
    const NDK_CONNECTOR_DISPATCH *calls = connector->Dispatch;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr strange = {.sa_family = AF_UNIX};
    REFUSED(calls->NdkConnect(connector, s->qp, NULL, 0, (PSOCKADDR)&here, sizeof here, 0, 0, NULL, 0, on_status, &never));
    REFUSED(calls->NdkConnect(connector, s->qp, (PSOCKADDR)&here, 4, (PSOCKADDR)&here, sizeof here, 0, 0, NULL, 0,
                              on_status, &never));
    REFUSED(calls->NdkConnect(connector, s->qp, &strange, sizeof strange, (PSOCKADDR)&here, sizeof here, 0, 0, NULL, 0,
                              on_status, &never));
    REFUSED(calls->NdkConnect(connector, s->qp, (PSOCKADDR)&here, sizeof here, (PSOCKADDR)&here, sizeof here, 0, 0, NULL,
                              8, on_status, &never));
    REFUSED(calls->NdkConnect(connector, NULL, (PSOCKADDR)&here, sizeof here, (PSOCKADDR)&here, sizeof here, 0, 0, NULL,
                              0, on_status, &never));
    REFUSED(calls->NdkDisconnect(connector, NULL, NULL));
    /* The connector has no connection request yet. */
    ULONG size = sizeof here;
    EXPECT(STATUS_CONNECTION_INVALID, calls->NdkGetPeerAddress(connector, (PSOCKADDR)&here, &size));
    EXPECT(STATUS_CONNECTION_INVALID, calls->NdkReject(connector, NULL, 0));
    REFUSED(calls->NdkReject(connector, NULL, 8));
    REFUSED(calls->NdkGetConnectionData(connector, NULL, NULL, NULL, &size));
    CLOSE(connector, NdkCloseConnector);
}

/* Closes the adapter in a callback. The provider must refuse this, because the close would wait for
 * the callback forever. */
static void close_adapter(PVOID context, NTSTATUS status)
{
    (void)status;
    struct side *side = context;
    happened(&side->notified, AdverbNdkCloseAdapter(side->adapter), NULL);
}

static void close_from_callback(void)
{
    struct side other;
    open_side(&other, ADVERB_NDK_PENDING_ALWAYS);
    NDK_CQ *cq = other.cq;
    EXPECT(STATUS_PENDING, cq->Dispatch->NdkResizeCq(cq, 300, close_adapter, &other));
    EXPECT(STATUS_POSSIBLE_DEADLOCK, wait_for(&other.notified, 1));
    /* The adapter is still open. */
    create_qp(&other);
    close_side(&other);
}

int main(void)
{
    struct side s;
    opening();
    open_side(&s, ADVERB_NDK_PENDING_NEVER);
    create_qp(&s);
    null_arguments(&s);
    wrong_objects(&s);
    memory(&s);
    requests(&s);
    close_from_callback();
    close_side(&s);
    CHECK(times(&never) == 0);
    printf("done\n");
    return 0;
}
