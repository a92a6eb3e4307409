/*
 * A transfer for others to attack: WRITEs, READs, SENDs and their answers, every byte verified, until it is told to end.
 *
 * usage: victim server               serves any number of clients; SIGTERM: ends when the last one has left
 *        victim client ADDRESS PORT [ROUNDS]     ends after so many rounds, or on SIGTERM
 *
 * Both print "slot S qp Q" and "psn P", of its first message to come, for each connection, and ten times a second "rounds N descriptors D kib K", the totals of the process. The
 * last such line comes after the last connection has ended; then "held".
 */
#define SIDE_SIZE (4 * PART)
#define PART 8192
#define SHORT 3000
#define SEED_SERVER 1
#define SEED_CLIENT 2
#include "holdings.h"
#include "side.h"

#include <poll.h>
#include <sched.h>
#include <time.h>

enum {
	TIME = 900,
	LONG = 5000,	/* bytes of a WRITE and a READ: more than a packet */
	SPINS = 200,	/* empty polls before the processor is given away */
	REPORT_MS = 100,
	SLOT_SHIFT = 14 /* a queue pair number's upper bits are its process's slot */
};

/* Order of the parts of a side's memory. Receives take the first. */
enum { IN, OUT, WRITTEN, READ };

static volatile sig_atomic_t is_over;
static atomic_ulong rounds;
static atomic_int served;

static void end(int signal)
{
	(void)signal;
	is_over = 1;
}

static char *at(struct side *side, int part)
{
	return side->buffer + part * PART;
}

static void report(void)
{
	printf("rounds %lu descriptors %u kib %ld\n", atomic_load(&rounds), descriptors(), resident_kib());
	fflush(stdout);
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void introduce(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(ibv_query_qp(side->id->qp, &attr, IBV_QP_RQ_PSN, &init));
	printf("slot %u qp %#x\n", side->id->qp->qp_num >> SLOT_SHIFT, side->id->qp->qp_num);
	printf("psn %u\n", attr.rq_psn);
	fflush(stdout);
}

static struct ibv_wc completion(struct side *side)
{
	struct ibv_wc wc;
	int n, empty = 0;

	while ((n = ibv_poll_cq(side->cq, 1, &wc)) == 0)
		if (++empty % SPINS == 0)
			sched_yield();
	EXPECT(n == 1);
	succeeded(&wc);
	return wc;
}

static void begin(struct side *side, enum ibv_wr_opcode opcode, int mine, uint32_t length, int theirs)
{
	struct ibv_sge sge = { (uintptr_t)at(side, mine), length, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	wr.wr.rdma.remote_addr = side->peer.addr + (uint64_t)theirs * PART;
	wr.wr.rdma.rkey = side->peer.rkey;
	MUST(ibv_post_send(side->id->qp, &wr, &bad));
}

static void carry_out(struct side *side, enum ibv_wr_opcode opcode, int mine, int theirs)
{
	begin(side, opcode, mine, LONG, theirs);
	EXPECT(completion(side).wr_id == opcode);
}

static void want_message(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)at(side, IN), SHORT, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1000, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(side->id->qp, &wr, &bad));
}

/* Sends a message and waits for its end. The other side's may come meanwhile: its length, or 0. */
static uint32_t say(struct side *side, uint32_t seed, uint32_t length)
{
	uint32_t came = 0;
	bool sent = false;

	pattern_fill(at(side, OUT), length, seed, 0);
	begin(side, IBV_WR_SEND, OUT, length, 0);
	while (!sent) {
		struct ibv_wc wc = completion(side);

		if (wc.opcode == IBV_WC_RECV)
			came = wc.byte_len;
		else
			sent = true;
	}
	return came;
}

/* Waits for a message, unless it has come. Its length: that of the last message is 1. */
static uint32_t hear(struct side *side, uint32_t seed, uint32_t came)
{
	if (came == 0) {
		struct ibv_wc wc = completion(side);

		EXPECT(wc.opcode == IBV_WC_RECV);
		came = wc.byte_len;
	}
	EXPECT(came == SHORT || came == 1);
	pattern_check(at(side, IN), came, seed, 0);
	want_message(side);
	return came;
}

