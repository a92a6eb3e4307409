/*
 * One server and many connections: requests of SIZE bytes and answers of as many, over RDMA or TCP.
 * Both sides sleep in epoll_wait when there is nothing to do. The client is one process that has
 * all connections, each with one request under way at most.
 *
 * usage: crowd cm|cm-blocking|tcp server SIZE
 *        crowd cm|cm-blocking|tcp client SIZE CONNECTIONS SECONDS RATE ADDRESS PORT
 *
 * With cm the descriptors of completions are non-blocking, with cm-blocking as they were made. With
 * RATE 0 each connection asks again when it has its answer; else the client asks so often a second,
 * connection after connection. The client's last line is requests a second, median and 99th
 * percentile of the time to the answer in microseconds, and its processor time for each request in
 * microseconds. The server ends with its last connection, and its last line is the number of
 * requests and its processor time for each of them.
 */
#include "common.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

/* SIGNALLED: one SEND in so many, as they complete in order. Each completion wakes its program. */
enum { TIME = 300, MAX_CONNECTIONS = 4096, BATCH = 64, SAMPLES = 1 << 20, SIGNALLED = 16 };

/* Of one connection: its receive, and its request or answer. */
struct connection {
	struct rdma_cm_id *id;
	int fd;
	char *in, *out;
	size_t have;
	unsigned int sent;
	bool is_busy;
	double asked;
};

static bool is_cm, is_blocking, is_server;
static size_t size;
static struct connection *connections;
static unsigned long places, open_connections;
static int epoll;

static struct {
	struct rdma_event_channel *events;
	struct ibv_comp_channel *completions;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *memory;
} rdma;

static int listener = -1;

static struct {
	unsigned long requests;
	double begun, processor, spent;
	double seconds, rate, ends, next;
	unsigned long turn, samples;
	float *times;
} run;

static void watch(int fd, void *what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = what };

	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

static struct connection *new_connection(void)
{
	struct connection *conn = &connections[places];

	EXPECT(places < MAX_CONNECTIONS);
	conn->in = rdma.memory + places * 2 * size;
	conn->out = conn->in + size;
	places++;
	open_connections++;
	return conn;
}

/* The parts that differ. */

static void cm_receive(struct connection *conn)
{
	struct ibv_sge sge = { (uintptr_t)conn->in, size, rdma.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)conn, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(conn->id->qp, &wr, &bad));
}

static void send_message(struct connection *conn)
{
	struct ibv_sge sge = { (uintptr_t)conn->out, size, is_cm ? rdma.mr->lkey : 0 };
	struct ibv_send_wr wr = { .wr_id = 0, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	if (conn->sent++ % SIGNALLED == 0)
		wr.send_flags = IBV_SEND_SIGNALED;
	if (is_cm)
		MUST(ibv_post_send(conn->id->qp, &wr, &bad));
	else
		EXPECT(write(conn->fd, conn->out, size) == (ssize_t)size);
}

static void equip(struct connection *conn, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * SIGNALLED, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (rdma.pd == NULL) {
		MUST_PTR(rdma.pd = ibv_alloc_pd(id->verbs));
		MUST_PTR(rdma.completions = ibv_create_comp_channel(id->verbs));
		if (!is_blocking)
			MUST(fcntl(rdma.completions->fd, F_SETFL, O_NONBLOCK));
		MUST_PTR(rdma.cq = ibv_create_cq(id->verbs, 8 * MAX_CONNECTIONS, NULL, rdma.completions, 0));
		MUST_PTR(rdma.mr = ibv_reg_mr(rdma.pd, rdma.memory, MAX_CONNECTIONS * 2 * size, IBV_ACCESS_LOCAL_WRITE));
		MUST(ibv_req_notify_cq(rdma.cq, 0));
		watch(rdma.completions->fd, &rdma.completions);
	}
	attr.send_cq = attr.recv_cq = rdma.cq;
	MUST(rdma_create_qp(id, rdma.pd, &attr));
	conn->id = id;
	id->context = conn;
	cm_receive(conn);
}

static void cm_connect(struct connection *conn, const char *host, const char *port)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct rdma_cm_id *id = start_resolving(rdma.events, host, port);

	await(rdma.events, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 2000));
	await(rdma.events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	equip(conn, id);
	MUST(rdma_connect(id, &param));
	await(rdma.events, RDMA_CM_EVENT_ESTABLISHED);
}

