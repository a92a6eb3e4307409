/*
 * Two sides that reach into each other's memory.
 *
 * The client sends its `struct ibv_mr` by value, the server answers with its own; each then WRITEs
 * its text into the other's region, or READs the other's, and says when it is done. When both are
 * done, both disconnect at once. The server listens on IPv6 and serves IPv4 clients too. The first
 * message may reach the server's completion thread before its main thread hears that the connection
 * is established: it waits for that.
 *
 * usage: read-write server [-r] [-n CLIENTS] [-p PORT]
 *        read-write client [-r] ADDRESS PORT
 * Without -r the sides WRITE, with -r they READ; both must be given the same.
 */
#include "common.h"

enum { SIZE = 1024, TIME = 60 };
enum { SEED_CLIENT = 3, SEED_SERVER = 4, SEED_NONE = 5 };

enum message_type { MSG_MR = 1, MSG_DONE };

struct message {
	enum message_type type;
	struct ibv_mr mr;
};

struct connection {
	struct rdma_cm_id *id;
	struct ibv_mr *recv_mr, *send_mr, *local_mr, *remote_mr, peer_mr;
	struct message recv_message, send_message;
	/* `local` is this side's; `remote` is what the peer WRITEs to or READs from. */
	char local[SIZE], remote[SIZE];
	atomic_bool established;
	/* Handled by the completion thread. */
	bool sent_mr, sent_done, got_mr, got_done, disconnecting;
	atomic_bool over;
};

static struct {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
} shared;

static bool is_server, reads;

/* What each work request was for: kept in the low bits of its tag. */
enum work { WORK_RECV, WORK_SEND, WORK_RDMA, WORK_MASK = 3 };

static uint64_t tag(struct connection *conn, enum work work)
{
	return (uintptr_t)conn | work;
}

static void post_receive(struct connection *conn)
{
	struct ibv_sge sge = { (uintptr_t)&conn->recv_message, sizeof conn->recv_message, conn->recv_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = tag(conn, WORK_RECV), .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(conn->id->qp, &wr, &bad));
}

static void send_message(struct connection *conn, enum message_type type)
{
	struct ibv_sge sge = { (uintptr_t)&conn->send_message, sizeof conn->send_message, conn->send_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = tag(conn, WORK_SEND),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	while (!conn->established)
		;
	conn->send_message.type = type;
	if (type == MSG_MR)
		conn->send_message.mr = *conn->remote_mr;
	MUST(ibv_post_send(conn->id->qp, &wr, &bad));
}

/* WRITEs to or READs from the peer's region, and right behind it tells that it is done. */
static void reach_out(struct connection *conn)
{
	struct ibv_sge sge = { (uintptr_t)conn->local, SIZE, conn->local_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = tag(conn, WORK_RDMA),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)conn->peer_mr.addr;
	wr.wr.rdma.rkey = conn->peer_mr.rkey;
	EXPECT(conn->peer_mr.length == SIZE);
	MUST(ibv_post_send(conn->id->qp, &wr, &bad));
	send_message(conn, MSG_DONE);
}

static void on_message(struct connection *conn)
{
	struct message message = conn->recv_message;

	switch (message.type) {
	case MSG_MR:
		EXPECT(!conn->got_mr);
		conn->got_mr = true;
		conn->peer_mr = message.mr;
		post_receive(conn);
		if (is_server)
			send_message(conn, MSG_MR);
		else
			reach_out(conn);
		break;
	case MSG_DONE:
		EXPECT(!conn->got_done);
		conn->got_done = true;
		break;
	default:
		die("message of type %d", message.type);
	}
}

static void on_completion(const struct ibv_wc *wc)
{
	struct connection *conn = (struct connection *)(uintptr_t)(wc->wr_id & ~(uint64_t)WORK_MASK);
	enum work work = wc->wr_id & WORK_MASK;

	succeeded(wc);
	if (work == WORK_RECV) {
		EXPECT(wc->opcode == IBV_WC_RECV && wc->byte_len == sizeof(struct message));
		on_message(conn);
	} else if (work == WORK_RDMA) {
		EXPECT(wc->opcode == (reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE));
	} else {
		EXPECT(wc->opcode == IBV_WC_SEND);
		if (!conn->sent_mr) {
			conn->sent_mr = true;
			if (is_server)
				reach_out(conn);
		} else {
			EXPECT(!conn->sent_done);
			conn->sent_done = true;
		}
	}
	if (conn->sent_done && conn->got_done && !conn->disconnecting) {
		conn->disconnecting = true;
		pattern_check(reads ? conn->local : conn->remote, SIZE, is_server ? SEED_CLIENT : SEED_SERVER, 0);
		MUST(rdma_disconnect(conn->id));
		conn->over = true;
	}
}

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
	uint32_t seed = is_server ? SEED_SERVER : SEED_CLIENT;
	int remote_access = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	int local_access = reads ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct connection *conn;

	MUST_PTR(id->verbs);
	build_shared(id->verbs);
	attr.send_cq = attr.recv_cq = shared.cq;
	MUST(rdma_create_qp(id, shared.pd, &attr));
	MUST_PTR(conn = calloc(1, sizeof *conn));
	id->context = conn;
	conn->id = id;
	pattern_fill(reads ? conn->remote : conn->local, SIZE, seed, 0);
	pattern_fill(reads ? conn->local : conn->remote, SIZE, SEED_NONE, 0);
	MUST_PTR(conn->send_mr = ibv_reg_mr(shared.pd, &conn->send_message, sizeof conn->send_message, 0));
	MUST_PTR(conn->recv_mr = ibv_reg_mr(shared.pd, &conn->recv_message, sizeof conn->recv_message, IBV_ACCESS_LOCAL_WRITE));
	MUST_PTR(conn->local_mr = ibv_reg_mr(shared.pd, conn->local, SIZE, local_access));
	MUST_PTR(conn->remote_mr = ibv_reg_mr(shared.pd, conn->remote, SIZE, remote_access));
	post_receive(conn);
}

