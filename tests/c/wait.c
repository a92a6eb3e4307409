/*
 * Waiting for completion events in every way: a server that sends each message back, and a client
 * that waits for the answers, each in the way that is asked for. Every answer is verified; a lost
 * wake-up shows as the deadline.
 *
 * usage: wait server [-p PORT] WAY
 *        wait client ADDRESS PORT WAY
 *
 * WAY: block    ibv_get_cq_event on a blocking descriptor
 *      poll     poll(2) first, then ibv_get_cq_event, which must not block
 *      epoll    edge-triggered epoll on a non-blocking descriptor
 *      level    level-triggered epoll on a non-blocking descriptor
 *      mix      one of the first three, and sometimes a busy poll, or a pause, by a seeded choice;
 *               signals that end the wait and signals that do not
 *      example  as the example of ibv_get_cq_event(3): poll(2) on a non-blocking descriptor, and
 *               then the call has an event
 *      threads  three threads in ibv_get_cq_event of one channel, of which one is cancelled again
 *               and again
 */
#define SIDE_SIZE (2 * LENGTH * DEPTH)
#define LENGTH 512
#define DEPTH 16
#define SHORT LENGTH
#define SEED_SERVER 1
#define SEED_CLIENT 2
#include "side.h"

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

enum { TIME = 100, MESSAGES = 4000, PAUSE_US = 300, SENT = 100, NONE = 101 };

enum way { BLOCK, POLL, EPOLL, LEVEL, MIX, EXAMPLE, THREADS };

static const char *const WAYS[] = { "block", "poll",    "epoll",   "level",
				    "mix",   "example", "threads" };

static struct side side = { .sleeps = true };
static enum way way;
static int epoll;
static uint32_t seed = 1;
/* Signals that came. */
static volatile sig_atomic_t ending, going_on;
/* Events that threads have taken. */
static atomic_uint events;
static pthread_mutex_t polls = PTHREAD_MUTEX_INITIALIZER;

static uint32_t chance(uint32_t of)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 16) % of;
}

static void on_signal(int signal)
{
	if (signal == SIGUSR1)
		ending++;
	else
		going_on++;
}

static void set_blocking(bool blocks)
{
	int flags = fcntl(side.events->fd, F_GETFL);

	MUST(fcntl(side.events->fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK));
}

/* Takes one event; false if a signal came that ends the wait, or if there is none. */
static bool take(void)
{
	struct ibv_cq *cq;
	void *context;

	errno = 0;
	if (ibv_get_cq_event(side.events, &cq, &context) != 0) {
		EXPECT(errno == EINTR || errno == EAGAIN);
		return false;
	}
	EXPECT(cq == side.cq);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void wait_by(enum way by)
{
	struct pollfd entry = { side.events->fd, POLLIN, 0 };
	struct epoll_event event;

	switch (by) {
	case BLOCK:
		take();
		break;
	case POLL:
	case EXAMPLE:
		/* Readable means that the call has an event. */
		if (poll(&entry, 1, -1) == 1)
			EXPECT(take());
		break;
	default:
		while (!take() && (epoll_wait(epoll, &event, 1, -1) == 1 || errno == EINTR))
			;
	}
}

/*
 * Interrupts the waiting thread now and then: with SIGUSR1, which ends the wait, or SIGUSR2, which
 * does not.
 */
static void *interrupt(void *thread)
{
	struct timespec pause = { 0, 700 * 1000 };

	for (int i = 0;; i++) {
		nanosleep(&pause, NULL);
		if (pthread_kill(*(pthread_t *)thread, i % 3 == 0 ? SIGUSR1 : SIGUSR2) != 0)
			return NULL;
	}
}

static bool is_mine(const struct ibv_wc *wc)
{
	succeeded(wc);
	return wc->opcode == IBV_WC_RECV;
}

/* The next message, and the place where it is. */
static char *receive(void)
{
	struct ibv_wc wc = { .wr_id = NONE };

	for (;;) {
		bool polls = way == MIX && chance(8) == 0;
		enum way by = way == MIX ? chance(3) : way;

		/*
		 * Its mode when the queue is armed says whether the descriptor may be readable
		 * without an event.
		 */
		set_blocking(by == BLOCK || by == POLL);
		/* Armed before the last poll: what comes from here on makes an event. */
		MUST(ibv_req_notify_cq(side.cq, 0));
		while (ibv_poll_cq(side.cq, 1, &wc) == 1 || polls) {
			if (wc.wr_id != NONE && is_mine(&wc))
				return side.buffer + wc.wr_id * LENGTH;
			wc.wr_id = NONE;
		}
		wait_by(by);
		if (way == MIX && chance(50) == 0)
			usleep(PAUSE_US);
	}
}

static void post_receive(char *place)
{
	struct ibv_sge sge = { (uintptr_t)place, LENGTH, side.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (place - side.buffer) / LENGTH, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(side.id->qp, &wr, &bad));
}

static void send_from(char *place, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)place, length, side.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = SENT, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	MUST(ibv_post_send(side.id->qp, &wr, &bad));
}

