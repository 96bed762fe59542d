// Makes connections, one after the other. On each connection, the client sends a byte, and the
// server sends a byte back.
//     first_byte rdma|tcp server ADDRESS PORT
//     first_byte rdma|tcp client ADDRESS PORT COUNT
// The client prints the number of connections per second, from the first call for the first
// connection to the end of the last connection. The client also prints the median time from the
// first call of a connection until the byte of the server has arrived. Both programs sleep while
// they wait, and never poll in a loop.
#define _GNU_SOURCE
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHECK(cond, what)                                                                      \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			perror(what);                                                          \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

// Connections that are made before the measurement starts.
enum { WARM = 20 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct addrinfo *tcp_address(const char *address, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found;

	CHECK(!getaddrinfo(address, port, &hints, &found), "getaddrinfo");
	return found;
}

static int tcp_socket(const struct addrinfo *at)
{
	int one = 1, fd = socket(at->ai_family, SOCK_STREAM, 0);

	CHECK(fd >= 0, "socket");
	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), "TCP_NODELAY");
	return fd;
}

static void tcp_serve(const char *address, const char *port)
{
	struct addrinfo *at = tcp_address(address, port);
	int one = 1, listener = tcp_socket(at);
	char byte;

	CHECK(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), "SO_REUSEADDR");
	CHECK(!bind(listener, at->ai_addr, at->ai_addrlen), "bind");
	CHECK(!listen(listener, 16), "listen");
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		CHECK(fd >= 0, "accept");
		if (read(fd, &byte, 1) == 1)
			CHECK(write(fd, &byte, 1) == 1, "write");
		// Waits for the end of the stream, so that the client closes first.
		CHECK(read(fd, &byte, 1) == 0, "read");
		close(fd);
	}
}

static double tcp_once(const struct addrinfo *at)
{
	double start = now(), first;
	int fd = tcp_socket(at);
	char byte = 7;

	CHECK(!connect(fd, at->ai_addr, at->ai_addrlen), "connect");
	CHECK(write(fd, &byte, 1) == 1, "write");
	CHECK(read(fd, &byte, 1) == 1, "read");
	first = now() - start;
	close(fd);
	return first;
}

static struct rdma_addrinfo *rdma_address(const char *address, const char *port, int flags)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = flags}, *found;

	CHECK(!rdma_getaddrinfo(address, port, &hints, &found), "rdma_getaddrinfo");
	return found;
}

static struct ibv_qp_init_attr attributes(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1,
	};
}

// All connections use these bytes, which are registered once, because all ids of a device share a
// protection domain.
static struct {
	char in, out;
	struct ibv_mr *mr;
} bytes;

static void receive(struct rdma_cm_id *id)
{
	if (!bytes.mr) {
		bytes.mr = ibv_reg_mr(id->pd, &bytes, 2, IBV_ACCESS_LOCAL_WRITE);
		CHECK(bytes.mr, "ibv_reg_mr");
	}
	CHECK(!rdma_post_recv(id, NULL, &bytes.in, 1, bytes.mr), "rdma_post_recv");
}

static void completion(struct rdma_cm_id *id, int (*get)(struct rdma_cm_id *, struct ibv_wc *))
{
	struct ibv_wc wc;

	CHECK(get(id, &wc) == 1, "completion");
	if (wc.status) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void rdma_serve(const char *address, const char *port)
{
	struct rdma_addrinfo *at = rdma_address(address, port, RAI_PASSIVE);
	struct ibv_qp_init_attr attr = attributes();
	struct rdma_cm_id *listener, *id;
	struct rdma_cm_event *event;

	CHECK(!rdma_create_ep(&listener, at, NULL, &attr), "rdma_create_ep");
	CHECK(!rdma_listen(listener, 16), "rdma_listen");
	for (;;) {
		CHECK(!rdma_get_request(listener, &id), "rdma_get_request");
		receive(id);
		CHECK(!rdma_accept(id, NULL), "rdma_accept");
		completion(id, rdma_get_recv_comp);
		CHECK(!rdma_post_send(id, NULL, &bytes.out, 1, bytes.mr, 0), "rdma_post_send");
		completion(id, rdma_get_send_comp);
		// Waits until the client has disconnected. If both ends disconnected at once, an
		// end in the kernel (rdma_ucm) might wait for the time of its retries.
		CHECK(!rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event");
		CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED, rdma_event_str(event->event));
		CHECK(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
		rdma_destroy_ep(id);
	}
}

// Returns the address, and makes an id that is never destroyed. Without this id, librdmacm would
// free the protection domain when the last id of its device is destroyed.
static struct rdma_addrinfo *hold_device(const char *address, const char *port)
{
	struct rdma_addrinfo *at = rdma_address(address, port, 0);
	struct rdma_cm_id *id;

	CHECK(!rdma_create_ep(&id, at, NULL, NULL), "rdma_create_ep");
	return at;
}

static double rdma_once(struct rdma_addrinfo *at)
{
	struct ibv_qp_init_attr attr = attributes();
	double start = now(), first;
	struct rdma_cm_id *id;

	CHECK(!rdma_create_ep(&id, at, NULL, &attr), "rdma_create_ep");
	receive(id);
	CHECK(!rdma_connect(id, NULL), "rdma_connect");
	CHECK(!rdma_post_send(id, NULL, &bytes.out, 1, bytes.mr, 0), "rdma_post_send");
	completion(id, rdma_get_recv_comp);
	first = now() - start;
	CHECK(!rdma_disconnect(id), "rdma_disconnect");
	rdma_destroy_ep(id);
	return first;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo *rdma = NULL;
	struct addrinfo *tcp = NULL;
	int n, count, is_tcp;
	double *first, start = 0;

	if (argc < 5) {
		fprintf(stderr, "usage: first_byte rdma|tcp server|client ADDRESS PORT [COUNT]\n");
		return 2;
	}
	is_tcp = !strcmp(argv[1], "tcp");
	if (!strcmp(argv[2], "server")) {
		if (is_tcp)
			tcp_serve(argv[3], argv[4]);
		rdma_serve(argv[3], argv[4]);
	}
	count = argc > 5 ? atoi(argv[5]) : 100;
	first = calloc(count, sizeof(*first));
	CHECK(first, "calloc");
	if (is_tcp)
		tcp = tcp_address(argv[3], argv[4]);
	else
		rdma = hold_device(argv[3], argv[4]);
	for (n = -WARM; n < count; n++) {
		double took;

		if (!n)
			start = now();
		took = is_tcp ? tcp_once(tcp) : rdma_once(rdma);
		if (n >= 0)
			first[n] = took;
	}
	printf("connections %.1f /s\n", count / (now() - start));
	qsort(first, count, sizeof(*first), by_size);
	printf("first_byte %.9f s\n", first[count / 2]);
	return 0;
}
