/*
 * Every operation of a reliable connection with messages of many lengths, and a look at every byte
 * that moved.
 *
 * For each length the client WRITEs to the server's memory and READs it back, SENDs a message that
 * the server answers with one of the same length, and WRITEs with immediate data, which the server
 * compares. Addresses and lengths are odd on purpose, and what is sent is gathered from three
 * pieces. At the end come the atomics. Nothing runs into a receiver that is not ready.
 *
 * usage: operations server [PORT [LONGEST [plain]]]
 *        operations client ADDRESS PORT [LONGEST [plain]]
 * LONGEST bounds the lengths; both must be given the same. With `plain` the peer has neither
 * immediate data nor atomics, as the kernel's siw: messages have none, and posting what needs them
 * is refused.
 */
#include "common.h"

enum { MAX_LENGTH = 1 << 20, TIME = 60 };
/*
 * Parts of the memory: what receives take, what the peer WRITEs and READs, what it WRITEs with
 * immediate data, what is sent, what READs bring, and a word for atomics.
 */
enum { PART = MAX_LENGTH + 64, TARGET = PART, NOTICE = 2 * PART, SOURCE = 3 * PART, RESULT = 4 * PART, WORD = 5 * PART };
enum { SIDE_SIZE = WORD + 8, SHORT = MAX_LENGTH };
enum { SEED_CLIENT = 11, SEED_SERVER = 12, SEED_WRITE = 100, SEED_SEND = 200, SEED_ANSWER = 300, SEED_IMM = 400 };

#include "side.h"

/* Around the largest payloads of a packet, 1024 and 4096 bytes. */
static const uint32_t lengths[] = { 0, 1, 7, 1023, 1024, 1025, 3072, 4095, 4096, 4097, 12288, 65537, MAX_LENGTH };
enum { LENGTHS = sizeof lengths / sizeof *lengths };
static uint32_t count = LENGTHS;
static bool is_plain;

/*
 * Posts a request for `length` bytes at `from`, in up to three pieces. `imm` is for operations that
 * have it.
 */
static void request(struct side *side, enum ibv_wr_opcode opcode, size_t from, uint32_t length, size_t target, uint32_t imm)
{
	uint64_t start = (uintptr_t)side->buffer + from;
	uint32_t piece = length / 3, lkey = side->mr->lkey;
	struct ibv_sge pieces[] = {
		{ start, piece, lkey },
		{ start + piece, piece, lkey },
		{ start + 2 * piece, length - 2 * piece, lkey },
	};
	struct ibv_send_wr wr = { .wr_id = imm, .sg_list = pieces, .num_sge = 3, .opcode = opcode, .imm_data = htonl(imm) }, *bad;

	/* siw READs into one piece (max_sge_rd) and ignores others. */
	if (is_plain && opcode == IBV_WR_RDMA_READ) {
		pieces[0].length = length;
		wr.num_sge = length != 0;
	} else if (piece == 0) {
		wr.sg_list = &pieces[2];
		wr.num_sge = length != 0;
	}
	wr.wr.rdma.remote_addr = side->peer.addr + target;
	wr.wr.rdma.rkey = side->peer.rkey;
	MUST(ibv_post_send(side->id->qp, &wr, &bad));
}

/* The next message, with its number as immediate data where there is such. */
static void send_message(struct side *side, uint32_t index)
{
	request(side, is_plain ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, SOURCE + index, lengths[index], 0, index);
}

/* The next completion, which must be of this opcode. */
static struct ibv_wc completed(struct side *side, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next_completion(side->cq);

	succeeded(&wc);
	if (wc.opcode != opcode)
		die("completion of opcode %d, not %d", wc.opcode, opcode);
	return wc;
}

/* Whether a message is the one with this number. */
static void is_message(const struct ibv_wc *wc, uint32_t index)
{
	if (is_plain && wc->byte_len == lengths[index] && !(wc->wc_flags & IBV_WC_WITH_IMM))
		return;
	if (wc->byte_len != lengths[index] || !(wc->wc_flags & IBV_WC_WITH_IMM) || ntohl(wc->imm_data) != index)
		die("message %u of %u bytes: %u bytes, flags %#x, immediate %u", index, lengths[index], wc->byte_len, wc->wc_flags,
		    ntohl(wc->imm_data));
}

static void fill(struct side *side, size_t at, uint32_t index, uint32_t seed)
{
	pattern_fill(side->buffer + at, lengths[index], seed + index, 0);
}

static void check(struct side *side, size_t at, uint32_t index, uint32_t seed)
{
	pattern_check(side->buffer + at, lengths[index], seed + index, 0);
}

/* Client: what was WRITTEN is READ back, and nothing beside it. */
static void write_and_read(struct side *side, uint32_t index)
{
	uint32_t length = lengths[index];
	char *result = side->buffer + RESULT + 5;
	const char before = result[-1], behind = result[length];

	fill(side, SOURCE + index, index, SEED_WRITE);
	request(side, IBV_WR_RDMA_WRITE, SOURCE + index, length, TARGET + index, 0);
	completed(side, IBV_WC_RDMA_WRITE);
	request(side, IBV_WR_RDMA_READ, RESULT + 5, length, TARGET + index, 0);
	completed(side, IBV_WC_RDMA_READ);
	check(side, RESULT + 5, index, SEED_WRITE);
	EXPECT(result[-1] == before && result[length] == behind);
}

/* Client: a message and its answer. The answer may come before the completion of the message. */
static void send_and_receive(struct side *side, uint32_t index)
{
	fill(side, SOURCE + index, index, SEED_SEND);
	send_message(side, index);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_completion(side->cq);

		succeeded(&wc);
		if (wc.opcode == IBV_WC_RECV) {
			is_message(&wc, index);
			check(side, 0, index, SEED_ANSWER);
		} else {
			EXPECT(wc.opcode == IBV_WC_SEND && wc.wr_id == index);
		}
	}
}

