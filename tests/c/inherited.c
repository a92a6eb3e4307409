/*
 * What a child does with the objects that it has inherited: each call is refused with an errno,
 * whatever the parent's threads were in the middle of. Children are made by fork() and by a bare
 * clone, of which the C library's handlers hear nothing. The parent works on.
 *
 * usage: inherited server
 *        inherited client ADDRESS PORT CHILDREN
 */
#define SIDE_SIZE 65536
#define SHORT 64
#define SEED_SERVER 1
#define SEED_CLIENT 2
#include "side.h"

#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { TIME = 240, CHILD_TIME = 20, BUFFER_HALF = SIDE_SIZE / 2, ACCESS = IBV_ACCESS_LOCAL_WRITE };

static struct side side;
static atomic_bool is_over;
static atomic_ulong rounds;

/* Calls that a child makes. Each returns whether it was refused. */

static bool posts_send(void)
{
	struct ibv_sge sge = { (uintptr_t)side.buffer + BUFFER_HALF, SHORT, side.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad = NULL;

	return ibv_post_send(side.id->qp, &wr, &bad) == ENODEV && bad == &wr;
}

static bool posts_write(void)
{
	struct ibv_sge sge = { (uintptr_t)side.buffer + BUFFER_HALF, BUFFER_HALF, side.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;

	wr.wr.rdma.remote_addr = side.peer.addr;
	wr.wr.rdma.rkey = side.peer.rkey;
	return ibv_post_send(side.id->qp, &wr, &bad) == ENODEV;
}

static bool posts_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)side.buffer, SHORT, side.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(side.id->qp, &wr, &bad) == ENODEV;
}

static bool polls(void)
{
	struct ibv_wc wc;

	return ibv_poll_cq(side.cq, 1, &wc) < 0;
}

static bool arms(void)
{
	return ibv_req_notify_cq(side.cq, 0) == ENODEV;
}

static bool registers(void)
{
	return ibv_reg_mr(side.pd, side.buffer, 4096, ACCESS) == NULL && errno == ENODEV;
}

static bool deregisters(void)
{
	return ibv_dereg_mr(side.mr) == ENODEV;
}

static bool modifies(void)
{
	return ibv_modify_qp(side.id->qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE) == ENODEV;
}

static bool queries(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	return ibv_query_qp(side.id->qp, &attr, IBV_QP_STATE, &init) == ENODEV;
}

static bool destroys_queue_pair(void)
{
	return ibv_destroy_qp(side.id->qp) == ENODEV;
}

static bool destroys_queue(void)
{
	return ibv_destroy_cq(side.cq) == ENODEV;
}

static bool creates_queue(void)
{
	return ibv_create_cq(side.id->verbs, 1, NULL, NULL, 0) == NULL && errno == ENODEV;
}

static bool creates_queue_pair(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = side.cq, .recv_cq = side.cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return ibv_create_qp(side.pd, &attr) == NULL && errno == ENODEV;
}

static bool allocates(void)
{
	return ibv_alloc_pd(side.id->verbs) == NULL && errno == ENODEV;
}

static bool deallocates(void)
{
	return ibv_dealloc_pd(side.pd) == ENODEV;
}

static bool closes(void)
{
	return ibv_close_device(side.id->verbs) == ENODEV;
}

static bool disconnects(void)
{
	return rdma_disconnect(side.id) == -1 && errno == ENODEV;
}

static bool gets_event(void)
{
	struct rdma_cm_event *event;

	return rdma_get_cm_event(side.channel, &event) == -1 && errno == ENODEV;
}

static bool creates_id(void)
{
	struct rdma_cm_id *id;

	return rdma_create_id(side.channel, &id, NULL, RDMA_PS_TCP) == -1 && errno == ENODEV;
}

static bool destroys_id(void)
{
	return rdma_destroy_id(side.id) == -1 && errno == ENODEV;
}

/* These two answer with nothing. */
static bool destroys_ids_queue_pair(void)
{
	rdma_destroy_qp(side.id);
	return true;
}

static bool destroys_channel(void)
{
	rdma_destroy_event_channel(side.channel);
	return true;
}

/* A child can have a device of its own, and still not use what it has inherited. */
static bool begins_anew(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list == NULL || list[0] == NULL ? NULL : ibv_open_device(list[0]);
	struct ibv_pd *pd = context == NULL ? NULL : ibv_alloc_pd(context);

	return pd != NULL && posts_send() && polls() && modifies() && disconnects() && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0;
}

/*
 * Device memory is the one thing that a child takes from an inherited context; rdma-core's suite
 * does it.
 */
static bool allocates_device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_device_attr_ex limits;
	uint32_t in = 0x01020304, out = 0;
	struct ibv_dm *dm;

	if (ibv_query_device_ex(side.id->verbs, NULL, &limits) != 0 || (dm = ibv_alloc_dm(side.id->verbs, &attr)) == NULL)
		return false;
	return ibv_memcpy_to_dm(dm, 8, &in, sizeof in) == 0 && ibv_memcpy_from_dm(&out, dm, 8, sizeof out) == 0 && in == out &&
	       ibv_reg_dm_mr(side.pd, dm, 0, 4096, ACCESS | IBV_ACCESS_ZERO_BASED) == NULL && errno == ENODEV && ibv_free_dm(dm) == 0;
}

