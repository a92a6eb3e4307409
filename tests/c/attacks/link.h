/*
 * A process that has a slot, and links that have said hello: what Ferroce is to other users'
 * processes. Records are described in `link/local/frame.rs`.
 */
#ifndef FERROCE_TESTS_LINK_H
#define FERROCE_TESTS_LINK_H

#include "attack.h"

enum { VERSION = 6, SLOTS = 1023, SLOT_BITS = 14, ID_BITS = 22 };

/* Takes a free slot: nobody accepts there. */
static unsigned long UNUSED take_slot(void)
{
	for (unsigned long slot = SLOTS; slot > 0; slot--) {
		struct sockaddr_un name = { .sun_family = AF_UNIX };
		int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ferroce/slot/%lu", slot);
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		EXPECT(fd >= 0);
		if (bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0) {
			MUST(listen(fd, 1000));
			return slot;
		}
		close(fd);
	}
	die("no slot is free");
}

static int UNUSED link_to(unsigned long slot, unsigned long own)
{
	unsigned char hello[8] = { 1, 'F', 'R', 'C', VERSION, 0, (unsigned char)own, (unsigned char)(own >> 8) };
	int fd = connect_to_slot(slot, 0);

	if (fd >= 0 && send(fd, hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
		close(fd);
		return -1;
	}
	return fd;
}

/* An IPv4 address as a GID. */
static void UNUSED put_gid(unsigned char *to, const char *address)
{
	memset(to, 0, 10);
	memset(to + 10, 0xff, 2);
	EXPECT(inet_pton(AF_INET, address, to + 12) == 1);
}

#endif
