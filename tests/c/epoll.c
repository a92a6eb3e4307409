/*
 * Connection events and completion events in one edge-triggered epoll loop, on non-blocking
 * descriptors.
 *
 * The client keeps several messages under way; the server sends each back. An edge-triggered
 * descriptor speaks up only when something new comes, so every wake-up is drained until EAGAIN; a
 * lost wake-up shows as the deadline.
 *
 * usage: epoll server [-n CLIENTS] [-p PORT] [-s SIZE]
 *        epoll client ADDRESS PORT [MESSAGES [SIZE]]
 */
#include "common.h"

#include <fcntl.h>
#include <sys/epoll.h>

enum { DEPTH = 16, MAX_SIZE = 1 << 20, TIME = 120 };

struct connection {
	struct rdma_cm_id *id;
	char *buffers;
	struct ibv_mr *mr;
	/*
	 * Client: messages sent, and answers that came. Server: messages that came, and answers
	 * whose send completed.
	 */
	unsigned long started, finished;
};

static struct {
	struct rdma_event_channel *events;
	struct ibv_comp_channel *completions;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	int epoll;
	/* Completion events not yet acknowledged: acknowledged in one go. */
	unsigned int unacked;
} loop;

static bool is_server;
static unsigned long messages = 1000, size = 4096, open_connections;

/* Buffers 0 to DEPTH-1 receive, the others send. */
static char *buffer(struct connection *conn, unsigned long index)
{
	return conn->buffers + index * size;
}

static uint64_t tag(struct connection *conn, unsigned long index)
{
	return (uintptr_t)conn | index;
}

static void post_receive(struct connection *conn, unsigned long index)
{
	struct ibv_sge sge = { (uintptr_t)buffer(conn, index), size, conn->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = tag(conn, index), .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(conn->id->qp, &wr, &bad));
}

static void post_send(struct connection *conn, unsigned long index)
{
	struct ibv_sge sge = { (uintptr_t)buffer(conn, index), size, conn->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = tag(conn, index),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	MUST(ibv_post_send(conn->id->qp, &wr, &bad));
}

static void watch(int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
	MUST(epoll_ctl(loop.epoll, EPOLL_CTL_ADD, fd, &event));
}

static void prepare(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct connection *conn;

	if (loop.pd == NULL) {
		MUST_PTR(loop.pd = ibv_alloc_pd(id->verbs));
		MUST_PTR(loop.completions = ibv_create_comp_channel(id->verbs));
		MUST_PTR(loop.cq = ibv_create_cq(id->verbs, 64 * DEPTH, &loop, loop.completions, 0));
		MUST(ibv_req_notify_cq(loop.cq, 0));
		watch(loop.completions->fd);
	}
	attr.send_cq = attr.recv_cq = loop.cq;
	MUST(rdma_create_qp(id, loop.pd, &attr));
	/* Aligned, so that the low bits of a tag are free for the buffer's number. */
	MUST(posix_memalign((void **)&conn, 64, sizeof *conn));
	*conn = (struct connection){ .id = id };
	MUST_PTR(conn->buffers = calloc(2 * DEPTH, size));
	MUST_PTR(conn->mr = ibv_reg_mr(loop.pd, conn->buffers, 2 * DEPTH * size, IBV_ACCESS_LOCAL_WRITE));
	id->context = conn;
	for (unsigned long i = 0; i < DEPTH; i++)
		post_receive(conn, i);
}

/* Starts the client's next message in a buffer that is free. */
static void start_message(struct connection *conn, unsigned long index)
{
	if (conn->started == messages)
		return;
	pattern_fill(buffer(conn, index), size, conn->started++, 0);
	post_send(conn, index);
}

static void client_received(struct connection *conn, unsigned long index)
{
	pattern_check(buffer(conn, index), size, conn->finished, 0);
	post_receive(conn, index);
	/*
	 * Answers come in the order of the messages, so the message of this answer has left its
	 * buffer.
	 */
	start_message(conn, DEPTH + conn->finished++ % DEPTH);
	if (conn->finished == messages)
		MUST(rdma_disconnect(conn->id));
}

static void server_received(struct connection *conn, unsigned long index)
{
	unsigned long reply = DEPTH + conn->started % DEPTH;

	pattern_check(buffer(conn, index), size, conn->started++, 0);
	memcpy(buffer(conn, reply), buffer(conn, index), size);
	post_receive(conn, index);
	post_send(conn, reply);
}

static void on_completion(const struct ibv_wc *wc)
{
	struct connection *conn = (struct connection *)(uintptr_t)(wc->wr_id & ~63ull);
	unsigned long index = wc->wr_id & 63;

	/* After the end the receives come back flushed. */
	if (wc->status == IBV_WC_WR_FLUSH_ERR && index < DEPTH && (is_server || conn->finished == messages))
		return;
	succeeded(wc);
	EXPECT(wc->opcode == (index < DEPTH ? IBV_WC_RECV : IBV_WC_SEND));
	if (index >= DEPTH) {
		conn->finished += is_server;
		return;
	}
	EXPECT(wc->byte_len == size);
	(is_server ? server_received : client_received)(conn, index);
}

static void drain_completions(void)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc[8];
	int n;

	while (ibv_get_cq_event(loop.completions, &cq, &context) == 0) {
		EXPECT(cq == loop.cq && context == &loop);
		loop.unacked++;
		MUST(ibv_req_notify_cq(cq, 0));
		while ((n = ibv_poll_cq(cq, 8, wc)) > 0)
			for (int i = 0; i < n; i++)
				on_completion(&wc[i]);
		EXPECT(n == 0);
	}
	EXPECT(errno == EAGAIN);
}

