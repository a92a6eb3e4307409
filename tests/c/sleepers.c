/*
 * Threads that sleep for completion events in every way, and are disturbed in every way. Two
 * processes exchange numbered messages on twelve queue pairs, with fifteen completion queues on
 * nine channels, on which eleven threads of each side sleep, one of them on two. A seed chooses
 * every step.
 *
 * A watchdog on each side finds lost wake-ups. So that nothing hides one, often a single token is
 * under way, and nothing but its completion wakes anything.
 *
 * usage: sleepers server SEED
 *        sleepers client ADDRESS PORT SEED SECONDS
 */
#include "sleepers/watchdog.h"

/* A time in which the same tokens may go, and the longest for which one may not. */
enum { PHASE_US = 300000, LONGEST_REST_US = 1500000 };
/* A run of so many seconds may be without a kind of wait or disturbance. */
enum { SHORT_SECONDS = 45 };

struct offer {
	uint64_t address;
	uint32_t key;
};

static struct offer offer_of(const struct pair *pair)
{
	char *from = pair->memory + (RECEIVES + SENDS) * LONGEST;

	return (struct offer){ (uintptr_t)from, pair->mr->rkey };
}

/* Learns where the peer's memory is. */
static void learn(struct pair *pair, const struct rdma_conn_param *param)
{
	struct offer offer;

	EXPECT(param->private_data_len >= sizeof offer);
	memcpy(&offer, param->private_data, sizeof offer);
	pair->peer_address = offer.address;
	pair->peer_key = offer.key;
}

/* What all queue pairs share: channels and queues. */
static void equip(struct ibv_context *verbs)
{
	if (pd != NULL)
		return;
	MUST_PTR(pd = ibv_alloc_pd(verbs));
	for (int i = 0; i < CHANNELS; i++)
		MUST_PTR(channels[i].events = ibv_create_comp_channel(verbs));
	for (int i = 0; i < QUEUES; i++) {
		struct queue *queue = &queues[i];

		queue->channel = &channels[QUEUE_PLAN[i].channel];
		queue->is_solicited = QUEUE_PLAN[i].is_solicited;
		MUST(pthread_mutex_init(&queue->order, NULL));
		MUST_PTR(queue->cq = ibv_create_cq(verbs, 4 * (RECEIVES + SENDS), queue,
						   queue->channel->events, 0));
	}
}

static void prepare(struct pair *pair, struct rdma_cm_id *id)
{
	int index = index_of(pair);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = SENDS,
			.max_recv_wr = RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	equip(id->verbs);
	pair->id = id;
	pair->receives = &queues[PAIR_PLAN[index].receives];
	pair->sends = &queues[PAIR_PLAN[index].sends];
	pair->tokens = PAIR_PLAN[index].tokens;
	pair->ready = is_server ? 0 : pair->tokens;
	MUST(pthread_mutex_init(&pair->lock, NULL));
	attr.send_cq = pair->sends->cq;
	attr.recv_cq = pair->receives->cq;
	MUST(rdma_create_qp(id, pd, &attr));
	MUST_PTR(pair->memory = calloc(1, PAIR_BYTES));
	MUST_PTR(pair->mr = ibv_reg_mr(pd, pair->memory, PAIR_BYTES, access));
	pattern_fill(shared(pair, 0), SHARED, 0, 0);
	for (unsigned long i = 0; i < RECEIVES; i++)
		post_receive(pair, i);
}

static struct rdma_conn_param param_of(const struct offer *offer)
{
	return (struct rdma_conn_param){
		.private_data = offer,
		.private_data_len = sizeof *offer,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.initiator_depth = 4,
		.responder_resources = 4,
	};
}

static void be_patient(struct rdma_cm_id *id)
{
	uint8_t timeout = ACK_TIMEOUT;

	MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
}

static void connect_pair(struct pair *pair, struct rdma_event_channel *channel, char **peer)
{
	struct rdma_cm_id *id = start_resolving(channel, peer[0], peer[1]);
	struct offer offer;

	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	be_patient(id);
	prepare(pair, id);
	MUST(rdma_resolve_route(id, 2000));
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	offer = offer_of(pair);
	struct rdma_conn_param param = param_of(&offer);
	struct rdma_cm_event *event;

	MUST(rdma_connect(id, &param));
	MUST(rdma_get_cm_event(channel, &event));
	if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		die("event %s with status %d", rdma_event_str(event->event), event->status);
	learn(pair, &event->param.conn);
	MUST(rdma_ack_cm_event(event));
}

