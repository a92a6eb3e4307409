/*
 * A process is killed at random moments while it and this one work on each other's memory and send
 * each other messages: this one is told, its work ends, its memory is its own again, and nothing of
 * the dead one is left.
 *
 * usage: sudden-death ROUNDS [ADDRESS [SEED]]      1 to 100000 rounds; 127.0.0.1; the seed is
 *                                                  printed
 *
 * In half of the rounds the victim connects to this process, in half this one to the victim. In
 * half of them it dies between its start and some milliseconds later, in half soon after the
 * connection stands.
 */
#include "common.h"
#include "holdings.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

enum {
	/* Seconds that one round may take: anything that hangs takes for ever. */
	PATIENCE = 20,
	MOVED = 64 << 10,	/* bytes of a WRITE or READ */
	MESSAGE = 9000,
	AREA = 128 << 10,	/* of each kind of memory, a margin of canaries included */
	MARGIN = 4096,
	AT_ONCE = 8,
	EARLY_US = 25000, LATE_US = 3000,
	GROWTH_KIB = 4096,
	/*
	 * What is kept for the next connection: a block of ports; the last dead one's board, until
	 * another one dies.
	 */
	KEPT = 2,
	FIRST_FILL = 0x11, CANARY = 0x5c,
};

/*
 * Memory of each side, in areas: the peer writes the first, reads the second, and adds to the
 * third. What this side sends and writes, and what it gets, is in the others.
 */
enum { TARGET, SOURCE, COUNTER, MESSAGES_OUT, MESSAGES_IN, WRITTEN_OUT, READ_INTO, READ_INTO_TOO, OLD_COUNTS, AREAS };

struct offer {
	uint64_t addr;
	uint32_t rkey, round;
};

static struct {
	bool is_victim;
	uint32_t round;
	const char *address;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *memory;
	struct offer peer;
	int pending, added, ended;
	/* A work request has failed; nothing is posted any more; the connection was made. */
	bool failed, broken, stands;
} me;

/* What the rounds came to. */
static struct {
	unsigned int never, standing, told, moved;
} seen;

static uint64_t random_state;

static uint64_t random_below(uint64_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % limit;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Memory. */

static unsigned char *area(int which)
{
	return me.memory + (size_t)which * AREA + MARGIN;
}

static unsigned char writer(bool victim)
{
	return victim ? 0xb7 : 0xa6;
}

static uint32_t seed_of(bool victim, int which)
{
	return (uint32_t)which * 2 + victim;
}

static void fill_memory(void)
{
	memset(me.memory, CANARY, (size_t)AREAS * AREA);
	memset(area(TARGET), FIRST_FILL, MOVED);
	pattern_fill(area(SOURCE), MOVED, seed_of(me.is_victim, SOURCE), 0);
	pattern_fill(area(MESSAGES_OUT), MESSAGE, seed_of(me.is_victim, MESSAGES_OUT), 0);
	memset(area(COUNTER), 0, 8);
}

static void expect_canaries(const unsigned char *from, const unsigned char *to)
{
	for (; from < to; from++)
		if (*from != CANARY)
			die("round %u: byte %zu of the memory is %#x", me.round, (size_t)(from - me.memory), *from);
}

/* What the peer had no right to is as it was, and what it wrote is what it writes. */
static void check_memory(void)
{
	for (size_t i = 0; i < MOVED; i++) {
		unsigned char byte = area(TARGET)[i];

		if (byte != FIRST_FILL && byte != writer(!me.is_victim))
			die("round %u: byte %zu of the target is %#x", me.round, i, byte);
	}
	pattern_check(area(SOURCE), MOVED, seed_of(me.is_victim, SOURCE), 0);
	pattern_check(area(MESSAGES_OUT), MESSAGE, seed_of(me.is_victim, MESSAGES_OUT), 0);
	for (int which = TARGET; which <= MESSAGES_OUT; which++) {
		size_t used = which == COUNTER ? 8 : which == MESSAGES_OUT ? MESSAGE : MOVED;

		expect_canaries(area(which) - MARGIN, area(which));
		expect_canaries(area(which) + used, area(which) + AREA - MARGIN);
	}
}

/* Work. */

static struct ibv_sge element(int which, int part, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)area(which) + (uintptr_t)part * length, length, me.mr->lkey };
}

static void want_message(int part)
{
	struct ibv_sge sge = element(MESSAGES_IN, part, MESSAGE);
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)part, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(me.id->qp, &wr, &bad));
	me.pending++;
}

