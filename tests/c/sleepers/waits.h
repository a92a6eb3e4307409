/*
 * How threads of sleepers.c wait. A thread deals with the queue that an event names and with no
 * other, and sleeps again after a signal without a look at any: a lost event is not made up for.
 */
#ifndef FERROCE_TESTS_SLEEPERS_WAITS_H
#define FERROCE_TESTS_SLEEPERS_WAITS_H

#include "messages.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

enum { STRETCH = 300, BUSY_US = 2000, THINK_US = 3000, MOST_DELAY_US = 2000 };

static const char *const WAY_NAMES[WAYS] = {
	"ibv_get_cq_event", "poll, blocking", "poll, non-blocking",
	"epoll", "epoll, edges", "mixed",
};

/* Returns whether the mode has changed. */
static bool set_blocking(struct channel *channel, bool blocks)
{
	int old = fcntl(channel->events->fd, F_GETFL);
	int flags = blocks ? old & ~O_NONBLOCK : old | O_NONBLOCK;

	if (flags != old)
		MUST(fcntl(channel->events->fd, F_SETFL, flags));
	return flags != old;
}

static void arm(struct queue *queue)
{
	bool is_solicited = queue->is_solicited && chance(4) != 0;

	count(is_solicited ? ARMED_SOLICITED : ARMED);
	MUST(ibv_req_notify_cq(queue->cq, is_solicited));
}

/* After an event: arms and drains. Arming last is enough: what is there then makes an event. */
static void serve(struct queue *queue)
{
	uint32_t style = chance(4);

	if (style != 0)
		drain(queue);
	if (style == 3)
		count(ARMED_LAST);
	arm(queue);
	if (style != 3)
		drain(queue);
}

static void moderate(struct queue *queue)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE };

	attr.moderate.cq_count = (uint16_t)chance(5);
	attr.moderate.cq_period = (uint16_t)chance(MOST_DELAY_US);
	MUST(ibv_modify_cq(queue->cq, &attr));
	count(MODERATED);
}

/* Does something to each queue of a thread's channels. */
static void each_queue(const struct sleeper *me, void (*what)(struct queue *))
{
	for (int i = 0; i < QUEUES; i++)
		if (waits_on(me, queues[i].channel))
			what(&queues[i]);
}

static void arm_and_drain(struct queue *queue)
{
	arm(queue);
	drain(queue);
}

static void poll_once(struct queue *queue)
{
	drain(queue);
}

/* Polls for a while. The queues stay armed, and what was taken has its event in the channel. */
static void poll_busily(const struct sleeper *me)
{
	double end = now_us(CLOCK_MONOTONIC) + chance(BUSY_US);

	count(BUSY);
	while (now_us(CLOCK_MONOTONIC) < end)
		each_queue(me, poll_once);
	if (chance(2))
		each_queue(me, arm_and_drain);
}

/* Takes an event. Returns its queue, or NULL if there is none or a signal came. */
static struct queue *take(struct channel *channel)
{
	struct ibv_cq *cq;
	void *context;
	int failed;

	/* A thread is cancelled where it sleeps, and nowhere else. */
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	errno = 0;
	failed = ibv_get_cq_event(channel->events, &cq, &context);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	if (failed) {
		EXPECT(errno == EINTR || errno == EAGAIN);
		count(errno == EINTR ? INTERRUPTED : FOUND_NONE);
		return NULL;
	}
	struct queue *queue = context;

	EXPECT(queue->cq == cq && queue->channel == channel);
	count(EVENTS);
	queue->unacked++;
	if (chance(4) == 0)
		ibv_ack_cq_events(cq, atomic_exchange(&queue->unacked, 0));
	return queue;
}

/* Waits in poll(2). Returns a number of a channel that is readable: of two, any. */
static int wait_by_poll(const struct sleeper *me)
{
	struct pollfd entries[2];
	int first = (int)chance((uint32_t)me->of);

	for (int i = 0; i < me->of; i++)
		entries[i] = (struct pollfd){ me->channels[i]->events->fd, POLLIN, 0 };
	if (poll(entries, (nfds_t)me->of, -1) < 0)
		return NOBODY;
	return entries[first].revents != 0 ? first : 1 - first;
}

static int wait_by_epoll(int set)
{
	struct epoll_event event;

	return epoll_wait(set, &event, 1, -1) == 1 ? (int)event.data.u32 : NOBODY;
}

/* Sleeps until a channel is readable. Returns NULL if a signal came. */
static struct channel *sleep_on(const struct sleeper *me, enum way way)
{
	int number;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	if (way == LEVEL || way == EDGE)
		number = wait_by_epoll(way == LEVEL ? me->level : me->edge);
	else
		number = wait_by_poll(me);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	if (number == NOBODY) {
		EXPECT(errno == EINTR);
		count(INTERRUPTED);
		return NULL;
	}
	if (me->of > 1)
		count(OF_TWO);
	return me->channels[number];
}

/* An edge tells of what is new: there must be nothing old when it is waited for. */
static struct queue *wait_for_edge(const struct sleeper *me)
{
	for (int i = 0; i < me->of; i++) {
		struct queue *queue = take(me->channels[i]);

		if (queue != NULL)
			return queue;
	}
	sleep_on(me, EDGE);
	return NULL;
}

static struct queue *wait_by(const struct sleeper *me, enum way way)
{
	bool blocks = way == BLOCK || way == POLL_BLOCKING, changed = false;
	struct channel *readable;

	count((enum count)way);
	for (int i = 0; i < me->of; i++)
		changed = set_blocking(me->channels[i], blocks) || changed;
	/*
	 * A channel whose queues were armed in non-blocking mode may be readable without an event.
	 * To take it in blocking mode would be to sleep on that channel alone.
	 */
	if (changed && blocks && me->of > 1)
		each_queue(me, arm);
	if (way == BLOCK)
		return take(me->channels[0]);
	if (way == EDGE)
		return wait_for_edge(me);
	readable = sleep_on(me, way);
	return readable != NULL ? take(readable) : NULL;
}

/* The way of the next wait: the channel's for some time. */
static enum way next_way(const struct sleeper *me)
{
	struct channel *channel = me->channels[0];
	int habit = channel->habit, alone = soloist;

	if (alone != NOBODY && !waits_on(me, &channels[alone]))
		return POLL_BLOCKING;
	if (atomic_fetch_sub(&channel->left, 1) <= 0) {
		channel->habit = habit = (int)chance(WAYS);
		channel->left = 1 + (int)chance(STRETCH);
	}
	if (habit == MIXED)
		habit = (int)chance(MIXED);
	return habit == BLOCK && me->of > 1 ? LEVEL : (enum way)habit;
}

static void *sleep_and_serve(void *of)
{
	struct sleeper *me = of;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	mine = &me->chance;
	me->tid = (int)syscall(SYS_gettid);
	if (!me->has_begun)
		each_queue(me, arm_and_drain);
	me->has_begun = true;
	for (;;) {
		me->way = next_way(me);
		me->waits = true;
		struct queue *queue = wait_by(me, me->way);
		me->waits = false;
		if (queue != NULL)
			serve(queue);
		if (queue != NULL && chance(100) == 0)
			moderate(queue);
		if (chance(50) == 0)
			pause_us(chance(THINK_US));
		if (chance(100) == 0)
			poll_busily(me);
	}
	return NULL;
}

#endif
