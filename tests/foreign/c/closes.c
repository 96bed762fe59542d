// A program closes all its descriptors while a device is open, and opens files or sockets, which
// get the same numbers. The device must not touch these new descriptors. The files must stay empty,
// the sockets must keep their contents, and all descriptors must stay open.
// usage: closes files|sockets|datagrams
#define _GNU_SOURCE
#include "rig.h"
#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define FILES 400
#define MARK "the program's"

static int own[FILES], kind, count;

static void open_files(void)
{
	for (count = 0; count < FILES; count++) {
		int fd[2];

		if (kind == 0) {
			own[count] = memfd_create("own", 0);
			CHECK(own[count] >= 0, "a file");
			continue;
		}
		// A pair of stream or datagram sockets with data to read. The program keeps both
		// ends open.
		CHECK(!socketpair(AF_UNIX, kind == 1 ? SOCK_STREAM : SOCK_DGRAM, 0, fd), "sockets");
		for (int i = 0; i < 2; i++) {
			CHECK(write(fd[i], MARK, sizeof(MARK)) == sizeof(MARK), "write");
			own[count + i] = fd[i];
		}
		count++;
	}
}

static void check_files(const char *when)
{
	for (int i = 0; i < count; i++) {
		char text[256];
		struct stat st;

		CHECK(!fstat(own[i], &st), "%s: descriptor %d is closed", when, own[i]);
		if (kind == 0) {
			CHECK(st.st_size == 0 && lseek(own[i], 0, SEEK_CUR) == 0, "%s: descriptor %d has %lld bytes", when, own[i],
			      (long long)st.st_size);
			continue;
		}
		ssize_t n = recv(own[i], text, sizeof(text), MSG_PEEK | MSG_DONTWAIT);
		CHECK(n == sizeof(MARK) && !memcmp(text, MARK, n), "%s: descriptor %d has %zd bytes to read", when, own[i], n);
		if (kind == 2) {
			CHECK(recv(own[i], text, sizeof(text), MSG_DONTWAIT) == sizeof(MARK), "read");
			n = recv(own[i], text, sizeof(text), MSG_DONTWAIT | MSG_PEEK);
			CHECK(n < 0 && errno == EAGAIN, "%s: descriptor %d has a second message of %zd bytes", when, own[i], n);
			CHECK(write(own[i ^ 1], MARK, sizeof(MARK)) == sizeof(MARK), "write again");
		}
	}
}

int main(int argc, char **argv)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *event_cq;
	struct ibv_qp *a, *b;
	struct port p;
	static char buf[1 << 16];
	struct ibv_mr *mr;

	CHECK(argc > 1, "usage: closes files|sockets|datagrams");
	kind = !strcmp(argv[1], "files") ? 0 : !strcmp(argv[1], "sockets") ? 1 : 2;
	port_open(&p);
	channel = ibv_create_comp_channel(p.ctx);
	CHECK(channel, "channel");
	event_cq = cq_new(&p, 256, channel, NULL);
	cq = cq_new(&p, 256, NULL, NULL);
	a = qp_new(&p, IBV_QPT_RC, cq, cq, 64);
	b = qp_new(&p, IBV_QPT_RC, event_cq, event_cq, 64);
	mr = ibv_reg_mr(p.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr, "region");
	qp_pair(&p, a, b);
	CHECK(!ibv_req_notify_cq(event_cq, 0), "arm");

	CHECK(!close_range(3, ~0U, 0), "close_range");
	open_files();
	double end = now() + 1;
	for (int i = 0; now() < end; i++) {
		struct ibv_sge sge = {(uintptr_t)buf, 4096, mr->lkey};
		struct ibv_recv_wr rr = {.sg_list = &sge, .num_sge = 1}, *bad_rr;
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
				   *bad_wr;
		struct ibv_wc wc[16];

		// These calls may fail, because the device has lost its descriptors. The test
		// checks only the program's descriptors.
		if (i % 64 < 32) {
			ibv_post_recv(b, &rr, &bad_rr);
			ibv_post_send(a, &wr, &bad_wr);
		}
		ibv_poll_cq(cq, 16, wc);
		ibv_poll_cq(event_cq, 16, wc);
		ibv_req_notify_cq(event_cq, 0);
		if (i % 16 == 0) {
			// Creates more objects. Each object takes an entry in a table of the
			// device, so the entries go beyond the first page of the table.
			struct ibv_qp *more = qp_new(&p, IBV_QPT_RC, cq, cq, 1);

			qp_init(&p, more);
			ibv_destroy_qp(more);
			ibv_dereg_mr(ibv_reg_mr(p.pd, buf, 64, IBV_ACCESS_REMOTE_READ));
			usleep(1000);
		}
	}
	check_files("traffic");
	// The change to the error state also raises events. The device must not write to the
	// program's descriptors because of these events.
	qp_to_err(b);
	usleep(100000);
	check_files("errors");
	ibv_destroy_qp(a);
	ibv_destroy_qp(b);
	ibv_destroy_cq(cq);
	ibv_destroy_cq(event_cq);
	ibv_destroy_comp_channel(channel);
	ibv_dereg_mr(mr);
	check_files("destruction");
	ibv_dealloc_pd(p.pd);
	ibv_close_device(p.ctx);
	check_files("the end");
	printf("ok closes %s\n", argv[1]);
	return 0;
}
