/*
 * A shared receive queue that notifies the program when few receives are left. Usage: srq MODE,
 * with MODE from ADVERB_NDK_PENDING_*.
 */
#include "ndk_test.h"

enum { DEPTH = 8, THRESHOLD = 3 };

static NDK_SRQ *create_srq(struct side *side, struct event *low)
{
    NDK_SRQ *srq;
    CREATE(NDK_SRQ, srq, side->pd->Dispatch->NdkCreateSrq(side->pd, DEPTH, 2, THRESHOLD, on_status, low, NULL,
                                                          on_created, &done, &made));
    CREATE(NDK_QP, side->qp, side->pd->Dispatch->NdkCreateQpWithSrq(side->pd, side->cq, side->cq, srq, side, 16, 4, 0,
                                                                    on_created, &done, &made));
    return srq;
}

static void post(struct side *side, NDK_SRQ *srq, ULONG_PTR first, ULONG_PTR count)
{
    for (ULONG_PTR i = first; i < first + count; i++) {
        NDK_SGE at = sge(side->memory + i * 16, 16, side->local);
        EXPECT(STATUS_SUCCESS, srq->Dispatch->NdkSrqReceive(srq, (PVOID)(i + 1), &at, 1));
    }
}

static void send_one(struct side *a, struct side *b, ULONG_PTR receive)
{
    NDK_SGE at = sge(a->memory, 5, a->local);
    EXPECT(STATUS_SUCCESS, a->qp->Dispatch->NdkSend(a->qp, NULL, &at, 1, 0));
    good_result(a, NdkOperationTypeSend, NULL);
    NDK_RESULT_EX result = good_result(b, NdkOperationTypeReceive, (PVOID)(receive + 1));
    CHECK(result.BytesTransferred == 5 && memcmp(b->memory + receive * 16, "hello", 5) == 0);
}

int main(int argc, char **argv)
{
    ULONG mode = argc > 1 ? (ULONG)atoi(argv[1]) : ADVERB_NDK_PENDING_NEVER;
    struct side a, b;
    struct event low = EVENT;
    open_side(&a, mode);
    open_side(&b, mode);
    create_qp(&a);
    NDK_SRQ *srq = create_srq(&b, &low);
    post(&b, srq, 0, 5);
    connect_sides(&a, &b);
    strcpy(a.memory, "hello");
    /* Five receives are posted. The third message leaves two, below the threshold of three. */
    send_one(&a, &b, 0);
    send_one(&a, &b, 1);
    CHECK(times(&low) == 0);
    send_one(&a, &b, 2);
    EXPECT(STATUS_SUCCESS, wait_for(&low, 1));
    /* The notification comes once. NdkModifySrq asks for the next notification. */
    send_one(&a, &b, 3);
    post(&b, srq, 5, 4);
    DO(srq->Dispatch->NdkModifySrq(srq, DEPTH, THRESHOLD + 2, on_status, &done));
    CHECK(times(&low) == 1);
    send_one(&a, &b, 4);
    EXPECT(STATUS_SUCCESS, wait_for(&low, 2));
    /* The receive queue of the queue pair is the SRQ, so NdkReceive fails. */
    NDK_SGE at = sge(b.memory, 16, b.local);
    CHECK(!NT_SUCCESS(b.qp->Dispatch->NdkReceive(b.qp, NULL, &at, 1)));

    struct event closed = EVENT;
    EXPECT(STATUS_PENDING, srq->Dispatch->NdkCloseSrq(&srq->Header, on_closed, &closed));
    close_side(&a);
    close_side(&b);
    EXPECT(STATUS_SUCCESS, wait_for(&closed, 1));
    printf("done\n");
    return 0;
}
