// Multicast of datagrams through the C ABI. The cases check which queue pairs get a copy, the
// contents of a copy, and the refused calls. The two processes of a case run on one host.
// usage: multicast CASE. The table of cases is at the end. The program prints "ok CASE" and ends
// with status 0, or prints FAIL with the file and line of the failed check.
#define _GNU_SOURCE
#include "rig.h"
#include <arpa/inet.h>
#include <sys/wait.h>

#define DEPTH 32
#define SIZE 256
#define GRH 40
#define QKEY 0x11111111 // as in rig.h
#define MULTICAST_QPN 0xffffff
#define MLID 0xc000

static struct port port;

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *mem;
};

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid gid;

	CHECK(inet_pton(AF_INET6, text, gid.raw) == 1, "%s", text);
	return gid;
}

static int is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

// Opens the device, and chooses a GID of the wanted family.
static void open_family(int ipv4)
{
	int i;

	port_open(&port);
	for (i = 0; i < port.attr.gid_tbl_len; i++) {
		CHECK(!ibv_query_gid(port.ctx, 1, i, &port.gid), "gid");
		port.gid_index = i;
		if ((port.gid.global.subnet_prefix || port.gid.global.interface_id) && is_ipv4(&port.gid) == ipv4)
			return;
	}
	CHECK(0, "no GID of IPv%d", ipv4 ? 4 : 6);
}

static struct end end_new(uint32_t qkey)
{
	struct end e;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
	struct timers t = {0};

	e.cq = cq_new(&port, DEPTH, NULL, NULL);
	e.qp = qp_new(&port, IBV_QPT_UD, e.cq, e.cq, DEPTH);
	CHECK(!posix_memalign((void **)&e.mem, 4096, 4096), "memory");
	memset(e.mem, 0, 4096);
	e.mr = ibv_reg_mr(port.pd, e.mem, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(e.mr, "mr");
	CHECK(!ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	qp_join(&port, e.qp, 7, 0, 0, port.gid, t);
	return e;
}

static void end_free(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp) && !ibv_destroy_cq(e->cq) && !ibv_dereg_mr(e->mr), "destroy");
	free(e->mem);
}

static void recv_next(struct end *e)
{
	struct ibv_sge s = {(uintptr_t)e->mem, GRH + SIZE, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad), "receive");
}

static void send_group(struct end *e, const union ibv_gid *group, uint32_t qkey, uint64_t seq)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	struct ibv_sge s = {(uintptr_t)e->mem + 2048, SIZE, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc;

	attr.grh.dgid = *group;
	attr.grh.sgid_index = port.gid_index;
	attr.grh.hop_limit = 1;
	fill(e->mem + 2048, SIZE, 5, seq);
	wr.wr.ud.ah = ibv_create_ah(port.pd, &attr);
	CHECK(wr.wr.ud.ah, "ah");
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	wr.wr.ud.remote_qkey = qkey;
	CHECK(!ibv_post_send(e->qp, &wr, &bad), "send");
	wc = poll_good(e->cq);
	CHECK(wc.opcode == IBV_WC_SEND, "opcode %d", wc.opcode);
	CHECK(!ibv_destroy_ah(wr.wr.ud.ah), "ah");
}

// Checks that a whole copy has arrived from `src_qp`, and that the header names the group.
static void got(struct end *e, const union ibv_gid *group, uint32_t src_qp, uint64_t seq, const char *who)
{
	uint8_t wanted[SIZE];
	struct ibv_wc wc = poll_good(e->cq);

	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + SIZE, "%s: %u bytes", who, wc.byte_len);
	CHECK(wc.wc_flags & IBV_WC_GRH, "%s: no GRH", who);
	CHECK(wc.src_qp == src_qp, "%s: from %#x, not %#x", who, wc.src_qp, src_qp);
	fill(wanted, SIZE, 5, seq);
	CHECK(!memcmp(e->mem + GRH, wanted, SIZE), "%s: payload", who);
	if (is_ipv4(&port.gid)) {
		CHECK(!memcmp(e->mem + 36, group->raw + 12, 4), "%s: destination in the IPv4 header", who);
		CHECK(!memcmp(e->mem + 32, port.gid.raw + 12, 4), "%s: source in the IPv4 header", who);
	} else {
		CHECK(!memcmp(e->mem + 24, group->raw, 16), "%s: destination in the GRH", who);
		CHECK(!memcmp(e->mem + 8, port.gid.raw, 16), "%s: source in the GRH", who);
	}
}

static void nothing(struct end *e, const char *who)
{
	struct ibv_wc wc;
	double until = now() + 0.2;

	while (now() < until)
		CHECK(!ibv_poll_cq(e->cq, 1, &wc), "%s: a completion", who);
}

// Pipes between the two processes. A byte says that the sender has finished a step, and that the
// other process may continue.
static int to_child[2], to_parent[2];

static void say(int fd)
{
	CHECK(write(fd, "x", 1) == 1, "write");
}

