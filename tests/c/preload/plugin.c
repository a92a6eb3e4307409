// A plugin that is linked to a renamed copy of libibverbs.
#include <infiniband/verbs.h>

int plugin_devices(void)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (list)
        ibv_free_device_list(list);
    return n;
}
