/*
 * A network namespace has room for 1023 processes with an open device. The next one is told so; as
 * soon as one ends there is room again.
 *
 * usage: slots      in a network namespace where nobody else uses a device
 */
#include "slots.h"

enum { TIME = 60 };

int main(void)
{
	struct ibv_device **list;
	struct ibv_context *context;
	int last;

	deadline(TIME);
	last = take_all_but(0);
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
