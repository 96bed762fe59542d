/*
 * Microsoft's example of NDKPI's deferred processing scheme (DEF-7). The call of the second of two
 * deferred fast registrations fails, so the program never posts the send at the end of the chain.
 * The first registration is still processed, and completes once. A second test posts a complete
 * chain (DEF-8).
 */
#include "ndk_test.h"

enum { PAGES = 2, CHAIN = 32 };

static void fails_in_line(struct side *a)
{
    char *buffer = aligned_alloc(PAGE_SIZE, 2 * PAGE_SIZE);
    struct lam lam = build_lam(a->adapter, buffer, 2 * PAGE_SIZE);
    NDK_MR *first = fast_mr(a->pd, PAGES), *second = fast_mr(a->pd, PAGES);
    const NDK_LOGICAL_ADDRESS *pages = lam.mapping->AdapterPageArray;
    ULONG flags = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_DEFER;

    EXPECT(STATUS_SUCCESS,
           a->qp->Dispatch->NdkFastRegister(a->qp, first, first, 2, pages, 0, 2 * PAGE_SIZE, buffer, flags));
    printf("first fast register, deferred: STATUS_SUCCESS\n");
    /* This registration fails, because it has more pages than the region's capacity. */
    NDK_LOGICAL_ADDRESS many[PAGES + 1] = {pages[0], pages[1], pages[0]};
    NTSTATUS status = a->qp->Dispatch->NdkFastRegister(a->qp, second, second, PAGES + 1, many, 0, 3 * PAGE_SIZE,
                                                       buffer, flags);
    CHECK(!NT_SUCCESS(status));
    printf("second fast register, deferred: %s\n", AdverbNdkStatusName(status));

    NDK_RESULT_EX result = next_result(a->cq);
    EXPECT(STATUS_SUCCESS, result.Status);
    CHECK(result.RequestContext == first && result.Type == NdkOperationTypeFastRegister && result.QPContext == a);
    no_result(a->cq);
    printf("completions: 1, of the first fast register\n");

    EXPECT(STATUS_SUCCESS, a->qp->Dispatch->NdkInvalidate(a->qp, NULL, &first->Header, 0));
    good_result(a, NdkOperationTypeInvalidate, NULL);
    CLOSE(first, NdkCloseMr);
    CLOSE(second, NdkCloseMr);
    release_lam(a->adapter, &lam);
    free(buffer);
}

/* Posts `CHAIN` writes to the peer. Only the last write has no NDK_OP_FLAG_DEFER. */
static void chain(struct side *a, struct side *b)
{
    ADVERB_NDK_COUNTERS before, after;
    EXPECT(STATUS_SUCCESS, AdverbNdkQueryCounters(a->adapter, &before));
    for (ULONG_PTR i = 0; i < CHAIN; i++) {
        a->memory[i] = (char)('a' + i % 26);
        NDK_SGE one = sge(a->memory + i, 1, a->local);
        EXPECT(STATUS_SUCCESS,
               a->qp->Dispatch->NdkWrite(a->qp, (PVOID)i, &one, 1, (UINT64)(ULONG_PTR)b->memory + i, b->remote,
                                         i + 1 < CHAIN ? NDK_OP_FLAG_DEFER : 0));
    }
    EXPECT(STATUS_SUCCESS, AdverbNdkQueryCounters(a->adapter, &after));
    for (ULONG_PTR i = 0; i < CHAIN; i++)
        good_result(a, NdkOperationTypeWrite, (PVOID)i);
    CHECK(memcmp(a->memory, b->memory, CHAIN) == 0);
    /* No other thread of this process posts requests, so the counters show only this chain. */
    CHECK(after.HandOvers - before.HandOvers == 1);
    CHECK(after.HandedOver - before.HandedOver == CHAIN);
    printf("%d deferred writes: 1 hand-over\n", CHAIN);
}

int main(void)
{
    struct side a, b;
    open_side(&a, ADVERB_NDK_PENDING_NEVER);
    open_side(&b, ADVERB_NDK_PENDING_NEVER);
    create_qp(&a);
    create_qp(&b);
    connect_sides(&a, &b);
    fails_in_line(&a);
    chain(&a, &b);
    close_side(&a);
    close_side(&b);
    return 0;
}