static void accept_pair(struct pair *pair, const struct rdma_cm_event *event)
{
	struct offer offer;

	be_patient(event->id);
	prepare(pair, event->id);
	learn(pair, &event->param.conn);
	offer = offer_of(pair);
	struct rdma_conn_param param = param_of(&offer);
	MUST(rdma_accept(event->id, &param));
}

/* The client connects one queue pair after the other. */
static void accept_all(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	int accepted = 0, established = 0;

	while (established < PAIRS) {
		MUST(rdma_get_cm_event(channel, &event));
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			accept_pair(&pairs[accepted++], event);
		else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
			established++;
		else
			die("event %s with status %d", rdma_event_str(event->event), event->status);
		MUST(rdma_ack_cm_event(event));
	}
}

/* Gives a thread its channels, and sets of epoll(7) with their numbers. */
static void prepare_sleeper(struct sleeper *sleeper, const int *of)
{
	sleeper->of = of[0] == of[1] ? 1 : 2;
	sleeper->chance = chance_of((uint64_t)(sleeper - sleepers));
	EXPECT((sleeper->level = epoll_create1(EPOLL_CLOEXEC)) >= 0);
	EXPECT((sleeper->edge = epoll_create1(EPOLL_CLOEXEC)) >= 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct channel *channel = sleeper->channels[i] = &channels[of[i]];
		struct epoll_event level = { EPOLLIN, { .u32 = i } };
		struct epoll_event edge = { EPOLLIN | EPOLLET, { .u32 = i } };

		if ((int)i >= sleeper->of)
			continue;
		MUST(epoll_ctl(sleeper->level, EPOLL_CTL_ADD, channel->events->fd, &level));
		MUST(epoll_ctl(sleeper->edge, EPOLL_CTL_ADD, channel->events->fd, &edge));
	}
}

static void start_threads(pthread_t *tormentor, pthread_t *watchdog)
{
	for (int i = 0; i < SLEEPERS; i++) {
		prepare_sleeper(&sleepers[i], THREADS[i]);
		start_sleeper(&sleepers[i]);
	}
	MUST(pthread_create(tormentor, NULL, torment, NULL));
	MUST(pthread_create(watchdog, NULL, watch_all, NULL));
}

static void end_threads(pthread_t tormentor, pthread_t watchdog)
{
	MUST(pthread_join(tormentor, NULL));
	MUST(pthread_join(watchdog, NULL));
	for (int i = 0; i < SLEEPERS; i++)
		cancel_sleeper(&sleepers[i]);
}

static void release(void)
{
	for (int i = 0; i < PAIRS; i++) {
		rdma_destroy_qp(pairs[i].id);
		MUST(ibv_dereg_mr(pairs[i].mr));
		free(pairs[i].memory);
		MUST(rdma_destroy_id(pairs[i].id));
	}
	for (int i = 0; i < QUEUES; i++) {
		ibv_ack_cq_events(queues[i].cq, queues[i].unacked);
		MUST(ibv_destroy_cq(queues[i].cq));
	}
	for (int i = 0; i < CHANNELS; i++)
		MUST(ibv_destroy_comp_channel(channels[i].events));
	MUST(ibv_dealloc_pd(pd));
}

/* Whether the tokens of a queue pair may go in the next phase. */
static bool is_chosen(int kind, const struct pair *chosen, const struct pair *pair)
{
	return kind == 0 || pair == chosen ||
	       (kind == 1 && pair->receives->channel == chosen->receives->channel);
}

/* The pair that has rested for too long, or any. */
static struct pair *next_pair(const double *rested)
{
	double longest = now_us(CLOCK_MONOTONIC) - LONGEST_REST_US;

	for (int i = 0; i < PAIRS; i++)
		if (rested[i] < longest)
			return &pairs[i];
	return &pairs[chance(PAIRS)];
}

static void set_active(struct pair *pair, bool is_active)
{
	pthread_mutex_lock(&pair->lock);
	pair->is_active = is_active;
	pump(pair);
	pthread_mutex_unlock(&pair->lock);
}

