/*
 * Code that all C tests use: waits with a deadline, and two connected queue pairs on loopback.
 */
#ifndef NDK_TEST_H
#define NDK_TEST_H

#include <adverb_ndk.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNUSED __attribute__((unused))
#define DEADLINE 20 /* seconds; every wait takes less than a second */

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                            \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

#define EXPECT(status, call) expect((status), (call), #call, __FILE__, __LINE__)

UNUSED static void expect(NTSTATUS wanted, NTSTATUS got, const char *call, const char *file, int line)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s:%d: %s: %s (0x%08x), not %s\n", file, line, call, AdverbNdkStatusName(got), (unsigned)got,
            AdverbNdkStatusName(wanted));
    exit(1);
}

UNUSED static struct timespec deadline(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += DEADLINE;
    return at;
}

UNUSED static int past(const struct timespec *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > at->tv_sec;
}

/* ---- Callbacks that count their calls, and a function that waits for them ---- */

struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count;
    NTSTATUS status;
    void *object;
};

#define EVENT {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, STATUS_PENDING, NULL}

UNUSED static void happened(struct event *event, NTSTATUS status, void *object)
{
    pthread_mutex_lock(&event->lock);
    event->count++;
    event->status = status;
    event->object = object;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
}

UNUSED static void on_status(PVOID context, NTSTATUS status) { happened(context, status, NULL); }
UNUSED static void on_closed(PVOID context) { happened(context, STATUS_SUCCESS, NULL); }
UNUSED static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
    happened(context, status, object);
}
UNUSED static void on_connector(PVOID context, NDK_CONNECTOR *connector)
{
    happened(context, STATUS_SUCCESS, connector);
}

/* The number of calls so far. */
UNUSED static int times(struct event *event)
{
    pthread_mutex_lock(&event->lock);
    int count = event->count;
    pthread_mutex_unlock(&event->lock);
    return count;
}

/* Waits until the callback was called `count` times. Returns the status of the last call. */
UNUSED static NTSTATUS wait_for(struct event *event, int count)
{
    struct timespec until = deadline();
    pthread_mutex_lock(&event->lock);
    while (event->count < count) {
        if (pthread_cond_timedwait(&event->changed, &event->lock, &until)) {
            fprintf(stderr, "a callback did not come: %d of %d\n", event->count, count);
            exit(1);
        }
    }
    NTSTATUS status = event->status;
    pthread_mutex_unlock(&event->lock);
    return status;
}

/* Returns the status of a call that may complete later. If the call completed in line, checks that
 * no callback came. */
UNUSED static NTSTATUS finish(struct event *event, NTSTATUS status)
{
    if (status == STATUS_PENDING)
        return wait_for(event, 1);
    CHECK(times(event) == 0);
    return status;
}

/* Creates an object with a call that may complete later. */
#define CREATE(type, variable, call)                                                                           \
    do {                                                                                                       \
        struct event done = EVENT;                                                                             \
        type *made = NULL;                                                                                     \
        NTSTATUS created = (call);                                                                             \
        EXPECT(STATUS_SUCCESS, finish(&done, created));                                                        \
        (variable) = created == STATUS_PENDING ? (type *)done.object : made;                                   \
        CHECK((variable) != NULL);                                                                             \
    } while (0)

