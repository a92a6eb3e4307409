/*
 * One server and many short-lived clients, in waves: every one is served, and nothing of those that
 * are gone stays with the server.
 *
 * usage: churn CLIENTS [SLOTS [USER]]      clients in all; slots that they and the server have,
 *                                          1023; user of the clients, if not that of the server
 *
 * A client connects, sends a message, checks the answer, and ends: by a disconnect, by a return
 * from main, or without a word. With few slots most clients have that of one that has just ended.
 */
#include "common.h"
#include "holdings.h"
#include "slots.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

enum { TIME = 300, WAVE = 40, LENGTH = 5000, BACKLOG = 8, GROWTH_KIB = 2048, KEPT = 2 };

/* How a client ends. */
enum ending { BY_DISCONNECT, BY_RETURN, SILENTLY, ENDINGS };

static uint32_t seed_of(uint32_t client, bool answer)
{
	return client * 2 + answer;
}

struct connection {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char in[LENGTH], out[LENGTH];
	uint32_t client;
	bool served, gone;
};

static void equip(struct connection *c)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 }, .sq_sig_all = 1 };
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST_PTR(c->pd = ibv_alloc_pd(c->id->verbs));
	MUST_PTR(c->cq = ibv_create_cq(c->id->verbs, 4, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = c->cq;
	MUST(rdma_create_qp(c->id, c->pd, &attr));
	MUST_PTR(c->mr = ibv_reg_mr(c->pd, c, sizeof *c, IBV_ACCESS_LOCAL_WRITE));
	sge = (struct ibv_sge){ (uintptr_t)c->in, LENGTH, c->mr->lkey };
	MUST(ibv_post_recv(c->id->qp, &wr, &bad));
}

static void say(struct connection *c, bool answer)
{
	struct ibv_sge sge = { (uintptr_t)c->out, LENGTH, c->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	pattern_fill(c->out, LENGTH, seed_of(c->client, answer), 0);
	MUST(ibv_post_send(c->id->qp, &wr, &bad));
}

static void release(struct connection *c)
{
	rdma_destroy_qp(c->id);
	MUST(ibv_dereg_mr(c->mr));
	MUST(ibv_destroy_cq(c->cq));
	MUST(ibv_dealloc_pd(c->pd));
	MUST(rdma_destroy_id(c->id));
}

static void be_client(char **argv)
{
	static struct connection c;
	uid_t user = (uid_t)number(argv[5], 0, UINT32_MAX);
	struct rdma_event_channel *channel;
	struct rdma_conn_param param = { .private_data = &c.client, .private_data_len = sizeof c.client, .retry_count = 7,
					 .rnr_retry_count = 7 };

	if (user != getuid()) {
		MUST(setgid(user));
		MUST(setuid(user));
	}
	c.client = (uint32_t)number(argv[2], 0, UINT32_MAX);
	MUST_PTR(channel = rdma_create_event_channel());
	c.id = start_resolving(channel, argv[3], argv[4]);
	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	equip(&c);
	MUST(rdma_resolve_route(c.id, 2000));
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(rdma_connect(c.id, &param));
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	say(&c, false);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_completion(c.cq);

		succeeded(&wc);
	}
	pattern_check(c.in, LENGTH, seed_of(c.client, true), 0);
	switch (c.client % ENDINGS) {
	case BY_DISCONNECT:
		MUST(rdma_disconnect(c.id));
		await(channel, RDMA_CM_EVENT_DISCONNECTED);
		release(&c);
		rdma_destroy_event_channel(channel);
		exit(0);
	case BY_RETURN:
		exit(0);
	default:
		_exit(0);
	}
}

/* The server. */

static struct {
	char port[8];
	char user[16];
	struct rdma_event_channel *channel;
	struct connection *connections[WAVE * 2];
	unsigned int served;
} me;

static void on_event(struct rdma_cm_event *event)
{
	struct connection *c = event->id->context;
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	int place = 0;

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		while (me.connections[place] != NULL)
			EXPECT(++place < WAVE * 2);
		MUST_PTR(c = calloc(1, sizeof *c));
		me.connections[place] = c;
		memcpy(&c->client, event->param.conn.private_data, sizeof c->client);
		c->id = event->id;
		c->id->context = c;
		equip(c);
		MUST(rdma_accept(c->id, &param));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		MUST(rdma_disconnect(c->id));
		c->gone = true;
		break;
	default:
		die("event %s with status %d", rdma_event_str(event->event), event->status);
	}
	MUST(rdma_ack_cm_event(event));
}

