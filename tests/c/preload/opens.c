// Opens a plugin by a bare name, which the loader finds by this program's run path only; the plugin
// is linked to a renamed copy of libibverbs. Then opens the copy itself by its file, given as
// argument. Prints how many devices each sees.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static void *must(void *found)
{
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    void *plugin = must(dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL));
    int (*devices)(void) = (int (*)(void))must(dlsym(plugin, "plugin_devices"));
    printf("plugin %d\n", devices());

    void *copy = must(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL));
    struct ibv_device **(*list)(int *) =
        (struct ibv_device * *(*)(int *)) must(dlvsym(copy, "ibv_get_device_list", "IBVERBS_1.1"));
    int n = 0;
    list(&n);
    printf("opened %d\n", n);
    // The version that a function has, and no other.
    printf("unknown version %s\n", dlvsym(copy, "ibv_get_device_list", "IBVERBS_1.14") ? "found" : "refused");
    return 0;
}
