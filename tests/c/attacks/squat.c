/*
 * Holds names and ports that belong to others, and says of each that it has one (issue: any user
 * could take all 1023 slots, UDP port 4791, and RDMA ports below 1024).
 *
 * usage: squat SECONDS slots bound|listening     all names of slots that are free
 *        squat SECONDS udp                       UDP port 4791 of both IP versions
 *        squat SECONDS port NUMBER               the names of an RDMA port; says "took a request"
 *                                                for each that comes
 */
#include "attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum { SLOTS = 1023, ROCE_PORT = 4791 };

static int opened(int fd)
{
	if (fd < 0)
		exit(1);
	return fd;
}

/* A socket with an abstract name, which stays open. -1: somebody has the name. */
static int hold(int type, const char *format, unsigned long number)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, format, number);
	int fd = opened(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0) {
		attack.injected++;
		return fd;
	}
	close(fd);
	return -1;
}

static void hold_slots(bool listening)
{
	many_descriptors();
	for (unsigned long slot = 1; slot <= SLOTS; slot++) {
		int fd = hold(SOCK_SEQPACKET, "ferroce/slot/%lu", slot);

		if (fd >= 0 && listening)
			MUST(listen(fd, 64));
	}
}

static void hold_udp(void)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(ROCE_PORT) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT) };
	int one = 1, fd;

	fd = opened(socket(AF_INET, SOCK_DGRAM, 0));
	MUST(bind(fd, (struct sockaddr *)&v4, sizeof v4));
	attack.injected++;
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	if (fd < 0)
		return;
	MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
	MUST(bind(fd, (struct sockaddr *)&v6, sizeof v6));
	attack.injected++;
}

int main(int argc, char **argv)
{
	int requests = -1, bell;
	char room[512];

	if (argc < 3)
		return 2;
	begin_attack(argv[1]);
	if (strcmp(argv[2], "slots") == 0 && argc == 4) {
		hold_slots(strcmp(argv[3], "listening") == 0);
	} else if (strcmp(argv[2], "udp") == 0) {
		hold_udp();
	} else if (strcmp(argv[2], "port") == 0 && argc == 4) {
		requests = hold(SOCK_DGRAM, "ferroce/port/tcp/%lu", number(argv[3], 1, 65535));
		bell = hold(SOCK_SEQPACKET, "ferroce/port/tcp/%lu", number(argv[3], 1, 65535));
		MUST(listen(opened(bell), 64));
	} else {
		return 2;
	}
	while (goes_on()) {
		while (requests >= 0 && recv(requests, room, sizeof room, 0) > 0)
			printf("took a request\n");
		usleep(10000);
	}
	tell();
	return 0;
}
