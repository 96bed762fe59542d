// A C++ program with failing calls. One call is in a template, and one is in a function of the
// standard library that the compiler inlines.
#include <infiniband/verbs.h>
#include <memory>
#include <cstdlib>

namespace app {
template <class T> struct Holder {
    T *cq;
    __attribute__((noinline)) int resize(int entries)
    {
        int result = ibv_resize_cq(cq, entries); // in a template
        asm volatile("" ::: "memory"); // prevents a tail call
        return result;
    }
};
}

__attribute__((noinline)) static void drop(ibv_cq *cq)
{
    std::unique_ptr<ibv_cq, int (*)(ibv_cq *)> owner(cq, ibv_destroy_cq);
    owner.reset(); // inlined from the standard library
}

int main(int argc, char **)
{
    ibv_device **list = ibv_get_device_list(nullptr);
    ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : nullptr;
    ibv_pd *pd = context ? ibv_alloc_pd(context) : nullptr;
    ibv_cq *cq = pd ? ibv_create_cq(context, 4, nullptr, nullptr, 0) : nullptr;
    ibv_qp_init_attr init = {};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.cap.max_send_wr = init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    if (!cq || !ibv_create_qp(pd, &init))
        return 2;
    app::Holder<ibv_cq> holder{cq};
    if (argc > 1)
        holder.resize(-1);
    else
        drop(cq);
    std::abort();
}
