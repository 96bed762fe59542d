#define _GNU_SOURCE
// UCM-11: tests the file that adverb_ucma_open opens: the descriptor, waits, the close, and
// commands as in the kernel's header rdma_user_cm.h. Also tests a connection with data. For this
// connection, the program takes the attributes of the queue pairs from the file.
#include "rig.h"
#include <dlfcn.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <sys/wait.h>

enum { ADDR_RESOLVED = 0, ROUTE_RESOLVED = 2, CONNECT_REQUEST = 4, CONNECT_RESPONSE = 5, ESTABLISHED = 9,
       DISCONNECTED = 10, TIMEWAIT_EXIT = 15 };

static int (*ucma_open)(int);
static ssize_t (*ucma_write)(int, const void *, size_t);
static int (*ucma_close)(int);

static ssize_t command(int fd, uint32_t number, const void *body, size_t len, uint16_t out)
{
	char buf[512];
	struct rdma_ucm_cmd_hdr *head = (void *)buf;

	*head = (struct rdma_ucm_cmd_hdr){number, len, out};
	memcpy(head + 1, body, len);
	ssize_t n = ucma_write(fd, buf, sizeof(*head) + len);
	CHECK(n < 0 || n == (ssize_t)(sizeof(*head) + len), "command %u took %zd", number, n);
	return n < 0 ? n : 0;
}
#define COMMAND(fd, number, body, out) command(fd, RDMA_USER_CM_CMD_##number, &(body), sizeof(body), out)

static uint32_t create(int fd, uint64_t uid)
{
	struct rdma_ucm_create_id_resp resp = {~0u};
	struct rdma_ucm_create_id c = {.uid = uid, .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP};

	CHECK(!COMMAND(fd, CREATE_ID, c, sizeof(resp)), "create");
	CHECK(resp.id != ~0u, "no answer");
	return resp.id;
}

static uint32_t destroy(int fd, uint32_t id)
{
	struct rdma_ucm_destroy_id_resp resp = {0};
	struct rdma_ucm_destroy_id c = {.response = (uintptr_t)&resp, .id = id};

	CHECK(!COMMAND(fd, DESTROY_ID, c, sizeof(resp)), "destroy");
	return resp.events_reported;
}

static void to_loopback(struct sockaddr_in *a, uint16_t port)
{
	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static void resolve(int fd, uint32_t id, uint16_t port)
{
	struct rdma_ucm_resolve_addr c = {.id = id, .timeout_ms = 2000, .dst_size = sizeof(struct sockaddr_in)};

	to_loopback((void *)&c.dst_addr, port);
	CHECK(!COMMAND(fd, RESOLVE_ADDR, c, 0), "resolve address");
}

static ssize_t get_event(int fd, struct rdma_ucm_event_resp *event)
{
	struct rdma_ucm_get_event c = {.response = (uintptr_t)event};

	return COMMAND(fd, GET_EVENT, c, sizeof(*event));
}

static struct rdma_ucm_event_resp expect(int fd, uint32_t kind)
{
	struct rdma_ucm_event_resp event;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	CHECK(poll(&p, 1, 30000) == 1, "no event, %u expected", kind);
	CHECK(!get_event(fd, &event), "get event");
	CHECK(event.event == kind, "event %u, expected %u (status %d)", event.event, kind, (int)event.status);
	return event;
}

static int says(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLPRI};

	CHECK(poll(&p, 1, 0) >= 0, "poll");
	return p.revents;
}

