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

static void set_blocking(struct channel *channel, bool blocks)
{
	int old = fcntl(channel->events->fd, F_GETFL);
	int flags = blocks ? old & ~O_NONBLOCK : old | O_NONBLOCK;

	if (flags != old)
		MUST(fcntl(channel->events->fd, F_SETFL, flags));
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

/* Does something to each queue of a channel. */
static void each_queue(struct channel *channel, void (*what)(struct queue *))
{
	for (int i = 0; i < QUEUES; i++)
		if (queues[i].channel == channel)
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
static void poll_busily(struct channel *channel)
{
	double end = now_us(CLOCK_MONOTONIC) + chance(BUSY_US);

	count(BUSY);
	while (now_us(CLOCK_MONOTONIC) < end)
		each_queue(channel, poll_once);
	if (chance(2))
		each_queue(channel, arm_and_drain);
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

/* Sleeps until a descriptor is readable. Returns false if a signal came. */
static bool sleep_on(struct sleeper *me, enum way way)
{
	struct pollfd entry = { me->channel->events->fd, POLLIN, 0 };
	struct epoll_event event;
	int n;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	if (way == LEVEL || way == EDGE)
		n = epoll_wait(way == LEVEL ? me->level : me->edge, &event, 1, -1);
	else
		n = poll(&entry, 1, -1);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	EXPECT(n == 1 || errno == EINTR);
	if (n != 1)
		count(INTERRUPTED);
	return n == 1;
}

static struct queue *wait_by(struct sleeper *me, enum way way)
{
	count((enum count)way);
	set_blocking(me->channel, way == BLOCK || way == POLL_BLOCKING);
	if (way != EDGE)
		return way == BLOCK || sleep_on(me, way) ? take(me->channel) : NULL;
	/* An edge tells of what is new: there must be nothing old when it is waited for. */
	struct queue *queue = take(me->channel);

	if (queue == NULL)
		sleep_on(me, way);
	return queue;
}

/* The way of the next wait: the channel's for some time. */
static enum way next_way(struct channel *channel)
{
	int habit = channel->habit, alone = soloist;

	if (alone != NOBODY && channel != &channels[alone])
		return POLL_BLOCKING;
	if (atomic_fetch_sub(&channel->left, 1) <= 0) {
		channel->habit = habit = (int)chance(WAYS);
		channel->left = 1 + (int)chance(STRETCH);
	}
	return habit == MIXED ? chance(MIXED) : (enum way)habit;
}

static void *sleep_and_serve(void *of)
{
	struct sleeper *me = of;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	mine = &me->chance;
	me->tid = (int)syscall(SYS_gettid);
	if (!me->has_begun)
		each_queue(me->channel, arm_and_drain);
	me->has_begun = true;
	for (;;) {
		me->way = next_way(me->channel);
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
			poll_busily(me->channel);
	}
	return NULL;
}

#endif
