/*
 * The two sides of sleepers.c are made alike: channels with threads that sleep on them, completion
 * queues, queue pairs, and the tokens that go to and fro on these.
 */
#ifndef FERROCE_TESTS_SLEEPERS_STATE_H
#define FERROCE_TESTS_SLEEPERS_STATE_H

#include "../common.h"

enum { NOBODY = -1, CHANNELS = 9, QUEUES = 15, PAIRS = 12, SLEEPERS = 11 };
/* Receives and sends of a queue pair, and the greatest length of a message. */
enum { RECEIVES = 8, SENDS = 8, LONGEST = 32768 };
/* Bytes that the peer writes, and those that it reads. */
enum { SHARED = 4096 };
enum { PAIR_BYTES = (RECEIVES + SENDS) * LONGEST + 3 * SHARED };

/*
 * How a thread waits for an event. MIXED: each time by any of the ways before it. A thread of two
 * channels waits for both at once, and never by BLOCK.
 */
enum way { BLOCK, POLL_BLOCKING, POLL, LEVEL, EDGE, MIXED, WAYS };

/* What is counted. The first ones are the ways. */
enum count {
	MESSAGES = MIXED, EVENTS, BUSY, ARMED, ARMED_SOLICITED, ARMED_LAST, MODERATED, INTERRUPTED,
	FOUND_NONE, OF_TWO, SIGNALS, CANCELLED, SOLOS, PHASES, COUNTS
};

static const char *const COUNT_NAMES[COUNTS] = {
	"get_cq_event", "poll+blocking", "poll", "epoll", "epoll-et", "messages", "events", "busy",
	"armed", "solicited", "armed-last", "moderated", "EINTR", "EAGAIN", "of-two", "signals",
	"cancels", "solos", "phases",
};

struct channel {
	struct ibv_comp_channel *events;
	/* How its threads wait, and for how many more times. */
	atomic_int habit, left;
};

struct queue {
	struct ibv_cq *cq;
	struct channel *channel;
	/* Each message that it gets is solicited, or is followed by one. */
	bool is_solicited;
	/* Held from a poll until what it took is dealt with: messages are numbered. */
	pthread_mutex_t order;
	atomic_uint unacked;
};

struct pair {
	struct rdma_cm_id *id;
	struct queue *receives, *sends;
	char *memory;
	struct ibv_mr *mr;
	uint64_t peer_address;
	uint32_t peer_key;
	/* Guards what follows. */
	pthread_mutex_t lock;
	/* Tokens in all, those that are here, and places of the send queue that are in use. */
	int tokens, ready, outstanding;
	/* Places that requests which come before a message will need for it. */
	int reserved;
	bool is_taken[SENDS], is_flushed;
	uint32_t sent, received;
	/* Completions. */
	atomic_ulong moved;
	/* Client: its tokens may go. */
	atomic_bool is_active;
};

struct chance {
	uint64_t state;
};

/* A thread that sleeps. When it is cancelled another one goes on in its place. */
struct sleeper {
	pthread_t thread;
	struct channel *channels[2];
	/* 1 or 2. */
	int of;
	struct chance chance;
	int level, edge;
	bool has_begun;
	/* For the watchdog. */
	atomic_int way, tid;
	atomic_bool waits;
};

/* The channels of each thread: two of one, or the same twice. */
static const int THREADS[SLEEPERS][2] = {
	{ 0, 0 }, { 1, 1 }, { 2, 2 }, { 3, 3 }, { 3, 3 }, { 3, 3 },
	{ 4, 4 }, { 4, 4 }, { 5, 5 }, { 6, 6 }, { 7, 8 },
};
static const struct {
	int channel;
	bool is_solicited;
} QUEUE_PLAN[QUEUES] = {
	{ 0, false },
	{ 1, true }, { 1, false },
	{ 2, false }, { 2, false }, { 2, false },
	{ 3, false },
	{ 4, true }, { 4, false },
	{ 5, false }, { 6, false },
	{ 7, false }, { 8, false }, { 8, false }, { 7, true },
};
static const struct {
	int receives, sends, tokens;
} PAIR_PLAN[PAIRS] = {
	{ 0, 0, 1 }, { 1, 2, 1 }, { 3, 5, 1 }, { 4, 5, 2 }, { 6, 6, 1 },
	{ 6, 6, 2 }, { 7, 8, 2 }, { 7, 8, 1 }, { 9, 10, 1 },
	{ 11, 12, 1 }, { 12, 11, 2 }, { 14, 13, 1 },
};

static struct channel channels[CHANNELS];
static struct queue queues[QUEUES];
static struct pair pairs[PAIRS];
static struct sleeper sleepers[SLEEPERS];
static struct ibv_pd *pd;
static bool is_server;
static unsigned long seed;
static atomic_ulong counts[COUNTS];
/*
 * The channel whose threads alone wait in ways that the device knows of, or NOBODY: those of the
 * others wait in a poll(2) on a blocking descriptor. One thread may do the device's work then.
 */
static atomic_int soloist = NOBODY;
/* The connections end, or have ended. */
static atomic_bool ended;
/* The chance of the calling thread. */
static __thread struct chance *mine;

static void count(enum count what)
{
	atomic_fetch_add_explicit(&counts[what], 1, memory_order_relaxed);
}

/* The chance of a thread: the seed is the run's, the number the thread's. */
static struct chance chance_of(uint64_t number)
{
	uint64_t of_run = seed * 1000 + (is_server ? 500 : 0);

	return (struct chance){ (of_run + number + 1) * 0x9e3779b97f4a7c15ull };
}

/* A number below `of` (splitmix64). */
static uint32_t chance(uint32_t of)
{
	uint64_t x = mine->state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (uint32_t)((x >> 32) * of >> 32);
}

static void pause_us(unsigned long us)
{
	struct timespec time = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

/* Whether a thread waits on a channel. */
static bool waits_on(const struct sleeper *sleeper, const struct channel *channel)
{
	return channel == sleeper->channels[0] || channel == sleeper->channels[1];
}

static int index_of(const struct pair *pair)
{
	return (int)(pair - pairs);
}

#endif