static void tcp_connect(struct connection *conn, const struct addrinfo *info)
{
	conn->fd = socket(info->ai_family, SOCK_STREAM, 0);
	EXPECT(conn->fd >= 0);
	MUST(connect(conn->fd, info->ai_addr, info->ai_addrlen));
	MUST(fcntl(conn->fd, F_SETFL, O_NONBLOCK));
	watch(conn->fd, conn);
}

/* What both sides do with messages. */

static void ask(struct connection *conn, double now)
{
	conn->is_busy = true;
	conn->asked = now;
	conn->out[0] = conn->out[size - 1] = (char)conn->sent;
	send_message(conn);
}

static void on_message(struct connection *conn)
{
	double now;

	if (is_server) {
		if (run.requests++ == 0)
			run.processor = now_us(CLOCK_PROCESS_CPUTIME_ID);
		memcpy(conn->out, conn->in, size);
		send_message(conn);
		return;
	}
	EXPECT(conn->is_busy && conn->in[0] == conn->out[0] && conn->in[size - 1] == conn->out[size - 1]);
	now = now_us(CLOCK_MONOTONIC);
	conn->is_busy = false;
	run.requests++;
	if (run.samples < SAMPLES)
		run.times[run.samples++] = (float)(now - conn->asked);
	if (run.rate == 0)
		ask(conn, now);
}

static void end(void)
{
	printf("%lu %.3f\n", run.requests, run.spent / (double)run.requests);
	fflush(stdout);
	_exit(0);
}

static void on_end(struct connection *conn)
{
	EXPECT(is_server);
	/* What the ends of connections take is not for the requests. */
	if (open_connections == places)
		run.spent = now_us(CLOCK_PROCESS_CPUTIME_ID) - run.processor;
	if (!is_cm)
		MUST(close(conn->fd));
	if (--open_connections == 0)
		end();
}

static void on_cm_event(void)
{
	struct rdma_cm_event event = next_event(rdma.events);
	struct rdma_conn_param param = { .rnr_retry_count = 7 };

	if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		equip(new_connection(), event.id);
		MUST(rdma_accept(event.id, &param));
	} else if (event.event == RDMA_CM_EVENT_DISCONNECTED) {
		on_end(event.id->context);
	} else {
		EXPECT(event.event == RDMA_CM_EVENT_ESTABLISHED);
	}
}

static void on_completions(void)
{
	struct ibv_wc wc[BATCH];
	struct ibv_cq *cq;
	void *context;
	unsigned int events = 0;
	int n;

	/* All of them, so that the descriptor may be readable without one. */
	while ((events == 0 || !is_blocking) &&
	       ibv_get_cq_event(rdma.completions, &cq, &context) == 0)
		events++;
	if (events == 0) {
		EXPECT(errno == EAGAIN && !is_blocking);
		return;
	}
	ibv_ack_cq_events(cq, events);
	MUST(ibv_req_notify_cq(cq, 0));
	while ((n = ibv_poll_cq(cq, BATCH, wc)) > 0)
		for (int i = 0; i < n; i++) {
			if (wc[i].status == IBV_WC_WR_FLUSH_ERR && is_server)
				continue;
			succeeded(&wc[i]);
			if (wc[i].wr_id != 0) {
				struct connection *conn = (struct connection *)(uintptr_t)wc[i].wr_id;

				cm_receive(conn);
				on_message(conn);
			}
		}
	EXPECT(n == 0);
}

static void on_tcp(struct connection *conn)
{
	ssize_t got = read(conn->fd, conn->in + conn->have, size - conn->have);

	/* A client ends with requests under way. */
	if (got == 0 || (got < 0 && errno == ECONNRESET)) {
		on_end(conn);
		return;
	}
	EXPECT(got > 0 || errno == EAGAIN);
	conn->have += got > 0 ? (size_t)got : 0;
	if (conn->have == size) {
		conn->have = 0;
		on_message(conn);
	}
}

static void on_accept(void)
{
	struct connection *conn = new_connection();

	conn->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	EXPECT(conn->fd >= 0);
	watch(conn->fd, conn);
}

/* Asks as often as is due. */
static void ask_what_is_due(void)
{
	double now = now_us(CLOCK_MONOTONIC);

	for (; run.next <= now; run.next += 1e6 / run.rate) {
		struct connection *conn = &connections[run.turn++ % places];

		if (!conn->is_busy)
			ask(conn, now);
	}
}

