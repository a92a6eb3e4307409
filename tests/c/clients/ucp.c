/* usage: ucp asleep|polled PORT [ADDRESS]
 *
 * A server, and a client that knows its ADDRESS, send tagged messages to and fro by UCX's upper
 * layer and compare each byte. Asleep they drain events, arm the worker and sleep in poll(2), as
 * UCX asks for: they do not look for completions between arming and sleeping. */

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum { ROUNDS = 500, SMALL = 8, LARGE = 1 << 20, TAG = 7, PATIENCE = 30000 };

static ucp_worker_h worker;
static ucp_ep_h endpoint;
static int asleep;

static void must(int right, const char *what)
{
	if (!right) {
		perror(what);
		exit(1);
	}
}

static void good(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

/* Waits until there may be progress. */
static void sleep_until_event(void)
{
	struct pollfd waited = { .events = POLLIN };
	ucs_status_t status = ucp_worker_arm(worker);

	if (status == UCS_ERR_BUSY)
		return;
	good(status, "ucp_worker_arm");
	good(ucp_worker_get_efd(worker, &waited.fd), "ucp_worker_get_efd");
	if (poll(&waited, 1, PATIENCE) == 0) {
		fprintf(stderr, "no event woke the worker\n");
		exit(1);
	}
}

static void wait_for(ucs_status_ptr_t request)
{
	ucs_status_t status = UCS_PTR_STATUS(request);

	if (UCS_PTR_IS_PTR(request)) {
		while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
			if (!ucp_worker_progress(worker) && asleep)
				sleep_until_event();
		ucp_request_free(request);
	}
	good(status, "request");
}

static void start(void)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
	};
	ucp_worker_params_t single = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_config_t *config;
	ucp_context_h context;

	good(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	good(ucp_init(&params, config, &context), "ucp_init");
	ucp_config_release(config);
	good(ucp_worker_create(context, &single, &worker), "ucp_worker_create");
}

/* Connects by TCP; the server is the side that listens. */
static int meet(int port, const char *address)
{
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (address) {
		must(inet_pton(AF_INET, address, &peer.sin_addr) == 1, address);
		must(connect(fd, (struct sockaddr *)&peer, sizeof peer) == 0, "connect");
		return fd;
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	must(bind(fd, (struct sockaddr *)&peer, sizeof peer) == 0, "bind");
	must(listen(fd, 1) == 0, "listen");
	must((fd = accept(fd, NULL, NULL)) >= 0, "accept");
	return fd;
}

static void take(int fd, void *bytes, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t some = read(fd, (char *)bytes + got, length - got);
		must(some > 0, "read");
		got += (size_t)some;
	}
}

static void exchange(int fd)
{
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	size_t own_length, length;
	ucp_address_t *own;
	void *other;

	good(ucp_worker_get_address(worker, &own, &own_length), "ucp_worker_get_address");
	must(write(fd, &own_length, sizeof own_length) == sizeof own_length, "write");
	must(write(fd, own, own_length) == (ssize_t)own_length, "write");
	take(fd, &length, sizeof length);
	take(fd, other = malloc(length), length);
	params.address = other;
	good(ucp_ep_create(worker, &params, &endpoint), "ucp_ep_create");
	ucp_worker_release_address(worker, own);
	free(other);
}

static unsigned char byte_of(size_t round, size_t at)
{
	return (unsigned char)(round * 7 + at * 31 + at / 251);
}

static void send_round(unsigned char *bytes, size_t length, size_t round)
{
	ucp_request_param_t plain = { 0 };

	for (size_t at = 0; at < length; at++)
		bytes[at] = byte_of(round, at);
	wait_for(ucp_tag_send_nbx(endpoint, bytes, length, TAG, &plain));
}

static void receive_round(unsigned char *bytes, size_t length, size_t round)
{
	ucp_request_param_t plain = { 0 };

	wait_for(ucp_tag_recv_nbx(worker, bytes, length, TAG, -1, &plain));
	for (size_t at = 0; at < length; at++)
		if (bytes[at] != byte_of(round, at)) {
			fprintf(stderr, "round %zu has other bytes\n", round);
			exit(1);
		}
}

/* Microseconds one way. */
static double rounds(int first, size_t length, size_t count)
{
	unsigned char *bytes = malloc(length);
	struct timespec begun, ended;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	for (size_t round = 0; round < count; round++)
		for (int turn = 0; turn < 2; turn++)
			(turn == first ? receive_round : send_round)(bytes, length, round);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	free(bytes);
	return ((double)(ended.tv_sec - begun.tv_sec) * 1e6 + (double)(ended.tv_nsec - begun.tv_nsec) * 1e-3) /
	       (2.0 * (double)count);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	asleep = !strcmp(argv[1], "asleep");
	int first = argc < 4;

	start();
	int fd = meet(atoi(argv[2]), first ? NULL : argv[3]);
	exchange(fd);
	rounds(!first, SMALL, 10);
	double small = rounds(!first, SMALL, ROUNDS), large = rounds(!first, LARGE, ROUNDS / 25);
	ucp_request_param_t plain = { 0 };
	wait_for(ucp_ep_flush_nbx(endpoint, &plain));
	/* Both are through before either goes. */
	must(write(fd, "x", 1) == 1, "write");
	char end;
	take(fd, &end, 1);
	unsigned major, minor, release;
	ucp_get_version(&major, &minor, &release);
	printf("UCX %u.%u.%u verified, 8 B %.2f µs, 1 MiB %.2f MB/s\n", major, minor, release, small, LARGE / large);
	return 0;
}
