/*
 * The program closes objects in the objects' own callbacks. Such a close must be pending until the
 * callback has returned. The completion of the close must be the object's last callback. Usage:
 * lifetime MODE, with MODE from ADVERB_NDK_PENDING_*.
 */
#include "ndk_test.h"

/* The results of a callback that closes its own object. */
struct closer {
    NDK_CQ *cq;
    NTSTATUS closing;
    int callbacks;
    int returning; /* set at the end of the callback */
    int returned_before_completion;
    struct event closed;
};

static void on_cq_closed(PVOID context)
{
    struct closer *closer = context;
    closer->returned_before_completion = __atomic_load_n(&closer->returning, __ATOMIC_SEQ_CST);
    happened(&closer->closed, STATUS_SUCCESS, NULL);
}

static void close_the_cq(PVOID context, NTSTATUS status)
{
    struct closer *closer = context;
    (void)status;
    closer->callbacks++;
    closer->closing = closer->cq->Dispatch->NdkCloseCq(&closer->cq->Header, on_cq_closed, closer);
    struct timespec moment = {0, 20 * 1000 * 1000};
    nanosleep(&moment, NULL);
    __atomic_store_n(&closer->returning, 1, __ATOMIC_SEQ_CST);
}

/* Closes a CQ in its notification callback. A flushed queue pair causes the notification. */
static void from_the_notification(struct side *side)
{
    struct closer closer = {.closed = EVENT};
    NDK_ADAPTER *adapter = side->adapter;
    CREATE(NDK_CQ, closer.cq,
           adapter->Dispatch->NdkCreateCq(adapter, 16, close_the_cq, &closer, NULL, on_created, &done, &made));
    NDK_QP *qp;
    CREATE(NDK_QP, qp, side->pd->Dispatch->NdkCreateQp(side->pd, closer.cq, closer.cq, NULL, 4, 4, 1, 1, 0, on_created,
                                                       &done, &made));
    NDK_SGE at = sge(side->memory, 8, side->local);
    EXPECT(STATUS_SUCCESS, qp->Dispatch->NdkReceive(qp, NULL, &at, 1));
    closer.cq->Dispatch->NdkArmCq(closer.cq, NDK_CQ_NOTIFY_ERRORS);
    qp->Dispatch->NdkFlush(qp);
    CLOSE(qp, NdkCloseQp);
    EXPECT(STATUS_SUCCESS, wait_for(&closer.closed, 1));
    EXPECT(STATUS_PENDING, closer.closing);
    CHECK(closer.returned_before_completion && closer.callbacks == 1);
}

/* State of a test that closes an object in the callback that reports its creation. */
struct chain {
    NTSTATUS closing;
    struct event closed;
};

static void close_the_new_pd(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
    struct chain *chain = context;
    EXPECT(STATUS_SUCCESS, status);
    NDK_PD *pd = (NDK_PD *)object;
    chain->closing = pd->Dispatch->NdkClosePd(object, on_closed, &chain->closed);
}

static void from_the_creation(struct side *side)
{
    struct chain chain = {STATUS_SUCCESS, EVENT};
    NDK_PD *pd = NULL;
    NTSTATUS status = side->adapter->Dispatch->NdkCreatePd(side->adapter, close_the_new_pd, &chain, &pd);
    if (status == STATUS_PENDING) {
        EXPECT(STATUS_SUCCESS, wait_for(&chain.closed, 1));
        EXPECT(STATUS_PENDING, chain.closing);
        CHECK(pd == NULL);
    } else {
        EXPECT(STATUS_SUCCESS, status);
        CLOSE(pd, NdkClosePd);
    }
}

struct connecting {
    NDK_CONNECTOR *connector;
    NTSTATUS status;
    struct event closed;
};

static void close_the_connector(PVOID context, NTSTATUS status)
{
    struct connecting *connecting = context;
    connecting->status = status;
    NTSTATUS closing = connecting->connector->Dispatch->NdkCloseConnector(&connecting->connector->Header, on_closed,
                                                                          &connecting->closed);
    EXPECT(STATUS_PENDING, closing);
}

/* No process listens on port 1, so the attempt fails. If the attempt was pending, its completion
 * closes the connector. */
static void from_a_failed_connect(struct side *side)
{
    struct connecting connecting = {.closed = EVENT};
    NDK_ADAPTER *adapter = side->adapter;
    CREATE(NDK_CONNECTOR, connecting.connector,
           adapter->Dispatch->NdkCreateConnector(adapter, on_created, &done, &made));
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, to = from;
    to.sin_port = htons(1);
    NTSTATUS status = connecting.connector->Dispatch->NdkConnect(
        connecting.connector, side->qp, (PSOCKADDR)&from, sizeof from, (PSOCKADDR)&to, sizeof to, 0, 0, NULL, 0,
        close_the_connector, &connecting);
    if (status == STATUS_PENDING) {
        EXPECT(STATUS_SUCCESS, wait_for(&connecting.closed, 1));
        EXPECT(STATUS_CONNECTION_REFUSED, connecting.status);
    } else {
        EXPECT(STATUS_CONNECTION_REFUSED, status);
        CLOSE(connecting.connector, NdkCloseConnector);
    }
}

int main(int argc, char **argv)
{
    ULONG mode = argc > 1 ? (ULONG)atoi(argv[1]) : ADVERB_NDK_PENDING_NEVER;
    struct side side;
    open_side(&side, mode);
    create_qp(&side);
    for (int i = 0; i < 3; i++) {
        from_the_notification(&side);
        from_the_creation(&side);
        from_a_failed_connect(&side);
    }
    close_side(&side);
    printf("done\n");
    return 0;
}
