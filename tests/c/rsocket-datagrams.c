/*
 * Datagram rsockets do what the socket call does: each case is run on the kernel's UDP first, and
 * then on rsockets.
 *
 * usage: rsocket-datagrams ADDRESS
 */
#include "common.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include <rdma/rsocket.h>

enum {
	/* What is on its way arrives within this time on a busy machine. */
	SOON_MS = 20000,
	ROUNDS = 500,
	LONGEST = 60000
};

/* The calls of one kind of socket. */
struct calls {
	const char *name;
	int (*socket)(int, int, int), (*bind)(int, const struct sockaddr *, socklen_t), (*listen)(int, int),
		(*connect)(int, const struct sockaddr *, socklen_t), (*shutdown)(int, int), (*close)(int),
		(*poll)(struct pollfd *, nfds_t, int), (*getsockname)(int, struct sockaddr *, socklen_t *),
		(*getpeername)(int, struct sockaddr *, socklen_t *), (*getsockopt)(int, int, int, void *, socklen_t *);
	ssize_t (*send)(int, const void *, size_t, int), (*recv)(int, void *, size_t, int),
		(*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t),
		(*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *), (*sendmsg)(int, const struct msghdr *, int),
		(*recvmsg)(int, struct msghdr *, int);
};

static const struct calls kinds[] = {
	{ "udp", socket, bind, listen, connect, shutdown, close, poll, getsockname, getpeername, getsockopt, send, recv, sendto,
	  recvfrom, sendmsg, recvmsg },
	{ "rsocket", rsocket, rbind, rlisten, rconnect, rshutdown, rclose, rpoll, rgetsockname, rgetpeername, rgetsockopt, rsend, rrecv,
	  rsendto, rrecvfrom, rsendmsg, rrecvmsg },
};

static const struct calls *k;
static const char *host;
static int family;
static char sent[LONGEST], came[LONGEST + 1];

/* A socket at a port of the host, 0 for any, and its address. */
static int bound(struct sockaddr_storage *at, socklen_t *length, uint16_t port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_DGRAM }, *info;
	char service[8];
	int fd;

	snprintf(service, sizeof service, "%u", port);
	EXPECT(getaddrinfo(host, service, &hints, &info) == 0);
	family = info->ai_family;
	EXPECT((fd = k->socket(family, SOCK_DGRAM, 0)) >= 0);
	MUST(k->bind(fd, info->ai_addr, info->ai_addrlen));
	*length = sizeof *at;
	MUST(k->getsockname(fd, (struct sockaddr *)at, length));
	EXPECT(*length == info->ai_addrlen && at->ss_family == family);
	freeaddrinfo(info);
	return fd;
}

static uint16_t port_of(const struct sockaddr_storage *at)
{
	return ntohs(at->ss_family == AF_INET ? ((const struct sockaddr_in *)at)->sin_port : ((const struct sockaddr_in6 *)at)->sin6_port);
}

static short polled(int fd, short events, int timeout)
{
	struct pollfd one = { fd, events, 0 };

	EXPECT(k->poll(&one, 1, timeout) >= 0);
	return one.revents;
}

/* UDP packets that the kernel has delivered in this network namespace. */
static long packets(void)
{
	const char *file = family == AF_INET ? "/proc/net/snmp" : "/proc/net/snmp6";
	FILE *list = fopen(file, "r");
	char line[512];
	long count = -1;

	EXPECT(list);
	while (fgets(line, sizeof line, list))
		if (family == AF_INET ? sscanf(line, "Udp: %ld", &count) == 1 : sscanf(line, "Udp6InDatagrams %ld", &count) == 1)
			break;
	fclose(list);
	EXPECT(count >= 0);
	return count;
}