static void run_client(struct side *side, unsigned long limit)
{
	long next = now_ms();

	for (uint32_t round = 0; ; round++) {
		bool is_last = is_over || round + 1 == limit;
		uint32_t came, seed = 3 * round;

		pattern_fill(at(side, OUT), LONG, seed, 0);
		carry_out(side, IBV_WR_RDMA_WRITE, OUT, WRITTEN);
		memset(at(side, READ), 0, LONG);
		carry_out(side, IBV_WR_RDMA_READ, READ, WRITTEN);
		pattern_check(at(side, READ), LONG, seed, 0);
		came = say(side, seed + 1, is_last ? 1 : SHORT);
		hear(side, seed + 2, came);
		atomic_fetch_add(&rounds, 1);
		if (is_last)
			return;
		if (now_ms() >= next) {
			report();
			next = now_ms() + REPORT_MS;
		}
	}
}

static void *run_server(void *context)
{
	struct side *side = context;
	uint32_t came = 0;

	for (uint32_t seed = 0; ; seed += 3) {
		bool is_last = hear(side, seed + 1, came) == 1;

		pattern_check(at(side, WRITTEN), LONG, seed, 0);
		came = say(side, seed + 2, SHORT);
		atomic_fetch_add(&rounds, 1);
		if (is_last)
			return NULL;
	}
}

/* A connection of the server. */
struct client {
	struct side side;
	pthread_t thread;
	bool runs;
};

/* Attackers on this host claim to be a host that there is not (RFC 5737: 192.0.2.0/24). */
static void is_somebody(struct rdma_cm_id *id)
{
	struct sockaddr_in *peer = (struct sockaddr_in *)rdma_get_peer_addr(id);

	EXPECT(peer->sin_family != AF_INET || ntohl(peer->sin_addr.s_addr) >> 8 != 0xc00002);
}

static void admit(struct rdma_cm_id *id)
{
	struct client *client;
	struct offer offer;
	struct rdma_conn_param param = patient;

	is_somebody(id);
	MUST_PTR(client = calloc(1, sizeof *client));
	client->side.id = id;
	id->context = client;
	equip(&client->side, 1, SHORT);
	offer = (struct offer){ (uintptr_t)client->side.buffer, client->side.mr->rkey, SIDE_SIZE };
	param.private_data = &offer;
	param.private_data_len = sizeof offer;
	MUST(rdma_accept(id, &param));
	atomic_fetch_add(&served, 1);
}

static void dismiss(struct client *client)
{
	if (client->runs) {
		MUST(pthread_join(client->thread, NULL));
		MUST(rdma_disconnect(client->side.id));
	}
	release(&client->side);
	free(client);
	atomic_fetch_sub(&served, 1);
}

static void handle(struct rdma_event_channel *channel)
{
	struct rdma_cm_event event = next_event(channel);
	struct client *client = event.id->context;

	switch (event.event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		admit(event.id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		introduce(&client->side);
		MUST(pthread_create(&client->thread, NULL, run_server, client));
		client->runs = true;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_UNREACHABLE: /* a client that gave up */
	case RDMA_CM_EVENT_CONNECT_ERROR:
		dismiss(client);
		break;
	default:
		die("event %s with status %d", rdma_event_str(event.event), event.status);
	}
}

static void serve_all(void)
{
	struct side side = { 0 };
	long next = now_ms();

	open_server(&side, NULL);
	while (!is_over || atomic_load(&served) > 0) {
		struct pollfd wait = { .fd = side.channel->fd, .events = POLLIN };

		if (poll(&wait, 1, REPORT_MS) > 0)
			handle(side.channel);
		if (now_ms() >= next) {
			report();
			next = now_ms() + REPORT_MS;
		}
	}
	report();
	close_server(&side);
}

static void call(const char *address, const char *port, unsigned long limit)
{
	struct side side = { 0 };

	join(&side, address, port, patient);
	introduce(&side);
	run_client(&side, limit);
	report();
	part(&side);
	rdma_destroy_event_channel(side.channel);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = end };

	deadline(TIME);
	MUST(sigaction(SIGTERM, &action, NULL));
	if (argc == 2 && strcmp(argv[1], "server") == 0) {
		serve_all();
	} else if ((argc == 4 || argc == 5) && strcmp(argv[1], "client") == 0) {
		call(argv[2], argv[3], argc == 5 ? number(argv[4], 1, 1000000000) : 0);
	} else {
		fputs("usage: victim server\n       victim client ADDRESS PORT [ROUNDS]\n", stderr);
		return 2;
	}
	puts("held");
	return 0;
}
