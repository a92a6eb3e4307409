// A library that a user preloads: it stands in front of a function of libibverbs, as tools do that
// trace calls.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>

struct ibv_device **ibv_get_device_list(int *number)
{
    struct ibv_device **(*next)(int *) =
        (struct ibv_device * *(*)(int *)) dlsym(RTLD_NEXT, "ibv_get_device_list");
    struct ibv_device **list = next(number);
    fprintf(stderr, "wrapped, %d devices\n", number ? *number : -1);
    return list;
}