/* Sends `length` bytes to and fro: the server sees whose they are. */
static void round_trip(int server, int client, const struct sockaddr_storage *at, socklen_t length, size_t bytes)
{
	struct sockaddr_storage own, from;
	socklen_t own_length = sizeof own, from_length = sizeof from;

	pattern_fill(sent, bytes, (int)bytes, 0);
	EXPECT(k->sendto(client, sent, bytes, 0, (const struct sockaddr *)at, length) == (ssize_t)bytes);
	EXPECT(k->recvfrom(server, came, sizeof came, 0, (struct sockaddr *)&from, &from_length) == (ssize_t)bytes);
	pattern_check(came, bytes, (int)bytes, 0);
	MUST(k->getsockname(client, (struct sockaddr *)&own, &own_length));
	EXPECT(from_length == length && port_of(&from) == port_of(&own));
	EXPECT(k->sendto(server, sent, bytes, 0, (struct sockaddr *)&from, from_length) == (ssize_t)bytes);
	from_length = sizeof from;
	EXPECT(k->recvfrom(client, came, sizeof came, 0, (struct sockaddr *)&from, &from_length) == (ssize_t)bytes);
	pattern_check(came, bytes, (int)bytes, 0);
	EXPECT(from_length == length && memcmp(&from, at, length) == 0);
}

/*
 * All lengths, from a socket that was never bound. Most go by the device: the kernel's UDP sees
 * few.
 */
static void lengths(void)
{
	static const size_t some[] = { 0, 1, 64, 900, 1016, 1017, 1472, 4000, 4088, 4096, 5000, LONGEST };
	struct sockaddr_storage at;
	socklen_t length;
	int server = bound(&at, &length, 0), client = k->socket(family, SOCK_DGRAM, 0);
	long before, with_udp;

	EXPECT(client >= 0);
	for (size_t i = 0; i < sizeof some / sizeof *some; i++)
		round_trip(server, client, &at, length, some[i]);
	before = packets();
	for (int i = 0; i < ROUNDS; i++)
		round_trip(server, client, &at, length, 64);
	with_udp = packets() - before;
	if (k->socket == rsocket)
		EXPECT(with_udp < ROUNDS);
	else
		EXPECT(with_udp >= 2 * ROUNDS);
	MUST(k->close(client));
	MUST(k->close(server));
}

/* A connected socket hears its peer only, and needs no address. */
static void connected(void)
{
	struct sockaddr_storage at, other_at, own, peer;
	socklen_t length, own_length = sizeof own, peer_length = sizeof peer;
	int server = bound(&at, &length, 0), other = bound(&other_at, &length, 0), client = k->socket(family, SOCK_DGRAM, 0);
	struct iovec ask = { "ask", 3 };
	/* A length of 0 is no name. */
	struct msghdr out = { .msg_name = &other_at, .msg_iov = &ask, .msg_iovlen = 1 };

	REFUSED(k->send(client, "x", 1, 0) == -1, EDESTADDRREQ);
	REFUSED(k->getpeername(client, (struct sockaddr *)&peer, &peer_length), ENOTCONN);
	MUST(k->connect(client, (struct sockaddr *)&at, length));
	MUST(k->getpeername(client, (struct sockaddr *)&peer, &peer_length));
	EXPECT(peer_length == length && memcmp(&peer, &at, length) == 0);
	MUST(k->getsockname(client, (struct sockaddr *)&own, &own_length));
	for (int i = 0; i < 20; i++) {
		EXPECT(k->sendto(other, "other", 5, 0, (struct sockaddr *)&own, own_length) == 5);
		EXPECT(i % 2 ? k->send(client, "ask", 3, 0) == 3 : k->sendmsg(client, &out, 0) == 3);
		peer_length = sizeof peer;
		EXPECT(k->recvfrom(server, came, sizeof came, 0, (struct sockaddr *)&peer, &peer_length) == 3);
		EXPECT(k->sendto(server, "answer", 6, 0, (struct sockaddr *)&peer, peer_length) == 6);
		EXPECT(k->recv(client, came, sizeof came, 0) == 6 && memcmp(came, "answer", 6) == 0);
	}
	MUST(k->close(client));
	MUST(k->close(other));
	MUST(k->close(server));
}