static void hear(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};
	char byte;

	CHECK(poll(&p, 1, 30000) == 1 && read(fd, &byte, 1) == 1, "the other process is silent");
}

// The sends of one process reach each attached queue pair of both processes, once each. Queue pairs
// with another Q_Key and queue pairs that are not attached receive nothing.
static void delivered(int ipv4, const char *sent_to, const char *attached_to)
{
	// The destination in the IPv4 header of a copy is the IPv4 address of the group, in both
	// notations of the group's GID.
	union ibv_gid to = gid_of(sent_to), at = gid_of(attached_to), group = to;
	struct end a, b, c, d;
	uint32_t src;
	pid_t child;
	int status;

	CHECK(!pipe(to_child) && !pipe(to_parent), "pipe");
	child = fork();
	CHECK(child >= 0, "fork");
	open_family(ipv4);
	a = end_new(QKEY);
	b = end_new(QKEY);
	if (!child) {
		CHECK(!ibv_attach_mcast(a.qp, &at, MLID) && !ibv_attach_mcast(b.qp, &at, MLID), "attach");
		c = end_new(QKEY + 1);
		CHECK(!ibv_attach_mcast(c.qp, &at, MLID), "attach");
		d = end_new(QKEY);
		recv_next(&a);
		recv_next(&b);
		recv_next(&c);
		recv_next(&d);
		say(to_parent[1]);
		CHECK(read(to_child[0], &src, sizeof(src)) == sizeof(src), "number");
		got(&a, &group, src, 1, "the child's first");
		got(&b, &group, src, 1, "the child's second");
		nothing(&c, "another Q_Key");
		nothing(&d, "not attached");
		recv_next(&a);
		recv_next(&b);
		CHECK(!ibv_detach_mcast(a.qp, &at, MLID), "detach");
		say(to_parent[1]);
		got(&b, &group, src, 2, "the child's second, which is left");
		nothing(&a, "detached");
		CHECK(!ibv_detach_mcast(b.qp, &at, MLID) && !ibv_detach_mcast(c.qp, &at, MLID), "detach");
		end_free(&a);
		end_free(&b);
		end_free(&c);
		end_free(&d);
		port_close(&port);
		_exit(0);
	}
	// An attached sender also receives a copy.
	CHECK(!ibv_attach_mcast(a.qp, &at, MLID), "attach");
	recv_next(&a);
	hear(to_parent[0]);
	CHECK(write(to_child[1], &a.qp->qp_num, 4) == 4, "number");
	send_group(&a, &to, QKEY, 1);
	got(&a, &group, a.qp->qp_num, 1, "the sender");
	hear(to_parent[0]);
	send_group(&a, &to, QKEY, 2);
	CHECK(waitpid(child, &status, 0) == child && status == 0, "child %#x", status);
	CHECK(!ibv_detach_mcast(a.qp, &at, MLID), "detach");
	end_free(&a);
	end_free(&b);
	port_close(&port);
}

static void ipv4_group(void)
{
	delivered(1, "::ffff:239.7.8.9", "::ffff:239.7.8.9");
}

static void ipv6_group(void)
{
	delivered(0, "ff05::7:8:9", "ff05::7:8:9");
}

static void ipv6_group_of_the_link(void)
{
	delivered(0, "ff02::7:8:9", "ff02::7:8:9");
}

// Linux uses this notation for an IPv4 group on RoCEv1.
static void mapped_group(void)
{
	delivered(1, "ff0e::ffff:239.7.8.10", "ff0e::ffff:239.7.8.10");
}

static void refused(void)
{
	union ibv_gid group = gid_of("::ffff:239.7.8.9"), alone = gid_of("::ffff:10.7.8.9");
	struct ibv_device_attr attr;
	struct end a;
	struct ibv_qp *rc;

	open_family(1);
	CHECK(!ibv_query_device(port.ctx, &attr), "query");
	CHECK(attr.max_mcast_grp > 0 && attr.max_mcast_qp_attach > 0 && attr.max_total_mcast_qp_attach > 0, "limits");
	a = end_new(QKEY);
	rc = qp_new(&port, IBV_QPT_RC, a.cq, a.cq, 1);
	CHECK(ibv_attach_mcast(rc, &group, MLID) == EINVAL && errno == EINVAL, "RC");
	CHECK(!ibv_destroy_qp(rc), "destroy");
	CHECK(ibv_attach_mcast(a.qp, &alone, MLID) == EINVAL, "an address that is no group");
	CHECK(ibv_attach_mcast(a.qp, &port.gid, MLID) == EINVAL, "its own address");
	CHECK(ibv_detach_mcast(a.qp, &group, MLID) == EINVAL, "detach what is not attached");
	CHECK(!ibv_attach_mcast(a.qp, &group, MLID), "attach");
	CHECK(!ibv_attach_mcast(a.qp, &group, MLID), "attach again");
	CHECK(ibv_detach_mcast(a.qp, &group, MLID + 1) == EINVAL, "another LID");
	CHECK(ibv_destroy_qp(a.qp) == EBUSY, "destroy while attached");
	recv_next(&a);
	send_group(&a, &group, QKEY, 3);
	got(&a, &group, a.qp->qp_num, 3, "attached twice");
	nothing(&a, "attached twice");
	CHECK(!ibv_detach_mcast(a.qp, &group, MLID), "detach");
	CHECK(ibv_detach_mcast(a.qp, &group, MLID) == EINVAL, "detach again");
	end_free(&a);
	port_close(&port);
}