static void file(void)
{
	struct rdma_ucm_event_resp event;
	int fd = ucma_open(O_RDWR | O_NONBLOCK | O_CLOEXEC), other = ucma_open(O_RDWR);

	CHECK(fd >= 0 && other >= 0, "open");
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(other, F_GETFD) == 0, "flags of the descriptor");
	CHECK(get_event(fd, &event) == -EAGAIN, "no event waits");
	CHECK(says(fd) == 0, "neither readable nor writable");
	uint32_t id = create(fd, 1);
	resolve(fd, id, 7471);
	CHECK(says(fd) == POLLIN, "an event waits");
	CHECK(!get_event(fd, &event) && event.event == ADDR_RESOLVED && event.id == id && event.uid == 1, "resolved");
	CHECK(says(fd) == 0, "it was read");
	CHECK(fcntl(other, F_SETFL, O_NONBLOCK) == 0 && get_event(other, &event) == -EAGAIN, "set later");
	struct rdma_ucm_destroy_id foreign = {.response = (uintptr_t)&event, .id = id};
	CHECK(COMMAND(other, DESTROY_ID, foreign, 4) == -EINVAL, "another file's id");
	struct rdma_ucm_create_id nowhere = {.response = 8, .ps = RDMA_PS_TCP};
	CHECK(COMMAND(fd, CREATE_ID, nowhere, 4) == -EFAULT, "no memory there");
	CHECK(COMMAND(fd, CREATE_ID, nowhere, 3) == -ENOSPC, "room counts before the address");
	CHECK(COMMAND(fd, DESTROY_ID, foreign, 3) == -ENOSPC, "no room for the answer");
	struct rdma_ucm_query_addr_resp at = {.ibdev_index = 77};
	struct rdma_ucm_query query = {.response = (uintptr_t)&at, .id = id, .option = RDMA_USER_CM_QUERY_ADDR};
	CHECK(COMMAND(fd, QUERY, query, 271) == -ENOSPC, "less than the oldest answer");
	CHECK(!COMMAND(fd, QUERY, query, 272) && at.port_num == 1 && at.ibdev_index == 77, "an older library");
	CHECK(!COMMAND(fd, QUERY, query, sizeof(at)) && at.ibdev_index != 77, "a newer one");
	query.option = 9;
	CHECK(COMMAND(fd, QUERY, query, sizeof(at)) == -ENOSYS, "no such question");
	query.id = 99;
	CHECK(COMMAND(fd, QUERY, query, 0) == -ENOENT, "the id counts first");
	int yes = 1;
	struct rdma_ucm_set_option option = {(uintptr_t)&yes, id, 0, 0, 4};
	CHECK(COMMAND(fd, SET_OPTION, option, 0) == -EINVAL, "one byte");
	option.optlen = 1;
	CHECK(!COMMAND(fd, SET_OPTION, option, 0) && (yes = 0, !COMMAND(fd, GET_OPTION, option, 0)) && yes == 1, "an option");
	option.optlen = 4;
	CHECK(COMMAND(fd, GET_OPTION, option, 0) == -EINVAL, "of another length");
	option.optlen = 64 * 72 + 1;
	CHECK(COMMAND(fd, SET_OPTION, option, 0) == -EINVAL, "longer than any");
	option.optval = 8;
	option.optlen = 1;
	CHECK(COMMAND(fd, SET_OPTION, option, 0) == -EFAULT && COMMAND(fd, GET_OPTION, option, 0) == -EFAULT, "not there");
	option.optname = 9;
	CHECK(COMMAND(fd, GET_OPTION, option, 0) == -ENOSYS, "no such option");
	option.id = 99;
	CHECK(COMMAND(fd, SET_OPTION, option, 0) == -ENOENT, "the id counts first");
	resolve(fd, create(fd, 2), 7471);
	struct rdma_ucm_get_event short_of = {.response = 8};
	CHECK(COMMAND(fd, GET_EVENT, short_of, 323) == -ENOSPC, "no room for an event");
	CHECK(COMMAND(fd, GET_EVENT, short_of, 324) == -EFAULT && says(fd) == POLLIN, "it waits");
	CHECK(!get_event(fd, &event) && event.event == ADDR_RESOLVED && event.uid == 2, "and is read");
	CHECK(ucma_write(fd, (void *)16, 32) == -EFAULT, "no command there");
	CHECK(ucma_write(fd, &nowhere, 4) == -EINVAL, "too short");
	CHECK(ucma_write(-1, &nowhere, 32) == -EBADF && ucma_close(12345) == -EBADF, "no such file");
	pid_t child = fork();
	if (!child)
		_exit(get_event(fd, &event) < 0 ? 0 : 1);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0, "a file is its process's: %x", status);
	CHECK(destroy(fd, id) == 1, "one event was read");
	CHECK(!ucma_close(fd) && !ucma_close(other), "close");
	CHECK(fcntl(fd, F_GETFD) == -1, "the descriptor is closed");
}

static void *wait_for_event(void *arg)
{
	struct rdma_ucm_event_resp event;
	ssize_t n = get_event(*(int *)arg, &event);

	return (void *)(n < 0 ? n : (ssize_t)event.event + 1);
}

static void nothing(int number)
{
	(void)number;
}

