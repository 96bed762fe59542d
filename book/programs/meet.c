// Connects to a port of this machine by rdma_cm, whether or not a program listens there.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "word.h"

int main(int argc, char **argv)
{
	const char *wrong = word(argc, argv, 1, "no-host");
	struct rdma_addrinfo *to, hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_cm_id *id;

	// An address of this machine, or an address that no program uses.
	if (rdma_getaddrinfo(!strcmp(wrong, "no-host") ? "127.0.0.9" : "127.0.0.1", "7471", &hints, &to) ||
	    rdma_create_ep(&id, to, NULL, &init)) {
		perror("rdma_create_ep");
		return 1;
	}
	if (rdma_connect(id, NULL)) {
		perror("rdma_connect");
		return 1;
	}
	printf("connected\n");
	return 0;
}
