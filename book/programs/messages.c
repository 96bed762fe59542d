// Sends a message from a queue pair to another. With an argument, one thing is wrong.
#include "pair.h"

int main(int argc, char **argv)
{
	const char *wrong = word(argc, argv, 1,
				 "write no-receive short-receive no-right wrong-key nobody gone not-connected too-many");
#define IS(name) (!strcmp(wrong, name))
	static struct end a, b;
	int depth = 2, access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	open_device("adverb0");
	open_end(&a, depth, access);
	// With no-right, peers may not write to the region.
	open_end(&b, depth, IS("no-right") ? IBV_ACCESS_LOCAL_WRITE : access);
	if (!IS("not-connected")) {
		connect_to(&a, &b);
		connect_to(&b, &a);
	}
	if (IS("nobody"))
		MUST(!ibv_destroy_qp(b.qp));
	if (IS("gone"))
		MUST(!ibv_dereg_mr(a.mr));
	// Without a mistake, the receive is posted before the message, and is long enough.
	if (!IS("no-receive") && !IS("nobody") && !IS("too-many"))
		MUST(!receive(&b, IS("short-receive") ? 3 : sizeof b.memory));

	uint32_t rkey = IS("no-right") || IS("wrong-key") || IS("write") ? b.mr->rkey : 0;
	if (IS("wrong-key"))
		rkey ^= 0x100;
	int times = IS("too-many") ? depth + 1 : 1, error = 0;
	for (int i = 0; i < times && !error; i++)
		error = transmit(&a, "hello", &b, rkey);
	if (error) {
		printf("ibv_post_send: %s\n", strerror(error));
		return 1;
	}
	struct ibv_wc wc = completion(&a);
	printf("%s (vendor_err 0x%x)\n", ibv_wc_status_str(wc.status), wc.vendor_err);
	if (wc.status != IBV_WC_SUCCESS)
		return 1;
	if (!rkey)
		printf("%u bytes: %s\n", completion(&b).byte_len, b.memory);
	return 0;
}
