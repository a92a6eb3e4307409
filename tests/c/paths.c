/*
 * Two sides that use every operation on each other, every byte verified, after one of them has
 * given up some of what the kernel would let it do. Which path they take is for others to look at:
 * the server stays until it is told to end.
 *
 * usage: paths server [REFUSED]...
 *        paths client ADDRESS PORT [REFUSED]...
 *
 * REFUSED: process-vm, memfd, pidfd: a filter of system calls answers with EPERM; dump: other
 * processes of the user may not look into this one (PR_SET_DUMPABLE, as with programs that have
 * more rights than their user). shared: nothing is given up; this side's memory is registered by a
 * descriptor that other processes could map.
 *
 * The server prints "done" when all is verified, and ends on SIGTERM; then the client ends, too.
 */
#define SIDE_SIZE (5 * PART)
#define PART 8192
#define SHORT 3000
#define SEED_SERVER 1
#define SEED_CLIENT 2
#include "side.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum {
	TIME = 60,
	ROUNDS = 300,
	LONG = 5000, /* bytes of a WRITE and a READ: more than a packet */
};

/* Order of the parts of a side's memory. Receives take the first. */
enum { IN, OUT, WRITTEN, READ, COUNTER };

/* Three patterns a round: what is written, the message, its answer. */
enum { SEED_WRITE, SEED_MESSAGE, SEED_ANSWER, SEEDS };

static char *at(struct side *side, int part)
{
	return side->buffer + part * PART;
}

/* From now on a system call fails with EPERM. */
static void forbid(long call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	REFUSED(syscall(call, 0, 0, 0, 0, 0, 0), EPERM);
}

static int refuse(struct side *side, char **names)
{
	for (; *names != NULL; names++) {
		if (strcmp(*names, "process-vm") == 0) {
			forbid(SYS_process_vm_readv);
			forbid(SYS_process_vm_writev);
		} else if (strcmp(*names, "memfd") == 0) {
			forbid(SYS_memfd_create);
		} else if (strcmp(*names, "pidfd") == 0) {
			forbid(SYS_pidfd_open);
		} else if (strcmp(*names, "dump") == 0) {
			MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
		} else if (strcmp(*names, "shared") == 0) {
			side->is_shared = true;
		} else {
			return 2;
		}
	}
	return 0;
}

static void begin(struct side *side, enum ibv_wr_opcode opcode, int mine, uint32_t length, int theirs)
{
	struct ibv_sge sge = { (uintptr_t)at(side, mine), length, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	uint64_t there = side->peer.addr + (uint64_t)theirs * PART;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = there;
		wr.wr.atomic.rkey = side->peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = there;
		wr.wr.rdma.rkey = side->peer.rkey;
	}
	MUST(ibv_post_send(side->id->qp, &wr, &bad));
}

/* Posts an operation and waits for its end. */
static void carry_out(struct side *side, enum ibv_wr_opcode opcode, int mine, uint32_t length, int theirs)
{
	struct ibv_wc wc;

	begin(side, opcode, mine, length, theirs);
	wc = next_completion(side->cq);
	succeeded(&wc);
	EXPECT(wc.wr_id == opcode);
}

static void want_message(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)at(side, IN), SHORT, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1000, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(side->id->qp, &wr, &bad));
}

/*
 * Sends a message and waits for its end. On the way there the other side's message may come: then
 * `came` is set.
 */
static void say(struct side *side, uint32_t seed, bool *came)
{
	bool sent = false;

	pattern_fill(at(side, OUT), SHORT, seed, 0);
	begin(side, IBV_WR_SEND, OUT, SHORT, 0);
	while (!sent) {
		struct ibv_wc wc = next_completion(side->cq);

		succeeded(&wc);
		if (wc.opcode == IBV_WC_RECV)
			*came = true;
		else
			sent = true;
	}
}

/* Waits for a message, unless it has come. */
static void hear(struct side *side, uint32_t seed, bool came)
{
	if (!came) {
		struct ibv_wc wc = next_completion(side->cq);

		succeeded(&wc);
		EXPECT(wc.opcode == IBV_WC_RECV && wc.byte_len == SHORT);
	}
	pattern_check(at(side, IN), SHORT, seed, 0);
	want_message(side);
}

static void run_client(struct side *side)
{
	memset(at(side, COUNTER), 0, sizeof(uint64_t));
	carry_out(side, IBV_WR_RDMA_WRITE, COUNTER, sizeof(uint64_t), COUNTER);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t seed = round * SEEDS;
		uint64_t before;
		bool came = false;

		pattern_fill(at(side, OUT), LONG, seed + SEED_WRITE, 0);
		carry_out(side, IBV_WR_RDMA_WRITE, OUT, LONG, WRITTEN);
		memset(at(side, READ), 0, LONG);
		carry_out(side, IBV_WR_RDMA_READ, READ, LONG, WRITTEN);
		pattern_check(at(side, READ), LONG, seed + SEED_WRITE, 0);
		carry_out(side, IBV_WR_ATOMIC_FETCH_AND_ADD, COUNTER, sizeof before, COUNTER);
		memcpy(&before, at(side, COUNTER), sizeof before);
		EXPECT(before == round);
		say(side, seed + SEED_MESSAGE, &came);
		hear(side, seed + SEED_ANSWER, came);
	}
}

static void run_server(struct side *side)
{
	bool came = false;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t seed = round * SEEDS;
		uint64_t count;

		hear(side, seed + SEED_MESSAGE, came);
		came = false;
		pattern_check(at(side, WRITTEN), LONG, seed + SEED_WRITE, 0);
		memcpy(&count, at(side, COUNTER), sizeof count);
		EXPECT(count == round + 1);
		say(side, seed + SEED_ANSWER, &came);
	}
}

/* The server's part once it has a connection. */
static void stay(struct side *side, const sigset_t *end)
{
	int signal;

	run_server(side);
	puts("done");
	fflush(stdout);
	MUST(sigwait(end, &signal));
	MUST(rdma_disconnect(side->id));
	await(side->channel, RDMA_CM_EVENT_DISCONNECTED);
	release(side);
	close_server(side);
}

static int usage(void)
{
	fputs("usage: paths server [REFUSED]...\n"
	      "       paths client ADDRESS PORT [REFUSED]...\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct side side = { 0 };
	bool is_server = argc > 1 && strcmp(argv[1], "server") == 0;
	sigset_t end;

	deadline(TIME);
	if (!is_server && (argc < 4 || strcmp(argv[1], "client") != 0))
		return usage();
	if (refuse(&side, argv + (is_server ? 2 : 4)) != 0)
		return usage();
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	/* Before the library has threads. */
	MUST(pthread_sigmask(SIG_BLOCK, &end, NULL));
	if (is_server) {
		open_server(&side, NULL);
		serve(&side, 1, SHORT);
		stay(&side, &end);
		return 0;
	}
	join(&side, argv[2], argv[3], patient);
	run_client(&side);
	puts("done");
	fflush(stdout);
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_disconnect(side.id));
	release(&side);
	rdma_destroy_event_channel(side.channel);
	return 0;
}
