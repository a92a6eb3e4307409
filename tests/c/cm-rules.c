/*
 * Rules of RDMA CM that programs rely on without knowing it: one process, both ends.
 *
 * usage: cm-rules [ADDRESS]        an address of this machine, 127.0.0.1 by default
 */
#include "common.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>

enum { TIME = 60 };

static const char *address = "127.0.0.1";

static struct rdma_event_channel *channel_of(int flags)
{
	struct rdma_event_channel *channel;

	MUST_PTR(channel = rdma_create_event_channel());
	MUST(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | flags));
	return channel;
}

static void wait_readable(struct rdma_event_channel *channel)
{
	struct pollfd fd = { channel->fd, POLLIN, 0 };

	EXPECT(poll(&fd, 1, -1) == 1);
}

static char *port_of(struct rdma_cm_id *id)
{
	static char text[8];

	snprintf(text, sizeof text, "%u", ntohs(rdma_get_src_port(id)));
	return text;
}

static int is_loopback(const struct sockaddr_storage *at)
{
	const struct sockaddr_in *v4 = (const void *)at;
	const struct sockaddr_in6 *v6 = (const void *)at;

	if (at->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static struct sockaddr_storage address_with_port(const char *port)
{
	struct sockaddr_storage storage = { 0 };
	struct addrinfo *info;

	EXPECT(getaddrinfo(address, port, &(struct addrinfo){ .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, &info) == 0);
	memcpy(&storage, info->ai_addr, info->ai_addrlen);
	freeaddrinfo(info);
	return storage;
}

static struct ibv_qp_init_attr small_qp(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
}

/* A thread that sleeps in rdma_get_cm_event. */

struct sleeper {
	struct rdma_event_channel *channel;
	atomic_int tid;
	int result, error;
};

static void ignore(int signal)
{
	(void)signal;
}

static void *sleep_on_channel(void *argument)
{
	struct sleeper *sleeper = argument;
	struct rdma_cm_event *event;

	sleeper->tid = gettid();
	sleeper->result = rdma_get_cm_event(sleeper->channel, &event);
	sleeper->error = errno;
	return NULL;
}

/* Returns when the thread sleeps in the kernel. */
static pthread_t put_to_sleep(struct sleeper *sleeper)
{
	char path[64], state = 0;
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, sleep_on_channel, sleeper));
	while (sleeper->tid == 0)
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", sleeper->tid);
	for (int quiet = 0; quiet < 3; quiet = state == 'S' ? quiet + 1 : 0) {
		FILE *stat = fopen(path, "r");

		EXPECT(stat != NULL && fscanf(stat, "%*d %*s %c", &state) == 1);
		fclose(stat);
		usleep(2000);
	}
	return thread;
}

/* rping destroys the channel while its event thread is about to sleep on it. */
static void destroyed_while_going_to_sleep(void)
{
	for (int i = 0; i < 500; i++) {
		struct sleeper sleeper = { .channel = channel_of(0) };
		pthread_t thread;
		void *result;

		MUST(pthread_create(&thread, NULL, sleep_on_channel, &sleeper));
		while (sleeper.tid == 0)
			sched_yield();
		for (atomic_int spin = 0; spin < i % 200 * 10; spin++)
			;
		rdma_destroy_event_channel(sleeper.channel);
		/* Long enough for a call that is going to fail. */
		usleep(50);
		MUST(pthread_cancel(thread));
		MUST(pthread_join(thread, &result));
		EXPECT(result == PTHREAD_CANCELED);
	}
}

static void channel_rules(void)
{
	struct rdma_event_channel *channel = channel_of(O_NONBLOCK);
	struct sleeper sleeper = { 0 }, cancelled = { 0 }, orphan = { 0 };
	struct sigaction action = { .sa_handler = ignore };
	struct rdma_cm_event *event;
	pthread_t thread;
	void *result;

	REFUSED(rdma_get_cm_event(channel, &event), EAGAIN);
	rdma_destroy_event_channel(channel);

	/* A signal interrupts. */
	sigaction(SIGUSR1, &action, NULL);
	sleeper.channel = cancelled.channel = channel_of(0);
	thread = put_to_sleep(&sleeper);
	MUST(pthread_kill(thread, SIGUSR1));
	MUST(pthread_join(thread, NULL));
	EXPECT(sleeper.result == -1 && sleeper.error == EINTR);

	/* A sleeping thread can be cancelled, and the channel goes on. */
	thread = put_to_sleep(&cancelled);
	MUST(pthread_cancel(thread));
	MUST(pthread_join(thread, &result));
	EXPECT(result == PTHREAD_CANCELED);
	MUST(fcntl(cancelled.channel->fd, F_SETFL, O_NONBLOCK));
	REFUSED(rdma_get_cm_event(cancelled.channel, &event), EAGAIN);
	rdma_destroy_event_channel(cancelled.channel);

	/* A thread whose channel is destroyed sleeps on. */
	orphan.channel = channel_of(0);
	thread = put_to_sleep(&orphan);
	rdma_destroy_event_channel(orphan.channel);
	for (int i = 0; i < 10; i++) {
		EXPECT(pthread_tryjoin_np(thread, NULL) == EBUSY);
		usleep(5000);
	}
	MUST(pthread_cancel(thread));
	MUST(pthread_join(thread, &result));
	EXPECT(result == PTHREAD_CANCELED);
	destroyed_while_going_to_sleep();
}

/*
 * `localhost` without a port stands for any device's address until it is used: libfabric looks for
 * all devices there.
 */
static void by_name(struct rdma_event_channel *channel)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *info;
	struct rdma_cm_id *id;

	if (strcmp(address, "127.0.0.1") != 0)
		return;
	MUST(rdma_getaddrinfo("localhost", NULL, &hints, &info));
	MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(id, info->ai_src_addr));
	EXPECT(id->verbs == NULL);
	MUST(rdma_listen(id, 1));
	EXPECT(id->verbs != NULL);
	MUST(rdma_destroy_id(id));
	rdma_freeaddrinfo(info);
}

