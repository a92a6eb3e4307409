/*
 * Makes one of the walks of ARCHITECTURE.md, under callgrind: `cargo xtask walks` compares the
 * functions that were called with those that the document names. Two processes, a client and a
 * child of it that serves. Each counts from begin() to end() only.
 *
 * usage: walks send|read|connect|deregister
 */
#include "../common.h"

#include <sys/wait.h>
#include <valgrind/callgrind.h>

enum { SIZE = 65536, LONG = 2000, SHORT = 8, DEPTH = 16, TIME = 120 };
/* Enough for a short ring, and for a conversation in it. */
enum { ROUNDS = 200 };
enum { SEED = 7 };

/* A process under callgrind is slow to answer. */
static struct rdma_conn_param patient = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
/* From the server to the client, and back. */
static int to_client[2], to_server[2];

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *sent, *received;
	struct ibv_mr *mr;
	unsigned char *buffer;
};

/* What a peer must know to READ. */
struct place {
	uint64_t addr;
	uint32_t rkey;
};

static void tell(int fd, const void *what, size_t length)
{
	EXPECT(write(fd, what, length) == (ssize_t)length);
}

static void hear(int fd, void *what, size_t length)
{
	EXPECT(read(fd, what, length) == (ssize_t)length);
}

/* Waits until the other side is as far. */
static void meet(int out, int in)
{
	char byte = 0;

	tell(out, &byte, 1);
	hear(in, &byte, 1);
}

static void begin(void)
{
	CALLGRIND_ZERO_STATS;
}

static void end(void)
{
	CALLGRIND_DUMP_STATS;
}

static void receive(struct side *side, size_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer, length, side->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(side->id->qp, &wr, &bad));
}

static void post(struct side *side, enum ibv_wr_opcode opcode, size_t length, struct place at)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer, length, side->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = at.addr, .rkey = at.rkey },
	}, *bad;

	MUST(ibv_post_send(side->id->qp, &wr, &bad));
}

static void complete(struct side *side, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next_completion(opcode & IBV_WC_RECV ? side->received : side->sent);

	succeeded(&wc);
	EXPECT(wc.opcode == opcode);
}

static void prepare(struct side *side)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	MUST_PTR(side->buffer = calloc(1, SIZE));
	MUST_PTR(side->sent = ibv_create_cq(side->id->verbs, DEPTH, NULL, NULL, 0));
	MUST_PTR(side->received = ibv_create_cq(side->id->verbs, DEPTH, NULL, NULL, 0));
	attr.send_cq = side->sent;
	attr.recv_cq = side->received;
	MUST(rdma_create_qp(side->id, NULL, &attr));
	MUST_PTR(side->mr = ibv_reg_mr(side->id->pd, side->buffer, SIZE, access));
}

/* Answers each message with one. `first` sends the first one. */
static void talk(struct side *side, bool first)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (first || i > 0)
			complete(side, IBV_WC_RECV);
		receive(side, LONG);
		post(side, IBV_WR_SEND, SHORT, (struct place){ 0 });
		complete(side, IBV_WC_SEND);
	}
}

static void serve(const char *walk)
{
	struct side side = { .channel = rdma_create_event_channel() };
	struct rdma_cm_id *listener = listen_on(side.channel, AF_INET, 0);
	unsigned int port = ntohs(rdma_get_src_port(listener));
	bool connects = strcmp(walk, "connect") == 0;

	tell(to_client[1], &port, sizeof port);
	if (connects)
		begin();
	meet(to_client[1], to_server[0]);
	side.id = await(side.channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
	prepare(&side);
	receive(&side, LONG);
	MUST(rdma_accept(side.id, &patient));
	await(side.channel, RDMA_CM_EVENT_ESTABLISHED);
	if (connects)
		end();
	pattern_fill(side.buffer, SIZE, SEED, 0);
	tell(to_client[1], &(struct place){ (uintptr_t)side.buffer, side.mr->rkey }, sizeof(struct place));
	if (!connects)
		begin();
	meet(to_client[1], to_server[0]);
	if (strcmp(walk, "send") == 0) {
		complete(&side, IBV_WC_RECV);
		receive(&side, LONG);
		talk(&side, true);
	}
	meet(to_client[1], to_server[0]);
	if (!connects)
		end();
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
}

static void call(const char *walk)
{
	struct side side = { .channel = rdma_create_event_channel() };
	struct place at;
	unsigned int port;
	char text[8];
	bool connects = strcmp(walk, "connect") == 0;

	hear(to_client[0], &port, sizeof port);
	snprintf(text, sizeof text, "%u", port);
	side.id = start_resolving(side.channel, "127.0.0.1", text);
	await(side.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(side.id, 500));
	await(side.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	prepare(&side);
	receive(&side, LONG);
	meet(to_server[1], to_client[0]);
	if (connects)
		begin();
	MUST(rdma_connect(side.id, &patient));
	await(side.channel, RDMA_CM_EVENT_ESTABLISHED);
	if (connects)
		end();
	hear(to_client[0], &at, sizeof at);
	meet(to_server[1], to_client[0]);
	if (!connects)
		begin();
	if (strcmp(walk, "send") == 0) {
		/* Too long for the short way. */
		post(&side, IBV_WR_SEND, LONG, at);
		complete(&side, IBV_WC_SEND);
		talk(&side, false);
		complete(&side, IBV_WC_RECV);
	} else if (strcmp(walk, "read") == 0) {
		post(&side, IBV_WR_RDMA_READ, SIZE, at);
		complete(&side, IBV_WC_RDMA_READ);
		pattern_check(side.buffer, SIZE, SEED, 0);
	} else if (strcmp(walk, "deregister") == 0) {
		MUST(ibv_dereg_mr(side.mr));
	}
	if (!connects)
		end();
	meet(to_server[1], to_client[0]);
	MUST(rdma_disconnect(side.id));
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
}

int main(int argc, char **argv)
{
	pid_t child;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: walks send|read|connect|deregister\n");
		return 2;
	}
	if (strcmp(argv[1], "read") == 0)
		MUST(setenv("FERROCE_PATH", "wire", 1));
	deadline(TIME);
	MUST(pipe(to_client));
	MUST(pipe(to_server));
	child = fork();
	EXPECT(child >= 0);
	if (child == 0) {
		deadline(TIME);
		serve(argv[1]);
		_exit(0);
	}
	call(argv[1]);
	EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
