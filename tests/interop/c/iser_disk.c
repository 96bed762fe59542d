// Reads or writes a disk of an iSCSI target with Debian's libiscsi. The URL selects iSER or TCP.
// Several requests of many lengths are outstanding at the same time.
//     iser_disk read iser://ADDRESS:PORT/TARGET/LUN FILE    copies the disk to the file
//     iser_disk write iser://ADDRESS:PORT/TARGET/LUN FILE   copies the file to the disk, compares
// The program prints "OK BYTES" if all checks passed.
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 512
// DEPTH is the number of outstanding requests. After HANG_LIMIT seconds without an answer, the
// program fails.
#define DEPTH 8
#define HANG_LIMIT 60

#define CHECK(cond, ...)                                      \
	do {                                                  \
		if (!(cond)) {                                \
			fprintf(stderr, "FAIL " __VA_ARGS__); \
			fputc('\n', stderr);                  \
			exit(1);                              \
		}                                             \
	} while (0)

// The lengths of the requests, in blocks. libiscsi refuses requests of nearly 512 KiB, so all
// lengths are shorter.
static const uint32_t lengths[] = {1, 128, 2, 512, 7, 8, 16, 33, 64, 256, 3, 511};

enum work { READ, WRITE, COMPARE };

struct disk {
	struct iscsi_context *iscsi;
	int lun;
	enum work work;
	uint8_t *bytes;
	uint64_t size, next;
	int turn, on_their_way;
};

struct request {
	struct disk *disk;
	uint64_t at;
	uint32_t len;
};

static void done(struct iscsi_context *iscsi, int status, void *data, void *private)
{
	struct request *r = private;
	struct disk *d = r->disk;
	struct scsi_task *task = data;

	CHECK(status == SCSI_STATUS_GOOD, "request at %lu of %u bytes: status %d: %s", r->at, r->len, status,
	      iscsi_get_error(iscsi));
	if (d->work != WRITE) {
		CHECK((uint32_t)task->datain.size == r->len, "at %lu: %d bytes, not %u", r->at, task->datain.size, r->len);
		if (d->work == READ)
			memcpy(d->bytes + r->at, task->datain.data, r->len);
		else
			CHECK(!memcmp(d->bytes + r->at, task->datain.data, r->len), "at %lu: other bytes", r->at);
	}
	scsi_free_scsi_task(task);
	free(r);
	d->on_their_way--;
}

static void begin(struct disk *d)
{
	struct request *r = malloc(sizeof(*r));
	uint64_t left = d->size - d->next;
	uint32_t len = lengths[d->turn++ % (sizeof(lengths) / sizeof(lengths[0]))] * BLOCK;
	uint32_t lba = d->next / BLOCK;
	struct scsi_task *task;

	CHECK(r, "memory");
	*r = (struct request){.disk = d, .at = d->next, .len = len < left ? len : left};
	if (d->work == WRITE)
		task = iscsi_write10_task(d->iscsi, d->lun, lba, d->bytes + r->at, r->len, BLOCK, 0, 0, 0, 0, 0, done, r);
	else
		task = iscsi_read10_task(d->iscsi, d->lun, lba, r->len, BLOCK, 0, 0, 0, 0, 0, done, r);
	CHECK(task, "request at %lu: %s", r->at, iscsi_get_error(d->iscsi));
	d->next += r->len;
	d->on_their_way++;
}

// Waits up to a second for events, and handles the events.
static void serve(struct disk *d)
{
	struct pollfd fd = {.fd = iscsi_get_fd(d->iscsi), .events = iscsi_which_events(d->iscsi)};

	CHECK(poll(&fd, 1, 1000) >= 0, "poll: %m");
	// iscsi_service must not be called without an event. libiscsi's own waits call
	// iscsi_service after a second, and so fail if an answer takes longer. So this program
	// waits itself.
	CHECK(!fd.revents || !iscsi_service(d->iscsi, fd.revents), "service: %s", iscsi_get_error(d->iscsi));
}

