/*
 * What the attacking programs share: the time that they have, and how they say what they have done.
 *
 * Every program's first argument is how many seconds it goes on, and, behind a comma, the least
 * number of injections, for which it goes on longer. It prints "injected N" from time to time and
 * at its end, N being how many times it has really done what it is for, and ends with 0 however the
 * attack went: whether it did harm is seen at its victim.
 */
#ifndef FERROCE_TESTS_ATTACK_H
#define FERROCE_TESTS_ATTACK_H

#include "../common.h"

#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static struct {
	long until_ms, next_ms;
	unsigned long injected, least;
} attack;

static long UNUSED now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void UNUSED tell(void)
{
	printf("injected %lu\n", attack.injected);
	fflush(stdout);
}

/* Begins: `extent` is the program's first argument. */
static void UNUSED begin_attack(char *extent)
{
	char *seconds = strsep(&extent, ",");
	unsigned long limit = number(seconds, 1, 100000);

	if (extent != NULL)
		attack.least = number(extent, 0, 1000000000);
	deadline(limit + 60);
	signal(SIGPIPE, SIG_IGN);
	attack.until_ms = now_ms() + (long)limit * 1000;
}

/* Whether there is something left to do. Says ten times a second what was done. */
static bool UNUSED goes_on(void)
{
	long now = now_ms();

	if (now >= attack.next_ms) {
		tell();
		attack.next_ms = now + 100;
	}
	return now < attack.until_ms || attack.injected < attack.least;
}

/*
 * PSNs that forgers try, from the first one of a connection on: more than it uses in the seconds
 * that an attack takes. To try all 2^24 takes longer than the tests have.
 */
enum { TRIED_PSNS = 1 << 18 };

static uint32_t UNUSED tried_psn(uint32_t first, uint32_t n)
{
	return (first + n % TRIED_PSNS) & 0xffffff;
}

/* Lets this process have as many descriptors as it may. */
static void UNUSED many_descriptors(void)
{
	struct rlimit files;

	MUST(getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &files));
}

/* Connects to the socket of a slot, as another process of the host would. -1: it is refused. */
static int UNUSED connect_to_slot(unsigned long slot, int flags)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ferroce/slot/%lu", slot);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
		return fd;
	close(fd);
	return -1;
}

#endif