static const struct {
	const char *name;
	bool (*is_refused)(void);
	/*
	 * Not after a bare clone of a process with threads, where the C library's own locks may be
	 * taken for ever.
	 */
	bool needs_fork;
} calls[] = {
	{ "post_send", posts_send, false }, { "post_send of a WRITE", posts_write, false }, { "post_recv", posts_receive, false },
	{ "poll_cq", polls, false }, { "req_notify_cq", arms, false }, { "reg_mr", registers, false }, { "dereg_mr", deregisters, false },
	{ "modify_qp", modifies, false }, { "query_qp", queries, false }, { "destroy_qp", destroys_queue_pair, false },
	{ "destroy_cq", destroys_queue, false }, { "create_cq", creates_queue, false }, { "create_qp", creates_queue_pair, false },
	{ "alloc_pd", allocates, false }, { "dealloc_pd", deallocates, false }, { "close_device", closes, false },
	{ "rdma_disconnect", disconnects, false }, { "rdma_get_cm_event", gets_event, false }, { "rdma_create_id", creates_id, false },
	{ "rdma_destroy_id", destroys_id, false }, { "rdma_destroy_qp", destroys_ids_queue_pair, false },
	{ "rdma_destroy_event_channel", destroys_channel, false }, { "device memory of its own", allocates_device_memory, true },
	{ "a device of its own", begins_anew, true },
};

enum { CALLS = sizeof calls / sizeof *calls };

/* Makes a child that makes a call, and says how it ended. */
static bool is_refused_in_a_child(unsigned int call, bool bare)
{
	pid_t child = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
	int status;

	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(CHILD_TIME);
		_exit(calls[call].is_refused() ? 0 : 1);
	}
	EXPECT(child > 0);
	EXPECT(waitpid(child, &status, 0) == child);
	if (status != 0)
		printf("%s, %s: %s %d\n", bare ? "clone" : "fork", calls[call].name, WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return status == 0;
}

static void want_message(void)
{
	struct ibv_sge sge = { (uintptr_t)side.buffer, SHORT, side.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1000, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(side.id->qp, &wr, &bad));
}

static void say(uint32_t seed, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side.buffer + BUFFER_HALF, length, side.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	pattern_fill(side.buffer + BUFFER_HALF, length, seed, 0);
	MUST(ibv_post_send(side.id->qp, &wr, &bad));
}

/* A message comes, and the last one that was sent is complete. Its length. */
static uint32_t exchange(uint32_t seed, int due)
{
	uint32_t came = 0;

	while (due > 0) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(side.cq, 1, &wc);

		EXPECT(n >= 0);
		if (n == 0) {
			sched_yield();
			continue;
		}
		succeeded(&wc);
		due--;
		if (wc.opcode == IBV_WC_RECV) {
			came = wc.byte_len;
			pattern_check(side.buffer, came, seed, 0);
			want_message();
		}
	}
	return came;
}

static void *run_client(void *unused)
{
	for (uint32_t seed = 0; ; seed++) {
		bool is_last = atomic_load(&is_over);

		say(seed, is_last ? 1 : SHORT);
		exchange(seed, 2);
		atomic_fetch_add(&rounds, 1);
		if (is_last)
			return unused;
	}
}

static void run_server(void)
{
	uint32_t came = exchange(0, 1);

	for (uint32_t seed = 0; ; seed++) {
		say(seed, SHORT);
		if (came == 1) {
			exchange(0, 1);
			return;
		}
		came = exchange(seed + 1, 2);
	}
}

int main(int argc, char **argv)
{
	pthread_t worker;
	unsigned int failed = 0;

	deadline(TIME);
	if (argc == 2 && strcmp(argv[1], "server") == 0) {
		open_server(&side, NULL);
		serve(&side, 1, SHORT);
		run_server();
		see_off(&side);
		return 0;
	}
	if (argc != 5 || strcmp(argv[1], "client") != 0) {
		fputs("usage: inherited server\n       inherited client ADDRESS PORT CHILDREN\n", stderr);
		return 2;
	}
	join(&side, argv[2], argv[3], patient);
	MUST(pthread_create(&worker, NULL, run_client, NULL));
	while (atomic_load(&rounds) < 1000)
		sched_yield();
	for (unsigned long n = 0, children = number(argv[4], 1, 1000000); n < children; n++) {
		unsigned int call = (unsigned int)(n % CALLS);

		failed += !is_refused_in_a_child(call, false);
		if (!calls[call].needs_fork)
			failed += !is_refused_in_a_child(call, true);
	}
	atomic_store(&is_over, true);
	MUST(pthread_join(worker, NULL));
	printf("%u children were not refused; %lu rounds\n", failed, atomic_load(&rounds));
	EXPECT(failed == 0);
	part(&side);
	rdma_destroy_event_channel(side.channel);
	return 0;
}
