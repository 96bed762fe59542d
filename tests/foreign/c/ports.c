/* SYS-5: an open device follows changes of its network interface. RIG_NET names the interface,
 * which is in a network namespace of this program alone. Each wait ends when the expected event or
 * state comes. If a wait reaches its time limit, the test fails. */
#include <dirent.h>
#include <sys/stat.h>

#include "rig.h"

extern int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static struct port port;

// Runs the command `ip` with the given arguments.
static void ip(const char *fmt, ...)
{
	char line[200] = "ip ";
	va_list args;

	va_start(args, fmt);
	vsnprintf(line + 3, sizeof(line) - 3, fmt, args);
	va_end(args);
	CHECK(!system(line), "%s", line);
}

// Takes the next asynchronous event within 30 seconds, and checks type and port.
static void expect(enum ibv_event_type type)
{
	struct pollfd p = {.fd = port.ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	CHECK(poll(&p, 1, 30000) == 1, "no event, %s was expected", ibv_event_type_str(type));
	CHECK(!ibv_get_async_event(port.ctx, &event), "get");
	CHECK(event.event_type == type, "%s, not %s", ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	CHECK(event.element.port_num == 1, "port %d", event.element.port_num);
	ibv_ack_async_event(&event);
}

static void expect_none(void)
{
	struct pollfd p = {.fd = port.ctx->async_fd, .events = POLLIN};

	CHECK(poll(&p, 1, 0) == 0, "an event too many");
}

// Returns the index of the GID table entry with the IPv4 address 192.0.2.HOST, or -1 if the table
// has no such entry.
static int entry_of(int host)
{
	union ibv_gid gid, wanted = {.raw = {[10] = 0xff, 0xff, 192, 0, 2, host}};
	struct ibv_gid_entry entry;
	char file[40], text[80], shown[80];
	int i, j, n, found = -1;

	for (i = 0; i < port.attr.gid_tbl_len; i++) {
		CHECK(!ibv_query_gid(port.ctx, 1, i, &gid), "gid %d", i);
		// ibv_query_gid_ex and sysfs must give the same GID.
		memset(&entry, 0, sizeof(entry));
		if (ibv_query_gid_ex(port.ctx, 1, i, &entry, 0))
			CHECK(errno == ENODATA, "gid_ex %d", i);
		CHECK(!memcmp(&entry.gid, &gid, sizeof(gid)), "gid_ex %d differs", i);
		snprintf(file, sizeof(file), "ports/1/gids/%d", i);
		for (j = n = 0; j < 16; j++)
			n += sprintf(shown + n, "%s%02x", j && !(j % 2) ? ":" : "", gid.raw[j]);
		CHECK(ibv_read_sysfs_file(port.ctx->device->ibdev_path, file, text, sizeof(text)) > 0, "%s", file);
		CHECK(!strcmp(text, shown), "%s is %s, not %s", file, text, shown);
		if (!memcmp(&gid, &wanted, sizeof(gid)))
			found = i;
	}
	return found;
}

static struct ibv_port_attr attributes(void)
{
	struct ibv_port_attr a;

	CHECK(!ibv_query_port(port.ctx, 1, &a), "query port");
	return a;
}

static void wait_mtu(enum ibv_mtu mtu)
{
	double end = now() + 10;

	while (attributes().active_mtu != mtu)
		CHECK(now() < end, "the MTU is %d, not %d", attributes().active_mtu, mtu);
}

static void state_file(const char *wanted)
{
	char text[80];

	CHECK(ibv_read_sysfs_file(port.ctx->device->ibdev_path, "ports/1/state", text, sizeof(text)) > 0, "state");
	CHECK(!strcmp(text, wanted), "%s, not %s", text, wanted);
}

// Sends one message between two queue pairs of this process, with the entry `index` of the GID
// table.
static void talk(int index)
{
	static char buf[8192];
	struct ibv_cq *cq = cq_new(&port, 16, NULL, NULL);
	struct ibv_qp *a = qp_new(&port, IBV_QPT_RC, cq, cq, 4), *b = qp_new(&port, IBV_QPT_RC, cq, cq, 4);
	struct ibv_mr *mr = ibv_reg_mr(port.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge to = {(uintptr_t)buf, 4096, mr->lkey}, from = {(uintptr_t)buf + 4096, 4096, mr->lkey};
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	port.gid_index = index;
	port.attr = attributes();
	CHECK(!ibv_query_gid(port.ctx, 1, index, &port.gid), "gid");
	fill(buf + 4096, 4096, 1, index);
	qp_pair(&port, a, b);
	CHECK(!ibv_post_recv(b, &recv, &bad_recv) && !ibv_post_send(a, &send, &bad), "post");
	poll_good(cq);
	poll_good(cq);
	CHECK(!memcmp(buf, buf + 4096, 4096), "other bytes");
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq), "destroy");
}

// Returns how many netlink sockets of this process have joined a multicast group, from the kernel's
// table of netlink sockets.
static int netlink_sockets(void)
{
	char line[300], path[300];
	unsigned long inode, inodes[64];
	unsigned groups;
	int protocol, n = 0, own = 0, i;
	FILE *f = fopen("/proc/self/net/netlink", "r");
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *d;
	struct stat st;

	CHECK(f && fds, "proc");
	while (n < 64 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %d %*u %x %*d %*d %*d %*d %*d %lu", &protocol, &groups, &inode) == 3 && groups)
			inodes[n++] = inode;
	while ((d = readdir(fds))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", d->d_name);
		if (!stat(path, &st))
			for (i = 0; i < n; i++)
				own += st.st_ino == inodes[i];
	}
	fclose(f);
	closedir(fds);
	return own;
}

int main(void)
{
	const char *net = getenv("RIG_NET");
	struct port other;
	struct ibv_qp *datagrams;
	struct ibv_cq *cq;
	int first, second, third;

	port_open(&port);
	port_open(&other);
	CHECK(netlink_sockets() == 1, "%d sockets listen for news", netlink_sockets());
	cq = cq_new(&port, 16, NULL, NULL);
	datagrams = qp_new(&port, IBV_QPT_UD, cq, cq, 4);
	qp_init(&port, datagrams);
	first = entry_of(1);
	CHECK(first >= 0 && entry_of(2) < 0, "entry %d", first);
	CHECK(port.attr.state == IBV_PORT_ACTIVE && port.attr.active_mtu == IBV_MTU_1024, "MTU %d", port.attr.active_mtu);

	// A new address gets a GID table entry after the existing entries. The new entry can be
	// used at once.
	ip("addr add 192.0.2.2/24 dev %s", net);
	expect(IBV_EVENT_GID_CHANGE);
	second = entry_of(2);
	CHECK(second > first && entry_of(1) == first, "entries %d, %d", entry_of(1), second);
	talk(second);

	// The removal of an address must not move the other GID table entries. The next new address
	// must get the free entry.
	ip("addr add 192.0.2.3/24 dev %s", net);
	expect(IBV_EVENT_GID_CHANGE);
	third = entry_of(3);
	ip("addr del 192.0.2.2/24 dev %s", net);
	expect(IBV_EVENT_GID_CHANGE);
	CHECK(entry_of(2) < 0 && entry_of(3) == third && entry_of(1) == first, "entries moved");
	ip("addr add 192.0.2.4/24 dev %s", net);
	expect(IBV_EVENT_GID_CHANGE);
	CHECK(entry_of(4) == second && entry_of(3) == third, "entry %d, not %d", entry_of(4), second);
	talk(second);
	expect_none();

	// A change of the MTU must raise no event.
	ip("link set %s mtu 9000", net);
	wait_mtu(IBV_MTU_4096);
	talk(first);
	ip("link set %s mtu 700", net);
	wait_mtu(IBV_MTU_512);
	talk(first);
	expect_none();

	ip("link set %s down", net);
	expect(IBV_EVENT_PORT_ERR);
	CHECK(attributes().state == IBV_PORT_DOWN && entry_of(1) == first, "state %d", attributes().state);
	state_file("1: DOWN");
	ip("link set %s up", net);
	expect(IBV_EVENT_PORT_ACTIVE);
	CHECK(attributes().state == IBV_PORT_ACTIVE && entry_of(1) == first, "state %d", attributes().state);
	state_file("4: ACTIVE");
	talk(first);
	expect_none();

	// With RIG_STAYS, the device is `adverb0`, which stays when its interface is removed
	// (SYS-12). So the case ends here.
	if (atoi(getenv("RIG_STAYS")))
		goto end;
	ip("link del %s", net);
	expect(IBV_EVENT_PORT_ERR);
	expect(IBV_EVENT_GID_CHANGE);
	CHECK(attributes().state == IBV_PORT_DOWN, "state %d", attributes().state);
	CHECK(!ibv_query_gid(port.ctx, 1, first, &port.gid) && !port.gid.global.interface_id, "the GID is left");
	expect(IBV_EVENT_DEVICE_FATAL);
	expect_none();

end:
	// The program has read no event of the context `other`. So the last event of each kind is
	// unread when the program closes this context.
	port_close(&other);
	CHECK(!ibv_destroy_qp(datagrams) && !ibv_destroy_cq(cq), "destroy");
	port_close(&port);
	puts("ok ports");
	return 0;
}
