/*
 * One side of a connection for programs that are run as a server and a client: memory, a completion
 * queue and an RC queue pair, and what the server tells the client of its memory.
 *
 * A program that includes this says before how large the memory is (SIDE_SIZE), how much of it the
 * first receives take (SHORT), and the seeds of the patterns that fill it.
 */
#ifndef FERROCE_TESTS_SIDE_H
#define FERROCE_TESTS_SIDE_H

#include "common.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the server tells with its acceptance. */
struct offer {
	uint64_t addr;
	uint32_t rkey, length;
};

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	/* Its events, if it sleeps for completions. */
	struct ibv_comp_channel *events;
	struct ibv_mr *mr;
	char *buffer;
	/*
	 * Its memory is a file's that is sealed against shrinking, and is registered by the file's
	 * descriptor.
	 */
	bool is_shared, sleeps;
	struct offer peer;
};

/*
 * Memory that is registered. Its pages are a whole number of those of the machine if it is shared.
 */
static void UNUSED give_memory(struct side *side)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	int file;

	if (!side->is_shared) {
		MUST_PTR(side->buffer = malloc(SIDE_SIZE));
		MUST_PTR(side->mr = ibv_reg_mr(side->pd, side->buffer, SIDE_SIZE, access));
		return;
	}
	EXPECT((file = memfd_create("side", MFD_CLOEXEC | MFD_ALLOW_SEALING)) >= 0);
	MUST(ftruncate(file, SIDE_SIZE));
	MUST(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK));
	side->buffer = mmap(NULL, SIDE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	EXPECT(side->buffer != MAP_FAILED);
	MUST_PTR(side->mr = ibv_reg_dmabuf_mr(side->pd, 0, SIDE_SIZE, (uintptr_t)side->buffer, file, access));
	/* The region has its own. */
	MUST(close(file));
}

/* Memory, queue and queue pair; `receives` receives of so many bytes each are posted. */
static void UNUSED equip(struct side *side, int receives, uint32_t length)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 3, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};

	MUST_PTR(side->pd = ibv_alloc_pd(side->id->verbs));
	if (side->sleeps)
		MUST_PTR(side->events = ibv_create_comp_channel(side->id->verbs));
	MUST_PTR(side->cq = ibv_create_cq(side->id->verbs, 64, NULL, side->events, 0));
	attr.send_cq = attr.recv_cq = side->cq;
	MUST(rdma_create_qp(side->id, side->pd, &attr));
	give_memory(side);
	for (int i = 0; i < receives; i++) {
		struct ibv_sge sge = { (uintptr_t)side->buffer, length, side->mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = 1000 + i, .sg_list = &sge, .num_sge = 1 }, *bad;

		MUST(ibv_post_recv(side->id->qp, &wr, &bad));
	}
}

static void UNUSED release(struct side *side)
{
	rdma_destroy_qp(side->id);
	if (side->mr != NULL)
		MUST(ibv_dereg_mr(side->mr));
	if (side->is_shared)
		MUST(munmap(side->buffer, SIDE_SIZE));
	else
		free(side->buffer);
	MUST(ibv_destroy_cq(side->cq));
	if (side->sleeps)
		MUST(ibv_destroy_comp_channel(side->events));
	MUST(ibv_dealloc_pd(side->pd));
	MUST(rdma_destroy_id(side->id));
}

static void UNUSED post(struct side *side, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer, length, side->mr ? side->mr->lkey : 0 };
	struct ibv_send_wr wr = { .wr_id = opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	wr.wr.rdma.remote_addr = side->peer.addr;
	wr.wr.rdma.rkey = side->peer.rkey;
	MUST(ibv_post_send(side->id->qp, &wr, &bad));
}

static void UNUSED expect_completion(struct side *side, enum ibv_wc_status wanted)
{
	struct ibv_wc wc = next_completion(side->cq);

	if (wc.status != wanted)
		die("completion of %llu: %s, not %s", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), ibv_wc_status_str(wanted));
	EXPECT(wc.qp_num == side->id->qp->qp_num);
}

static enum ibv_qp_state UNUSED state_of(struct side *side)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	MUST(ibv_query_qp(side->id->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* Server: listens, announces. */
static void UNUSED open_server(struct side *side, const char *port)
{
	MUST_PTR(side->channel = rdma_create_event_channel());
	side->listener = listen_on(side->channel, AF_INET6, port ? number(port, 0, 65535) : 0);
	announce(side->listener);
}

/*
 * Server: accepts the next connection, offering its memory. `rnr_retry` is how often the client's
 * queue pair may retry when a receive is missing here.
 */
static void UNUSED serve_with(struct side *side, int receives, uint32_t length, uint8_t rnr_retry)
{
	struct offer offer;
	struct rdma_conn_param param = {
		.private_data = &offer,
		.private_data_len = sizeof offer,
		.rnr_retry_count = rnr_retry,
		.initiator_depth = 1,
		.responder_resources = 1,
	};

	side->id = await(side->channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
	equip(side, receives, length);
	pattern_fill(side->buffer, SIDE_SIZE, SEED_SERVER, 0);
	offer = (struct offer){ (uintptr_t)side->buffer, side->mr->rkey, SIDE_SIZE };
	MUST(rdma_accept(side->id, &param));
	await(side->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void UNUSED serve(struct side *side, int receives, uint32_t length)
{
	serve_with(side, receives, length, 7);
}

static void UNUSED close_server(struct side *side)
{
	MUST(rdma_destroy_id(side->listener));
	rdma_destroy_event_channel(side->channel);
}

/* Client: as far as the resolved route. */
static void UNUSED find(struct side *side, const char *address, const char *port, int receives, uint32_t length)
{
	if (side->channel == NULL)
		MUST_PTR(side->channel = rdma_create_event_channel());
	side->id = start_resolving(side->channel, address, port);
	await(side->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	equip(side, receives, length);
	pattern_fill(side->buffer, SIDE_SIZE, SEED_CLIENT, 0);
	MUST(rdma_resolve_route(side->id, 500));
	await(side->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* Client: connects and learns the server's memory. */
static void UNUSED enter(struct side *side, struct rdma_conn_param param)
{
	struct rdma_cm_event *event;

	MUST(rdma_connect(side->id, &param));
	MUST(rdma_get_cm_event(side->channel, &event));
	if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		die("event %s with status %d", rdma_event_str(event->event), event->status);
	EXPECT(event->param.conn.private_data_len >= sizeof side->peer);
	memcpy(&side->peer, event->param.conn.private_data, sizeof side->peer);
	EXPECT(side->peer.length == SIDE_SIZE);
	MUST(rdma_ack_cm_event(event));
}

/* Client: all of it, with one receive. */
static void UNUSED join(struct side *side, const char *address, const char *port, struct rdma_conn_param param)
{
	find(side, address, port, 1, SHORT);
	enter(side, param);
}

/* Either side ends what is left of a connection. */
static void UNUSED part(struct side *side)
{
	MUST(rdma_disconnect(side->id));
	await(side->channel, RDMA_CM_EVENT_DISCONNECTED);
	release(side);
}

/* The server ends when the client does. */
static void UNUSED see_off(struct side *side)
{
	await(side->channel, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_disconnect(side->id));
	release(side);
	close_server(side);
}

static const struct rdma_conn_param UNUSED patient = { .retry_count = 7, .rnr_retry_count = 7, .initiator_depth = 1, .responder_resources = 1 };

#endif
