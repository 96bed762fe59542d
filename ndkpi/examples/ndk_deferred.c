/*
 * NDKPI's deferred processing scheme on loopback. The provider hands a first chain of requests to
 * the device in a single step. In a second chain, the call of a request fails, so the program does
 * not post the rest of the chain.
 *
 *     make
 *     cc -o ndk_deferred ndkpi/examples/ndk_deferred.c -I ndkpi/ndkpi/include \
 *         -L target/release -lndkpi
 *     LD_LIBRARY_PATH=target/release ./ndk_deferred
 */
#include <adverb_ndk.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGES 4

/* The results of a completion function's call. */
struct call {
    sem_t done;
    NTSTATUS status;
    void *object;
};

static void fail(const char *what, NTSTATUS status)
{
    fprintf(stderr, "%s: %s\n", what, AdverbNdkStatusName(status));
    exit(1);
}

static void completed(PVOID context, NTSTATUS status)
{
    struct call *call = context;
    call->status = status;
    sem_post(&call->done);
}

static void created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
    struct call *call = context;
    call->object = object;
    completed(call, status);
}

static void closed(PVOID context) { completed(context, STATUS_SUCCESS); }
static void asked(PVOID context, NDK_CONNECTOR *connector) { created(context, STATUS_SUCCESS, &connector->Header); }

static void begin(struct call *call)
{
    sem_init(&call->done, 0, 0);
    call->object = NULL;
}

/* Waits for the completion if the status is STATUS_PENDING. A failure ends the program. */
static void *finish(struct call *call, NTSTATUS status, void *object, const char *what)
{
    if (status == STATUS_PENDING) {
        while (sem_wait(&call->done))
            ;
        status = call->status;
        object = call->object;
    }
    sem_destroy(&call->done);
    if (status != STATUS_SUCCESS)
        fail(what, status);
    return object;
}

/* Evaluates `expression` and waits for its completion. `expression` uses `call`, and also `made` if
 * it creates an object. */
#define WAIT(type, expression)                                                                                 \
    ({                                                                                                         \
        struct call call;                                                                                      \
        type *made = NULL;                                                                                     \
        begin(&call);                                                                                          \
        NTSTATUS status = (expression);                                                                        \
        (type *)finish(&call, status, made, #expression);                                                      \
    })

#define CLOSE(object, function)                                                                                \
    WAIT(void, (object)->Dispatch->function(&(object)->Header, closed, &call))

struct end {
    NDK_CQ *cq;
    NDK_PD *pd;
    NDK_QP *qp;
    NDK_CONNECTOR *connector;
};

/* This program polls, so the callback is unused. */
static void unused_notification(PVOID context, NTSTATUS status)
{
    (void)context;
    (void)status;
}

static struct end create_end(NDK_ADAPTER *adapter)
{
    struct end end = {NULL, NULL, NULL, NULL};
    end.cq = WAIT(NDK_CQ, adapter->Dispatch->NdkCreateCq(adapter, 64, unused_notification, NULL, NULL, created, &call,
                                                         &made));
    end.pd = WAIT(NDK_PD, adapter->Dispatch->NdkCreatePd(adapter, created, &call, &made));
    end.qp = WAIT(NDK_QP, end.pd->Dispatch->NdkCreateQp(end.pd, end.cq, end.cq, NULL, 16, 16, 2, 2, 64, created,
                                                        &call, &made));
    return end;
}

static NDK_LISTENER *connect_ends(NDK_ADAPTER *adapter, struct end *a, struct end *b)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, there;
    ULONG length = sizeof there;
    struct call request;
    begin(&request);
    NDK_LISTENER *listener =
        WAIT(NDK_LISTENER, adapter->Dispatch->NdkCreateListener(adapter, asked, &request, created, &call, &made));
    WAIT(void, listener->Dispatch->NdkListen(listener, (PSOCKADDR)&here, sizeof here, completed, &call));
    listener->Dispatch->NdkGetLocalAddress(listener, (PSOCKADDR)&there, &length);

    a->connector = WAIT(NDK_CONNECTOR, adapter->Dispatch->NdkCreateConnector(adapter, created, &call, &made));
    struct call connect, accept;
    begin(&connect);
    begin(&accept);
    NTSTATUS connecting = a->connector->Dispatch->NdkConnect(a->connector, a->qp, (PSOCKADDR)&here, sizeof here,
                                                             (PSOCKADDR)&there, sizeof there, 1, 1, NULL, 0, completed,
                                                             &connect);
    b->connector = finish(&request, STATUS_PENDING, NULL, "a connection request");
    NTSTATUS accepting =
        b->connector->Dispatch->NdkAccept(b->connector, b->qp, 1, 1, NULL, 0, NULL, NULL, completed, &accept);
    finish(&connect, connecting, NULL, "NdkConnect");
    WAIT(void, a->connector->Dispatch->NdkCompleteConnect(a->connector, NULL, NULL, completed, &call));
    finish(&accept, accepting, NULL, "NdkAccept");
    return listener;
}