/* Each of the work requests that are under way at once is always of the same kind. */
static void post(int part)
{
	static const enum ibv_wr_opcode kinds[AT_ONCE] = {
		IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_SEND,
		IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_SEND,
	};
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = (uint64_t)part, .sg_list = &sge, .num_sge = 1, .opcode = kinds[part] }, *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.rkey = me.peer.rkey;
	switch (kinds[part]) {
	case IBV_WR_RDMA_WRITE:
		sge = element(WRITTEN_OUT, 0, MOVED);
		wr.wr.rdma.remote_addr = me.peer.addr + TARGET * AREA + MARGIN;
		break;
	case IBV_WR_RDMA_READ:
		sge = element(part == 2 ? READ_INTO : READ_INTO_TOO, 0, MOVED);
		wr.wr.rdma.remote_addr = me.peer.addr + SOURCE * AREA + MARGIN;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		sge = element(OLD_COUNTS, 0, 8);
		wr.wr.atomic.remote_addr = me.peer.addr + COUNTER * AREA + MARGIN;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = me.peer.rkey;
		break;
	default:
		sge = element(MESSAGES_OUT, 0, MESSAGE);
		break;
	}
	MUST(ibv_post_send(me.id->qp, &wr, &bad));
	me.pending++;
}

static void check_completion(const struct ibv_wc *wc)
{
	uint64_t count;

	switch (wc->opcode) {
	case IBV_WC_RECV:
		EXPECT(wc->byte_len == MESSAGE);
		pattern_check(area(MESSAGES_IN) + wc->wr_id * MESSAGE, MESSAGE, seed_of(!me.is_victim, MESSAGES_OUT), 0);
		break;
	case IBV_WC_RDMA_READ:
		pattern_check(area(wc->wr_id == 2 ? READ_INTO : READ_INTO_TOO), MOVED, seed_of(!me.is_victim, SOURCE), 0);
		break;
	case IBV_WC_FETCH_ADD:
		memcpy(&count, area(OLD_COUNTS), 8);
		if (count != (uint64_t)me.added++)
			die("round %u: the counter was %llu after %d additions", me.round, (unsigned long long)count, me.added - 1);
		break;
	default:
		break;
	}
}

/* Takes what has ended; while all is well, new work takes its place. */
static void work(void)
{
	struct ibv_wc wc[AT_ONCE];
	int n = ibv_poll_cq(me.cq, AT_ONCE, wc);

	EXPECT(n >= 0);
	for (int i = 0; i < n; i++) {
		me.pending--;
		me.ended++;
		if (wc[i].status == IBV_WC_SUCCESS) {
			check_completion(&wc[i]);
			if (wc[i].opcode == IBV_WC_RECV && !me.broken)
				want_message((int)wc[i].wr_id);
			else if (wc[i].opcode != IBV_WC_RECV && !me.broken)
				post((int)wc[i].wr_id);
			continue;
		}
		if (wc[i].status != IBV_WC_WR_FLUSH_ERR && (me.failed || wc[i].status != IBV_WC_RETRY_EXC_ERR))
			die("round %u: %s", me.round, ibv_wc_status_str(wc[i].status));
		me.failed = me.broken = true;
	}
}

/* Connections. */

