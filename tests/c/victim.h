/*
 * What the transfers that are attacked share: what they tell of themselves, and a server of any
 * number of clients.
 *
 * Each says "slot S qp Q" and "psn P", of its first message to come, for each connection, and ten
 * times a second "rounds N descriptors D ports P kib K", the totals of the process: P UDP sockets,
 * and D other descriptors. The last such line comes after the last connection has ended.
 */
#ifndef FERROCE_TESTS_VICTIM_H
#define FERROCE_TESTS_VICTIM_H

#include "holdings.h"
#include "side.h"

#include <poll.h>
#include <time.h>

enum {
	REPORT_MS = 100,
	SLOT_SHIFT = 14 /* a queue pair number's upper bits are its process's slot */
};

static volatile sig_atomic_t is_over;
static atomic_ulong rounds;
static atomic_int served;

static void end(int signal)
{
	(void)signal;
	is_over = 1;
}

static void UNUSED end_on_sigterm(void)
{
	struct sigaction action = { .sa_handler = end };

	MUST(sigaction(SIGTERM, &action, NULL));
}

static void report(void)
{
	unsigned int ports = udp_sockets();

	printf("rounds %lu descriptors %u ports %u kib %ld\n", atomic_load(&rounds), descriptors() - ports, ports, resident_kib());
	fflush(stdout);
}

/* Called by one thread of the process. */
static void UNUSED report_if_due(void)
{
	static long next;
	struct timespec now;
	long now_ms;

	clock_gettime(CLOCK_MONOTONIC, &now);
	now_ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
	if (now_ms < next)
		return;
	report();
	next = now_ms + REPORT_MS;
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

/* What a server does with a connection. */
struct service {
	int receives;
	uint32_t length;
	bool sleeps;
	/*
	 * Runs in a thread of its own, with the connection's side, until its client says that it
	 * was the last message.
	 */
	void *(*serve)(void *side);
};

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

static void admit(const struct service *service, struct rdma_cm_id *id)
{
	struct client *client;
	struct offer offer;
	struct rdma_conn_param param = patient;

	is_somebody(id);
	MUST_PTR(client = calloc(1, sizeof *client));
	client->side.id = id;
	id->context = client;
	client->side.sleeps = service->sleeps;
	equip(&client->side, service->receives, service->length);
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

static void handle(const struct service *service, struct rdma_event_channel *channel)
{
	struct rdma_cm_event event = next_event(channel);
	struct client *client = event.id->context;

	switch (event.event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		admit(service, event.id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		introduce(&client->side);
		MUST(pthread_create(&client->thread, NULL, service->serve, &client->side));
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

/* Serves any number of clients until SIGTERM has come and the last one has left. */
static void UNUSED serve_all(const struct service *service)
{
	struct side side = { 0 };

	open_server(&side, NULL);
	while (!is_over || atomic_load(&served) > 0) {
		struct pollfd wait = { .fd = side.channel->fd, .events = POLLIN };

		if (poll(&wait, 1, REPORT_MS) > 0)
			handle(service, side.channel);
		report_if_due();
	}
	report();
	close_server(&side);
}

#endif
