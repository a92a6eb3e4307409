/*
 * A transfer for others to attack: WRITEs, READs, SENDs and their answers, every byte verified,
 * until it is told to end.
 *
 * usage: victim server               serves any number of clients; SIGTERM: ends when the last one
 *                                    has left
 *        victim client ADDRESS PORT [ROUNDS]     ends after so many rounds, or on SIGTERM
 *
 * They tell of themselves what victim.h says; then "held".
 */
#define SIDE_SIZE (4 * PART)
#define PART 8192
#define SHORT 3000
#define SEED_SERVER 1
#define SEED_CLIENT 2
#include "victim.h"

#include <sched.h>

enum {
	TIME = 900,
	LONG = 5000,	/* bytes of a WRITE and a READ: more than a packet */
	SPINS = 200	/* empty polls before the processor is given away */
};

/* Order of the parts of a side's memory. Receives take the first. */
enum { IN, OUT, WRITTEN, READ };

static char *at(struct side *side, int part)
{
	return side->buffer + part * PART;
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
		report_if_due();
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
	deadline(TIME);
	end_on_sigterm();
	if (argc == 2 && strcmp(argv[1], "server") == 0) {
		serve_all(&(struct service){ .receives = 1, .length = SHORT, .serve = run_server });
	} else if ((argc == 4 || argc == 5) && strcmp(argv[1], "client") == 0) {
		call(argv[2], argv[3], argc == 5 ? number(argv[4], 1, 1000000000) : 0);
	} else {
		fputs("usage: victim server\n       victim client ADDRESS PORT [ROUNDS]\n", stderr);
		return 2;
	}
	puts("held");
	return 0;
}
