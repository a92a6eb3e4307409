/*
 * Tells a lost wake-up from a slow machine. The watchdog counts its own turns, so its clock stands
 * still while the machine does not run it. A queue pair on which nothing moves for
 * PATIENCE turns is looked into: its queues are polled. What they held should have woken a thread.
 */
#ifndef FERROCE_TESTS_SLEEPERS_WATCHDOG_H
#define FERROCE_TESTS_SLEEPERS_WATCHDOG_H

#include "torment.h"

/*
 * A turn, and how many of them a queue pair may stand still until it is looked into, until it is
 * given up, and until nothing disturbs it any more. The acknowledgement timeout, 8.6 s, is above
 * PATIENCE: a retransmission is another thing that wakes.
 */
enum { TURN_US = 20000, PATIENCE = 250, END_OF_PATIENCE = 1000, STILL = 5, ACK_TIMEOUT = 21 };
/* Looks at a descriptor that has an event, and at a thread that does not wake up for it. */
enum { LOOKS = 50 };

static struct {
	/* Turns since something moved on each queue pair, and the most ever. */
	atomic_int still[PAIRS];
	int longest;
	unsigned long moved[PAIRS];
	/* Time in which the machine did not run the watchdog. */
	double slow_us;
} watch;

/* Whether its tokens are all here and may not go. */
static bool is_parked(struct pair *pair)
{
	bool parked;

	pthread_mutex_lock(&pair->lock);
	parked = !is_server && !pair->is_active && pair->ready == pair->tokens;
	pthread_mutex_unlock(&pair->lock);
	return parked;
}

/* The letter of a thread's state in /proc: S sleeps, R would run. */
static char state_of_thread(int tid)
{
	char name[64], line[256] = "";
	FILE *file;

	snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
	if ((file = fopen(name, "r")) == NULL)
		return '?';
	if (fgets(line, sizeof line, file) == NULL)
		line[0] = '\0';
	fclose(file);
	char *end = strrchr(line, ')');
	return end != NULL && end[1] == ' ' ? end[2] : '?';
}

/* Whether all threads of a channel sleep in a wait. Tells of each if that is asked for. */
static bool all_sleep(const struct channel *channel, bool tells)
{
	bool all = true;

	for (int i = 0; i < SLEEPERS; i++) {
		struct sleeper *sleeper = &sleepers[i];
		char state = state_of_thread(sleeper->tid);

		if (!waits_on(sleeper, channel))
			continue;
		all = all && sleeper->waits && state == 'S';
		if (tells)
			fprintf(stderr, "  thread %d, state %c, %s %s\n", i, state,
				sleeper->waits ? "waits by" : "works after",
				WAY_NAMES[sleeper->way]);
	}
	return all;
}

/* Whether the descriptor of a channel is readable: for an event, or for work of the device. */
static bool has_event(const struct channel *channel)
{
	struct pollfd entry = { channel->events->fd, POLLIN, 0 };

	return poll(&entry, 1, 0) == 1;
}

/* Whether there is an event all the time, and all threads sleep all the time. */
static bool is_slept_through(const struct channel *channel)
{
	for (int i = 0; i < LOOKS; i++, pause_us(TURN_US))
		if (!has_event(channel) || !all_sleep(channel, false))
			return false;
	return true;
}

static void tell(const char *what, const struct pair *pair, const struct queue *queue, bool event)
{
	bool blocks = !(fcntl(queue->channel->events->fd, F_GETFL) & O_NONBLOCK);

	fprintf(stderr, "%s: seed %lu, %s, pair %d, queue %d of channel %d, which is %s and %s\n",
		what, seed, is_server ? "server" : "client", index_of(pair), (int)(queue - queues),
		(int)(queue->channel - channels), event ? "readable" : "not readable",
		blocks ? "blocking" : "non-blocking");
	all_sleep(queue->channel, true);
}

/* Looks into a queue of a pair that stands still. */
static void examine(const struct pair *pair, struct queue *queue)
{
	bool sleeps = all_sleep(queue->channel, false), event = has_event(queue->channel);
	struct ibv_wc wc;
	int n;

	if (sleeps && is_slept_through(queue->channel)) {
		tell("an event that wakes no thread", pair, queue, event);
		die("lost wake-up: seed %lu", seed);
	}
	if (pthread_mutex_trylock(&queue->order) != 0) {
		tell("polled at this moment", pair, queue, event);
		return;
	}
	/* A thread may have woken meanwhile, for a completion that comes late. */
	sleeps = all_sleep(queue->channel, false);
	while ((n = ibv_poll_cq(queue->cq, 1, &wc)) > 0) {
		if (sleeps) {
			tell("a completion without an event", pair, queue, event);
			die("lost wake-up: seed %lu, work request %llu of queue pair %u", seed,
			    (unsigned long long)wc.wr_id, wc.qp_num);
		}
		on_completion(&wc);
	}
	pthread_mutex_unlock(&queue->order);
	tell("nothing in the queue", pair, queue, event);
}

/* One turn for one queue pair. Returns whether nothing moves on it. */
static bool look_at(struct pair *pair)
{
	int index = index_of(pair);
	unsigned long moved = pair->moved;
	bool moves = moved != watch.moved[index] || is_parked(pair);
	int still = watch.still[index] = moves ? 0 : watch.still[index] + 1;

	watch.moved[index] = moved;
	if (still > watch.longest)
		watch.longest = still;
	if (still >= PATIENCE && (still - PATIENCE) % LOOKS == 0) {
		examine(pair, pair->receives);
		examine(pair, pair->sends);
	}
	if (still >= PATIENCE && pair->is_flushed)
		die("pair %d: the peer is gone", index);
	if (still >= END_OF_PATIENCE)
		die("pair %d stands still, and no completion is there: seed %lu", index, seed);
	return still >= STILL;
}

static void *watch_all(void *unused)
{
	struct chance own = chance_of(SLEEPERS + 2);
	double last = now_us(CLOCK_MONOTONIC);

	(void)unused;
	mine = &own;
	while (!ended) {
		int still = 0;

		pause_us(TURN_US);
		watch.slow_us += now_us(CLOCK_MONOTONIC) - last - TURN_US;
		last = now_us(CLOCK_MONOTONIC);
		for (int i = 0; i < PAIRS; i++)
			still += look_at(&pairs[i]);
		/* The server does not know which tokens may go. */
		ward->is_still = still >= (is_server ? PAIRS : 1);
	}
	return NULL;
}

#endif