/* Stops what moves beside a queue pair that stands still: it would wake what is asleep. */
static void leave_alone(void)
{
	for (int i = 0; i < PAIRS; i++)
		if (watch.still[i] < STILL)
			set_active(&pairs[i], false);
	pause_us(TURN_US);
}

static bool all_parked(void)
{
	for (int i = 0; i < PAIRS; i++)
		if (!is_parked(&pairs[i]))
			return false;
	return true;
}

/* The client's work: says for a while which tokens may go, until the time is over. */
static void run_phases(double seconds)
{
	double end = now_us(CLOCK_MONOTONIC) + seconds * 1e6, rested[PAIRS] = { 0 };

	while (now_us(CLOCK_MONOTONIC) < end) {
		int kind = (int)chance(4);
		struct pair *chosen = next_pair(rested);

		for (int i = 0; i < PAIRS; i++) {
			set_active(&pairs[i], is_chosen(kind, chosen, &pairs[i]));
			if (pairs[i].is_active)
				rested[i] = now_us(CLOCK_MONOTONIC);
		}
		count(PHASES);
		pause_us(chance(PHASE_US));
		while (ward->is_still)
			leave_alone();
	}
	for (int i = 0; i < PAIRS; i++)
		set_active(&pairs[i], false);
	while (!all_parked())
		pause_us(TURN_US);
}

/* Tells what was counted. In a run that is not short there was some of everything. */
static void report(double seconds)
{
	int kinds = is_server ? PHASES : COUNTS;

	for (int i = 0; i < kinds && seconds > SHORT_SECONDS; i++)
		if (counts[i] == 0)
			die("none of %s in %.0f s", COUNT_NAMES[i], seconds);
	printf("%s:", is_server ? "server" : "client");
	for (int i = 0; i < kinds; i++)
		printf(" %s %lu,", COUNT_NAMES[i], counts[i]);
	printf(" stops %lu, longest pause %.2f s, machine slow for %.1f s, lost 0\n", ward->stops,
	       watch.longest * TURN_US / 1e6, watch.slow_us / 1e6);
}

static void run_client(struct rdma_event_channel *channel, char **words)
{
	pthread_t tormentor, watchdog;

	for (int i = 0; i < PAIRS; i++)
		connect_pair(&pairs[i], channel, words);
	start_threads(&tormentor, &watchdog);
	run_phases((double)number(words[3], 1, 1000000));
	ended = true;
	for (int i = 0; i < PAIRS; i++)
		MUST(rdma_disconnect(pairs[i].id));
	for (int i = 0; i < PAIRS; i++)
		await(channel, RDMA_CM_EVENT_DISCONNECTED);
	end_threads(tormentor, watchdog);
}

static void run_server(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *listener = listen_on(channel, AF_INET6, 0);
	pthread_t tormentor, watchdog;

	announce(listener);
	accept_all(channel);
	start_threads(&tormentor, &watchdog);
	for (int i = 0; i < PAIRS; i++) {
		MUST(rdma_disconnect(await(channel, RDMA_CM_EVENT_DISCONNECTED).id));
		ended = true;
	}
	end_threads(tormentor, watchdog);
	MUST(rdma_destroy_id(listener));
}

int main(int argc, char **argv)
{
	double begun = now_us(CLOCK_MONOTONIC);
	struct rdma_event_channel *channel;
	struct chance own;

	is_server = argc == 3 && strcmp(argv[1], "server") == 0;
	if (!is_server && (argc != 6 || strcmp(argv[1], "client") != 0)) {
		fputs("usage: sleepers server SEED\n"
		      "       sleepers client ADDRESS PORT SEED SECONDS\n", stderr);
		return 2;
	}
	seed = number(argv[is_server ? 2 : 4], 0, UINT32_MAX);
	printf("seed %lu\n", seed);
	own = chance_of(SLEEPERS + 3);
	mine = &own;
	be_guarded();
	prepare_signals();
	MUST_PTR(channel = rdma_create_event_channel());
	if (is_server)
		run_server(channel);
	else
		run_client(channel, argv + 2);
	release();
	rdma_destroy_event_channel(channel);
	report((now_us(CLOCK_MONOTONIC) - begun) / 1e6);
	return 0;
}
