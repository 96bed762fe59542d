/* Makes the file calls of an RDMA program, and prints a line for each result. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE "/dev/infiniband/uverbs77"
#define CLASS "/sys/class/infiniband/adverb77"

static void look(void)
{
	struct stat st;
#ifdef STATX_MODE
	struct statx sx;
#endif
	char text[64], path[PATH_MAX];
	int fd, found = 0;
	ssize_t n;

	errno = 4242;
	if (stat(DEVICE, &st) == 0)
		printf("stat %s %d\n", S_ISCHR(st.st_mode) ? "char" : "other", errno);
	else
		printf("stat errno %d\n", errno);
#ifdef STATX_MODE /* since musl 1.2.5 */
	printf("statx %d\n", statx(AT_FDCWD, DEVICE, 0, STATX_MODE, &sx) == 0 && S_ISCHR(sx.stx_mode));
#endif
	printf("access %d\n", access(DEVICE, R_OK | W_OK));
	printf("faccessat %d\n", faccessat(AT_FDCWD, DEVICE, R_OK | W_OK, 0));
	printf("directory %d\n", stat("/dev/infiniband", &st) == 0 && S_ISDIR(st.st_mode));

	fd = open(CLASS "/ports/1/gid_attrs/types/0", O_RDONLY);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text));
	printf("open %.*s\n", n > 0 ? (int)n - 1 : 0, text);
	if (fd >= 0)
		close(fd);
	fd = openat(AT_FDCWD, CLASS "/ports/1/gid_attrs/types/0", O_RDONLY);
	printf("openat %d\n", fd >= 0);
	if (fd >= 0)
		close(fd);
	FILE *file = fopen(CLASS "/ports/1/gid_attrs/ndevs/0", "r");
	printf("fopen %s\n", file && fgets(text, sizeof(text), file) ? strtok(text, "\n") : "");
	if (file)
		fclose(file);

	DIR *dir = opendir(CLASS "/device/net/");
	for (struct dirent *entry; dir && (entry = readdir(dir));)
		found |= !strcmp(entry->d_name, "lo");
	if (dir)
		closedir(dir);
	printf("opendir %d\n", found);

	printf("realpath %s\n", realpath(CLASS, path) ? path : "");
	char *made = realpath(CLASS, NULL);
	printf("realpath %s\n", made ? made : "");
	if (made)
		printf("again %d\n", access(made, F_OK));
	free(made);
	n = readlink(CLASS, path, sizeof(path));
	printf("readlink %.*s\n", n > 0 ? (int)n : 0, path);

	/* Adverb has no such files, so these calls must reach the real system, and must return its
	 * errors. */
	errno = 0;
	found = access(CLASS "/nothing", F_OK);
	printf("absent %d %d\n", found, errno);
	errno = 0;
	fd = open("/nonexistent/infiniband", O_RDONLY);
	printf("other %d %d\n", fd, errno);
	printf("real %d\n", stat("/proc/self", &st) == 0 && S_ISDIR(st.st_mode));
}

int main(void)
{
	look();
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		printf("child\n");
		look();
		return 0;
	}
	int status;
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
