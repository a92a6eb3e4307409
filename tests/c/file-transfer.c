/*
 * A client that transfers a stream into a server's memory, chunk by chunk, with WRITE WITH
 * IMMEDIATE.
 *
 * The server speaks first: it SENDs address and key of its buffer. The client WRITEs a name, then
 * chunk after chunk of 10 MiB, each with its length as immediate, and an empty one as the end. The
 * server's receives have no scatter/gather elements; for each chunk it SENDs that it is ready for
 * the next. The client posts the receive for that answer after the chunk, and the server its
 * receive after the answer: both run into a receiver that is not ready, again and again.
 * retry_count is 0, rnr_retry 7.
 *
 * usage: file-transfer server [-n CLIENTS] [-p PORT]
 *        file-transfer client ADDRESS PORT SIZE [CHUNK]
 */
#include "common.h"

enum { MAX_CHUNK = 10 << 20, MAX_NAME = 64, TIME = 120 };

enum message_type { MSG_MR = 1, MSG_READY, MSG_DONE };

struct message {
	enum message_type type;
	uint64_t addr;
	uint32_t rkey;
};

struct connection {
	struct rdma_cm_id *id;
	char *buffer;
	struct ibv_mr *buffer_mr, *message_mr;
	struct message *message;
	/* Name first, then the stream. */
	bool named;
	uint64_t size, done;
	atomic_bool over;
	/* Client. */
	uint64_t peer_addr;
	uint32_t peer_rkey;
};

static struct {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
} shared;

static bool is_server;
static uint64_t size, chunk = MAX_CHUNK;

static uint32_t seed_of(uint64_t length)
{
	return (uint32_t)(length ^ length >> 32) | 1;
}

static void post_receive(struct connection *conn)
{
	struct ibv_sge sge = { (uintptr_t)conn->message, sizeof *conn->message, conn->message_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)conn, .sg_list = is_server ? NULL : &sge, .num_sge = is_server ? 0 : 1 }, *bad;

	MUST(ibv_post_recv(conn->id->qp, &wr, &bad));
}

/* Server. */

static void send_message(struct connection *conn, enum message_type type)
{
	struct ibv_sge sge = { (uintptr_t)conn->message, sizeof *conn->message, conn->message_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)conn,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	conn->message->type = type;
	MUST(ibv_post_send(conn->id->qp, &wr, &bad));
}

static void server_completion(struct connection *conn, const struct ibv_wc *wc)
{
	uint32_t length;

	if (!(wc->opcode & IBV_WC_RECV)) {
		EXPECT(wc->opcode == IBV_WC_SEND);
		return;
	}
	EXPECT(wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	EXPECT(wc->wc_flags & IBV_WC_WITH_IMM);
	length = ntohl(wc->imm_data);
	EXPECT(wc->byte_len == length);
	if (!conn->named) {
		EXPECT(length > 0 && length <= MAX_NAME && conn->buffer[length - 1] == '\0');
		EXPECT(sscanf(conn->buffer, "pattern of %lu bytes", &conn->size) == 1);
		conn->named = true;
	} else if (length == 0) {
		EXPECT(conn->done == conn->size);
		send_message(conn, MSG_DONE);
		conn->over = true;
		return;
	} else {
		EXPECT(length <= MAX_CHUNK && conn->done + length <= conn->size);
		pattern_check(conn->buffer, length, seed_of(conn->size), conn->done);
		conn->done += length;
	}
	send_message(conn, MSG_READY);
	post_receive(conn);
}

/* Client. */

static void write_chunk(struct connection *conn, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)conn->buffer, length, conn->buffer_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)conn,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(length),
	}, *bad;

	wr.wr.rdma.remote_addr = conn->peer_addr;
	wr.wr.rdma.rkey = conn->peer_rkey;
	if (length > 0) {
		wr.sg_list = &sge;
		wr.num_sge = 1;
	}
	MUST(ibv_post_send(conn->id->qp, &wr, &bad));
}

static void write_name(struct connection *conn)
{
	int length = snprintf(conn->buffer, MAX_NAME, "pattern of %lu bytes", size);

	write_chunk(conn, (uint32_t)length + 1);
}

static void write_next(struct connection *conn)
{
	uint64_t left = size - conn->done;
	uint32_t length = left < chunk ? left : chunk;

	pattern_fill(conn->buffer, length, seed_of(size), conn->done);
	write_chunk(conn, length);
	conn->done += length;
}

static void client_completion(struct connection *conn, const struct ibv_wc *wc)
{
	struct message message;

	if (!(wc->opcode & IBV_WC_RECV)) {
		EXPECT(wc->opcode == IBV_WC_RDMA_WRITE);
		return;
	}
	EXPECT(wc->opcode == IBV_WC_RECV && wc->byte_len == sizeof message);
	message = *conn->message;
	switch (message.type) {
	case MSG_MR:
		conn->peer_addr = message.addr;
		conn->peer_rkey = message.rkey;
		write_name(conn);
		break;
	case MSG_READY:
		write_next(conn);
		break;
	case MSG_DONE:
		EXPECT(conn->done == size);
		MUST(rdma_disconnect(conn->id));
		conn->over = true;
		return;
	default:
		die("message of type %d", message.type);
	}
	/* Behind the chunk, on purpose. */
	post_receive(conn);
}