static void waiting(void)
{
	int fd = ucma_open(O_RDWR | O_CLOEXEC);
	pthread_t t;
	void *result;
	struct sigaction quiet = {.sa_handler = nothing};

	CHECK(fd >= 0 && !sigaction(SIGUSR1, &quiet, NULL), "open");
	uint32_t id = create(fd, 1);
	CHECK(!pthread_create(&t, NULL, wait_for_event, &fd), "thread");
	usleep(50000);
	resolve(fd, id, 7471);
	CHECK(!pthread_join(t, &result) && (ssize_t)result == ADDR_RESOLVED + 1, "woken by its event: %zd", (ssize_t)result);
	CHECK(!pthread_create(&t, NULL, wait_for_event, &fd), "thread");
	usleep(50000);
	CHECK(!pthread_kill(t, SIGUSR1) && !pthread_join(t, &result), "signal");
	CHECK((ssize_t)result == -EINTR, "a signal ends it: %zd", (ssize_t)result);
	CHECK(!pthread_create(&t, NULL, wait_for_event, &fd), "thread");
	usleep(50000);
	CHECK(!pthread_cancel(t) && !pthread_join(t, &result) && result == PTHREAD_CANCELED, "cancelled");
	CHECK(!pthread_create(&t, NULL, wait_for_event, &fd), "thread");
	usleep(50000);
	// As with the kernel, a thread that waits in a read of the file must keep waiting when
	// another thread closes the descriptor.
	CHECK(!ucma_close(fd), "close");
	usleep(50000);
	CHECK(pthread_tryjoin_np(t, &result) == EBUSY, "it waits: %zd", (ssize_t)result);
	CHECK(!pthread_cancel(t) && !pthread_join(t, &result) && result == PTHREAD_CANCELED, "cancelled");
}

// Moves a queue pair to a state. The command INIT_QP_ATTR on `fd` gives the attributes for `id`.
static void to_state(int fd, uint32_t id, struct ibv_qp *qp, uint32_t state)
{
	struct ib_uverbs_qp_attr r = {0};
	struct rdma_ucm_init_qp_attr c = {.response = (uintptr_t)&r, .id = id, .qp_state = state};

	CHECK(!COMMAND(fd, INIT_QP_ATTR, c, sizeof(r)), "attributes of state %u", state);
	struct ibv_qp_attr a = {
		.qp_state = r.qp_state, .path_mtu = r.path_mtu, .rq_psn = r.rq_psn, .sq_psn = r.sq_psn,
		.dest_qp_num = r.dest_qp_num, .qp_access_flags = r.qp_access_flags, .pkey_index = r.pkey_index,
		.max_rd_atomic = r.max_rd_atomic, .max_dest_rd_atomic = r.max_dest_rd_atomic,
		.min_rnr_timer = r.min_rnr_timer, .port_num = r.port_num, .timeout = r.timeout,
		.retry_cnt = r.retry_cnt, .rnr_retry = r.rnr_retry,
		.ah_attr = {.is_global = r.ah_attr.is_global, .port_num = r.ah_attr.port_num,
			    .grh = {.sgid_index = r.ah_attr.grh.sgid_index, .hop_limit = r.ah_attr.grh.hop_limit}},
	};
	memcpy(&a.ah_attr.grh.dgid, r.ah_attr.grh.dgid, 16);
	CHECK(!ibv_modify_qp(qp, &a, r.qp_attr_mask), "to state %u with mask %x", state, r.qp_attr_mask);
}

static struct rdma_ucm_conn_param param(struct ibv_qp *qp)
{
	return (struct rdma_ucm_conn_param){.qp_num = qp->qp_num, .responder_resources = 2, .initiator_depth = 2,
					    .retry_count = 7, .rnr_retry_count = 7, .valid = 1};
}