static uint64_t atomic(struct side *side, enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap)
{
	uint64_t *result = (uint64_t *)(side->buffer + RESULT);
	struct ibv_sge sge = { (uintptr_t)result, sizeof *result, side->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	wr.wr.atomic.remote_addr = side->peer.addr + WORD;
	wr.wr.atomic.rkey = side->peer.rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	MUST(ibv_post_send(side->id->qp, &wr, &bad));
	completed(side, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
	return *result;
}

/* Client: each atomic gives the value from before. */
static void atomics(struct side *side)
{
	const uint64_t step = 0x100000001, other = 0x0123456789abcdef;
	uint64_t value;

	pattern_fill(&value, sizeof value, SEED_SERVER, WORD);
	EXPECT(atomic(side, IBV_WR_ATOMIC_FETCH_AND_ADD, step, 0) == value);
	value += step;
	EXPECT(atomic(side, IBV_WR_ATOMIC_CMP_AND_SWP, value + 1, other) == value);
	EXPECT(atomic(side, IBV_WR_ATOMIC_CMP_AND_SWP, value, other) == value);
	request(side, IBV_WR_RDMA_READ, RESULT, sizeof value, WORD, 0);
	completed(side, IBV_WC_RDMA_READ);
	EXPECT(memcmp(side->buffer + RESULT, &other, sizeof other) == 0);
}

/*
 * What a plain peer cannot do is refused when it is posted. siw's library says so with a negative
 * number.
 */
static void refused(struct side *side)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
	};

	for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
		struct ibv_sge sge = { (uintptr_t)side->buffer, sizeof(uint64_t), side->mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcodes[i] }, *bad = NULL;
		int result = ibv_post_send(side->id->qp, &wr, &bad);

		if (abs(result) != EINVAL || bad != &wr)
			die("posting opcode %d gave %d", opcodes[i], result);
	}
}

static void client(const char *address, const char *port)
{
	struct side side = { 0 };

	find(&side, address, port, LENGTHS, MAX_LENGTH);
	enter(&side, patient);
	if (is_plain)
		refused(&side);
	for (uint32_t index = 0; index < count; index++) {
		write_and_read(&side, index);
		send_and_receive(&side, index);
		if (is_plain)
			continue;
		fill(&side, SOURCE + index, index, SEED_IMM);
		request(&side, IBV_WR_RDMA_WRITE_WITH_IMM, SOURCE + index, lengths[index], NOTICE + index, index);
		completed(&side, IBV_WC_RDMA_WRITE);
	}
	if (!is_plain)
		atomics(&side);
	part(&side);
	rdma_destroy_event_channel(side.channel);
}

/*
 * Server: a message, its answer, and a WRITE with immediate, which may come before the completion
 * of the answer. So may the client's next message, where the answer's acknowledgement was lost on
 * the way: it is put into `early`, for the next call.
 */
static void answer(struct side *side, uint32_t index, struct ibv_wc *early)
{
	/* A plain client WRITEs without a notice. */
	bool answered = false, noticed = is_plain;
	struct ibv_wc wc = *early;

	if (early->opcode != IBV_WC_RECV)
		wc = completed(side, IBV_WC_RECV);
	*early = (struct ibv_wc){ 0 };
	is_message(&wc, index);
	check(side, 0, index, SEED_SEND);
	fill(side, SOURCE + index, index, SEED_ANSWER);
	send_message(side, index);
	while (!answered || !noticed) {
		wc = next_completion(side->cq);
		succeeded(&wc);
		if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && !noticed) {
			is_message(&wc, index);
			check(side, NOTICE + index, index, SEED_IMM);
			noticed = true;
		} else if (wc.opcode == IBV_WC_RECV && noticed && early->opcode != IBV_WC_RECV) {
			*early = wc;
		} else {
			EXPECT(wc.opcode == IBV_WC_SEND && wc.wr_id == index && !answered);
			answered = true;
		}
	}
}

static void server(const char *port)
{
	struct ibv_wc early = { 0 };
	struct side side = { 0 };

	open_server(&side, port);
	serve(&side, 2 * LENGTHS, MAX_LENGTH);
	if (is_plain)
		refused(&side);
	for (uint32_t index = 0; index < count; index++)
		answer(&side, index, &early);
	see_off(&side);
}

static void leave_out_longer_than(const char *longest)
{
	uint32_t bound = longest ? number(longest, 0, MAX_LENGTH) : MAX_LENGTH;

	while (lengths[count - 1] > bound)
		count--;
}

static bool are_options(int argc, char **argv)
{
	leave_out_longer_than(argc > 0 ? argv[0] : NULL);
	is_plain = argc == 2 && strcmp(argv[1], "plain") == 0;
	return argc < 2 || is_plain;
}

int main(int argc, char **argv)
{
	deadline(TIME);
	if (argc >= 2 && argc <= 5 && strcmp(argv[1], "server") == 0 && are_options(argc > 3 ? argc - 3 : 0, argv + 3)) {
		server(argv[2]);
		return 0;
	}
	if (argc >= 4 && argc <= 6 && strcmp(argv[1], "client") == 0 && are_options(argc - 4, argv + 4)) {
		client(argv[2], argv[3]);
		return 0;
	}
	fputs("usage: operations server [PORT [LONGEST [plain]]]\n"
	      "       operations client ADDRESS PORT [LONGEST [plain]]\n", stderr);
	return 2;
}