/* Looks, cut datagrams, vectors, and calls that do not wait. */
static void flags(void)
{
	struct sockaddr_storage at, from;
	socklen_t length;
	int server = bound(&at, &length, 0), client = k->socket(family, SOCK_DGRAM, 0), type = 0;
	struct iovec parts[2] = { { "ab", 2 }, { "cdef", 4 } }, halves[2] = { { came, 1 }, { came + 1, 3 } };
	struct msghdr out = { .msg_name = &at, .msg_namelen = length, .msg_iov = parts, .msg_iovlen = 2 };
	struct msghdr in = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = halves, .msg_iovlen = 2 };
	socklen_t type_length = sizeof type;

	MUST(k->getsockopt(server, SOL_SOCKET, SO_TYPE, &type, &type_length));
	EXPECT(type == SOCK_DGRAM);
	REFUSED(k->listen(server, 1), EOPNOTSUPP);
	REFUSED(k->recv(server, came, 1, MSG_DONTWAIT) == -1, EAGAIN);
	EXPECT(polled(server, POLLIN | POLLOUT, 0) == POLLOUT);
	EXPECT(polled(server, POLLIN, 20) == 0);
	for (int i = 0; i < 3; i++) {
		EXPECT(k->sendmsg(client, &out, 0) == 6);
		EXPECT(polled(server, POLLIN, SOON_MS) == POLLIN);
		EXPECT(k->recv(server, came, 2, MSG_PEEK) == 2 && memcmp(came, "ab", 2) == 0);
		EXPECT(k->recv(server, came, 2, MSG_PEEK | MSG_TRUNC) == 6);
		in.msg_namelen = sizeof from;
		EXPECT(k->recvmsg(server, &in, 0) == 4 && memcmp(came, "abcd", 4) == 0);
		EXPECT(in.msg_flags == MSG_TRUNC && in.msg_namelen == length);
		EXPECT(k->sendto(server, "back", 4, 0, (struct sockaddr *)&from, in.msg_namelen) == 4);
		EXPECT(k->recv(client, came, sizeof came, 0) == 4);
	}
	REFUSED(k->recv(server, came, 1, MSG_DONTWAIT) == -1, EAGAIN);
	memset(sent, 0, sizeof sent);
	EXPECT(k->sendto(client, sent, 1, 0, (struct sockaddr *)&at, length) == 1);
	MUST(k->connect(client, (struct sockaddr *)&at, length));
	MUST(k->shutdown(client, SHUT_WR));
	REFUSED(k->send(client, "x", 1, 0) == -1, EPIPE);
	EXPECT(k->recv(server, came, 9, 0) == 1);
	MUST(k->close(client));
	MUST(k->close(server));
}

/* A server that comes again at its port is found by clients that knew the earlier one. */
static void again(void)
{
	struct sockaddr_storage at;
	socklen_t length;
	int server = bound(&at, &length, 0), client = k->socket(family, SOCK_DGRAM, 0);
	struct timespec pause = { .tv_nsec = 10000000 };

	for (int i = 0; i < 5; i++)
		round_trip(server, client, &at, length, 100);
	MUST(k->close(server));
	server = bound(&at, &length, port_of(&at));
	for (long waited = 0; polled(server, POLLIN, 0) == 0; waited += 10) {
		EXPECT(waited < SOON_MS);
		EXPECT(k->sendto(client, "again", 5, 0, (struct sockaddr *)&at, length) == 5);
		nanosleep(&pause, NULL);
	}
	EXPECT(k->recv(server, came, sizeof came, 0) == 5);
	MUST(k->close(client));
	MUST(k->close(server));
}

/* A connected socket is told that nobody is there. */
static void refused(void)
{
	struct sockaddr_storage at;
	socklen_t length;
	int server = bound(&at, &length, 0), client = k->socket(family, SOCK_DGRAM, 0);

	MUST(k->close(server));
	MUST(k->connect(client, (struct sockaddr *)&at, length));
	EXPECT(k->send(client, "x", 1, 0) == 1);
	EXPECT(polled(client, POLLIN, SOON_MS) & POLLERR);
	REFUSED(k->recv(client, came, 1, 0) == -1, ECONNREFUSED);
	MUST(k->close(client));
}

/* Datagrams that a thread may be behind: more would not fit the kernel's buffer, and be lost. */
enum { BEHIND = 50 };

static atomic_int received;

static void *receives(void *fd)
{
	char bytes[64];

	for (int i = 0; i < ROUNDS; i++) {
		EXPECT(k->recv(*(int *)fd, bytes, sizeof bytes, 0) == sizeof bytes);
		received++;
	}
	return NULL;
}