/* Both. */

static void *completion_thread(void *unused)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;

	(void)unused;
	for (;;) {
		MUST(ibv_get_cq_event(shared.channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		MUST(ibv_req_notify_cq(cq, 0));
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			succeeded(&wc);
			(is_server ? server_completion : client_completion)((struct connection *)(uintptr_t)wc.wr_id, &wc);
		}
	}
	return NULL;
}

static void build_shared(struct ibv_context *verbs)
{
	pthread_t thread;

	if (shared.verbs != NULL) {
		EXPECT(shared.verbs == verbs);
		return;
	}
	shared.verbs = verbs;
	MUST_PTR(shared.pd = ibv_alloc_pd(verbs));
	MUST_PTR(shared.channel = ibv_create_comp_channel(verbs));
	MUST_PTR(shared.cq = ibv_create_cq(verbs, 1000, NULL, shared.channel, 0));
	MUST(ibv_req_notify_cq(shared.cq, 0));
	MUST(pthread_create(&thread, NULL, completion_thread, NULL));
}

static void prepare(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int buffer_access = is_server ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
	struct connection *conn;

	build_shared(id->verbs);
	attr.send_cq = attr.recv_cq = shared.cq;
	MUST(rdma_create_qp(id, shared.pd, &attr));
	MUST_PTR(conn = calloc(1, sizeof *conn));
	id->context = conn;
	conn->id = id;
	MUST(posix_memalign((void **)&conn->buffer, sysconf(_SC_PAGESIZE), MAX_CHUNK));
	MUST(posix_memalign((void **)&conn->message, sysconf(_SC_PAGESIZE), sizeof *conn->message));
	MUST_PTR(conn->buffer_mr = ibv_reg_mr(shared.pd, conn->buffer, MAX_CHUNK, buffer_access));
	MUST_PTR(conn->message_mr = ibv_reg_mr(shared.pd, conn->message, sizeof *conn->message, is_server ? 0 : IBV_ACCESS_LOCAL_WRITE));
	post_receive(conn);
}

static void greet(struct connection *conn)
{
	if (!is_server)
		return;
	conn->message->addr = (uintptr_t)conn->buffer_mr->addr;
	conn->message->rkey = conn->buffer_mr->rkey;
	send_message(conn, MSG_MR);
}

static void finish(struct rdma_cm_id *id)
{
	struct connection *conn = id->context;

	/* The end may be here before the completion thread is done with the connection. */
	while (!conn->over)
		usleep(100);
	rdma_destroy_qp(id);
	MUST(ibv_dereg_mr(conn->buffer_mr));
	MUST(ibv_dereg_mr(conn->message_mr));
	free(conn->buffer);
	free(conn->message);
	free(conn);
	MUST(rdma_destroy_id(id));
}

static void serve_events(struct rdma_event_channel *channel, unsigned long connections)
{
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1, .rnr_retry_count = 7 };

	while (connections > 0) {
		struct rdma_cm_event event = next_event(channel);

		if (event.status != 0)
			die("event %s with status %d", rdma_event_str(event.event), event.status);
		switch (event.event) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			prepare(event.id);
			MUST(rdma_resolve_route(event.id, 500));
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			MUST(rdma_connect(event.id, &param));
			break;
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			prepare(event.id);
			MUST(rdma_accept(event.id, &param));
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			greet(event.id->context);
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			finish(event.id);
			connections--;
			break;
		default:
			die("unexpected event %s", rdma_event_str(event.event));
		}
	}
}

static int usage(void)
{
	fputs("usage: file-transfer server [-n CLIENTS] [-p PORT]\n"
	      "       file-transfer client ADDRESS PORT SIZE [CHUNK]\n", stderr);
	return 2;
}

static int server(int argc, char **argv)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	unsigned long clients = 1, port = 0;
	int option;

	while ((option = getopt(argc, argv, "n:p:")) != -1) {
		switch (option) {
		case 'n': clients = number(optarg, 1, 100000); break;
		case 'p': port = number(optarg, 0, 65535); break;
		default: return usage();
		}
	}
	is_server = true;
	MUST_PTR(channel = rdma_create_event_channel());
	listener = listen_on(channel, AF_INET6, port);
	announce(listener);
	serve_events(channel, clients);
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return 0;
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel;

	deadline(TIME);
	if (argc >= 2 && strcmp(argv[1], "server") == 0)
		return server(argc - 1, argv + 1);
	if ((argc != 5 && argc != 6) || strcmp(argv[1], "client") != 0)
		return usage();
	size = number(argv[4], 0, UINT32_MAX);
	if (argc == 6)
		chunk = number(argv[5], 1, MAX_CHUNK);
	MUST_PTR(channel = rdma_create_event_channel());
	start_resolving(channel, argv[2], argv[3]);
	serve_events(channel, 1);
	rdma_destroy_event_channel(channel);
	return 0;
}
