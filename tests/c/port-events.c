/*
 * Prints a device's port and GID table, and again after every asynchronous event, so that a script
 * that changes the network sees what a program sees. Between events it sleeps in poll(2) on the
 * non-blocking descriptor.
 *
 * usage: port-events DEVICE EVENTS
 *        ends after so many lines of events, or with the device
 */
#include "common.h"

#include <fcntl.h>
#include <poll.h>

static int count_devices(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	EXPECT(list != NULL);
	ibv_free_device_list(list);
	return count;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;

	MUST_PTR(list = ibv_get_device_list(NULL));
	for (int i = 0; list[i] != NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			MUST_PTR(context = ibv_open_device(list[i]));
	ibv_free_device_list(list);
	if (context == NULL)
		die("no device %s", name);
	return context;
}

/* One line: why, state, MTU, and the table's entries with their indices. */
static void show(struct ibv_context *context, const char *why)
{
	struct ibv_port_attr port;
	char text[INET6_ADDRSTRLEN];

	MUST(ibv_query_port(context, 1, &port));
	printf("%s: %s mtu %d devices %d gids", why, ibv_port_state_str(port.state), 128 << port.active_mtu, count_devices());
	for (int i = 0; i < port.gid_tbl_len; i++) {
		static const union ibv_gid none;
		struct ibv_gid_entry entry;
		union ibv_gid gid;
		bool empty;

		MUST(ibv_query_gid(context, 1, i, &gid));
		empty = memcmp(&gid, &none, sizeof gid) == 0;
		/* The other query must agree. */
		EXPECT(ibv_query_gid_ex(context, 1, i, &entry, 0) == (empty ? ENODATA : 0));
		if (!empty)
			printf(" %d=%s", i, inet_ntop(AF_INET6, &gid, text, sizeof text));
	}
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	unsigned long lines;
	bool gone = false;

	if (argc != 3) {
		fprintf(stderr, "usage: %s DEVICE EVENTS\n", argv[0]);
		return 2;
	}
	lines = number(argv[2], 0, 1000);
	deadline(60);
	context = open_device(argv[1]);
	MUST(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK));
	show(context, "start");
	for (unsigned long i = 0; i < lines && !gone; i++) {
		struct ibv_async_event event;

		while (ibv_get_async_event(context, &event) != 0) {
			struct pollfd waiting = { .fd = context->async_fd, .events = POLLIN };

			EXPECT(errno == EAGAIN);
			EXPECT(poll(&waiting, 1, -1) == 1);
		}
		gone = event.event_type == IBV_EVENT_DEVICE_FATAL;
		EXPECT(event.element.port_num == (gone ? 0 : 1));
		ibv_ack_async_event(&event);
		show(context, ibv_event_type_str(event.event_type));
	}
	MUST(ibv_close_device(context));
	return 0;
}
