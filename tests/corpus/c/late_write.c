// The client writes records into the table of the server and announces each record with a message.
// At the end the client writes a mark. The wrong server deregisters the table when the last record
// has arrived. The mark comes later, and the connection fails.
#include "corpus.h"
#define RECORDS 40
#define MARK 100

static struct duo d;
static struct ibv_mr *table;
static uint8_t *rows;
static int closed, marked;

static void *serve(void *arg)
{
	int i, n;

	for (i = 0; i < RECORDS; i++) {
		n = poll_good(d.b.rcq).wr_id;
		CHECK(rows[i * 8] == i + 1, "record %d", i);
		give(d.b.qp, n);
	}
#if !WRONG
	until(&marked, 1);
#endif
	CHECK(!ibv_dereg_mr(table), "deregister the table");
	add(&closed, 1);
	return arg;
}

static void write_row(int row, uint8_t value)
{
	struct ibv_sge s = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = row, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;

	slot(0)[0] = value;
	wr.wr.rdma.remote_addr = (uintptr_t)(rows + row * 8);
	wr.wr.rdma.rkey = table->rkey;
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post the write");
	poll_good(d.a.scq);
}

int main(void)
{
	pthread_t t;
	int i;

	start();
	duo_open(&d, 16);
	CHECK(!posix_memalign((void **)&rows, 4096, 4096), "memory");
	table = ibv_reg_mr(port.pd, rows, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(table, "reg mr");
	for (i = 0; i < 8; i++)
		give(d.b.qp, INBOX + i);
	thread(&t, serve, NULL);
	for (i = 0; i < RECORDS; i++) {
		write_row(i, i + 1);
		CHECK(!put(d.a.qp, 1, 8, IBV_SEND_SIGNALED), "post send");
		poll_good(d.a.scq);
	}
#if WRONG
	until(&closed, 1); // the mark comes late, as on most machines
#endif
	write_row(MARK, 1);
	add(&marked, 1);
	CHECK(!pthread_join(t, NULL), "join");
	duo_close(&d);
	free(rows);
	return finish("late_write");
}
