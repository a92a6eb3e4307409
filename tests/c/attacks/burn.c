/*
 * Uses a processor and sends nothing: what an attack is compared with.
 *
 * usage: burn SECONDS
 */
#include "attack.h"

int main(int argc, char **argv)
{
	volatile unsigned int sum = 0;

	if (argc != 2)
		return 2;
	begin_attack(argv[1]);
	while (goes_on()) {
		for (unsigned int i = 0; i < 100000; i++)
			sum += i;
		attack.injected++;
	}
	tell();
	return 0;
}
