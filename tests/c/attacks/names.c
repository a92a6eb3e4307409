/*
 * Takes names that look like slots and listens there: once, one stray rejection made a process open
 * a link to every one of them. Counts the links that are made to it.
 *
 * usage: names SECONDS
 */
#include "attack.h"

#include <poll.h>

enum { NAMES = 600 };

int main(int argc, char **argv)
{
	static struct pollfd names[NAMES];
	nfds_t taken = 0;

	if (argc != 2)
		return 2;
	begin_attack(argv[1]);
	many_descriptors();
	for (unsigned int slot = 1; slot <= NAMES; slot++) {
		struct sockaddr_un name = { .sun_family = AF_UNIX };
		int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ferroce/slot/%u", slot);
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		EXPECT(fd >= 0);
		if (bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0 &&
		    listen(fd, 100) == 0)
			names[taken++] = (struct pollfd){ .fd = fd, .events = POLLIN };
	}
	printf("names %lu\n", (unsigned long)taken);
	while (goes_on()) {
		if (poll(names, taken, 100) <= 0)
			continue;
		/* What is accepted stays open. */
		for (nfds_t i = 0; i < taken; i++)
			if (names[i].revents != 0 && accept(names[i].fd, NULL, NULL) >= 0)
				attack.injected++;
	}
	tell();
	return 0;
}
