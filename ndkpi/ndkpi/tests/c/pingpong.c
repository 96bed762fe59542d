/*
 * Tests all requests between two queue pairs on loopback. All calls go through the dispatch tables.
 * Usage: pingpong MODE, with MODE from ADVERB_NDK_PENDING_*.
 */
#include "ndk_test.h"

enum { ROUNDS = 50, MESSAGE = 3000 };

static void adapter_info(NDK_ADAPTER *adapter)
{
    NDK_ADAPTER_INFO info;
    ULONG size = sizeof info - 1;
    memset(&info, 0, sizeof info);
    EXPECT(STATUS_BUFFER_TOO_SMALL, adapter->Dispatch->NdkQueryAdapterInfo(adapter, &info, &size));
    CHECK(size == sizeof info && info.Version.Major == 0);
    EXPECT(STATUS_SUCCESS, adapter->Dispatch->NdkQueryAdapterInfo(adapter, &info, &size));
    CHECK(info.Version.Major == 1 && info.Version.Minor == 2);
    CHECK(info.RdmaTechnology == NdkRoCEv2 && info.FRMRPageCount >= 16 && info.MaxCqDepth >= 256);
    CHECK(info.AdapterFlags & NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED);
}

/* Waits for the next result by notification: arms, waits for the callback, polls. If the queue has
 * a new result already, the callback comes at once. */
static NDK_RESULT_EX notified_result(struct side *side, ULONG type)
{
    NDK_RESULT_EX result;
    for (;;) {
        int before = times(&side->notified);
        side->cq->Dispatch->NdkArmCq(side->cq, type);
        EXPECT(STATUS_SUCCESS, wait_for(&side->notified, before + 1));
        if (side->cq->Dispatch->NdkGetCqResultsEx(side->cq, &result, 1) == 1)
            return result;
    }
}

static void receive(struct side *side, ULONG length)
{
    NDK_SGE at = sge(side->memory + side->size / 2, length, side->local);
    EXPECT(STATUS_SUCCESS, side->qp->Dispatch->NdkReceive(side->qp, &side->mr, &at, 1));
}

static void ping_pong(struct side *a, struct side *b)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct side *from = round % 2 ? b : a, *to = round % 2 ? a : b;
        receive(to, MESSAGE);
        memset(from->memory, round + 1, MESSAGE);
        NDK_SGE parts[2] = {sge(from->memory, 1000, from->local), sge(from->memory + 1000, MESSAGE - 1000, from->local)};
        EXPECT(STATUS_SUCCESS, from->qp->Dispatch->NdkSend(from->qp, NULL, parts, 2,
                                                           NDK_OP_FLAG_SILENT_SUCCESS |
                                                               NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT));
        NDK_RESULT_EX result = notified_result(to, round % 3 ? NDK_CQ_NOTIFY_SOLICITED : NDK_CQ_NOTIFY_ANY);
        EXPECT(STATUS_SUCCESS, result.Status);
        CHECK(result.Type == NdkOperationTypeReceive && result.BytesTransferred == MESSAGE);
        CHECK(result.QPContext == to && result.RequestContext == &to->mr);
        CHECK(memcmp(to->memory + to->size / 2, from->memory, MESSAGE) == 0);
    }
    no_result(a->cq); /* the sends were silent */
}

/* Inline data needs no valid token, and may have more entries than the limit of the queue pair. */
static void inline_send(struct side *a, struct side *b)
{
    char word[] = "inline";
    NDK_SGE letters[6];
    for (int i = 0; i < 6; i++)
        letters[i] = sge(word + i, 1, 0xbad);
    receive(b, 6);
    EXPECT(STATUS_SUCCESS, a->qp->Dispatch->NdkSend(a->qp, NULL, letters, 6, NDK_OP_FLAG_INLINE));
    memset(word, 'x', sizeof word); /* the call has copied the bytes */
    NDK_RESULT plain;
    struct timespec until = deadline();
    while (b->cq->Dispatch->NdkGetCqResults(b->cq, &plain, 1) == 0)
        CHECK(!past(&until));
    EXPECT(STATUS_SUCCESS, plain.Status);
    CHECK(plain.BytesTransferred == 6 && plain.QPContext == b && plain.RequestContext == &b->mr);
    CHECK(memcmp(b->memory + b->size / 2, "inline", 6) == 0);
    good_result(a, NdkOperationTypeSend, NULL);
}

