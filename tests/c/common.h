/*
 * What the test programs share: ending with a reason, deadlines, addresses, patterns, events.
 *
 * Exit status of every program: 0 all was right, 1 something was wrong (the reason is on stderr), 2
 * wrong usage, 3 the deadline passed.
 */
#ifndef FERROCE_TESTS_COMMON_H
#define FERROCE_TESTS_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define UNUSED __attribute__((unused))

/* Ends the program with a reason. */
static void UNUSED __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("wrong: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	/* Not exit(): other threads may sleep in the library. */
	_exit(1);
}

/* Ends the program if a call failed that answers with -1, NULL or an errno. */
#define MUST(call)                                                                                                                 \
	do {                                                                                                                       \
		errno = 0;                                                                                                         \
		if ((call) != 0)                                                                                                   \
			die("%s:%d: %s: %s", __FILE__, __LINE__, #call, strerror(errno));                                          \
	} while (0)
#define MUST_PTR(call)                                                                                                             \
	do {                                                                                                                       \
		errno = 0;                                                                                                         \
		if ((call) == NULL)                                                                                                \
			die("%s:%d: %s: %s", __FILE__, __LINE__, #call, strerror(errno));                                          \
	} while (0)
#define EXPECT(condition)                                                                                                          \
	do {                                                                                                                       \
		if (!(condition))                                                                                                  \
			die("%s:%d: not so: %s", __FILE__, __LINE__, #condition);                                                  \
	} while (0)

/* Wants a call to fail with this errno. */
#define REFUSED(call, wanted)                                                                                                      \
	do {                                                                                                                       \
		errno = 0;                                                                                                         \
		if ((call) == 0 || errno != (wanted))                                                                              \
			die("%s:%d: %s: %s, not %s", __FILE__, __LINE__, #call, strerror(errno), strerror(wanted));                \
	} while (0)

static void deadline_passed(int signal)
{
	static const char text[] = "wrong: the deadline passed\n";
	ssize_t ignored UNUSED;

	(void)signal;
	ignored = write(2, text, sizeof text - 1);
	_exit(3);
}

/* Ends the program after so many seconds. */
static void UNUSED deadline(unsigned int seconds)
{
	struct sigaction action = { .sa_handler = deadline_passed };

	sigaction(SIGALRM, &action, NULL);
	alarm(seconds);
}

/* What a clock says, in microseconds. */
static double UNUSED now_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Byte number `at` of pattern number `seed`. Neighbouring bytes, seeds and pages differ. */
static inline unsigned char pattern_byte(uint32_t seed, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)(seed + 1) * 0xc2b2ae3d27d4eb4full;

	return (unsigned char)((x ^ x >> 29) >> 7);
}

/* Fills a buffer with bytes from `at` on. */
static void UNUSED pattern_fill(void *buffer, size_t length, uint32_t seed, uint64_t at)
{
	unsigned char *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = pattern_byte(seed, at + i);
}

/* Compares a buffer with bytes from `at` on. */
static void UNUSED pattern_check(const void *buffer, size_t length, uint32_t seed, uint64_t at)
{
	const unsigned char *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		if (bytes[i] != pattern_byte(seed, at + i))
			die("byte %llu is %#x and should be %#x", (unsigned long long)(at + i), bytes[i], pattern_byte(seed, at + i));
}

/* Reads a number from the command line. */
static unsigned long UNUSED number(const char *text, unsigned long low, unsigned long high)
{
	char *end;
	unsigned long value = strtoul(text, &end, 0);

	if (*text == '\0' || *end != '\0' || value < low || value > high) {
		fprintf(stderr, "%s is no number from %lu to %lu\n", text, low, high);
		exit(2);
	}
	return value;
}

/* Tells which port a listener got, so that a script can start the peer. */
static void UNUSED announce(struct rdma_cm_id *listener)
{
	unsigned int port = ntohs(rdma_get_src_port(listener));

	EXPECT(port != 0);
	printf("listening on port %u\n", port);
	fflush(stdout);
}

/* A TCP socket that listens on every address of IPv4, at a port that is told as by `announce`. */
static int UNUSED listen_on_tcp(int backlog)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	socklen_t length = sizeof any;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	EXPECT(listener >= 0);
	MUST(bind(listener, (struct sockaddr *)&any, sizeof any));
	MUST(listen(listener, backlog));
	MUST(getsockname(listener, (struct sockaddr *)&any, &length));
	printf("listening on port %u\n", ntohs(any.sin_port));
	fflush(stdout);
	return listener;
}

/* An identifier that listens on every address; IPv6 serves IPv4 too. */
static struct rdma_cm_id UNUSED *listen_on(struct rdma_event_channel *channel, int family, unsigned int port)
{
	struct sockaddr_storage any = { .ss_family = family };
	struct rdma_cm_id *listener;

	if (family == AF_INET6)
		((struct sockaddr_in6 *)&any)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&any)->sin_port = htons(port);
	MUST(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, (struct sockaddr *)&any));
	MUST(rdma_listen(listener, 10));
	return listener;
}

/* Starts the resolution of a peer's address. */
static struct rdma_cm_id UNUSED *start_resolving(struct rdma_event_channel *channel, const char *host, const char *port)
{
	struct addrinfo *info;
	struct rdma_cm_id *id;
	int code = getaddrinfo(host, port, &(struct addrinfo){ .ai_socktype = SOCK_STREAM }, &info);

	if (code != 0)
		die("%s port %s: %s", host, port, gai_strerror(code));
	MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, info->ai_addr, 2000));
	freeaddrinfo(info);
	return id;
}

/*
 * Fetches the next event, copies it, acknowledges it, and gives the copy: what stays valid after
 * the acknowledgement is all that the programs use. TIMEWAIT_EXIT, which may come at any time after
 * a disconnect, is passed over.
 */
static struct rdma_cm_event UNUSED next_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event, copy;

	do {
		MUST(rdma_get_cm_event(channel, &event));
		copy = *event;
		MUST(rdma_ack_cm_event(event));
	} while (copy.event == RDMA_CM_EVENT_TIMEWAIT_EXIT);
	return copy;
}

/* The next event, which must be this one. */
static struct rdma_cm_event UNUSED await(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event event = next_event(channel);

	if (event.event != wanted)
		die("event %s with status %d, not %s", rdma_event_str(event.event), event.status, rdma_event_str(wanted));
	return event;
}

/* Polls until there is a completion. */
static struct ibv_wc UNUSED next_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	EXPECT(n == 1);
	return wc;
}

/* Ends the program unless a completion succeeded. */
static void UNUSED succeeded(const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		die("work request %#llx: %s (vendor %u)", (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status), wc->vendor_err);
}

#endif