/* Makes a request that may complete later and must succeed. */
#define DO(call)                                                                                               \
    do {                                                                                                       \
        struct event done = EVENT;                                                                             \
        NTSTATUS started = (call);                                                                             \
        expect(STATUS_SUCCESS, finish(&done, started), #call, __FILE__, __LINE__);                             \
    } while (0)

/* Closes an object and waits until the close is complete. */
#define CLOSE(object, function)                                                                                \
    do {                                                                                                       \
        struct event done = EVENT;                                                                             \
        NTSTATUS closed = (object)->Dispatch->function(&(object)->Header, on_closed, &done);                   \
        expect(STATUS_SUCCESS, finish(&done, closed), #function, __FILE__, __LINE__);                          \
    } while (0)

/* ---- One end of a connection ---- */

struct side {
    NDK_ADAPTER *adapter;
    NDK_CQ *cq;
    NDK_PD *pd;
    NDK_QP *qp;
    NDK_CONNECTOR *connector;
    NDK_LISTENER *listener; /* the listener of the connector */
    struct event notified;
    struct event disconnected;
    char *memory; /* `size` bytes, registered with all rights */
    SIZE_T size;
    NDK_MR *mr;
    UINT32 local, remote;
};

UNUSED static void on_disconnected(PVOID context) { happened(context, STATUS_SUCCESS, NULL); }

UNUSED static NDK_MR *register_memory(NDK_PD *pd, void *memory, SIZE_T size, ULONG flags)
{
    NDK_MR *mr;
    CREATE(NDK_MR, mr, pd->Dispatch->NdkCreateMr(pd, FALSE, on_created, &done, &made));
    /* Describes the memory by a chain of two descriptors, which must be contiguous. */
    MDL *mdl = AdverbNdkBuildMdl(memory, size / 2);
    AdverbNdkChainMdl(mdl, AdverbNdkBuildMdl((char *)memory + size / 2, size - size / 2));
    DO(mr->Dispatch->NdkRegisterMr(mr, mdl, size, flags, on_status, &done));
    AdverbNdkFreeMdl(mdl);
    return mr;
}

UNUSED static void open_side(struct side *side, ULONG pending)
{
    memset(side, 0, sizeof *side);
    side->notified = side->disconnected = (struct event)EVENT;
    EXPECT(STATUS_SUCCESS, AdverbNdkOpenAdapterEx("127.0.0.1", pending, &side->adapter));
    NDK_ADAPTER *adapter = side->adapter;
    CREATE(NDK_CQ, side->cq, adapter->Dispatch->NdkCreateCq(adapter, 256, on_status, &side->notified, NULL, on_created,
                                                            &done, &made));
    CREATE(NDK_PD, side->pd, adapter->Dispatch->NdkCreatePd(adapter, on_created, &done, &made));
    side->size = 64 * 1024;
    side->memory = aligned_alloc(PAGE_SIZE, side->size);
    memset(side->memory, 0, side->size);
    side->mr = register_memory(side->pd, side->memory, side->size,
                               NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    side->local = side->mr->Dispatch->NdkGetLocalTokenFromMr(side->mr);
    side->remote = side->mr->Dispatch->NdkGetRemoteTokenFromMr(side->mr);
}

UNUSED static void create_qp(struct side *side)
{
    CREATE(NDK_QP, side->qp, side->pd->Dispatch->NdkCreateQp(side->pd, side->cq, side->cq, side, 32, 64, 4, 4, 128,
                                                             on_created, &done, &made));
}

/* Connects the queue pairs of `active` and `passive`, with private data in both directions. */
UNUSED static void connect_sides(struct side *active, struct side *passive)
{
    struct event incoming = EVENT;
    NDK_LISTENER *listener;
    NDK_ADAPTER *adapter = passive->adapter;
    CREATE(NDK_LISTENER, listener,
           adapter->Dispatch->NdkCreateListener(adapter, on_connector, &incoming, on_created, &done, &made));
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    DO(listener->Dispatch->NdkListen(listener, (PSOCKADDR)&here, sizeof here, on_status, &done));
    struct sockaddr_in there;
    ULONG length = 1;
    EXPECT(STATUS_BUFFER_TOO_SMALL, listener->Dispatch->NdkGetLocalAddress(listener, (PSOCKADDR)&there, &length));
    CHECK(length == sizeof there);
    EXPECT(STATUS_SUCCESS, listener->Dispatch->NdkGetLocalAddress(listener, (PSOCKADDR)&there, &length));
    CHECK(there.sin_family == AF_INET && there.sin_port != 0);

    CREATE(NDK_CONNECTOR, active->connector,
           active->adapter->Dispatch->NdkCreateConnector(active->adapter, on_created, &done, &made));
    struct event connected = EVENT;
    NTSTATUS connecting = active->connector->Dispatch->NdkConnect(active->connector, active->qp, (PSOCKADDR)&here,
                                                                  sizeof here, (PSOCKADDR)&there, sizeof there, 4, 2,
                                                                  "hello", 6, on_status, &connected);
    CHECK(connecting == STATUS_PENDING || connecting == STATUS_SUCCESS);

    EXPECT(STATUS_SUCCESS, wait_for(&incoming, 1));
    passive->connector = incoming.object;
    char data[512] = {0};
    ULONG inbound = 0, outbound = 0, size = 0;
    const NDK_CONNECTOR_DISPATCH *passive_calls = passive->connector->Dispatch;
    EXPECT(STATUS_SUCCESS, passive_calls->NdkGetConnectionData(passive->connector, NULL, NULL, NULL, &size));
    CHECK(size >= 6 && size <= sizeof data);
    EXPECT(STATUS_SUCCESS,
           passive_calls->NdkGetConnectionData(passive->connector, &inbound, &outbound, data, &size));
    CHECK(strcmp(data, "hello") == 0 && inbound == 2 && outbound == 4);
    struct event accepted = EVENT;
    NTSTATUS accepting = passive_calls->NdkAccept(passive->connector, passive->qp, 2, 4, "welcome", 8,
                                                  on_disconnected, &passive->disconnected, on_status, &accepted);
    CHECK(accepting == STATUS_PENDING || accepting == STATUS_SUCCESS);

    EXPECT(STATUS_SUCCESS, finish(&connected, connecting));
    size = sizeof data;
    EXPECT(STATUS_SUCCESS, active->connector->Dispatch->NdkGetConnectionData(active->connector, &inbound, &outbound,
                                                                             data, &size));
    CHECK(strcmp(data, "welcome") == 0 && inbound == 4 && outbound == 2);
    DO(active->connector->Dispatch->NdkCompleteConnect(active->connector, on_disconnected, &active->disconnected,
                                                       on_status, &done));
    EXPECT(STATUS_SUCCESS, finish(&accepted, accepting));
    passive->listener = listener;
}

UNUSED static void close_connection(struct side *side)
{
    /* The close of the listener completes only after the close of its connector. */
    struct event closed = EVENT;
    NTSTATUS closing = STATUS_SUCCESS;
    if (side->listener) {
        closing = side->listener->Dispatch->NdkCloseListener(&side->listener->Header, on_closed, &closed);
        EXPECT(STATUS_PENDING, closing);
    }
    CLOSE(side->connector, NdkCloseConnector);
    EXPECT(STATUS_SUCCESS, finish(&closed, closing));
}

UNUSED static void close_side(struct side *side)
{
    if (side->connector)
        close_connection(side);
    CLOSE(side->qp, NdkCloseQp);
    CLOSE(side->mr, NdkCloseMr);
    CLOSE(side->pd, NdkClosePd);
    CLOSE(side->cq, NdkCloseCq);
    EXPECT(STATUS_SUCCESS, AdverbNdkCloseAdapter(side->adapter));
    free(side->memory);
}

/* ---- Requests ---- */

UNUSED static NDK_SGE sge(void *address, ULONG length, UINT32 token)
{
    NDK_SGE entry;
    memset(&entry, 0, sizeof entry);
    entry.VirtualAddress = address;
    entry.Length = length;
    entry.MemoryRegionToken = token;
    return entry;
}

/* Polls for the next result of a queue. */
UNUSED static NDK_RESULT_EX next_result(NDK_CQ *cq)
{
    struct timespec until = deadline();
    NDK_RESULT_EX result;
    while (cq->Dispatch->NdkGetCqResultsEx(cq, &result, 1) == 0) {
        CHECK(!past(&until));
        sched_yield();
    }
    return result;
}

/* Polls for the next result. The result must be a success of the request with `context` and `type`.
 */
UNUSED static NDK_RESULT_EX good_result(struct side *side, NDK_OPERATION_TYPE type, void *context)
{
    NDK_RESULT_EX result = next_result(side->cq);
    EXPECT(STATUS_SUCCESS, result.Status);
    CHECK(result.Type == type);
    CHECK(result.RequestContext == context);
    CHECK(result.QPContext == side);
    return result;
}

/* Checks that no result comes for 100 ms. */
UNUSED static void no_result(NDK_CQ *cq)
{
    NDK_RESULT_EX result;
    for (int i = 0; i < 20; i++) {
        CHECK(cq->Dispatch->NdkGetCqResultsEx(cq, &result, 1) == 0);
        struct timespec moment = {0, 5 * 1000 * 1000};
        nanosleep(&moment, NULL);
    }
}

/* ---- Pages for fast registration ---- */

struct lam {
    NDK_LOGICAL_ADDRESS_MAPPING *mapping;
    ULONG fbo;
};

UNUSED static struct lam build_lam(NDK_ADAPTER *adapter, void *memory, SIZE_T size)
{
    struct lam lam = {NULL, 0};
    MDL *mdl = AdverbNdkBuildMdl(memory, size);
    ULONG bytes = 0;
    struct event done = EVENT;
    NTSTATUS asked = adapter->Dispatch->NdkBuildLAM(adapter, mdl, size, on_status, &done, NULL, &bytes, &lam.fbo);
    EXPECT(STATUS_BUFFER_TOO_SMALL, finish(&done, asked));
    CHECK(bytes >= sizeof *lam.mapping);
    lam.mapping = malloc(bytes);
    DO(adapter->Dispatch->NdkBuildLAM(adapter, mdl, size, on_status, &done, lam.mapping, &bytes, &lam.fbo));
    AdverbNdkFreeMdl(mdl);
    return lam;
}

UNUSED static void release_lam(NDK_ADAPTER *adapter, struct lam *lam)
{
    adapter->Dispatch->NdkReleaseLAM(adapter, lam->mapping);
    free(lam->mapping);
}

UNUSED static NDK_MR *fast_mr(NDK_PD *pd, ULONG pages)
{
    NDK_MR *mr;
    CREATE(NDK_MR, mr, pd->Dispatch->NdkCreateMr(pd, TRUE, on_created, &done, &made));
    DO(mr->Dispatch->NdkInitializeFastRegisterMr(mr, pages, TRUE, on_status, &done));
    return mr;
}

#endif