static void close_end(struct end *end)
{
    CLOSE(end->connector, NdkCloseConnector);
    CLOSE(end->qp, NdkCloseQp);
    CLOSE(end->pd, NdkClosePd);
    CLOSE(end->cq, NdkCloseCq);
}

static NDK_MR *fast_register_mr(NDK_PD *pd)
{
    NDK_MR *mr = WAIT(NDK_MR, pd->Dispatch->NdkCreateMr(pd, TRUE, created, &call, &made));
    WAIT(void, mr->Dispatch->NdkInitializeFastRegisterMr(mr, PAGES, TRUE, completed, &call));
    return mr;
}

static NDK_LOGICAL_ADDRESS_MAPPING *map_pages(NDK_ADAPTER *adapter, void *buffer)
{
    ULONG size = sizeof(NDK_LOGICAL_ADDRESS_MAPPING) + PAGES * sizeof(NDK_LOGICAL_ADDRESS), offset;
    NDK_LOGICAL_ADDRESS_MAPPING *mapping = malloc(size);
    MDL *mdl = AdverbNdkBuildMdl(buffer, PAGES * PAGE_SIZE);
    WAIT(void, adapter->Dispatch->NdkBuildLAM(adapter, mdl, PAGES * PAGE_SIZE, completed, &call, mapping, &size,
                                              &offset));
    AdverbNdkFreeMdl(mdl);
    return mapping;
}

/* Polls and prints results, until `count` results have come and no more come for a moment. */
static void show_results(NDK_CQ *cq, ULONG count)
{
    NDK_RESULT_EX result;
    ULONG seen = 0;
    for (int idle = 0; idle < 100 || seen < count;) {
        if (cq->Dispatch->NdkGetCqResultsEx(cq, &result, 1) == 0) {
            idle++;
            usleep(1000);
            continue;
        }
        printf("    completion of the %s: %s\n", (const char *)result.RequestContext,
               AdverbNdkStatusName(result.Status));
        seen++;
        idle = 0;
    }
    printf("    %u completion%s in all\n", seen, seen == 1 ? "" : "s");
}

static void post(const char *name, NTSTATUS status) { printf("    %s: %s\n", name, AdverbNdkStatusName(status)); }

int main(void)
{
    NDK_ADAPTER *adapter;
    NTSTATUS opened = AdverbNdkOpenAdapter("127.0.0.1", &adapter);
    if (opened != STATUS_SUCCESS)
        fail("AdverbNdkOpenAdapter", opened);
    struct end a = create_end(adapter), b = create_end(adapter);
    NDK_LISTENER *listener = connect_ends(adapter, &a, &b);

    char *buffer = aligned_alloc(PAGE_SIZE, PAGES * PAGE_SIZE);
    NDK_LOGICAL_ADDRESS_MAPPING *mapping = map_pages(adapter, buffer);
    const NDK_LOGICAL_ADDRESS *pages = mapping->AdapterPageArray;
    NDK_MR *first = fast_register_mr(a.pd), *second = fast_register_mr(a.pd);
    const NDK_QP_DISPATCH *qp = a.qp->Dispatch;
    ULONG defer = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_DEFER;
    ADVERB_NDK_COUNTERS before, after;

    printf("a chain of two deferred fast registrations and a send:\n");
    b.qp->Dispatch->NdkReceive(b.qp, NULL, NULL, 0);
    AdverbNdkQueryCounters(adapter, &before);
    post("first fast register, deferred", qp->NdkFastRegister(a.qp, "first fast register", first, 2, pages, 0,
                                                              2 * PAGE_SIZE, buffer, defer));
    post("second fast register, deferred", qp->NdkFastRegister(a.qp, "second fast register", second, 2, pages + 2, 0,
                                                               2 * PAGE_SIZE, buffer, defer));
    post("send", qp->NdkSend(a.qp, "send", NULL, 0, 0));
    AdverbNdkQueryCounters(adapter, &after);
    printf("    hand-overs to the device: %u\n", (unsigned)(after.HandOvers - before.HandOvers));
    show_results(a.cq, 3);

    /* A registered region must be invalidated before the next registration. */
    qp->NdkInvalidate(a.qp, NULL, &first->Header, NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER);
    qp->NdkInvalidate(a.qp, NULL, &second->Header, NDK_OP_FLAG_SILENT_SUCCESS);

    printf("the second fast registration fails in line, so the send is never posted:\n");
    post("first fast register, deferred", qp->NdkFastRegister(a.qp, "first fast register", first, 2, pages, 0,
                                                              2 * PAGE_SIZE, buffer, defer));
    post("second fast register, deferred, longer than its pages",
         qp->NdkFastRegister(a.qp, "second fast register", second, 2, pages + 2, 0, 3 * PAGE_SIZE, buffer, defer));
    show_results(a.cq, 1);

    CLOSE(first, NdkCloseMr);
    CLOSE(second, NdkCloseMr);
    adapter->Dispatch->NdkReleaseLAM(adapter, mapping);
    close_end(&a);
    close_end(&b);
    CLOSE(listener, NdkCloseListener);
    AdverbNdkCloseAdapter(adapter);
    free(mapping);
    free(buffer);
    return 0;
}