static void equip(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = AT_ONCE, .max_recv_wr = AT_ONCE, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	me.id = id;
	MUST_PTR(me.pd = ibv_alloc_pd(id->verbs));
	MUST_PTR(me.cq = ibv_create_cq(id->verbs, 4 * AT_ONCE, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = me.cq;
	MUST(rdma_create_qp(id, me.pd, &attr));
	fill_memory();
	MUST_PTR(me.mr = ibv_reg_mr(me.pd, me.memory, (size_t)AREAS * AREA,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_ATOMIC));
	for (int i = 0; i < AT_ONCE; i++)
		want_message(i);
}

static struct rdma_conn_param parameters(struct offer *own)
{
	*own = (struct offer){ (uintptr_t)me.memory, me.mr ? me.mr->rkey : 0, me.round };
	return (struct rdma_conn_param){
		.private_data = own,
		.private_data_len = sizeof *own,
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

static void learn_peer(const struct rdma_cm_event *event)
{
	EXPECT(event->param.conn.private_data_len >= sizeof me.peer);
	memcpy(&me.peer, event->param.conn.private_data, sizeof me.peer);
}

static void begin(void)
{
	me.stands = true;
	memset(area(WRITTEN_OUT), writer(me.is_victim), MOVED);
	for (int i = 0; i < AT_ONCE; i++)
		post(i);
}

/* A request: of this round's victim, or of one that is dead already. */
static void on_request(struct rdma_cm_event *event)
{
	struct offer offer;
	struct rdma_conn_param param;
	struct rdma_cm_id *stale = event->id;

	memcpy(&offer, event->param.conn.private_data, sizeof offer);
	if (offer.round != me.round || me.id != NULL) {
		EXPECT(offer.round < me.round);
		rdma_reject(stale, NULL, 0);
		MUST(rdma_ack_cm_event(event));
		MUST(rdma_destroy_id(stale));
		return;
	}
	equip(event->id);
	learn_peer(event);
	param = parameters(&offer);
	MUST(rdma_accept(event->id, &param));
	MUST(rdma_ack_cm_event(event));
}

static void on_event(struct rdma_cm_event *event)
{
	struct offer offer;
	struct rdma_conn_param param;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(event);
		return;
	}
	EXPECT(event->id == me.id);
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		MUST(rdma_resolve_route(event->id, 2000));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		equip(event->id);
		param = parameters(&offer);
		MUST(rdma_connect(event->id, &param));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (event->param.conn.private_data_len >= sizeof me.peer)
			learn_peer(event);
		begin();
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* The program's own part of a disconnect: its queue pair ends. */
		MUST(rdma_disconnect(event->id));
		seen.told += !me.broken;
		me.broken = true;
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		MUST(ibv_modify_qp(event->id->qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
		me.broken = true;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		die("round %u: event %s with status %d", me.round, rdma_event_str(event->event), event->status);
	}
	MUST(rdma_ack_cm_event(event));
}

/* One look at everything. */
static void turn(void)
{
	struct pollfd news = { .fd = me.channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&news, 1, me.stands ? 0 : 1) == 1) {
		MUST(rdma_get_cm_event(me.channel, &event));
		on_event(event);
	}
	if (me.cq != NULL)
		work();
}

static void call(const char *port)
{
	me.id = start_resolving(me.channel, me.address, port);
}

/* The victim: works until it dies. */
static void be_victim(char **argv)
{
	me.is_victim = true;
	me.round = (uint32_t)number(argv[3], 0, UINT32_MAX);
	me.address = argv[4];
	MUST_PTR(me.channel = rdma_create_event_channel());
	if (strcmp(argv[2], "listens") == 0)
		announce(listen_on(me.channel, AF_INET, 0));
	else
		call(argv[5]);
	for (;;)
		turn();
}

/* The survivor. */

struct killer {
	pid_t pid;
	unsigned int delay;
	_Atomic bool done;
	pthread_t thread;
};

static void *kill_later(void *argument)
{
	struct killer *killer = argument;
	struct timespec delay = { .tv_nsec = (long)killer->delay * 1000 };

	nanosleep(&delay, NULL);
	kill(killer->pid, SIGKILL);
	EXPECT(waitpid(killer->pid, NULL, 0) == killer->pid);
	killer->done = true;
	return NULL;
}

static void arm(struct killer *killer)
{
	EXPECT(pthread_create(&killer->thread, NULL, kill_later, killer) == 0);
}

/* Starts a victim. Its output, if it listens: where. */
static pid_t start_victim(bool listens, const char *port, int *output)
{
	char round[16];
	char *argv[] = { "sudden-death", "victim", listens ? "listens" : "calls", round, (char *)me.address, (char *)port, NULL };
	posix_spawn_file_actions_t actions;
	int ends[2];
	pid_t pid;

	snprintf(round, sizeof round, "%u", me.round);
	MUST(pipe2(ends, 02000000 /* O_CLOEXEC */));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	MUST(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ));
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	*output = ends[0];
	return pid;
}

/* Reads the port that a victim listens on. False if it died before it said so. */
static bool hear_port(int output, char port[16])
{
	char line[64];
	size_t length = 0;
	ssize_t n;

	while (length < sizeof line - 1 && (n = read(output, line + length, sizeof line - 1 - length)) > 0) {
		length += (size_t)n;
		line[length] = '\0';
		if (strchr(line, '\n') != NULL)
			return sscanf(line, "listening on port %15[0-9]", port) == 1;
	}
	return false;
}

/* Whether all that a dead victim leaves to do is done. */
static bool is_over(const struct killer *killer)
{
	return killer->done && (me.id == NULL || (me.broken && me.pending == 0));
}

static void clear_up(void)
{
	if (me.id == NULL)
		return;
	if (me.mr != NULL) {
		check_memory();
		rdma_destroy_qp(me.id);
		MUST(ibv_dereg_mr(me.mr));
		MUST(ibv_destroy_cq(me.cq));
		MUST(ibv_dealloc_pd(me.pd));
	}
	MUST(rdma_destroy_id(me.id));
	/* The next round looks whether anybody has touched it since. */
	memset(me.memory, CANARY, (size_t)AREAS * AREA);
}

static void one_round(const char *own_port)
{
	bool listens = random_below(2) == 0, early = random_below(2) == 0;
	struct killer killer = { .delay = (unsigned int)random_below(early ? EARLY_US : LATE_US) };
	char port[16];
	int output;

	alarm(PATIENCE);
	expect_canaries(me.memory, me.memory + (size_t)AREAS * AREA);
	me.id = NULL, me.pd = NULL, me.cq = NULL, me.mr = NULL;
	me.pending = me.added = me.ended = 0;
	me.failed = me.broken = me.stands = false;
	killer.pid = start_victim(listens, own_port, &output);
	if (early)
		arm(&killer);
	if (listens && hear_port(output, port))
		call(port);
	for (bool armed = early; !is_over(&killer);) {
		turn();
		if (!armed && me.stands) {
			arm(&killer);
			armed = true;
		}
	}
	close(output);
	MUST(pthread_join(killer.thread, NULL));
	seen.never += me.id == NULL;
	seen.standing += me.stands;
	seen.moved += (unsigned int)me.ended;
	clear_up();
}

/* What a process has of the system. */

struct holdings {
	unsigned int descriptors, mappings, sockets, names;
	long kib;
};

static struct holdings look(void)
{
	struct holdings now;

	now.descriptors = descriptors();
	now.names = entries("/dev/shm", "ferroce");
	now.sockets = lines("/proc/net/unix", "@ferroce");
	now.mappings = lines("/proc/self/maps", "memfd:");
	now.kib = resident_kib();
	return now;
}

/*
 * Waits until no more is held than before: that a process is gone is noticed by the device's
 * thread.
 */
static struct holdings settle(struct holdings before)
{
	double end = seconds() + PATIENCE / 2;
	struct holdings now;

	do {
		now = look();
		if (now.descriptors <= before.descriptors + KEPT && now.mappings <= before.mappings + KEPT &&
		    now.sockets <= before.sockets + KEPT && now.names <= before.names)
			return now;
	} while (seconds() < end);
	tell_descriptors();
	die("left: %u descriptors (%u before), %u mappings (%u), %u sockets (%u), %u files (%u)", now.descriptors, before.descriptors,
	    now.mappings, before.mappings, now.sockets, before.sockets, now.names, before.names);
}

int main(int argc, char **argv)
{
	unsigned long rounds;
	struct rdma_cm_id *listener;
	struct holdings before = { 0 }, after;
	char port[16];
	long warm = 0;

	if (argc < 2)
		return 2;
	deadline(PATIENCE);
	MUST_PTR(me.memory = malloc((size_t)AREAS * AREA));
	if (argc == 6 && strcmp(argv[1], "victim") == 0)
		be_victim(argv);
	rounds = number(argv[1], 1, 100000);
	me.address = argc > 2 ? argv[2] : "127.0.0.1";
	random_state = argc > 3 ? number(argv[3], 1, INT64_MAX) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	printf("seed %llu\n", (unsigned long long)random_state);
	memset(me.memory, CANARY, (size_t)AREAS * AREA);
	MUST_PTR(me.channel = rdma_create_event_channel());
	listener = listen_on(me.channel, AF_INET, 0);
	snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(listener)));
	for (me.round = 0; me.round < rounds; me.round++) {
		/* What the first connection opens stays open. */
		if (before.descriptors == 0 && seen.standing > 0)
			before = look();
		if (me.round == rounds / 5)
			warm = look().kib;
		one_round(port);
	}
	alarm(PATIENCE);
	if (rounds < 100 && before.descriptors == 0)
		return 0;
	after = settle(before);
	printf("%u of %lu never called, %u stood, %u were told by an event first; %u work requests\n", seen.never, rounds, seen.standing,
	       seen.told, seen.moved);
	printf("%u descriptors, %u mappings, %u sockets, %u files; %ld KiB after a fifth, then %ld\n", after.descriptors, after.mappings,
	       after.sockets, after.names, warm, after.kib);
	if (rounds >= 100 && after.kib > warm + GROWTH_KIB)
		die("memory grows");
	if (rounds >= 100 && seen.standing < rounds / 4)
		die("too few connections stood when their end came");
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(me.channel);
	return 0;
}