static void bind_rules(void)
{
	struct rdma_event_channel *channel = channel_of(O_NONBLOCK);
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct sockaddr unknown = { .sa_family = AF_UNIX };
	struct sockaddr_storage exact = address_with_port("0"), named;
	struct rdma_cm_id *wild, *bound, *other;
	struct ibv_qp_init_attr attr = small_qp();
	uint8_t tos = 0;
	int flag = 1;

	MUST(rdma_create_id(channel, &wild, &any, RDMA_PS_TCP));
	EXPECT(wild->context == &any && wild->channel == channel && wild->ps == RDMA_PS_TCP && wild->qp_type == IBV_QPT_RC);
	EXPECT(wild->verbs == NULL && wild->qp == NULL && wild->event == NULL && rdma_get_src_port(wild) == 0);
	REFUSED(rdma_bind_addr(wild, &unknown), EINVAL);
	MUST(rdma_set_option(wild, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
	REFUSED(rdma_set_option(wild, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &flag, sizeof flag), EINVAL);
	REFUSED(rdma_set_option(wild, RDMA_OPTION_ID, 77, &flag, sizeof flag), ENOSYS);
	MUST(rdma_bind_addr(wild, (struct sockaddr *)&any));
	EXPECT(rdma_get_src_port(wild) != 0);
	EXPECT(rdma_get_local_addr(wild)->sa_family == AF_INET6);
	EXPECT(wild->verbs == NULL);
	REFUSED(rdma_create_qp(wild, NULL, &attr), EINVAL);
	MUST(rdma_listen(wild, 1));

	MUST(rdma_create_id(channel, &bound, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(bound, (struct sockaddr *)&exact));
	EXPECT(bound->verbs != NULL);
	MUST(rdma_listen(bound, 1));
	EXPECT(bound->verbs != NULL && bound->port_num == 1 && bound->pd != NULL && bound->pd->context == bound->verbs);
	EXPECT(rdma_get_src_port(bound) != 0 && rdma_get_src_port(bound) != rdma_get_src_port(wild));
	MUST(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
	REFUSED(rdma_bind_addr(other, rdma_get_local_addr(bound)), EADDRINUSE);
	REFUSED(rdma_bind_addr(other, rdma_get_local_addr(wild)), EADDRNOTAVAIL);
	named = bound->route.addr.src_storage;
	MUST(rdma_destroy_id(bound));
	MUST(rdma_create_id(channel, &bound, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(bound, (struct sockaddr *)&named));
	EXPECT(bound->verbs != NULL && bound->port_num == 1);
	MUST(rdma_destroy_id(bound));
	MUST(rdma_bind_addr(other, (struct sockaddr *)&exact));
	MUST(rdma_create_qp(other, NULL, &attr));
	EXPECT(other->verbs != NULL);
	rdma_destroy_qp(other);
	MUST(rdma_destroy_id(other));
	by_name(channel);
	MUST(rdma_destroy_id(wild));
	rdma_destroy_event_channel(channel);
}

static void *destroy_it(void *id)
{
	MUST(rdma_destroy_id(id));
	return NULL;
}

/*
 * An identifier waits for the acknowledgement of its events; events that were not fetched move with
 * it or vanish.
 */
static void event_rules(void)
{
	struct rdma_event_channel *first = channel_of(O_NONBLOCK), *second = channel_of(O_NONBLOCK);
	struct sockaddr_storage dst = address_with_port("1");
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	pthread_t thread;

	MUST(rdma_create_id(first, &id, NULL, RDMA_PS_TCP));
	REFUSED(rdma_resolve_route(id, 100), EINVAL);
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000));
	wait_readable(first);
	EXPECT(id->verbs == NULL);
	MUST(rdma_migrate_id(id, second));
	EXPECT(id->channel == second);
	REFUSED(rdma_get_cm_event(first, &event), EAGAIN);
	MUST(rdma_get_cm_event(second, &event));
	EXPECT(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && event->status == 0 && event->id == id && event->listen_id == NULL);
	EXPECT(id->verbs != NULL && id->port_num == 1);
	REFUSED(rdma_get_cm_event(second, &event), EAGAIN);

	MUST(pthread_create(&thread, NULL, destroy_it, id));
	for (int i = 0; i < 10; i++) {
		EXPECT(pthread_tryjoin_np(thread, NULL) == EBUSY);
		usleep(5000);
	}
	MUST(rdma_ack_cm_event(event));
	MUST(pthread_join(thread, NULL));

	MUST(rdma_create_id(first, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000));
	wait_readable(first);
	MUST(rdma_destroy_id(id));
	REFUSED(rdma_get_cm_event(first, &event), EAGAIN);
	rdma_destroy_event_channel(first);
	rdma_destroy_event_channel(second);
	EXPECT(strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT") == 0);
	EXPECT(rdma_event_str(99) != NULL);
}

/* The route of a resolved identifier. */
static void check_route(struct rdma_cm_id *id, __be16 port)
{
	struct rdma_ib_addr *ib = &id->route.addr.addr.ibaddr;

	EXPECT(id->route.num_paths == 1 && id->route.path_rec != NULL);
	EXPECT(memcmp(&id->route.path_rec->sgid, &ib->sgid, 16) == 0 && memcmp(&id->route.path_rec->dgid, &ib->dgid, 16) == 0);
	EXPECT(ib->pkey == 0xffff && id->route.path_rec->pkey == 0xffff);
	EXPECT(id->route.path_rec->mtu >= IBV_MTU_256 && id->route.path_rec->mtu <= IBV_MTU_4096);
	EXPECT(rdma_get_dst_port(id) == port && rdma_get_src_port(id) != 0);
}

static struct rdma_cm_id *resolved(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id = start_resolving(channel, address, port_of(listener));

	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 1000));
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	check_route(id, rdma_get_src_port(listener));
	return id;
}

static void move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	MUST(rdma_init_qp_attr(id, &attr, &mask));
	EXPECT(mask & IBV_QP_STATE && attr.qp_state == state);
	if (state == IBV_QPS_RTR)
		EXPECT(attr.path_mtu != 0 && attr.ah_attr.is_global);
	MUST(ibv_modify_qp(qp, &attr, mask));
}

/*
 * Queue pairs that the program moves itself: the active side hears of the response and completes
 * it.
 */
static void own_queue_pairs(void)
{
	struct rdma_event_channel *active = channel_of(0), *passive = channel_of(0);
	struct rdma_cm_id *listener = listen_on(passive, AF_INET6, 0), *client, *server;
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 2, .retry_count = 5, .rnr_retry_count = 6 };
	struct ibv_qp_init_attr attr = small_qp();
	struct ibv_qp *qps[2];
	struct ibv_cq *cq;
	struct ibv_device_attr device;
	struct ibv_qp_attr queried;
	struct rdma_cm_event event, *kept;

	listener->context = &param;
	client = resolved(active, listener);
	EXPECT((cq = ibv_create_cq(client->verbs, 16, NULL, NULL, 0)) != NULL);
	attr.send_cq = attr.recv_cq = cq;
	for (int i = 0; i < 2; i++)
		MUST_PTR(qps[i] = ibv_create_qp(client->pd, &attr));
	REFUSED(rdma_connect(client, NULL), EINVAL);
	MUST(ibv_query_device(client->verbs, &device));
	if (device.max_qp_rd_atom < 254) {
		struct rdma_conn_param greedy = param;

		greedy.responder_resources = device.max_qp_rd_atom + 1;
		REFUSED(rdma_connect(client, &greedy), EINVAL);
	}
	move(client, qps[0], IBV_QPS_INIT);
	param.qp_num = qps[0]->qp_num;
	MUST(rdma_connect(client, &param));

	/*
	 * The parameters arrive mirrored; the new identifier inherits from the listener and
	 * outlives the event.
	 */
	MUST(rdma_get_cm_event(passive, &kept));
	event = *kept;
	EXPECT(event.event == RDMA_CM_EVENT_CONNECT_REQUEST && event.listen_id == listener && event.id != listener);
	EXPECT(event.param.conn.initiator_depth == 2 && event.param.conn.responder_resources == 1);
	EXPECT(event.param.conn.retry_count == 5 && event.param.conn.qp_num == qps[0]->qp_num);
	server = event.id;
	EXPECT(server->context == &param && server->channel == passive && server->verbs == client->verbs && server->qp == NULL);
	EXPECT(rdma_get_src_port(server) == rdma_get_src_port(listener) && rdma_get_dst_port(server) == rdma_get_src_port(client));
	MUST(rdma_ack_cm_event(kept));
	move(server, qps[1], IBV_QPS_INIT);
	move(server, qps[1], IBV_QPS_RTR);
	move(server, qps[1], IBV_QPS_RTS);
	REFUSED(rdma_accept(server, NULL), EINVAL);
	param.qp_num = qps[1]->qp_num;
	MUST(rdma_accept(server, &param));

	event = await(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
	EXPECT(event.id == client && event.param.conn.qp_num == qps[1]->qp_num);
	move(client, qps[0], IBV_QPS_RTR);
	move(client, qps[0], IBV_QPS_RTS);
	MUST(rdma_establish(client));
	await(passive, RDMA_CM_EVENT_ESTABLISHED);
	MUST(ibv_query_qp(qps[0], &queried, IBV_QP_STATE, &attr));
	EXPECT(queried.qp_state == IBV_QPS_RTS && queried.dest_qp_num == qps[1]->qp_num && queried.retry_cnt == 5);

	/* The side that began hears the end when the other has agreed. */
	MUST(rdma_disconnect(server));
	await(active, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_disconnect(client));
	await(passive, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_destroy_id(client));
	MUST(rdma_destroy_id(server));
	for (int i = 0; i < 2; i++)
		MUST(ibv_destroy_qp(qps[i]));
	MUST(ibv_destroy_cq(cq));
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
}

/* Endpoints: synchronous calls, queue pairs and completion queues from the library. */

static char ask[64], answer[64];

static struct rdma_cm_id *endpoint(const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_init_attr attr = small_qp();
	struct rdma_cm_id *id;

	attr.sq_sig_all = 1;
	MUST(rdma_getaddrinfo((char *)address, (char *)port, &hints, &res));
	EXPECT(res->ai_qp_type == IBV_QPT_RC && res->ai_port_space == RDMA_PS_TCP && res->ai_next == NULL);
	MUST(rdma_create_ep(&id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	return id;
}

static void *serve_endpoint(void *listener)
{
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	MUST(rdma_get_request(listener, &id));
	EXPECT(id->event != NULL && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	EXPECT(memcmp(id->event->param.conn.private_data, "please", 7) == 0);
	EXPECT(id->qp != NULL && id->send_cq != NULL && id->recv_cq != NULL && id->send_cq_channel != NULL && id->recv_cq_channel != NULL);
	MUST_PTR(mr = rdma_reg_msgs(id, answer, sizeof answer));
	MUST(rdma_post_recv(id, NULL, answer, sizeof answer, mr));
	MUST(rdma_accept(id, NULL));
	EXPECT(id->event != NULL && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	EXPECT(rdma_get_recv_comp(id, &wc) == 1);
	succeeded(&wc);
	pattern_check(answer, sizeof answer, 1, 0);
	MUST(rdma_post_send(id, NULL, answer, sizeof answer, mr, 0));
	EXPECT(rdma_get_send_comp(id, &wc) == 1);
	succeeded(&wc);
	MUST(rdma_disconnect(id));
	MUST(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);

	/* The second one is turned down. */
	MUST(rdma_get_request(listener, &id));
	MUST(rdma_reject(id, NULL, 0));
	rdma_destroy_ep(id);
	return NULL;
}

static void endpoint_rules(void)
{
	struct rdma_cm_id *listener = endpoint("0", RAI_PASSIVE), *id, *asynchronous;
	struct rdma_event_channel *channel = channel_of(O_NONBLOCK);
	struct rdma_conn_param param = { .private_data = "please", .private_data_len = 7, .retry_count = 7, .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr = small_qp();
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t thread;

	MUST(rdma_listen(listener, 0));
	MUST(pthread_create(&thread, NULL, serve_endpoint, listener));
	id = endpoint(port_of(listener), 0);
	check_route(id, rdma_get_src_port(listener));
	EXPECT(id->qp != NULL && id->send_cq->cq_context == id && id->recv_cq->cq_context == id);
	REFUSED(rdma_create_qp(id, NULL, &attr), EINVAL);
	REFUSED(rdma_establish(id), EINVAL);
	REFUSED(rdma_migrate_id(id, NULL), EINVAL);
	MUST_PTR(mr = rdma_reg_msgs(id, ask, sizeof ask));
	pattern_fill(ask, sizeof ask, 1, 0);
	MUST(rdma_connect(id, &param));
	EXPECT(id->event != NULL && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	MUST(rdma_post_recv(id, NULL, ask, sizeof ask, mr));
	MUST(rdma_post_send(id, NULL, ask, sizeof ask, mr, 0));
	EXPECT(rdma_get_send_comp(id, &wc) == 1);
	succeeded(&wc);
	EXPECT(rdma_get_recv_comp(id, &wc) == 1);
	succeeded(&wc);
	EXPECT(wc.byte_len == sizeof ask);
	pattern_check(ask, sizeof ask, 1, 0);
	MUST(rdma_disconnect(id));
	EXPECT(id->event != NULL && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);

	id = endpoint(port_of(listener), 0);
	REFUSED(rdma_connect(id, &param), ECONNREFUSED);
	EXPECT(id->event != NULL && id->event->event == RDMA_CM_EVENT_REJECTED && id->event->status == 28);
	rdma_destroy_ep(id);
	MUST(pthread_join(thread, NULL));

	MUST(rdma_migrate_id(listener, channel));
	REFUSED(rdma_get_request(listener, &asynchronous), EINVAL);
	rdma_destroy_ep(listener);
	rdma_destroy_event_channel(channel);
}

/* Devices: always the same contexts. */
static void device_rules(void)
{
	struct ibv_context **first, **second;
	int count, again;

	MUST_PTR(first = rdma_get_devices(&count));
	MUST_PTR(second = rdma_get_devices(&again));
	EXPECT(count > 0 && count == again && first[count] == NULL);
	for (int i = 0; i < count; i++)
		EXPECT(first[i] == second[i]);
	rdma_free_devices(first);
	rdma_free_devices(second);
}

int main(int argc, char **argv)
{
	deadline(TIME);
	if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
		fputs("usage: cm-rules [ADDRESS]\n", stderr);
		return 2;
	}
	if (argc == 2)
		address = argv[1];
	channel_rules();
	bind_rules();
	event_rules();
	own_queue_pairs();
	endpoint_rules();
	device_rules();
	return 0;
}
