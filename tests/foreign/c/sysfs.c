/* SYS-2: names below /sys/class/infiniband must have the same file types (link, directory, file) as
 * in the kernel's sysfs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "rig.h"

static char at[PATH_MAX];

static const char *name(const char *fmt, const char *part)
{
	snprintf(at, sizeof(at), fmt, part);
	return at;
}

// Checks with several calls that `path` is a symbolic link. The text of the link must be relative
// and end in `end`.
static void is_link(const char *path, const char *end)
{
	char text[PATH_MAX], dir[PATH_MAX], whole[2 * PATH_MAX], *real, *same, *slash;
	struct stat st, to;
	struct dirent *d;
	DIR *list;
	int fd, seen = 0;
	ssize_t n = readlink(path, text, sizeof(text) - 1);

	CHECK(n > 0, "readlink %s", path);
	text[n] = 0;
	CHECK(text[0] == '.' && (size_t)n > strlen(end) && !strcmp(text + n - strlen(end), end), "%s leads to %s", path, text);
	CHECK(!lstat(path, &st) && S_ISLNK(st.st_mode), "lstat %s: mode %o", path, st.st_mode);
	CHECK(!fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode), "fstatat %s", path);
	CHECK(!stat(path, &to) && S_ISDIR(to.st_mode), "stat %s: mode %o", path, to.st_mode);
	CHECK(open(path, O_RDONLY | O_NOFOLLOW) < 0 && errno == ELOOP, "O_NOFOLLOW %s", path);
	strcpy(dir, path);
	slash = strrchr(dir, '/');
	*slash = 0;
	list = opendir(dir);
	CHECK(list, "opendir %s", dir);
	while ((d = readdir(list)))
		if (!strcmp(d->d_name, slash + 1)) {
			CHECK(d->d_type == DT_LNK, "%s has type %d", path, d->d_type);
			CHECK(readlinkat(dirfd(list), d->d_name, text, sizeof(text) - 1) == n, "readlinkat %s", path);
			seen = 1;
		}
	closedir(list);
	CHECK(seen, "%s does not list %s", dir, slash + 1);
	// The program and the C library resolve the link. Both must find the same directory.
	snprintf(whole, sizeof(whole), "%s/%s", dir, text);
	CHECK(!stat(whole, &st) && st.st_ino == to.st_ino, "%s is not %s", whole, path);
	real = realpath(path, NULL);
	CHECK(real && !strncmp(real, "/sys/", 5), "realpath %s: %s", path, real);
	CHECK(!stat(real, &st) && st.st_ino == to.st_ino, "%s is not %s", real, path);
	same = canonicalize_file_name(path);
	CHECK(same && !strcmp(same, real), "%s, not %s", same, real);
	fd = open(real, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	CHECK(fd >= 0, "open %s", real);
	close(fd);
	free(real);
	free(same);
}

static void is_file(const char *path, const char *text)
{
	char found[200] = "";
	struct stat st;
	int fd = open(path, O_RDONLY | O_NOFOLLOW);

	CHECK(fd >= 0 && read(fd, found, sizeof(found) - 1) > 0, "read %s", path);
	CHECK(!fstat(fd, &st) && S_ISREG(st.st_mode) && !(st.st_mode & 0222), "%s: mode %o", path, st.st_mode);
	CHECK(!text || !strcmp(found, text), "%s is %s, not %s", path, found, text);
	close(fd);
}

static void is_directory(const char *path)
{
	struct stat st;

	CHECK(!lstat(path, &st) && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0755, "%s: mode %o", path, st.st_mode);
}

int main(void)
{
	struct ibv_device **list;
	char base[300], text[80] = "", number[32];
	const char *node;
	struct stat st;
	FILE *f;
	int n, i;

	list = ibv_get_device_list(&n);
	CHECK(list && n > 0, "no device");
	// On a machine with one NUMA node, the file numa_node contains the number of this node.
	// With several nodes, no node is nearer to the device, and the file contains -1.
	f = fopen("/sys/devices/system/node/online", "r");
	node = f && fgets(text, sizeof(text), f) && !strpbrk(text, "-,") ? text : "-1\n";
	for (i = 0; i < n; i++) {
		const char *device = ibv_get_device_name(list[i]);
		char net[32];
		FILE *first;

		snprintf(base, sizeof(base), "/sys/class/infiniband/%s", device);
		is_link(base, device);
		is_link(name("%s/device", base), device);
		is_link(name("%s/subsystem", base), "/class/infiniband");
		first = fopen(name("%s/ports/1/gid_attrs/ndevs/0", base), "r");
		CHECK(first && fscanf(first, "%31s", net) == 1 && !fclose(first), "the interface of %s", device);
		is_directory(name("%s/ports/1/gid_attrs/types", base));
		is_directory(name("%s/device/net", base));
		is_directory(name("%s/device/infiniband", base));
		is_file(name("%s/device/numa_node", base), node);
		is_file(name("%s/node_type", base), "1: CA\n");
		is_file(name("%s/ports/1/gid_attrs/ndevs/0", base), NULL);
		is_file(name("%s/ports/1/gid_attrs/types/0", base), "RoCE v2\n");
		snprintf(at, sizeof(at), "%s/device/infiniband/%s/node_guid", base, device);
		is_file(at, NULL);
		snprintf(at, sizeof(at), "%s/device/net/%s/ifindex", base, net);
		is_file(at, NULL);

		snprintf(base, sizeof(base), "/sys/class/infiniband_verbs/%s", list[i]->dev_name);
		is_link(base, list[i]->dev_name);
		is_link(name("%s/device", base), device);
		is_link(name("%s/subsystem", base), "/class/infiniband_verbs");
		snprintf(text, sizeof(text), "%s\n", device);
		is_file(name("%s/ibdev", base), text);
		is_file(name("%s/abi_version", base), NULL);
		CHECK(!stat(name("/dev/infiniband/%s", list[i]->dev_name), &st) && S_ISCHR(st.st_mode), "%s", at);
		snprintf(number, sizeof(number), "%u:%u\n", major(st.st_rdev), minor(st.st_rdev));
		is_file(name("%s/dev", base), number);
		// `text` has other contents now, so the program reads the node again.
		node = f && !fseek(f, 0, SEEK_SET) && fgets(text, sizeof(text), f) && !strpbrk(text, "-,") ? text : "-1\n";
	}
	// /sys/class/misc is the kernel's own directory, which does not list rdma_cm. The program
	// can still use the name.
	CHECK(readlink("/sys/class/misc/rdma_cm", text, sizeof(text)) > 0, "rdma_cm");
	is_file("/sys/class/misc/rdma_cm/abi_version", "4\n");
	is_file("/sys/class/infiniband_verbs/abi_version", "6\n");
	puts("ok sysfs");
	return 0;
}
