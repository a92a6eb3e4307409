/*
 * Thousands of connected queue pairs between two processes: data over all of them, what each costs,
 * and that it costs no more when there are many.
 *
 * usage: many-pairs server                                  prints the TCP port of the conversation
 *                                                           that goes beside it
 *        many-pairs client verbs|cm COUNT ADDRESS PORT
 *
 * Both sides print figures. Asserted: every byte; that polls, messages and WRITEs on a few queue
 * pairs do not get dearer when there are COUNT (the best of several lots, by a factor that a look
 * at each of them would exceed); with `verbs`, memory per idle queue pair.
 */
#include "common.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

enum {
	TIME = 240,
	FEW = 16,		/* pairs that there are when the cost is measured first */
	MOST = 16000,
	PART = 256,		/* bytes of a message */
	SLOT = 4 * PART,	/* a pair's memory: what it sends, receives, is written, has read */
	WINDOW = 64,		/* pairs that are busy at once */
	LOTS = 15, FEWEST_LOTS = 3, IN_LOT = 300,
	/* After it no more than the fewest are made: on a busy machine each takes long. */
	LOTS_MS = 200,
	/*
	 * Seconds of lots before something counts as dearer: the machine may be busy with something
	 * else.
	 */
	PATIENCE = 10,
	DEARER = 20,
	IDLE_BYTES = 4096,
};

/* Order of the parts in a slot. */
enum { OUT, IN, WRITTEN, READ };

/* What the two tell each other before a pair is connected. */
struct card {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey, first, count, cm_port;
};

static struct {
	bool cm, client;
	int control;
	const char *address;
	uint32_t count, seeds[2];
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *memory;
	struct ibv_qp **qps;
	struct rdma_cm_id **ids, *listener;
	struct rdma_event_channel *channel;
	struct card peer;
} me = { .control = -1 };

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double processor_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/*
 * Resident bytes that are this process's, or shared with others: files, as the program itself, do
 * not count.
 */
static long resident(void)
{
	char line[128];
	long kib, sum = 0;
	FILE *file;

	MUST_PTR(file = fopen("/proc/self/status", "re"));
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "RssAnon: %ld", &kib) == 1 || sscanf(line, "RssShmem: %ld", &kib) == 1)
			sum += kib;
	fclose(file);
	return sum * 1024;
}