struct answer {
	int come, status;
	void *data;
};

static void answered(struct iscsi_context *iscsi, int status, void *data, void *answer)
{
	(void)iscsi;
	*(struct answer *)answer = (struct answer){.come = 1, .status = status, .data = data};
}

static void await(struct disk *d, struct answer *answer, const char *what)
{
	time_t since = time(NULL);

	while (!answer->come) {
		serve(d);
		CHECK(time(NULL) - since < HANG_LIMIT, "%s is not answered", what);
	}
	CHECK(answer->status == SCSI_STATUS_GOOD, "%s: %s", what, iscsi_get_error(d->iscsi));
}

static void whole(struct disk *d, enum work work)
{
	time_t since = time(NULL);

	d->work = work;
	d->next = 0;
	while (d->next < d->size || d->on_their_way) {
		int before;

		while (d->next < d->size && d->on_their_way < DEPTH)
			begin(d);
		before = d->on_their_way;
		serve(d);
		if (d->on_their_way != before)
			since = time(NULL);
		CHECK(time(NULL) - since < HANG_LIMIT, "%d requests are not answered", d->on_their_way);
	}
}

static void log_in(struct disk *d, const char *name)
{
	struct iscsi_url *url;
	struct answer login = {0}, size = {0};
	struct scsi_readcapacity10 *capacity;

	d->iscsi = iscsi_create_context("iqn.2026-01.test:initiator");
	CHECK(d->iscsi, "no context");
	url = iscsi_parse_full_url(d->iscsi, name);
	CHECK(url, "%s", iscsi_get_error(d->iscsi));
	iscsi_set_targetname(d->iscsi, url->target);
	iscsi_set_session_type(d->iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(d->iscsi, ISCSI_HEADER_DIGEST_NONE);
	// No reconnection: a broken connection must fail the test.
	iscsi_set_noautoreconnect(d->iscsi, 1);
	CHECK(!iscsi_full_connect_async(d->iscsi, url->portal, url->lun, answered, &login), "login: %s", iscsi_get_error(d->iscsi));
	await(d, &login, "login");
	d->lun = url->lun;
	CHECK(iscsi_readcapacity10_task(d->iscsi, d->lun, 0, 0, answered, &size), "capacity: %s", iscsi_get_error(d->iscsi));
	await(d, &size, "capacity");
	capacity = scsi_datain_unmarshall(size.data);
	CHECK(capacity && capacity->block_size == BLOCK, "blocks are not of %d bytes", BLOCK);
	d->size = ((uint64_t)capacity->lba + 1) * BLOCK;
	scsi_free_scsi_task(size.data);
	iscsi_destroy_url(url);
}

int main(int argc, char **argv)
{
	struct disk d = {0};
	struct answer logout = {0};
	int write, file;

	CHECK(argc == 4, "usage: iser_disk read|write URL FILE");
	write = !strcmp(argv[1], "write");
	log_in(&d, argv[2]);
	file = open(argv[3], O_RDWR | O_CREAT, 0644);
	CHECK(file >= 0 && (write || !ftruncate(file, d.size)), "%s: %m", argv[3]);
	d.bytes = mmap(NULL, d.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(d.bytes != MAP_FAILED, "mmap: %m");
	if (write) {
		struct stat of;

		CHECK(!fstat(file, &of) && (uint64_t)of.st_size == d.size, "the file is not as long as the disk");
		whole(&d, WRITE);
		whole(&d, COMPARE);
	} else {
		whole(&d, READ);
	}
	CHECK(!iscsi_logout_async(d.iscsi, answered, &logout), "logout: %s", iscsi_get_error(d.iscsi));
	await(&d, &logout, "logout");
	iscsi_destroy_context(d.iscsi);
	printf("OK %lu\n", d.size);
	return 0;
}