static uint32_t length_of(int message)
{
	return 8 + message * 7 % (LENGTH - 8);
}

static void answer(void)
{
	for (int i = 0; i < MESSAGES; i++) {
		char *place = receive(), *out = side.buffer + (DEPTH + i % DEPTH) * LENGTH;

		memcpy(out, place, LENGTH);
		post_receive(place);
		send_from(out, length_of(i));
	}
}

static void ask(void)
{
	for (int i = 0; i < MESSAGES; i++) {
		char *out = side.buffer + (DEPTH + i % DEPTH) * LENGTH;

		pattern_fill(out, length_of(i), i, 0);
		send_from(out, length_of(i));
		char *place = receive();
		pattern_check(place, length_of(i), i, 0);
		post_receive(place);
	}
}

/*
 * Takes events, and polls, until the connection ends or it is cancelled, which it may be in
 * ibv_get_cq_event only.
 */
static void *take_and_answer(void *unused)
{
	struct ibv_wc wc;

	(void)unused;
	for (;;) {
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		bool taken = take();
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		EXPECT(taken);
		events++;
		pthread_mutex_lock(&polls);
		MUST(ibv_req_notify_cq(side.cq, 0));
		while (ibv_poll_cq(side.cq, 1, &wc) == 1)
			if (wc.status == IBV_WC_WR_FLUSH_ERR) {
				pthread_mutex_unlock(&polls);
				return NULL;
			} else if (is_mine(&wc)) {
				char *place = side.buffer + wc.wr_id * LENGTH;

				post_receive(place);
				send_from(place + DEPTH * LENGTH, 8);
			}
		pthread_mutex_unlock(&polls);
	}
}

static void start(pthread_t *thread)
{
	MUST(pthread_create(thread, NULL, take_and_answer, NULL));
}

static void stop(pthread_t thread)
{
	pthread_cancel(thread);
	MUST(pthread_join(thread, NULL));
}

/*
 * Messages go to and fro between the sides' threads. Those of the client are cancelled and begun
 * again.
 */
static void run_threads(bool begins)
{
	struct timespec pause = { 0, 3 * 1000 * 1000 };
	pthread_t threads[3];

	set_blocking(true);
	MUST(ibv_req_notify_cq(side.cq, 0));
	for (int i = 0; i < 3; i++)
		start(&threads[i]);
	if (begins)
		send_from(side.buffer + DEPTH * LENGTH, 8);
	for (int round = 0; begins && round < 100; round++) {
		unsigned int before = events;

		nanosleep(&pause, NULL);
		stop(threads[round % 3]);
		start(&threads[round % 3]);
		/* It goes on, whichever was cancelled. */
		while (events < before + 2)
			nanosleep(&pause, NULL);
	}
	if (!begins) {
		await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
		MUST(rdma_disconnect(side.id));
	}
	for (int i = 0; i < 3; i++)
		stop(threads[i]);
}

static void run(bool begins)
{
	struct sigaction ends = { .sa_handler = on_signal }, goes_on = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct epoll_event event = { .events = EPOLLIN | (way == LEVEL ? 0 : EPOLLET) };
	pthread_t self = pthread_self(), other;

	for (int i = 0; i < DEPTH; i++)
		post_receive(side.buffer + i * LENGTH);
	EXPECT((epoll = epoll_create1(0)) >= 0);
	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, side.events->fd, &event));
	MUST(sigaction(SIGUSR1, &ends, NULL));
	MUST(sigaction(SIGUSR2, &goes_on, NULL));
	if (way == MIX)
		MUST(pthread_create(&other, NULL, interrupt, &self));
	if (way == THREADS)
		run_threads(begins);
	else if (begins)
		ask();
	else
		answer();
	if (way == MIX) {
		MUST(pthread_cancel(other));
		MUST(pthread_join(other, NULL));
		EXPECT(ending > 0 && going_on > 0);
	}
	printf("done\n");
	fflush(stdout);
}

static int usage(void)
{
	fputs("usage: wait server [-p PORT] WAY\n"
	      "       wait client ADDRESS PORT WAY\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	bool is_server = argc > 2 && strcmp(argv[1], "server") == 0;
	const char *port = is_server && argc == 5 && strcmp(argv[2], "-p") == 0 ? argv[3] : NULL;

	deadline(TIME);
	if (!is_server && (argc != 5 || strcmp(argv[1], "client") != 0))
		return usage();
	while (strcmp(WAYS[way], argv[argc - 1]) != 0)
		if (++way == sizeof WAYS / sizeof *WAYS)
			return usage();
	if (!is_server) {
		find(&side, argv[2], argv[3], 0, LENGTH);
		enter(&side, patient);
		run(true);
		part(&side);
		return 0;
	}
	open_server(&side, port);
	serve(&side, 0, LENGTH);
	run(false);
	if (way == THREADS) {
		release(&side);
		close_server(&side);
	} else {
		see_off(&side);
	}
	return 0;
}
