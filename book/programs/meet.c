// Connects to a port of this machine by rdma_cm, with somebody who listens there, or with nobody.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *wrong = argc > 1 ? argv[1] : "";
	struct rdma_addrinfo *to, hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_cm_id *id;

	// An address of this machine, or one where nobody is.
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
