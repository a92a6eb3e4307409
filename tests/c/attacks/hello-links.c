/*
 * Links to a process's slot that say a right hello, from a slot of its own, and end: again and
 * again. Each hello makes the process ask whose the slot is.
 *
 * usage: hello-links SECONDS SLOT
 */
#include "link.h"

int main(int argc, char **argv)
{
	unsigned long slot, own;

	if (argc != 3)
		return 2;
	begin_attack(argv[1]);
	slot = number(argv[2], 1, SLOTS);
	own = take_slot();
	while (goes_on()) {
		int fd = link_to(slot, own);

		if (fd < 0) {
			usleep(100);
			continue;
		}
		close(fd);
		attack.injected++;
	}
	tell();
	return 0;
}
