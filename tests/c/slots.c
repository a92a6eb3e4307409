/*
 * A network namespace has room for 1023 processes with an open device. The next one is told so; as soon as one ends there is room again.
 *
 * usage: slots      in a network namespace where nobody else uses a device
 */
#include "common.h"

#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { TIME = 60, SLOTS = 1023 };

/* Takes a slot as a process would: the kernel gives a name once. */
static int take(int slot)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ferroce/slot/%d", slot);

	EXPECT(fd >= 0);
	MUST(bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)));
	return fd;
}

int main(void)
{
	struct rlimit files;
	struct ibv_device **list;
	struct ibv_context *context;
	int last = -1;

	deadline(TIME);
	MUST(getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &files));
	for (int slot = 1; slot <= SLOTS; slot++)
		last = take(slot);
	errno = 0;
	EXPECT(ibv_get_device_list(NULL) == NULL && errno == ENOSPC);
	errno = 0;
	EXPECT(rdma_create_event_channel() == NULL && errno == ENOSPC);
	MUST(close(last));
	MUST_PTR(list = ibv_get_device_list(NULL));
	EXPECT(list[0] != NULL);
	MUST_PTR(context = ibv_open_device(list[0]));
	MUST(ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}