/*
 * A thread that sleeps for a datagram gets it, also if another one that sends on the socket was the
 * first to see it.
 */
static void shared(void)
{
	struct sockaddr_storage at, client_at;
	socklen_t length;
	int server = bound(&at, &length, 0), client = bound(&client_at, &length, 0);
	struct timespec pause = { .tv_nsec = 100000 };
	pthread_t thread;

	round_trip(server, client, &at, length, 64);
	received = 0;
	EXPECT(pthread_create(&thread, NULL, receives, &server) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		while (i - received > BEHIND)
			sched_yield();
		EXPECT(k->sendto(client, sent, 64, 0, (struct sockaddr *)&at, length) == 64);
		if (i % 2)
			nanosleep(&pause, NULL);
		EXPECT(k->sendto(server, sent, 1, 0, (struct sockaddr *)&client_at, length) == 1);
		while (k->recv(client, came, 1, MSG_DONTWAIT) == 1)
			;
	}
	pthread_join(thread, NULL);
	MUST(k->close(client));
	MUST(k->close(server));
}

static void *receives_nothing(void *fd)
{
	char byte;

	return (void *)(intptr_t)k->recv(*(int *)fd, &byte, 1, 0);
}

/*
 * The end of a socket that was never connected is refused, but wakes a thread that receives, and is
 * no news for ever.
 */
static void unconnected_end(void)
{
	struct timespec pause = { .tv_nsec = 50000000 }, before, after;
	struct sockaddr_storage at;
	socklen_t length;
	int server = bound(&at, &length, 0);
	pthread_t thread;
	void *result;

	EXPECT(pthread_create(&thread, NULL, receives_nothing, &server) == 0);
	/* The other thread sleeps by then, as a rule; the case holds if not. */
	nanosleep(&pause, NULL);
	REFUSED(k->shutdown(server, SHUT_RD), ENOTCONN);
	pthread_join(thread, &result);
	EXPECT(result == NULL && receives_nothing(&server) == NULL);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	EXPECT(polled(server, 0, 200) == 0);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	EXPECT((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 100);
	EXPECT(k->sendto(server, "x", 1, 0, (struct sockaddr *)&at, length) == 1);
	REFUSED(k->shutdown(server, SHUT_WR), ENOTCONN);
	REFUSED(k->sendto(server, "x", 1, 0, (struct sockaddr *)&at, length) == -1, EPIPE);
	MUST(k->close(server));
}

/* What would fill a queue of errors that no call of rsockets reads. */
static void refused_options(void)
{
	int fd = rsocket(family, SOCK_DGRAM, 0), on = 1;

	EXPECT(fd >= 0);
	MUST(rsetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on));
	REFUSED(rsetsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on), ENOPROTOOPT);
	REFUSED(rsetsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on), ENOPROTOOPT);
	REFUSED(rsetsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof on), ENOPROTOOPT);
	MUST(rclose(fd));
}

/* A packet of UDP that is none of an rsocket is not delivered, and ends nothing. */
static void stranger(void)
{
	struct sockaddr_storage at;
	socklen_t length;
	int server = bound(&at, &length, 0), client = k->socket(family, SOCK_DGRAM, 0), plain = socket(family, SOCK_DGRAM, 0);

	for (size_t bytes = 0; bytes < 40; bytes++) {
		memset(sent, 0x55, sizeof sent);
		EXPECT(sendto(plain, sent, bytes, 0, (struct sockaddr *)&at, length) == (ssize_t)bytes);
	}
	round_trip(server, client, &at, length, 33);
	close(plain);
	MUST(k->close(client));
	MUST(k->close(server));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "lengths", lengths }, { "connected", connected }, { "flags", flags }, { "shared", shared },
		{ "again", again },   { "refused", refused },	  { "unconnected_end", unconnected_end },
	};

	if (argc != 2) {
		fprintf(stderr, "usage: rsocket-datagrams ADDRESS\n");
		return 2;
	}
	host = argv[1];
	deadline(50);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (k = kinds; k < kinds + 2; k++) {
			fprintf(stderr, "%s %s\n", cases[i].name, k->name);
			cases[i].run();
		}
	k = &kinds[1];
	refused_options();
	stranger();
	puts("as the socket call does");
	return 0;
}