static void finish(struct rdma_cm_id *id)
{
	struct connection *conn = id->context;

	if (is_server)
		EXPECT(conn->started > 0);
	else
		EXPECT(conn->finished == messages);
	/* Flushed work of this connection may still be in the queue. */
	if (is_server)
		MUST(rdma_disconnect(id));
	drain_completions();
	for (struct ibv_wc wc; ibv_poll_cq(loop.cq, 1, &wc) > 0;)
		on_completion(&wc);
	rdma_destroy_qp(id);
	MUST(ibv_dereg_mr(conn->mr));
	free(conn->buffers);
	free(conn);
	MUST(rdma_destroy_id(id));
	open_connections--;
}

static void on_event(const struct rdma_cm_event *event)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct connection *conn;

	if (event->status != 0)
		die("event %s with status %d", rdma_event_str(event->event), event->status);
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		prepare(event->id);
		MUST(rdma_resolve_route(event->id, 500));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		MUST(rdma_connect(event->id, &param));
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		prepare(event->id);
		MUST(rdma_accept(event->id, &param));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		conn = event->id->context;
		for (unsigned long i = 0; i < DEPTH && !is_server; i++)
			start_message(conn, DEPTH + i);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		finish(event->id);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		die("unexpected event %s", rdma_event_str(event->event));
	}
}

static void drain_events(void)
{
	struct rdma_cm_event *event, copy;

	while (rdma_get_cm_event(loop.events, &event) == 0) {
		copy = *event;
		MUST(rdma_ack_cm_event(event));
		on_event(&copy);
	}
	EXPECT(errno == EAGAIN);
}

static void run(void)
{
	struct epoll_event ready[4];

	while (open_connections > 0) {
		int n = epoll_wait(loop.epoll, ready, 4, -1);

		EXPECT(n > 0);
		for (int i = 0; i < n; i++) {
			if (ready[i].data.fd == loop.events->fd)
				drain_events();
			else
				drain_completions();
		}
	}
	ibv_ack_cq_events(loop.cq, loop.unacked);
	MUST(ibv_destroy_cq(loop.cq));
	MUST(ibv_destroy_comp_channel(loop.completions));
	MUST(ibv_dealloc_pd(loop.pd));
}

static int usage(void)
{
	fputs("usage: epoll server [-n CLIENTS] [-p PORT] [-s SIZE]\n"
	      "       epoll client ADDRESS PORT [MESSAGES [SIZE]]\n", stderr);
	return 2;
}

static int server(int argc, char **argv)
{
	struct rdma_cm_id *listener;
	unsigned long port = 0;
	int option;

	is_server = true;
	open_connections = 1;
	while ((option = getopt(argc, argv, "n:p:s:")) != -1) {
		switch (option) {
		case 'n': open_connections = number(optarg, 1, 100000); break;
		case 'p': port = number(optarg, 0, 65535); break;
		case 's': size = number(optarg, 1, MAX_SIZE); break;
		default: return usage();
		}
	}
	listener = listen_on(loop.events, AF_INET6, port);
	announce(listener);
	run();
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(loop.events);
	return 0;
}

int main(int argc, char **argv)
{
	deadline(TIME);
	if (argc < 2)
		return usage();
	MUST_PTR(loop.events = rdma_create_event_channel());
	EXPECT((loop.epoll = epoll_create1(0)) >= 0);
	watch(loop.events->fd);
	if (strcmp(argv[1], "server") == 0)
		return server(argc - 1, argv + 1);
	if (argc < 4 || argc > 6 || strcmp(argv[1], "client") != 0)
		return usage();
	if (argc > 4)
		messages = number(argv[4], 1, 100000000);
	if (argc > 5)
		size = number(argv[5], 1, MAX_SIZE);
	open_connections = 1;
	start_resolving(loop.events, argv[2], argv[3]);
	run();
	rdma_destroy_event_channel(loop.events);
	return 0;
}