// A queue pair with IBV_QP_CREATE_BLOCK_SELF_MCAST_LB gets no copy of its own sends, but gets the
// sends of other queue pairs.
static void no_copy_of_its_own(void)
{
	union ibv_gid group = gid_of("::ffff:239.7.8.9");
	struct end a, b;
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_UD, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	struct timers t = {0};

	open_family(1);
	a = end_new(QKEY);
	b = end_new(QKEY);
	CHECK(!ibv_destroy_qp(a.qp), "destroy");
	init.send_cq = init.recv_cq = a.cq;
	init.cap = (struct ibv_qp_cap){DEPTH, DEPTH, 1, 1, 0};
	init.pd = port.pd;
	init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	a.qp = ibv_create_qp_ex(port.ctx, &init);
	CHECK(a.qp, "create");
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	qp_join(&port, a.qp, 7, 0, 0, port.gid, t);
	CHECK(!ibv_attach_mcast(a.qp, &group, MLID) && !ibv_attach_mcast(b.qp, &group, MLID), "attach");
	recv_next(&a);
	recv_next(&b);
	send_group(&a, &group, QKEY, 3);
	got(&b, &group, a.qp->qp_num, 3, "the other one");
	nothing(&a, "its own");
	recv_next(&b);
	recv_next(&b);
	send_group(&b, &group, QKEY, 4);
	got(&a, &group, b.qp->qp_num, 4, "of the other one");
	got(&b, &group, b.qp->qp_num, 4, "its own, unasked");
	CHECK(!ibv_detach_mcast(a.qp, &group, MLID) && !ibv_detach_mcast(b.qp, &group, MLID), "detach");
	init.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	CHECK(!ibv_create_qp_ex(port.ctx, &init) && errno == EOPNOTSUPP, "another flag");
	end_free(&a);
	end_free(&b);
	port_close(&port);
}

// If the number of groups or of attached queue pairs is at the limit of the device, an attach fails
// with ENOMEM. After detaches, the program can attach again.
static void limits(void)
{
	struct ibv_device_attr attr;
	union ibv_gid group = gid_of("::ffff:239.8.0.0"), one = gid_of("::ffff:239.7.8.9");
	struct end a;
	struct ibv_qp *many[4096];
	int i, n, round, code;

	open_family(1);
	CHECK(!ibv_query_device(port.ctx, &attr), "query");
	CHECK(attr.max_mcast_qp_attach < (int)ARRAY_LEN(many), "more than the test has room for");
	a = end_new(QKEY);
	for (round = 0; round < 3; round++) {
		for (n = 0; n <= attr.max_mcast_grp; n++) {
			group.raw[14] = n >> 8;
			group.raw[15] = n;
			code = ibv_attach_mcast(a.qp, &group, MLID);
			if (code)
				break;
		}
		CHECK(code == ENOMEM && n > 16, "group %d: %d", n, code);
		while (n--) {
			group.raw[14] = n >> 8;
			group.raw[15] = n;
			CHECK(!ibv_detach_mcast(a.qp, &group, MLID), "detach %d", n);
		}
	}
	for (i = 0; i <= attr.max_mcast_qp_attach; i++) {
		many[i] = qp_new(&port, IBV_QPT_UD, a.cq, a.cq, 1);
		code = ibv_attach_mcast(many[i], &one, MLID);
		CHECK(code == (i < attr.max_mcast_qp_attach ? 0 : ENOMEM), "queue pair %d: %d", i, code);
	}
	for (i = 0; i < attr.max_mcast_qp_attach; i++)
		CHECK(!ibv_detach_mcast(many[i], &one, MLID), "detach %d", i);
	for (i = 0; i <= attr.max_mcast_qp_attach; i++)
		CHECK(!ibv_destroy_qp(many[i]), "destroy %d", i);
	end_free(&a);
	port_close(&port);
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"MC-1", "ipv4_group", ipv4_group},
	{"MC-1", "ipv6_group", ipv6_group},
	{"MC-1", "ipv6_group_of_the_link", ipv6_group_of_the_link},
	{"MC-2", "mapped_group", mapped_group},
	{"MC-4", "no_copy_of_its_own", no_copy_of_its_own},
	{"MC-3", "refused", refused},
	{"MC-3", "limits", limits},
};

int main(int argc, char **argv)
{
	size_t i;

	setlinebuf(stdout);
	alarm(60);
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", cases[i].name);
			return 0;
		}
	}
	printf("FAIL no such case\n");
	return 1;
}
