// usage: prefetch HINT WAIT. Prefetches a region without IBV_ACCESS_ON_DEMAND. The expected errno
// is HINT without IBV_ADVISE_MR_FLAG_FLUSH, and WAIT with the flag.
#include "rig.h"

int main(int argc, char **argv)
{
	static char mem[4096];
	struct ibv_sge sge = {.addr = (uintptr_t)mem, .length = sizeof(mem)};
	struct ibv_mr *mr;
	struct port p;
	int flags;

	CHECK(argc == 3, "HINT WAIT");
	port_open(&p);
	mr = ibv_reg_mr(p.pd, mem, sizeof(mem), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "register");
	sge.lkey = mr->lkey;
	for (flags = 0; flags <= IBV_ADVISE_MR_FLAG_FLUSH; flags++) {
		int e = ibv_advise_mr(p.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flags, &sge, 1);

		CHECK(e == atoi(argv[1 + flags]), "flags %d: %d", flags, e);
	}
	CHECK(!ibv_dereg_mr(mr), "deregister");
	port_close(&p);
	puts("ok prefetch");
	return 0;
}