static void write_and_read(struct side *a, struct side *b)
{
    strcpy(a->memory, "written");
    NDK_SGE at = sge(a->memory, 8, a->local);
    UINT64 there = (UINT64)(ULONG_PTR)b->memory + 100;
    EXPECT(STATUS_SUCCESS, a->qp->Dispatch->NdkWrite(a->qp, a, &at, 1, there, b->remote, 0));
    good_result(a, NdkOperationTypeWrite, a);
    CHECK(strcmp(b->memory + 100, "written") == 0);
    strcpy(b->memory + 100, "read it");
    EXPECT(STATUS_SUCCESS, a->qp->Dispatch->NdkRead(a->qp, b, &at, 1, there, b->remote, 0));
    good_result(a, NdkOperationTypeRead, b);
    CHECK(strcmp(a->memory, "read it") == 0);
}

/* A request that breaks a rule is refused in line and has no effect. */
static void refused(struct side *a, struct side *b)
{
    NDK_SGE at[5];
    for (int i = 0; i < 5; i++)
        at[i] = sge(a->memory, 40, a->local);
    const NDK_QP_DISPATCH *qp = a->qp->Dispatch;
    EXPECT(STATUS_INVALID_PARAMETER, qp->NdkSend(a->qp, NULL, at, 1, 0x80000000));
    EXPECT(STATUS_INVALID_PARAMETER, qp->NdkSend(a->qp, NULL, at, 5, 0));
    EXPECT(STATUS_INVALID_PARAMETER, qp->NdkSend(a->qp, NULL, NULL, 1, 0));
    EXPECT(STATUS_INVALID_PARAMETER, qp->NdkSend(a->qp, NULL, at, 4, NDK_OP_FLAG_INLINE)); /* 160 bytes; 128 fit */
    EXPECT(STATUS_INVALID_PARAMETER, qp->NdkInvalidate(a->qp, NULL, &a->cq->Header, 0));
    EXPECT(STATUS_INVALID_PARAMETER, qp->NdkFastRegister(a->qp, NULL, a->mr, 1, NULL, 0, 1, NULL, 0));
    no_result(a->cq);
    /* A refused request also ends a chain, so the provider hands the deferred write to the device
     * (DEF-4). */
    EXPECT(STATUS_SUCCESS, qp->NdkWrite(a->qp, at, at, 1, (UINT64)(ULONG_PTR)b->memory, b->remote, NDK_OP_FLAG_DEFER));
    EXPECT(STATUS_INVALID_PARAMETER, qp->NdkSend(a->qp, NULL, NULL, 1, 0));
    good_result(a, NdkOperationTypeWrite, at);
}

/* Sends four bytes to `b`, invalidates a token there, and checks the results of both sides. */
static void invalidate_at(struct side *a, struct side *b, UINT32 token)
{
    receive(b, 4);
    NDK_SGE at = sge(a->memory, 4, a->local);
    EXPECT(STATUS_SUCCESS, a->qp->Dispatch->NdkSendAndInvalidate(a->qp, NULL, &at, 1, 0, token));
    NDK_RESULT_EX result = good_result(b, NdkOperationTypeReceiveAndInvalidate, &b->mr);
    CHECK((UINT32)result.TypeSpecificCompletionOutput == token && result.BytesTransferred == 4);
    good_result(a, NdkOperationTypeSend, NULL);
}

