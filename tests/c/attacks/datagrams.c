/*
 * Sends packets with random opcodes, PSNs and contents to queue pairs of a slot, as any program
 * that may send UDP can.
 *
 * usage: datagrams SECONDS FROM TO SLOT
 */
#include "roce.h"

enum { INDEX_BITS = 14 };

int main(int argc, char **argv)
{
	static struct sender sender;
	uint32_t slot;

	if (argc != 5)
		return 2;
	begin_attack(argv[1]);
	open_sender(&sender, argv[2], argv[3]);
	slot = (uint32_t)number(argv[4], 1, 1023);
	while (goes_on()) {
		for (int burst = 0; burst < 32; burst++) {
			uint32_t qp = slot << INDEX_BITS | (draw(&sender) & ((1u << INDEX_BITS) - 1));
			size_t length = BTH + (size_t)draw(&sender) % 300;

			for (size_t i = BTH; i < length; i += 4)
				put(transport(&sender) + i, draw(&sender), 4);
			put_bth(&sender, draw(&sender) & 0xff, qp, draw(&sender));
			launch(&sender, length);
		}
	}
	tell();
	return 0;
}