static void tell(const void *bytes, size_t length)
{
	EXPECT(send(me.control, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
}

static void hear(void *bytes, size_t length)
{
	EXPECT(recv(me.control, bytes, length, MSG_WAITALL) == (ssize_t)length);
}

/* Both sides are here. */
static void meet(void)
{
	char byte = 'm';

	tell(&byte, 1);
	hear(&byte, 1);
	EXPECT(byte == 'm');
}

static char *part(uint32_t pair, int which)
{
	return me.memory + (size_t)pair * SLOT + (size_t)which * PART;
}

static struct ibv_sge element(uint32_t pair, int which)
{
	return (struct ibv_sge){ (uintptr_t)part(pair, which), PART, me.mr->lkey };
}

/* Seed of what a side sends or writes on a pair. */
static uint32_t seed(bool client, uint32_t pair, int which)
{
	return pair * 8 + (uint32_t)which * 2 + client;
}

static void want_message(uint32_t pair)
{
	struct ibv_sge sge = element(pair, IN);
	struct ibv_recv_wr wr = { .wr_id = pair, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(me.qps[pair], &wr, &bad));
}

static void post(uint32_t pair, enum ibv_wr_opcode opcode, int which)
{
	struct ibv_sge sge = element(pair, which);
	struct ibv_send_wr wr = { .wr_id = pair, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = me.peer.addr + (uint64_t)pair * SLOT + WRITTEN * PART;
	wr.wr.rdma.rkey = me.peer.rkey;
	MUST(ibv_post_send(me.qps[pair], &wr, &bad));
}

static struct ibv_wc completion(void)
{
	struct ibv_wc wc = next_completion(me.cq);

	succeeded(&wc);
	EXPECT(wc.wr_id < me.count && wc.qp_num == me.qps[wc.wr_id]->qp_num);
	return wc;
}

/* Making pairs. */

static const struct ibv_qp_cap small = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 };

static struct ibv_qp_init_attr small_qp(void)
{
	return (struct ibv_qp_init_attr){ .send_cq = me.cq, .recv_cq = me.cq, .qp_type = IBV_QPT_RC, .cap = small };
}

static void open_first_device(void)
{
	struct ibv_device **list;

	MUST_PTR(list = ibv_get_device_list(NULL));
	EXPECT(list[0] != NULL);
	MUST_PTR(me.context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
}

static void make_shared(struct ibv_context *context)
{
	me.context = context;
	MUST_PTR(me.pd = ibv_alloc_pd(context));
	MUST_PTR(me.cq = ibv_create_cq(context, WINDOW * 8, NULL, NULL, 0));
	MUST_PTR(me.mr = ibv_reg_mr(me.pd, me.memory, (size_t)MOST * SLOT,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = me.peer.gid, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	MUST(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	MUST(ibv_modify_qp(qp, &rtr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER));
	MUST(ibv_modify_qp(qp, &rts,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Both sides: pairs `first` and those that follow it, by modifying them. */
static void connect_by_verbs(uint32_t first, uint32_t count)
{
	uint32_t *numbers, *peers;

	MUST_PTR(numbers = calloc(2 * count, sizeof *numbers));
	peers = numbers + count;
	for (uint32_t i = 0; i < count; i++) {
		struct ibv_qp_init_attr attr = small_qp();

		MUST_PTR(me.qps[first + i] = ibv_create_qp(me.pd, &attr));
		numbers[i] = me.qps[first + i]->qp_num;
	}
	tell(numbers, count * sizeof *numbers);
	hear(peers, count * sizeof *peers);
	for (uint32_t i = 0; i < count; i++)
		connect_qp(me.qps[first + i], peers[i]);
	free(numbers);
}

static void make_id_qp(struct rdma_cm_id *id, uint32_t pair)
{
	struct ibv_qp_init_attr attr = small_qp();

	MUST(rdma_create_qp(id, me.pd, &attr));
	me.ids[pair] = id;
	me.qps[pair] = id->qp;
}

static const struct rdma_conn_param usual = {
	.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
};

static void call(uint32_t pair)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)me.peer.cm_port) };
	struct rdma_cm_id *id;

	EXPECT(inet_pton(AF_INET, me.address, &to.sin_addr) == 1);
	MUST(rdma_create_id(me.channel, &id, (void *)(uintptr_t)pair, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
}

/* The client moves a connection on by a step. Returns whether it stands. */
static bool advance(const struct rdma_cm_event *event)
{
	uint32_t pair = (uint32_t)(uintptr_t)event->id->context;
	struct rdma_conn_param param = usual;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		MUST(rdma_resolve_route(event->id, 2000));
		return false;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (me.pd == NULL)
			make_shared(event->id->verbs);
		make_id_qp(event->id, pair);
		param.private_data = &pair;
		param.private_data_len = sizeof pair;
		MUST(rdma_connect(event->id, &param));
		return false;
	case RDMA_CM_EVENT_ESTABLISHED:
		return true;
	default:
		die("pair %u: event %s with status %d", pair, rdma_event_str(event->event), event->status);
	}
}

static void connect_by_cm(uint32_t first, uint32_t count)
{
	for (uint32_t begun = 0, stand = 0; stand < count;) {
		struct rdma_cm_event event;

		while (begun < count && begun - stand < WINDOW)
			call(first + begun++);
		event = next_event(me.channel);
		stand += advance(&event);
	}
}

static void accept_by_cm(uint32_t count)
{
	for (uint32_t stand = 0; stand < count;) {
		struct rdma_cm_event *event;
		struct rdma_conn_param param = usual;

		MUST(rdma_get_cm_event(me.channel, &event));
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			uint32_t pair;

			memcpy(&pair, event->param.conn.private_data, sizeof pair);
			EXPECT(pair < me.count && me.ids[pair] == NULL);
			if (me.pd == NULL)
				make_shared(event->id->verbs);
			make_id_qp(event->id, pair);
			MUST(rdma_accept(event->id, &param));
		} else if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
			stand++;
		} else {
			die("event %s with status %d", rdma_event_str(event->event), event->status);
		}
		MUST(rdma_ack_cm_event(event));
	}
}

/* Each side learns where the other's memory is. */
static void exchange_cards(void)
{
	struct card card = { .addr = (uintptr_t)me.memory };

	if (me.pd != NULL) {
		card.rkey = me.mr->rkey;
		MUST(ibv_query_gid(me.context, 1, 0, &card.gid));
	}
	if (me.listener != NULL)
		card.cm_port = ntohs(rdma_get_src_port(me.listener));
	tell(&card, sizeof card);
	hear(&me.peer, sizeof me.peer);
}

static void report(const char *what, double value, const char *unit)
{
	printf("%-6s %-44s %10.2f %s\n", me.client ? "client" : "server", what, value, unit);
	fflush(stdout);
}

static void grow(uint32_t first, uint32_t count)
{
	long before = resident(), taken;
	double start = seconds(), used = processor_seconds();

	if (!me.cm)
		connect_by_verbs(first, count);
	else if (me.client)
		connect_by_cm(first, count);
	else
		accept_by_cm(count);
	taken = resident() - before;
	report("pairs that are connected", first + count, "");
	report("  time per connection", (seconds() - start) / count * 1e6, "us");
	report("  processor time per connection", (processor_seconds() - used) / count * 1e6, "us");
	report("  resident memory per idle queue pair", (double)taken / count, "bytes");
	if (!me.cm && count >= 1000 && taken > (long)count * IDLE_BYTES)
		die("%ld bytes per idle queue pair", taken / count);
	for (uint32_t i = first; i < first + count; i++)
		want_message(i);
}

/* Moving data. */

static void fill(bool client)
{
	for (uint32_t i = 0; i < me.count; i++) {
		pattern_fill(part(i, OUT), PART, seed(client, i, OUT), 0);
		/* What goes out by WRITE lies where it is read back to. */
		pattern_fill(part(i, READ), PART, seed(client, i, WRITTEN), 0);
	}
}

/* The server answers a message, once what was written before it is right. */
static void answer(uint32_t pair, bool checked)
{
	if (checked) {
		pattern_check(part(pair, IN), PART, seed(true, pair, OUT), 0);
		pattern_check(part(pair, WRITTEN), PART, seed(true, pair, WRITTEN), 0);
	}
	want_message(pair);
	post(pair, IBV_WR_SEND, OUT);
}

/*
 * The client, over every pair: a WRITE, a message and its answer, then a READ of what was written.
 */
static void move_over_all(void)
{
	double start = seconds();
	uint32_t begun = 0, ended = 0;

	while (ended < me.count) {
		struct ibv_wc wc;

		for (; begun < me.count && begun - ended < WINDOW; begun++) {
			post(begun, IBV_WR_RDMA_WRITE, READ);
			post(begun, IBV_WR_SEND, OUT);
		}
		wc = completion();
		if (wc.opcode == IBV_WC_RECV) {
			pattern_check(part((uint32_t)wc.wr_id, IN), PART, seed(false, (uint32_t)wc.wr_id, OUT), 0);
			memset(part((uint32_t)wc.wr_id, READ), 0, PART);
			want_message((uint32_t)wc.wr_id);
			post((uint32_t)wc.wr_id, IBV_WR_RDMA_READ, READ);
		} else if (wc.opcode == IBV_WC_RDMA_READ) {
			pattern_check(part((uint32_t)wc.wr_id, READ), PART, seed(true, (uint32_t)wc.wr_id, WRITTEN), 0);
			ended++;
		}
	}
	report("  WRITE, SEND both ways and READ, per pair", (seconds() - start) / me.count * 1e6, "us");
}

static void poll_nothing(void)
{
	struct ibv_wc wc;

	EXPECT(ibv_poll_cq(me.cq, 1, &wc) == 0);
}

static void write_once(uint32_t pair)
{
	post(pair, IBV_WR_RDMA_WRITE, READ);
	completion();
}

static void send_once(uint32_t pair)
{
	bool sent = false, answered = false;

	post(pair, IBV_WR_SEND, OUT);
	while (!sent || !answered) {
		if (completion().opcode == IBV_WC_RECV)
			answered = true;
		else
			sent = true;
	}
	want_message(pair);
}

static double lot_of(int kind)
{
	double start = seconds();

	for (uint32_t i = 0; i < IN_LOT; i++) {
		if (kind == 0)
			poll_nothing();
		else if (kind == 1)
			write_once(i % FEW);
		else
			send_once(i % FEW);
	}
	return (seconds() - start) / IN_LOT * 1e6;
}

/*
 * What polls, WRITEs and messages on the first few pairs cost: the best of some lots, in
 * microseconds. With a limit, more lots are tried until it holds.
 */
static void cost(double best[3], const double limit[3])
{
	for (int kind = 0; kind < 3; kind++) {
		double enough = seconds() + LOTS_MS * 1e-3, end = seconds() + PATIENCE;

		best[kind] = 1e9;
		for (int lot = 0; lot < FEWEST_LOTS || (lot < LOTS && seconds() < enough) ||
				  (limit != NULL && best[kind] > limit[kind] && seconds() < end); lot++) {
			double each = lot_of(kind);

			if (each < best[kind])
				best[kind] = each;
		}
	}
	report("  empty poll", best[0], "us");
	report("  256 byte WRITE", best[1], "us");
	report("  256 byte SEND and its answer", best[2], "us");
}

/* The server: answers messages until it is told something. Returns what. */
static char serve(bool checked)
{
	struct pollfd word = { .fd = me.control, .events = POLLIN };
	struct ibv_wc wc;
	char byte;

	for (uint32_t idle = 0;;) {
		int n = ibv_poll_cq(me.cq, 1, &wc);

		EXPECT(n >= 0);
		if (n == 1) {
			succeeded(&wc);
			if (wc.opcode == IBV_WC_RECV)
				answer((uint32_t)wc.wr_id, checked);
		} else if (++idle % 1024 == 0 && poll(&word, 1, 0) == 1) {
			hear(&byte, 1);
			return byte;
		}
	}
}

/* Ending. */

static void leave(void)
{
	double start = seconds();

	for (uint32_t i = 0; i < me.count; i++) {
		if (me.cm)
			rdma_destroy_qp(me.ids[i]);
		else
			MUST(ibv_destroy_qp(me.qps[i]));
		if (me.cm)
			MUST(rdma_destroy_id(me.ids[i]));
	}
	report("  time to destroy one", (seconds() - start) / me.count * 1e6, "us");
	MUST(ibv_dereg_mr(me.mr));
	MUST(ibv_destroy_cq(me.cq));
	MUST(ibv_dealloc_pd(me.pd));
	if (!me.cm)
		MUST(ibv_close_device(me.context));
	if (me.listener != NULL)
		MUST(rdma_destroy_id(me.listener));
	if (me.channel != NULL)
		rdma_destroy_event_channel(me.channel);
}

static void prepare(void)
{
	MUST_PTR(me.memory = calloc(MOST, SLOT));
	/* What the program itself needs is there before anything is measured. */
	for (size_t at = 0; at < (size_t)me.count * SLOT; at += 4096)
		((volatile char *)me.memory)[at] = 0;
	MUST_PTR(me.qps = calloc(me.count, sizeof *me.qps));
	MUST_PTR(me.ids = calloc(me.count, sizeof *me.ids));
	memset(me.qps, 0xff, me.count * sizeof *me.qps);
	fill(me.client);
	if (me.cm) {
		MUST_PTR(me.channel = rdma_create_event_channel());
		if (!me.client)
			me.listener = listen_on(me.channel, AF_INET, 0);
	} else {
		open_first_device();
		make_shared(me.context);
	}
	exchange_cards();
}

static void client(void)
{
	double few[3], many[3], limit[3];

	tell(&me.count, sizeof me.count);
	tell(&me.cm, sizeof me.cm);
	prepare();
	grow(0, FEW);
	exchange_cards();
	cost(few, NULL);
	for (int kind = 0; kind < 3; kind++)
		limit[kind] = few[kind] * DEARER;
	tell("g", 1);
	grow(FEW, me.count - FEW);
	meet();
	cost(many, limit);
	tell("d", 1);
	move_over_all();
	tell("q", 1);
	for (int kind = 0; kind < 3; kind++)
		if (many[kind] > limit[kind])
			die("number %d costs %.2f us with %u pairs and %.2f us with %u", kind, many[kind], me.count, few[kind], FEW);
	meet();
	leave();
}

static void server(void)
{
	hear(&me.count, sizeof me.count);
	hear(&me.cm, sizeof me.cm);
	EXPECT(me.count > FEW && me.count <= MOST);
	prepare();
	grow(0, FEW);
	exchange_cards();
	EXPECT(serve(false) == 'g');
	grow(FEW, me.count - FEW);
	meet();
	EXPECT(serve(false) == 'd');
	EXPECT(serve(true) == 'q');
	meet();
	leave();
}

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	EXPECT(fd >= 0);
	return fd;
}

static void wait_for_client(void)
{
	int fd = listen_on_tcp(1);

	EXPECT((me.control = accept(fd, NULL, NULL)) >= 0);
	close(fd);
}

int main(int argc, char **argv)
{
	int on = 1;

	deadline(TIME);
	if (argc == 2 && strcmp(argv[1], "server") == 0) {
		wait_for_client();
	} else if (argc == 6 && strcmp(argv[1], "client") == 0) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)number(argv[5], 1, 65535)) };

		me.client = true;
		me.cm = strcmp(argv[2], "cm") == 0;
		me.count = (uint32_t)number(argv[3], FEW + 1, MOST);
		me.address = argv[4];
		EXPECT(inet_pton(AF_INET, argv[4], &to.sin_addr) == 1);
		me.control = tcp_socket();
		MUST(connect(me.control, (struct sockaddr *)&to, sizeof to));
	} else {
		return 2;
	}
	MUST(setsockopt(me.control, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	if (me.client)
		client();
	else
		server();
	return 0;
}