/* Registers pages 2, 0 and 3 of a buffer as a region. */
static void fast_register(struct side *a, struct side *b)
{
    char *buffer = aligned_alloc(PAGE_SIZE, 4 * PAGE_SIZE);
    memset(buffer, 0, 4 * PAGE_SIZE);
    struct lam lam = build_lam(b->adapter, buffer, 4 * PAGE_SIZE);
    CHECK(lam.fbo == 0 && lam.mapping->AdapterPageCount == 4);
    const NDK_LOGICAL_ADDRESS *page = lam.mapping->AdapterPageArray;
    NDK_LOGICAL_ADDRESS chosen[3] = {page[2], page[0], page[3]};
    NDK_MR *mr = fast_mr(b->pd, 3);
    UINT64 base = 0x7000000000; /* any multiple of the page size */
    EXPECT(STATUS_SUCCESS,
           b->qp->Dispatch->NdkFastRegister(b->qp, NULL, mr, 3, chosen, 0, 3 * PAGE_SIZE, (PVOID)(ULONG_PTR)base,
                                            NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
    good_result(b, NdkOperationTypeFastRegister, NULL);
    UINT32 token = mr->Dispatch->NdkGetRemoteTokenFromMr(mr);

    for (int i = 0; i < 3; i++)
        memset(a->memory + i * PAGE_SIZE, 'A' + i, PAGE_SIZE);
    NDK_SGE all = sge(a->memory, 3 * PAGE_SIZE, a->local);
    EXPECT(STATUS_SUCCESS, a->qp->Dispatch->NdkWrite(a->qp, NULL, &all, 1, base, token, 0));
    good_result(a, NdkOperationTypeWrite, NULL);
    const char expected[4] = {'B', 0, 'A', 'C'};
    for (int i = 0; i < 4; i++)
        CHECK(buffer[i * PAGE_SIZE] == expected[i] && buffer[(i + 1) * PAGE_SIZE - 1] == expected[i]);
    invalidate_at(a, b, token);

    /* The privileged token addresses pages without a region, for local access only. */
    UINT32 privileged = 0;
    b->pd->Dispatch->NdkGetPrivilegedMemoryRegionToken(b->pd, &privileged);
    NDK_SGE logical = {.LogicalAddress = page[3], .Length = PAGE_SIZE, .MemoryRegionToken = privileged};
    receive(a, PAGE_SIZE);
    EXPECT(STATUS_SUCCESS, b->qp->Dispatch->NdkSend(b->qp, NULL, &logical, 1, 0));
    good_result(b, NdkOperationTypeSend, NULL);
    good_result(a, NdkOperationTypeReceive, &a->mr);
    CHECK(a->memory[a->size / 2] == 'C' && a->memory[a->size / 2 + PAGE_SIZE - 1] == 'C');

    CLOSE(mr, NdkCloseMr);
    release_lam(b->adapter, &lam);
    free(buffer);
}

static void window(struct side *a, struct side *b)
{
    NDK_MW *mw;
    CREATE(NDK_MW, mw, b->pd->Dispatch->NdkCreateMw(b->pd, on_created, &done, &made));
    EXPECT(STATUS_SUCCESS, b->qp->Dispatch->NdkBind(b->qp, mw, b->mr, mw, b->memory + 200, 8,
                                                    NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
    good_result(b, NdkOperationTypeBind, mw);
    UINT32 token = mw->Dispatch->NdkGetRemoteTokenFromMw(mw);
    strcpy(a->memory, "window!");
    NDK_SGE at = sge(a->memory, 8, a->local);
    EXPECT(STATUS_SUCCESS,
           a->qp->Dispatch->NdkWrite(a->qp, NULL, &at, 1, (UINT64)(ULONG_PTR)b->memory + 200, token, 0));
    good_result(a, NdkOperationTypeWrite, NULL);
    CHECK(strcmp(b->memory + 200, "window!") == 0);
    invalidate_at(a, b, token);
    CLOSE(mw, NdkCloseMw);
}

static void disconnect(struct side *a, struct side *b)
{
    receive(b, 1);
    DO(a->connector->Dispatch->NdkDisconnect(a->connector, on_status, &done));
    EXPECT(STATUS_SUCCESS, wait_for(&b->disconnected, 1));
    DO(b->connector->Dispatch->NdkDisconnect(b->connector, on_status, &done));
    CHECK(times(&a->disconnected) == 0 && times(&b->disconnected) == 1);
    EXPECT(STATUS_CANCELLED, next_result(b->cq).Status);
    NDK_SGE at = sge(a->memory, 1, a->local);
    EXPECT(STATUS_CONNECTION_INVALID, a->qp->Dispatch->NdkSend(a->qp, NULL, &at, 1, 0));
}

/* Closes the CQ and the PD before the objects that were made from them. These closes must be
 * pending until the last of these objects is closed. */
static void close_upside_down(struct side *side)
{
    struct event cq = EVENT, pd = EVENT;
    EXPECT(STATUS_PENDING, side->cq->Dispatch->NdkCloseCq(&side->cq->Header, on_closed, &cq));
    EXPECT(STATUS_PENDING, side->pd->Dispatch->NdkClosePd(&side->pd->Header, on_closed, &pd));
    close_connection(side);
    CLOSE(side->mr, NdkCloseMr);
    CHECK(times(&cq) == 0 && times(&pd) == 0);
    CLOSE(side->qp, NdkCloseQp);
    EXPECT(STATUS_SUCCESS, wait_for(&cq, 1));
    EXPECT(STATUS_SUCCESS, wait_for(&pd, 1));
    EXPECT(STATUS_SUCCESS, AdverbNdkCloseAdapter(side->adapter));
    CHECK(times(&cq) == 1 && times(&pd) == 1);
    free(side->memory);
}

int main(int argc, char **argv)
{
    ULONG mode = argc > 1 ? (ULONG)atoi(argv[1]) : ADVERB_NDK_PENDING_NEVER;
    struct side a, b;
    open_side(&a, mode);
    open_side(&b, mode);
    adapter_info(a.adapter);
    create_qp(&a);
    create_qp(&b);
    connect_sides(&a, &b);
    ping_pong(&a, &b);
    inline_send(&a, &b);
    write_and_read(&a, &b);
    refused(&a, &b);
    fast_register(&a, &b);
    window(&a, &b);
    disconnect(&a, &b);
    close_upside_down(&a);
    close_side(&b);
    printf("done\n");
    return 0;
}
