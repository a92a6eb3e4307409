/*
 * Many queue pairs of one process send to one other process at once, as fast as they may.
 *
 * The client connects PAIRS times and keeps DEPTH WRITEs posted on each queue pair until TOTAL are
 * done on all of them together. Then none may be far behind the others, nothing may have been sent
 * again (the counters under /sys say so: run it with them), and when all have ended the server
 * finds in each region the pattern of its queue pair.
 *
 * usage: fair-shares server PAIRS
 *        fair-shares client PAIRS ADDRESS PORT
 */
#include "common.h"

#include <inttypes.h>

enum { SIZE = 65536, DEPTH = 8, MAX_PAIRS = 64, TIME = 110 };
/* WRITEs on all queue pairs together, for each of them. */
enum { ROUNDS = 150 };
/*
 * One may be served so many times as often as another: the last round is never even, and the
 * machine may be busy.
 */
enum { RATIO = 3 };

struct offer {
	uint64_t addr;
	uint32_t rkey;
};

static struct rdma_cm_id *ids[MAX_PAIRS];
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static char *memory;
static unsigned int pairs;

/* Memory and the completion queue are made with the first connection. */
static void equip(unsigned int n)
{
	struct rdma_cm_id *id = ids[n];
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};

	if (n == 0) {
		MUST_PTR(id->pd);
		MUST_PTR(cq = ibv_create_cq(id->verbs, (int)pairs * (DEPTH + 1), NULL, NULL, 0));
		MUST_PTR(memory = calloc(pairs, SIZE));
		MUST_PTR(mr = ibv_reg_mr(id->pd, memory, (size_t)pairs * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	}
	attr.send_cq = attr.recv_cq = cq;
	MUST(rdma_create_qp(id, id->pd, &attr));
	id->context = (void *)(uintptr_t)n;
}

static void serve(void)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;

	MUST_PTR(channel = rdma_create_event_channel());
	listener = listen_on(channel, AF_INET6, 0);
	announce(listener);
	for (unsigned int n = 0; n < pairs; n++) {
		struct offer offer;
		struct rdma_conn_param param = { .private_data = &offer, .private_data_len = sizeof offer };

		ids[n] = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
		equip(n);
		offer = (struct offer){ (uintptr_t)memory + (uint64_t)n * SIZE, mr->rkey };
		MUST(rdma_accept(ids[n], &param));
		await(channel, RDMA_CM_EVENT_ESTABLISHED);
	}
	for (unsigned int n = 0; n < pairs; n++)
		MUST(rdma_disconnect(await(channel, RDMA_CM_EVENT_DISCONNECTED).id));
	for (unsigned int n = 0; n < pairs; n++)
		pattern_check(memory + (size_t)n * SIZE, SIZE, n, 0);
	printf("all %u regions are right\n", pairs);
}

static void enter(struct rdma_event_channel *channel, unsigned int n, struct offer *offer)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_event *event;

	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	equip(n);
	pattern_fill(memory + (size_t)n * SIZE, SIZE, n, 0);
	MUST(rdma_resolve_route(ids[n], 2000));
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(rdma_connect(ids[n], &param));
	MUST(rdma_get_cm_event(channel, &event));
	if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		die("event %s with status %d", rdma_event_str(event->event), event->status);
	EXPECT(event->param.conn.private_data_len >= sizeof *offer);
	memcpy(offer, event->param.conn.private_data, sizeof *offer);
	MUST(rdma_ack_cm_event(event));
}

static void write_once(unsigned int n, const struct offer *offer)
{
	struct ibv_sge sge = { (uintptr_t)memory + (uint64_t)n * SIZE, SIZE, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = n, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;

	wr.wr.rdma.remote_addr = offer->addr;
	wr.wr.rdma.rkey = offer->rkey;
	MUST(ibv_post_send(ids[n]->qp, &wr, &bad));
}

/* A counter of the device, which must be there. */
static uint64_t counter(const char *name)
{
	char path[256];
	uint64_t value;
	FILE *file;

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/%s", ibv_get_device_name(ids[0]->verbs->device), name);
	MUST_PTR(file = fopen(path, "r"));
	EXPECT(fscanf(file, "%" SCNu64, &value) == 1);
	fclose(file);
	return value;
}

static void race(const struct offer *offers)
{
	unsigned int done[MAX_PAIRS] = { 0 }, least = UINT32_MAX, most = 0, all = 0;

	for (unsigned int n = 0; n < pairs; n++)
		for (int i = 0; i < DEPTH; i++)
			write_once(n, &offers[n]);
	for (; all < pairs * ROUNDS; all++) {
		struct ibv_wc wc = next_completion(cq);

		succeeded(&wc);
		done[wc.wr_id]++;
		write_once((unsigned int)wc.wr_id, &offers[wc.wr_id]);
	}
	for (unsigned int n = 0; n < pairs; n++) {
		least = done[n] < least ? done[n] : least;
		most = done[n] > most ? done[n] : most;
	}
	for (unsigned int i = 0; i < pairs * DEPTH; i++) {
		struct ibv_wc wc = next_completion(cq);

		succeeded(&wc);
	}
	printf("%u WRITEs, from %u to %u on each of %u queue pairs\n", all, least, most, pairs);
	if (most > RATIO * least)
		die("that is no fair share");
}

static void call(const char *address, const char *port)
{
	struct rdma_event_channel *channel;
	struct offer offers[MAX_PAIRS];
	uint64_t lost;

	MUST_PTR(channel = rdma_create_event_channel());
	for (unsigned int n = 0; n < pairs; n++) {
		ids[n] = start_resolving(channel, address, port);
		enter(channel, n, &offers[n]);
	}
	race(offers);
	/* What the receiver missed, and said so. */
	lost = counter("rcvd_seq_err");
	printf("%" PRIu64 " losses heard of\n", lost);
	EXPECT(lost == 0);
	for (unsigned int n = 0; n < pairs; n++) {
		MUST(rdma_disconnect(ids[n]));
		await(channel, RDMA_CM_EVENT_DISCONNECTED);
	}
}

int main(int argc, char **argv)
{
	deadline(TIME);
	if (argc < 3) {
		fprintf(stderr, "usage: %s server PAIRS | client PAIRS ADDRESS PORT\n", argv[0]);
		return 2;
	}
	pairs = (unsigned int)number(argv[2], 1, MAX_PAIRS);
	if (argc == 3 && strcmp(argv[1], "server") == 0)
		serve();
	else if (argc == 5 && strcmp(argv[1], "client") == 0)
		call(argv[3], argv[4]);
	else
		return 2;
	return 0;
}
