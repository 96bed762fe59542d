// Opens the first device, and prints its name and the address of GID 0.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *device = list && list[0] ? ibv_open_device(list[0]) : NULL;
	char text[INET6_ADDRSTRLEN];
	union ibv_gid gid;

	if (!device) {
		fprintf(stderr, "no RDMA device\n");
		return 1;
	}
	ibv_query_gid(device, 1, 0, &gid);
	printf("%s at %s\n", ibv_get_device_name(list[0]), inet_ntop(AF_INET6, &gid, text, sizeof text));
	return 0;
}