static void set_timer(int timer)
{
	double at = run.rate > 0 && run.next < run.ends ? run.next : run.ends;
	struct itimerspec when = { .it_value = { .tv_sec = (time_t)(at / 1e6) } };

	when.it_value.tv_nsec = (long)((at - (double)when.it_value.tv_sec * 1e6) * 1e3);
	MUST(timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL));
}

static void turn(void)
{
	struct epoll_event events[BATCH];
	int n = epoll_wait(epoll, events, BATCH, -1);

	EXPECT(n >= 0);
	for (int i = 0; i < n; i++) {
		void *what = events[i].data.ptr;

		if (what == &rdma.completions)
			on_completions();
		else if (what == &rdma.events)
			on_cm_event();
		else if (what == &listener)
			on_accept();
		else if (what != &run)
			on_tcp(what);
	}
}

static int by_time(const void *one, const void *other)
{
	float a = *(const float *)one, b = *(const float *)other;

	return (a > b) - (a < b);
}

static void serve(void)
{
	if (is_cm) {
		MUST_PTR(rdma.events = rdma_create_event_channel());
		announce(listen_on(rdma.events, AF_INET, 0));
		watch(rdma.events->fd, &rdma.events);
	} else {
		listener = listen_on_tcp(1024);
		watch(listener, &listener);
	}
	for (;;)
		turn();
}

static void open_all(unsigned long count, const char *host, const char *port)
{
	struct addrinfo *info;

	if (is_cm)
		MUST_PTR(rdma.events = rdma_create_event_channel());
	MUST(getaddrinfo(host, port, &(struct addrinfo){ .ai_socktype = SOCK_STREAM }, &info));
	while (places < count) {
		struct connection *conn = new_connection();

		if (is_cm)
			cm_connect(conn, host, port);
		else
			tcp_connect(conn, info);
	}
	freeaddrinfo(info);
}

static void measure(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);

	EXPECT(timer >= 0);
	watch(timer, &run);
	MUST_PTR(run.times = calloc(SAMPLES, sizeof *run.times));
	run.begun = run.next = now_us(CLOCK_MONOTONIC);
	run.ends = run.begun + run.seconds * 1e6;
	run.processor = now_us(CLOCK_PROCESS_CPUTIME_ID);
	if (run.rate == 0)
		for (unsigned long i = 0; i < places; i++)
			ask(&connections[i], now_us(CLOCK_MONOTONIC));
	set_timer(timer);
	while (now_us(CLOCK_MONOTONIC) < run.ends) {
		if (run.rate > 0) {
			ask_what_is_due();
			set_timer(timer);
		}
		turn();
	}
	run.processor = now_us(CLOCK_PROCESS_CPUTIME_ID) - run.processor;
	qsort(run.times, run.samples, sizeof *run.times, by_time);
	EXPECT(run.samples > 0);
	printf("%.0f %.2f %.2f %.3f\n", (double)run.requests / ((now_us(CLOCK_MONOTONIC) - run.begun) / 1e6), run.times[run.samples / 2],
	       run.times[run.samples * 99 / 100], run.processor / (double)run.requests);
	for (unsigned long i = 0; is_cm && i < places; i++)
		MUST(rdma_disconnect(connections[i].id));
}

static int wrong_usage(void)
{
	fputs("usage: crowd cm|cm-blocking|tcp server SIZE\n       crowd cm|cm-blocking|tcp client SIZE CONNECTIONS SECONDS RATE ADDRESS PORT\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct rlimit files;

	is_blocking = argc > 1 && strcmp(argv[1], "cm-blocking") == 0;
	is_cm = is_blocking || (argc > 1 && strcmp(argv[1], "cm") == 0);
	is_server = argc == 4 && strcmp(argv[2], "server") == 0;
	if (argc < 2 || (!is_server && (argc != 9 || strcmp(argv[2], "client") != 0)) || (!is_cm && strcmp(argv[1], "tcp") != 0))
		return wrong_usage();
	deadline(TIME);
	MUST(getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &files));
	size = number(argv[3], 1, 65536);
	MUST_PTR(connections = calloc(MAX_CONNECTIONS, sizeof *connections));
	MUST_PTR(rdma.memory = calloc(MAX_CONNECTIONS, 2 * size));
	epoll = epoll_create1(0);
	EXPECT(epoll >= 0);
	if (is_server)
		serve();
	run.seconds = (double)number(argv[5], 1, 100);
	run.rate = (double)number(argv[6], 0, 10000000);
	open_all(number(argv[4], 1, MAX_CONNECTIONS), argv[7], argv[8]);
	measure();
	return 0;
}