static void connection(struct port *p)
{
	int fd = ucma_open(O_RDWR | O_CLOEXEC), there = ucma_open(O_RDWR | O_CLOEXEC);
	struct ibv_cq *cq = cq_new(p, 16, NULL, NULL);
	struct ibv_qp *qp[2] = {qp_new(p, IBV_QPT_RC, cq, cq, 4), qp_new(p, IBV_QPT_RC, cq, cq, 4)};
	uint32_t listener = create(there, 100), id = create(fd, 1);

	struct rdma_ucm_bind bind = {.id = listener, .addr_size = sizeof(struct sockaddr_in)};
	to_loopback((void *)&bind.addr, 0);
	CHECK(!COMMAND(there, BIND, bind, 0), "bind");
	struct rdma_ucm_query_addr_resp at;
	struct rdma_ucm_query query = {.response = (uintptr_t)&at, .id = listener, .option = RDMA_USER_CM_QUERY_ADDR};
	CHECK(!COMMAND(there, QUERY, query, sizeof(at)), "query");
	CHECK(at.node_guid == ibv_get_device_guid(p->ctx->device), "the device, by its GUID");
	CHECK((int)at.ibdev_index == ibv_get_device_index(p->ctx->device) && at.port_num == 1, "and index %u", at.ibdev_index);
	struct rdma_ucm_listen listen = {.id = listener, .backlog = 4};
	CHECK(!COMMAND(there, LISTEN, listen, 0), "listen");

	resolve(fd, id, ntohs(((struct sockaddr_in *)&at.src_addr)->sin_port));
	expect(fd, ADDR_RESOLVED);
	struct rdma_ucm_resolve_route route = {.id = id, .timeout_ms = 2000};
	CHECK(!COMMAND(fd, RESOLVE_ROUTE, route, 0), "resolve route");
	expect(fd, ROUTE_RESOLVED);
	to_state(fd, id, qp[0], IBV_QPS_INIT);
	struct rdma_ucm_connect connect = {.conn_param = param(qp[0]), .id = id};
	CHECK(!COMMAND(fd, CONNECT, connect, 0), "connect");

	uint32_t child = expect(there, CONNECT_REQUEST).id;
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		to_state(there, child, qp[1], state);
	struct rdma_ucm_accept accept = {.uid = 200, .conn_param = param(qp[1]), .id = child};
	CHECK(!COMMAND(there, ACCEPT, accept, 0), "accept");
	CHECK(expect(fd, CONNECT_RESPONSE).param.conn.qp_num == qp[1]->qp_num, "the peer's queue pair");
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		to_state(fd, id, qp[0], state);
	struct rdma_ucm_accept confirm = {.id = id};
	CHECK(!COMMAND(fd, ACCEPT, confirm, 0), "establish");
	CHECK(expect(there, ESTABLISHED).uid == 200, "whose it is");

	char words[64] = "across", heard[64] = "";
	struct ibv_mr *mr[2] = {ibv_reg_mr(p->pd, words, 64, 0), ibv_reg_mr(p->pd, heard, 64, IBV_ACCESS_LOCAL_WRITE)};
	struct ibv_sge from = {(uintptr_t)words, 64, mr[0]->lkey}, to = {(uintptr_t)heard, 64, mr[1]->lkey};
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	CHECK(!ibv_post_recv(qp[1], &recv, &bad_recv) && !ibv_post_send(qp[0], &send, &bad), "post");
	poll_good(cq);
	poll_good(cq);
	CHECK(!strcmp(heard, "across"), "data");

	struct rdma_ucm_disconnect end = {.id = child};
	CHECK(!COMMAND(there, DISCONNECT, end, 0), "disconnect");
	expect(fd, DISCONNECTED);
	struct rdma_ucm_disconnect answer = {.id = id};
	CHECK(!COMMAND(fd, DISCONNECT, answer, 0), "answer");
	expect(there, DISCONNECTED);
	expect(there, TIMEWAIT_EXIT);
	expect(fd, TIMEWAIT_EXIT);
	CHECK(destroy(there, child) == 3 && destroy(there, listener) == 1 && destroy(fd, id) == 5, "events read");
	CHECK(!ibv_dereg_mr(mr[0]) && !ibv_dereg_mr(mr[1]) && !ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]), "end");
	CHECK(!ibv_destroy_cq(cq) && !ucma_close(fd) && !ucma_close(there), "close");
}

int main(void)
{
	struct port p;

	ucma_open = (int (*)(int))dlsym(RTLD_DEFAULT, "adverb_ucma_open");
	ucma_write = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_DEFAULT, "adverb_ucma_write");
	ucma_close = (int (*)(int))dlsym(RTLD_DEFAULT, "adverb_ucma_close");
	CHECK(ucma_open && ucma_write && ucma_close, "names");
	port_open(&p);
	file();
	waiting();
	for (int n = 0; n < 20; n++)
		connection(&p);
	port_close(&p);
	printf("ok ucma\n");
	return 0;
}
