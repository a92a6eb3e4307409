/*
 * How connections over iWARP end. There is no acknowledgement: a WRITE or SEND that the peer
 * refuses has completed before, and then the connection ends on both sides.
 *
 * usage: iwarp-ends server CASE PORT
 *        iwarp-ends client CASE ADDRESS PORT
 *
 * CASE         what happens
 * rejected     the server rejects with private data: REJECTED with a negative errno and exactly
 *              that data
 * wrong-rkey   WRITE with a key that names nothing
 * deregistered WRITE to memory that is registered no more: no byte changes
 * no-receive   SEND without a receive
 * too-long     SEND longer than the receive, which fails
 * bad-lkey     SEND from memory that is registered no more
 * parts        the client disconnects: receives are flushed on both sides
 * server-parts the server does
 * exits        the client exits without a disconnect
 */
#include "common.h"

enum { SIDE_SIZE = 64 << 10, SHORT = 1024, TIME = 60 };
enum { SEED_CLIENT = 11, SEED_SERVER = 12 };

#include "side.h"

static const char rejection[] = "this server takes nobody";

/* The kernel's driver has one status for all that it cannot send. */
static bool is_siw(const struct side *side)
{
	return strncmp(ibv_get_device_name(side->id->verbs->device), "siw", 3) == 0;
}

/*
 * What the server refuses has completed before. siw fails the work request that it is sending if
 * the server's TERMINATE comes before its call of TCP returns: with a server that answers at once
 * and a busy machine, that happens.
 */
static void expect_sent(struct side *side)
{
	enum ibv_wc_status status = next_completion(side->cq).status;

	if (status != IBV_WC_SUCCESS && !(is_siw(side) && status == IBV_WC_LOC_QP_OP_ERR))
		die("completion: %s", ibv_wc_status_str(status));
}

/* The connection ends by itself: what was posted is flushed. */
static void ends(struct side *side, int flushed)
{
	while (flushed-- > 0)
		expect_completion(side, IBV_WC_WR_FLUSH_ERR);
	await(side->channel, RDMA_CM_EVENT_DISCONNECTED);
	release(side);
}