static void finish(struct rdma_cm_id *id)
{
	struct connection *conn = id->context;

	/* The peer may be quicker: this side disconnects too before it lets go. */
	while (!conn->over)
		usleep(100);
	rdma_destroy_qp(id);
	MUST(ibv_dereg_mr(conn->send_mr));
	MUST(ibv_dereg_mr(conn->recv_mr));
	MUST(ibv_dereg_mr(conn->local_mr));
	MUST(ibv_dereg_mr(conn->remote_mr));
	free(conn);
	MUST(rdma_destroy_id(id));
}

static void serve_events(struct rdma_event_channel *channel, unsigned long connections)
{
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1, .rnr_retry_count = 7 };

	while (connections > 0) {
		struct rdma_cm_event event = next_event(channel);
		struct connection *conn;

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
			EXPECT(event.param.conn.initiator_depth == 1 && event.param.conn.responder_resources == 1);
			EXPECT(event.param.conn.rnr_retry_count == 7 && event.param.conn.retry_count == 0);
			prepare(event.id);
			MUST(rdma_accept(event.id, &param));
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			conn = event.id->context;
			conn->established = true;
			if (!is_server)
				send_message(conn, MSG_MR);
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
	fputs("usage: read-write server [-r] [-n CLIENTS] [-p PORT]\n"
	      "       read-write client [-r] ADDRESS PORT\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	unsigned long clients = 1, port = 0;
	int option;

	deadline(TIME);
	if (argc < 2 || (strcmp(argv[1], "server") != 0 && strcmp(argv[1], "client") != 0))
		return usage();
	is_server = strcmp(argv[1], "server") == 0;
	argc--, argv++;
	while ((option = getopt(argc, argv, is_server ? "rn:p:" : "r")) != -1) {
		switch (option) {
		case 'r': reads = true; break;
		case 'n': clients = number(optarg, 1, 100000); break;
		case 'p': port = number(optarg, 0, 65535); break;
		default: return usage();
		}
	}
	if (argc - optind != (is_server ? 0 : 2))
		return usage();
	MUST_PTR(channel = rdma_create_event_channel());
	if (is_server) {
		listener = listen_on(channel, AF_INET6, port);
		announce(listener);
		serve_events(channel, clients);
		MUST(rdma_destroy_id(listener));
	} else {
		start_resolving(channel, argv[optind], argv[optind + 1]);
		serve_events(channel, 1);
	}
	rdma_destroy_event_channel(channel);
	return 0;
}
