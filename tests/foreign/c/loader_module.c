/* A module of a program, for example of Python, that is linked with a copy of libibverbs. */
struct ibv_device;
struct ibv_device **ibv_get_device_list(int *);
const char *ibv_get_device_name(struct ibv_device *);

struct ibv_device **module_list(int *n)
{
	return ibv_get_device_list(n);
}

const char *module_name(struct ibv_device *device)
{
	return ibv_get_device_name(device);
}
