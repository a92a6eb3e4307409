/*
 * How long a connection takes that is made and ended at once: connect, accept, disconnect, one
 * after the other, both sides asleep in rdma_get_cm_event between their steps. With `tcp` the same
 * by TCP: connect, accept, close, both sides asleep in their system calls.
 *
 * usage: connect-rate cm|tcp server
 *        connect-rate cm|tcp client COUNT ADDRESS PORT
 *
 * The client's last line is the mean time of a connection in microseconds. The server ends with the
 * connection that says so.
 */
#include "common.h"

enum { TIME = 120, WARM_UP = 20 };

/* What ends the server: a connection with this private data, or this byte. */
static const char last_word = 'e';

/* All queue pairs complete into this, which stays empty. */
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void prepare(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (pd == NULL) {
		MUST_PTR(pd = ibv_alloc_pd(id->verbs));
		MUST_PTR(cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0));
	}
	attr.send_cq = attr.recv_cq = cq;
	MUST(rdma_create_qp(id, pd, &attr));
}

static void cm_server(void)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	bool is_last = false, is_over = false;

	MUST_PTR(channel = rdma_create_event_channel());
	listener = listen_on(channel, AF_INET, 0);
	announce(listener);
	while (!is_over) {
		struct rdma_cm_event *event;
		struct rdma_cm_id *id;

		MUST(rdma_get_cm_event(channel, &event));
		id = event->id;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			const char *word = event->param.conn.private_data;

			is_last = event->param.conn.private_data_len > 0 && *word == last_word;
			MUST(rdma_ack_cm_event(event));
			prepare(id);
			MUST(rdma_accept(id, &(struct rdma_conn_param){ 0 }));
		} else {
			enum rdma_cm_event_type type = event->event;

			MUST(rdma_ack_cm_event(event));
			if (type == RDMA_CM_EVENT_TIMEWAIT_EXIT)
				continue;
			if (type == RDMA_CM_EVENT_ESTABLISHED) {
				is_over = is_last;
				continue;
			}
			EXPECT(type == RDMA_CM_EVENT_DISCONNECTED);
			MUST(rdma_disconnect(id));
			rdma_destroy_qp(id);
			MUST(rdma_destroy_id(id));
		}
	}
	MUST(rdma_destroy_id(listener));
}

static void cm_connection(struct rdma_event_channel *channel, const char *host, const char *port, bool is_last)
{
	struct rdma_conn_param param = { .private_data = &last_word, .private_data_len = is_last };
	struct rdma_cm_id *id = start_resolving(channel, host, port);

	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 2000));
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	prepare(id);
	MUST(rdma_connect(id, &param));
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	if (!is_last) {
		MUST(rdma_disconnect(id));
		await(channel, RDMA_CM_EVENT_DISCONNECTED);
	}
	rdma_destroy_qp(id);
	MUST(rdma_destroy_id(id));
}

static void tcp_server(void)
{
	int listener = listen_on_tcp(10);
	char word = 0;

	while (word != last_word) {
		int fd = accept(listener, NULL, NULL);

		EXPECT(fd >= 0);
		/* The client's end. */
		EXPECT(read(fd, &word, 1) >= 0);
		MUST(close(fd));
	}
	MUST(close(listener));
}

static void tcp_connection(const struct addrinfo *info, bool is_last)
{
	int fd = socket(info->ai_family, SOCK_STREAM, 0);
	char end;

	EXPECT(fd >= 0);
	MUST(connect(fd, info->ai_addr, info->ai_addrlen));
	if (is_last)
		EXPECT(write(fd, &last_word, 1) == 1);
	MUST(shutdown(fd, SHUT_WR));
	EXPECT(read(fd, &end, 1) == 0);
	MUST(close(fd));
}

static void client(bool is_cm, unsigned long count, const char *host, const char *port)
{
	struct rdma_event_channel *channel = NULL;
	struct addrinfo *info;
	double begun = 0;

	if (is_cm)
		MUST_PTR(channel = rdma_create_event_channel());
	MUST(getaddrinfo(host, port, &(struct addrinfo){ .ai_socktype = SOCK_STREAM }, &info));
	for (unsigned long i = 0; i < WARM_UP + count + 1; i++) {
		bool is_last = i == WARM_UP + count;

		if (i == WARM_UP)
			begun = now_us(CLOCK_MONOTONIC);
		if (is_last)
			printf("%.2f\n", (now_us(CLOCK_MONOTONIC) - begun) / (double)count);
		if (is_cm)
			cm_connection(channel, host, port, is_last);
		else
			tcp_connection(info, is_last);
	}
	freeaddrinfo(info);
}

static int wrong_usage(void)
{
	fputs("usage: connect-rate cm|tcp server\n       connect-rate cm|tcp client COUNT ADDRESS PORT\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	bool is_cm = argc > 1 && strcmp(argv[1], "cm") == 0;

	if (argc < 3 || (!is_cm && strcmp(argv[1], "tcp") != 0))
		return wrong_usage();
	deadline(TIME);
	if (argc == 3 && strcmp(argv[2], "server") == 0) {
		if (is_cm)
			cm_server();
		else
			tcp_server();
		return 0;
	}
	if (argc != 6 || strcmp(argv[2], "client") != 0)
		return wrong_usage();
	client(is_cm, number(argv[3], 1, 1000000), argv[4], argv[5]);
	return 0;
}