static void rejected_server(struct side *side)
{
	struct rdma_cm_id *id = await(side->channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;

	MUST(rdma_reject(id, rejection, sizeof rejection));
	MUST(rdma_destroy_id(id));
}

static void rejected_client(struct side *side, const char *address, const char *port)
{
	struct rdma_conn_param param = patient;
	struct rdma_cm_event *event;

	find(side, address, port, 1, SHORT);
	MUST(rdma_connect(side->id, &param));
	MUST(rdma_get_cm_event(side->channel, &event));
	if (event->event != RDMA_CM_EVENT_REJECTED || event->status != -ECONNRESET)
		die("event %s with status %d", rdma_event_str(event->event), event->status);
	EXPECT(event->param.conn.private_data_len == sizeof rejection);
	EXPECT(memcmp(event->param.conn.private_data, rejection, sizeof rejection) == 0);
	MUST(rdma_ack_cm_event(event));
	release(side);
}

/* What the client does ends the connection. No byte of the server's memory has changed. */
static void unharmed_server(struct side *side)
{
	serve(side, 1, SHORT);
	expect_completion(side, IBV_WC_WR_FLUSH_ERR);
	pattern_check(side->buffer, SIDE_SIZE, SEED_SERVER, 0);
	ends(side, 0);
}

static void wrong_rkey_client(struct side *side, const char *address, const char *port)
{
	join(side, address, port, patient);
	side->peer.rkey ^= 0x155;
	post(side, IBV_WR_RDMA_WRITE, SHORT);
	expect_sent(side);
	ends(side, 1);
}

static void deregistered_server(struct side *side)
{
	serve(side, 2, 1);
	/* The client asks; the message overwrote the first byte. */
	expect_completion(side, IBV_WC_SUCCESS);
	pattern_fill(side->buffer, SIDE_SIZE, SEED_SERVER, 0);
	MUST(ibv_dereg_mr(side->mr));
	side->mr = NULL;
	MUST_PTR(side->mr = ibv_reg_mr(side->pd, side->buffer, 1, 0));
	post(side, IBV_WR_SEND, 1);
	expect_completion(side, IBV_WC_SUCCESS);
	expect_completion(side, IBV_WC_WR_FLUSH_ERR);
	pattern_check(side->buffer, SIDE_SIZE, SEED_SERVER, 0);
	ends(side, 0);
}

static void deregistered_client(struct side *side, const char *address, const char *port)
{
	join(side, address, port, patient);
	post(side, IBV_WR_SEND, 1);
	/* Own completion and the answer, in either order. */
	expect_completion(side, IBV_WC_SUCCESS);
	expect_completion(side, IBV_WC_SUCCESS);
	post(side, IBV_WR_RDMA_WRITE, SHORT);
	expect_sent(side);
	ends(side, 0);
}

static void no_receive_server(struct side *side)
{
	serve(side, 0, 0);
	ends(side, 0);
}

static void no_receive_client(struct side *side, const char *address, const char *port)
{
	join(side, address, port, patient);
	post(side, IBV_WR_SEND, SHORT);
	expect_sent(side);
	ends(side, 1);
}

static void too_long_server(struct side *side)
{
	serve(side, 2, SHORT);
	expect_completion(side, IBV_WC_LOC_LEN_ERR);
	expect_completion(side, IBV_WC_WR_FLUSH_ERR);
	pattern_check(side->buffer + SHORT, SIDE_SIZE - SHORT, SEED_SERVER, SHORT);
	ends(side, 0);
}

static void too_long_client(struct side *side, const char *address, const char *port)
{
	join(side, address, port, patient);
	post(side, IBV_WR_SEND, SHORT + 1);
	expect_sent(side);
	ends(side, 1);
}

static void bad_lkey_client(struct side *side, const char *address, const char *port)
{
	struct ibv_mr stale;

	join(side, address, port, patient);
	stale = *side->mr;
	MUST(ibv_dereg_mr(side->mr));
	side->mr = &stale;
	post(side, IBV_WR_SEND, SHORT);
	side->mr = NULL;
	expect_completion(side, is_siw(side) ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR);
	ends(side, 1);
}

static void parts_client(struct side *side, const char *address, const char *port)
{
	join(side, address, port, patient);
	MUST(rdma_disconnect(side->id));
	ends(side, 1);
}

static void server_parts_server(struct side *side)
{
	serve(side, 1, SHORT);
	MUST(rdma_disconnect(side->id));
	ends(side, 1);
}

static void server_parts_client(struct side *side, const char *address, const char *port)
{
	join(side, address, port, patient);
	ends(side, 1);
}

static void exits_client(struct side *side, const char *address, const char *port)
{
	join(side, address, port, patient);
	/* As many programs end: the system has to clean up. */
	exit(0);
}

static const struct end {
	const char *name;
	void (*server)(struct side *side);
	void (*client)(struct side *side, const char *address, const char *port);
} all_ends[] = {
	{ "rejected", rejected_server, rejected_client },
	{ "wrong-rkey", unharmed_server, wrong_rkey_client },
	{ "deregistered", deregistered_server, deregistered_client },
	{ "no-receive", no_receive_server, no_receive_client },
	{ "too-long", too_long_server, too_long_client },
	{ "bad-lkey", unharmed_server, bad_lkey_client },
	{ "parts", unharmed_server, parts_client },
	{ "server-parts", server_parts_server, server_parts_client },
	{ "exits", unharmed_server, exits_client },
};

static const struct end *named(const char *name)
{
	for (size_t i = 0; i < sizeof all_ends / sizeof *all_ends; i++)
		if (strcmp(all_ends[i].name, name) == 0)
			return &all_ends[i];
	return NULL;
}

int main(int argc, char **argv)
{
	const struct end *end = argc > 2 ? named(argv[2]) : NULL;
	struct side side = { 0 };

	deadline(TIME);
	if (end != NULL && argc == 4 && strcmp(argv[1], "server") == 0) {
		open_server(&side, argv[3]);
		end->server(&side);
		close_server(&side);
		return 0;
	}
	if (end != NULL && argc == 5 && strcmp(argv[1], "client") == 0) {
		end->client(&side, argv[3], argv[4]);
		rdma_destroy_event_channel(side.channel);
		return 0;
	}
	fputs("usage: iwarp-ends server CASE PORT\n"
	      "       iwarp-ends client CASE ADDRESS PORT\n", stderr);
	return 2;
}
