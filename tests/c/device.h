/*
 * The device that has an address, and the GID of an address, for programs that connect without the
 * connection manager.
 */
#ifndef FERROCE_TESTS_DEVICE_H
#define FERROCE_TESTS_DEVICE_H

#include "common.h"

static union ibv_gid gid_of(const char *address)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	EXPECT(inet_pton(AF_INET, address, gid.raw + 12) == 1);
	return gid;
}

/*
 * Opens the device with an IPv4 address, and says at which index of its GID table the address is.
 */
static struct ibv_context *open_device_at(const char *own, uint8_t *gid_index)
{
	union ibv_gid wanted = gid_of(own), gid;
	struct ibv_device **list;
	int count;

	MUST_PTR(list = ibv_get_device_list(&count));
	for (int i = 0; i < count; i++) {
		struct ibv_context *context;

		MUST_PTR(context = ibv_open_device(list[i]));
		for (int index = 0; ibv_query_gid(context, 1, index, &gid) == 0; index++)
			if (memcmp(&gid, &wanted, sizeof gid) == 0) {
				ibv_free_device_list(list);
				*gid_index = (uint8_t)index;
				return context;
			}
		MUST(ibv_close_device(context));
	}
	die("no device has %s", own);
}

#endif
