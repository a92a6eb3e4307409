/*
 * A server and a client that send each other one message.
 *
 * Completions are handled by a thread of their own that sleeps in ibv_get_cq_event for ever;
 * connection events by the main thread, which acknowledges an event before it looks at it. All
 * connection parameters are zero: no retry is allowed. The client disconnects from the completion
 * thread, while the main thread sleeps in rdma_get_cm_event.
 *
 * usage: client-server server [-4] [-n CLIENTS] [-p PORT]
 *        client-server client ADDRESS PORT
 */
#include "common.h"

enum { SIZE = 1024, TIME = 60 };
enum { SEED_CLIENT = 1, SEED_SERVER = 2 };

struct connection {
	struct rdma_cm_id *id;
	struct ibv_mr *recv_mr, *send_mr;
	char recv_buffer[SIZE], send_buffer[SIZE];
	/* The completion thread's. */
	bool sent, received;
	/* Set by the completion thread when it needs the connection no more; under the lock. */
	bool is_done;
};

/* One for the device: all connections share it. */
static struct {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
} shared;

static bool is_server;
static int cq_size = 10;
static pthread_mutex_t progress_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;

static void on_completion(const struct ibv_wc *wc)
{
	struct connection *conn = (struct connection *)(uintptr_t)wc->wr_id;

	succeeded(wc);
	if (wc->opcode & IBV_WC_RECV) {
		EXPECT(wc->opcode == IBV_WC_RECV && wc->byte_len == SIZE);
		EXPECT(!conn->received);
		pattern_check(conn->recv_buffer, SIZE, is_server ? SEED_CLIENT : SEED_SERVER, 0);
		conn->received = true;
	} else {
		EXPECT(wc->opcode == IBV_WC_SEND);
		EXPECT(!conn->sent);
		conn->sent = true;
	}
	if (!conn->sent || !conn->received)
		return;
	if (!is_server)
		MUST(rdma_disconnect(conn->id));
	pthread_mutex_lock(&progress_lock);
	conn->is_done = true;
	pthread_cond_broadcast(&progress);
	pthread_mutex_unlock(&progress_lock);
}

static void *completion_thread(void *unused)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;

	(void)unused;
	for (;;) {
		MUST(ibv_get_cq_event(shared.channel, &cq, &context));
		EXPECT(cq == shared.cq && context == &shared);
		ibv_ack_cq_events(cq, 1);
		MUST(ibv_req_notify_cq(cq, 0));
		while (ibv_poll_cq(cq, 1, &wc) > 0)
			on_completion(&wc);
	}
	return NULL;
}

static void build_shared(struct ibv_context *verbs)
{
	pthread_t thread;

	if (shared.verbs != NULL) {
		if (shared.verbs != verbs)
			die("identifiers of one device have different contexts");
		return;
	}
	shared.verbs = verbs;
	MUST_PTR(shared.pd = ibv_alloc_pd(verbs));
	MUST_PTR(shared.channel = ibv_create_comp_channel(verbs));
	MUST_PTR(shared.cq = ibv_create_cq(verbs, cq_size, &shared, shared.channel, 0));
	MUST(ibv_req_notify_cq(shared.cq, 0));
	MUST(pthread_create(&thread, NULL, completion_thread, NULL));
}

/* A queue pair with its buffers, the receive posted. */
static void prepare(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct connection *conn;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST_PTR(id->verbs);
	build_shared(id->verbs);
	attr.send_cq = attr.recv_cq = shared.cq;
	MUST(rdma_create_qp(id, shared.pd, &attr));
	MUST_PTR(conn = calloc(1, sizeof *conn));
	id->context = conn;
	conn->id = id;
	MUST_PTR(conn->send_mr = ibv_reg_mr(shared.pd, conn->send_buffer, SIZE, 0));
	MUST_PTR(conn->recv_mr = ibv_reg_mr(shared.pd, conn->recv_buffer, SIZE, IBV_ACCESS_LOCAL_WRITE));
	sge = (struct ibv_sge){ (uintptr_t)conn->recv_buffer, SIZE, conn->recv_mr->lkey };
	wr.wr_id = (uintptr_t)conn;
	MUST(ibv_post_recv(id->qp, &wr, &bad));
}

static void send_message(struct connection *conn)
{
	struct ibv_sge sge = { (uintptr_t)conn->send_buffer, SIZE, conn->send_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)conn,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	pattern_fill(conn->send_buffer, SIZE, is_server ? SEED_SERVER : SEED_CLIENT, 0);
	MUST(ibv_post_send(conn->id->qp, &wr, &bad));
}

/*
 * Both messages must have arrived, whatever the disconnect flushes, and the completion thread must
 * be out of rdma_disconnect, which uses the identifier until it returns: DISCONNECTED may be here
 * earlier.
 */
static void finish(struct rdma_cm_id *id)
{
	struct connection *conn = id->context;

	pthread_mutex_lock(&progress_lock);
	while (!conn->is_done)
		pthread_cond_wait(&progress, &progress_lock);
	pthread_mutex_unlock(&progress_lock);
	rdma_destroy_qp(id);
	MUST(ibv_dereg_mr(conn->send_mr));
	MUST(ibv_dereg_mr(conn->recv_mr));
	free(conn);
	MUST(rdma_destroy_id(id));
}

/* Handles events until so many connections have ended. */
static void serve_events(struct rdma_event_channel *channel, unsigned long connections)
{
	struct rdma_conn_param param;

	while (connections > 0) {
		struct rdma_cm_event event = next_event(channel);

		memset(&param, 0, sizeof param);
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
			send_message(event.id->context);
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
	fputs("usage: client-server server [-4] [-n CLIENTS] [-p PORT]\n"
	      "       client-server client ADDRESS PORT\n", stderr);
	return 2;
}

static int server(int argc, char **argv)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	unsigned long clients = 1, port = 0;
	int family = AF_INET6, option;

	while ((option = getopt(argc, argv, "4n:p:")) != -1) {
		switch (option) {
		case '4': family = AF_INET; break;
		case 'n': clients = number(optarg, 1, 100000); break;
		case 'p': port = number(optarg, 0, 65535); break;
		default: return usage();
		}
	}
	is_server = true;
	cq_size *= clients < 100 ? clients : 100;
	MUST_PTR(channel = rdma_create_event_channel());
	listener = listen_on(channel, family, port);
	announce(listener);
	serve_events(channel, clients);
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return 0;
}

int main(int argc, char **argv)
{
	deadline(TIME);
	if (argc >= 2 && strcmp(argv[1], "server") == 0)
		return server(argc - 1, argv + 1);
	if (argc == 4 && strcmp(argv[1], "client") == 0) {
		struct rdma_event_channel *channel;

		MUST_PTR(channel = rdma_create_event_channel());
		start_resolving(channel, argv[2], argv[3]);
		serve_events(channel, 1);
		rdma_destroy_event_channel(channel);
		return 0;
	}
	return usage();
}
