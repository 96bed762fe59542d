// Looks up names like a program that loads the library at run time.
// usage: symbols LIBRARY nccl|public LIST
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// The 22 names that NCCL requires, all with the version IBVERBS_1.1. The next table has the five
// optional names.
static const char *const required[] = {
	"ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device",
	"ibv_close_device", "ibv_get_async_event", "ibv_ack_async_event", "ibv_query_device",
	"ibv_query_port", "ibv_query_gid", "ibv_query_qp", "ibv_alloc_pd", "ibv_dealloc_pd",
	"ibv_reg_mr", "ibv_dereg_mr", "ibv_create_cq", "ibv_destroy_cq", "ibv_create_qp",
	"ibv_modify_qp", "ibv_destroy_qp", "ibv_fork_init", "ibv_event_type_str",
};
static const struct {
	const char *name, *node;
} optional[] = {
	{"ibv_reg_mr_iova2", "IBVERBS_1.8"},     {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
	{"ibv_query_ece", "IBVERBS_1.10"},       {"ibv_set_ece", "IBVERBS_1.10"},
	{"ibv_query_port_speed", "IBVERBS_1.16"},
};

// Checks that the name exists, and that it comes from the same file as the other names, not from a
// second copy of the library.
static int look(void *lib, const char *name, const char *node, const char **home)
{
	void *at = dlvsym(lib, name, node);
	Dl_info info;

	if (!at) {
		printf("missing: %s@%s\n", name, node);
		return 0;
	}
	if (!dladdr(at, &info) || !info.dli_fname) {
		printf("no file for %s@%s\n", name, node);
		return 0;
	}
	if (!*home)
		*home = info.dli_fname;
	if (strcmp(*home, info.dli_fname)) {
		printf("%s@%s comes from %s, the others from %s\n", name, node, info.dli_fname, *home);
		return 0;
	}
	return 1;
}

int main(int argc, char **argv)
{
	const char *home = NULL;
	size_t i, have = 0, extra = 0, all = 0;
	void *lib;

	if (argc != 4)
		return 2;
	lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (!strcmp(argv[2], "nccl")) {
		for (i = 0; i < sizeof(required) / sizeof(*required); i++)
			have += look(lib, required[i], "IBVERBS_1.1", &home);
		for (i = 0; i < sizeof(optional) / sizeof(*optional); i++)
			extra += look(lib, optional[i].name, optional[i].node, &home);
		printf("found %zu required, %zu optional in %s\n", have, extra, home ? home : "nothing");
		return !(have == 22 && extra == 5);
	}
	char line[256], name[128], node[64];
	FILE *list = fopen(argv[3], "r");

	if (!list) {
		perror(argv[3]);
		return 1;
	}
	while (fgets(line, sizeof(line), list)) {
		if (line[0] == '#' || sscanf(line, "%127s %63s", name, node) != 2)
			continue;
		all++;
		have += look(lib, name, node, &home);
	}
	fclose(list);
	printf("found %zu of %zu in %s\n", have, all, home ? home : "nothing");
	return have != all;
}