static void look_after(struct connection *c)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(c->cq, 1, &wc);

	EXPECT(n >= 0);
	if (n == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV) {
		pattern_check(c->in, LENGTH, seed_of(c->client, false), 0);
		say(c, true);
		me.served++;
		c->served = true;
	} else if (n == 1 && wc.status != IBV_WC_SUCCESS) {
		/* The client may be gone before its acknowledgement of the answer was seen. */
		EXPECT(c->served && (wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR));
	}
}

static void turn(void)
{
	struct pollfd news = { .fd = me.channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	while (poll(&news, 1, 0) == 1) {
		MUST(rdma_get_cm_event(me.channel, &event));
		on_event(event);
	}
	for (int i = 0; i < WAVE * 2; i++) {
		struct connection *c = me.connections[i];

		if (c == NULL)
			continue;
		look_after(c);
		if (c->gone) {
			EXPECT(c->served);
			release(c);
			free(c);
			me.connections[i] = NULL;
		}
	}
}

static pid_t start_client(uint32_t client)
{
	char word[16];
	char *argv[] = { "churn", "client", word, "127.0.0.1", me.port, me.user, NULL };
	pid_t pid;

	snprintf(word, sizeof word, "%u", client);
	MUST(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ));
	return pid;
}

static bool any_left(void)
{
	for (int i = 0; i < WAVE * 2; i++)
		if (me.connections[i] != NULL)
			return true;
	return false;
}

static void run_wave(uint32_t first, uint32_t count)
{
	uint32_t ended = 0;
	int status;

	for (uint32_t i = 0; i < count; i++)
		start_client(first + i);
	while (ended < count || any_left()) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0) {
			if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
				die("a client ended with status %#x", (unsigned int)status);
			ended++;
		}
		turn();
	}
}

int main(int argc, char **argv)
{
	uint32_t clients;
	struct rdma_cm_id *listener;
	unsigned int files = 0, files_now;
	long kib = 0, kib_now;

	deadline(TIME);
	if (argc == 6 && strcmp(argv[1], "client") == 0)
		be_client(argv);
	if (argc < 2)
		return 2;
	clients = (uint32_t)number(argv[1], 5 * WAVE, 1000000);
	if (argc > 2)
		take_all_but(number(argv[2], WAVE + 1, SLOTS));
	snprintf(me.user, sizeof me.user, "%lu", argc > 3 ? number(argv[3], 0, UINT32_MAX) : getuid());
	MUST_PTR(me.channel = rdma_create_event_channel());
	listener = listen_on(me.channel, AF_INET, 0);
	snprintf(me.port, sizeof me.port, "%u", ntohs(rdma_get_src_port(listener)));
	for (uint32_t first = 0; first < clients; first += WAVE) {
		run_wave(first, clients - first < WAVE ? clients - first : WAVE);
		if (first <= clients / 5) {
			files = descriptors();
			kib = resident_kib();
		}
	}
	/*
	 * That a process is gone may be noticed a moment later than its connection's end. The
	 * deadline ends a wait in vain.
	 */
	while ((files_now = descriptors()) > files + KEPT)
		turn();
	kib_now = resident_kib();
	printf("%u clients served; %u descriptors after a fifth, then %u; %ld KiB, then %ld\n", me.served, files, files_now, kib, kib_now);
	EXPECT(me.served == clients);
	if (kib_now > kib + GROWTH_KIB)
		die("memory grows");
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(me.channel);
	return 0;
}
