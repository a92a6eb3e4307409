/*
 * Sends records of random bytes to a process's slot, each link until it is cut. Half of them begin
 * as a hello does.
 *
 * usage: garbage-links SECONDS SLOT
 */
#include "attack.h"

/* Bytes of a record at most. */
enum { LONGEST = 3000 };

/* How a hello begins (see `link/local/frame.rs`). */
static const unsigned char hello[] = { 1, 'F', 'R', 'C' };

int main(int argc, char **argv)
{
	unsigned char record[LONGEST];
	unsigned long slot;
	unsigned int seed = 20;
	int fd = -1;

	if (argc != 3)
		return 2;
	begin_attack(argv[1]);
	slot = number(argv[2], 1, 1023);
	printf("seed %u\n", seed);
	while (goes_on()) {
		size_t length = (size_t)rand_r(&seed) % LONGEST + 1;

		if (fd < 0 && (fd = connect_to_slot(slot, 0)) < 0) {
			usleep(1000);
			continue;
		}
		for (size_t i = 0; i < length; i++)
			record[i] = (unsigned char)(rand_r(&seed) >> 8);
		if (length % 2 == 0)
			memcpy(record, hello, length < sizeof hello ? length : sizeof hello);
		if (send(fd, record, length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length) {
			attack.injected++;
		} else if (errno != EAGAIN) {
			close(fd);
			fd = -1;
		}
	}
	tell();
	return 0;
}
