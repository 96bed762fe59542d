/* Lists devices through a library of the program's own, and prints a line for each device.
 *   `loader file PATH` opens PATH, a copy of libibverbs.
 *   `loader module PATH` opens PATH, a module that needs a copy of libibverbs.
 *   `loader own` uses the library that the program is linked with (-DOWN). */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct ibv_device;
typedef struct ibv_device **list_fn(int *);
typedef const char *name_fn(struct ibv_device *);

#ifdef OWN
extern list_fn ibv_get_device_list;
extern name_fn ibv_get_device_name;
#endif

static int show(list_fn *list, name_fn *name)
{
	int n = 0;
	struct ibv_device **all = list(&n);

	printf("devices: %d\n", n);
	for (int i = 0; all && i < n; i++)
		printf("device %s\n", name(all[i]));
	return 0;
}

int main(int argc, char **argv)
{
#ifdef OWN
	if (argc > 1 && !strcmp(argv[1], "own"))
		return show(ibv_get_device_list, ibv_get_device_name);
#endif
	if (argc != 3)
		return 2;
	void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		printf("%s\n", dlerror());
		return 1;
	}
	int module = !strcmp(argv[1], "module");
	list_fn *list = (list_fn *)dlsym(library, module ? "module_list" : "ibv_get_device_list");
	name_fn *name = (name_fn *)dlsym(library, module ? "module_name" : "ibv_get_device_name");
	if (!list || !name) {
		printf("%s\n", dlerror());
		return 1;
	}
	return show(list, name);
}
