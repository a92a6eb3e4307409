// Ends with success if there is a device, and prints whether /sys shows one.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (list)
        ibv_free_device_list(list);
    printf("%s in /sys\n", access("/sys/class/infiniband", R_OK) ? "nothing" : "devices");
    return n == 0;
}
