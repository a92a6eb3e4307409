/*
 * A stream of messages for others to attack: SENDs of 16 KiB, several under way, every byte
 * verified, until it is told to end. Both sides sleep when there is nothing to do, the server in
 * ibv_get_cq_event, the client in an epoll of its own on a channel that does not block. The sender
 * keeps to what the receiver has room for.
 *
 * usage: stream server               serves any number of clients; SIGTERM: ends when the last one
 *                                    has left
 *        stream client ADDRESS PORT [MESSAGES]     ends after so many, or on SIGTERM
 *
 * They tell of themselves what victim.h says, a round being a message; then "held".
 */
#define SIDE_SIZE (PLACES * LENGTH)
#define PLACES 16
#define LENGTH 16384
#define SHORT 64
#define SEED_SERVER 1
#define SEED_CLIENT 2
#include "victim.h"

#include <fcntl.h>
#include <sys/epoll.h>

enum {
	TIME = 900,
	GRANT = PLACES / 4,	/* messages for which the receiver makes room at a time */
	GRANTS = PLACES / GRANT /* such grants under way, at most */
};

/* The client's epoll, with its channel. */
static int loop = -1;

static void make_loop(struct side *side)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = side->events->fd;

	loop = epoll_create1(EPOLL_CLOEXEC);
	EXPECT(loop >= 0);
	MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
	MUST(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event));
}

/* Sleeps until there may be a completion. SIGTERM may come meanwhile. */
static void sleep_a_while(struct side *side)
{
	struct epoll_event event;
	struct ibv_cq *cq;
	void *context;

	if (loop >= 0 && epoll_wait(loop, &event, 1, -1) < 0) {
		EXPECT(errno == EINTR);
		return;
	}
	if (ibv_get_cq_event(side->events, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
	else
		EXPECT(errno == EINTR || (loop >= 0 && errno == EAGAIN));
}

/* Takes completions, and sleeps until there is one. */
static int completions(struct side *side, struct ibv_wc *wc, int room)
{
	for (;;) {
		int n = ibv_poll_cq(side->cq, room, wc);

		if (n == 0) {
			MUST(ibv_req_notify_cq(side->cq, 0));
			n = ibv_poll_cq(side->cq, room, wc);
		}
		EXPECT(n >= 0);
		if (n > 0)
			return n;
		sleep_a_while(side);
	}
}

static void want(struct side *side, int place, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + (uint64_t)place * LENGTH, length, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = place, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(side->id->qp, &wr, &bad));
}

static void say(struct side *side, int place, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + (uint64_t)place * LENGTH, length, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = place, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	MUST(ibv_post_send(side->id->qp, &wr, &bad));
}

/* The last message has one byte. */
static void *run_server(void *context)
{
	struct side *side = context;
	struct ibv_wc wc[PLACES];
	bool ended = false;
	uint32_t next = 0;

	for (int place = 0; place < PLACES; place++)
		want(side, place, LENGTH);
	for (int i = 0; i < GRANTS; i++)
		say(side, 0, 0);
	while (!ended) {
		int n = completions(side, wc, PLACES);

		for (int i = 0; i < n; i++) {
			succeeded(&wc[i]);
			if (wc[i].opcode != IBV_WC_RECV)
				continue;
			ended = wc[i].byte_len == 1;
			EXPECT(ended || wc[i].byte_len == LENGTH);
			pattern_check(side->buffer + wc[i].wr_id * LENGTH, wc[i].byte_len, next, 0);
			atomic_fetch_add(&rounds, 1);
			want(side, (int)wc[i].wr_id, LENGTH);
			if (++next % GRANT == 0)
				say(side, 0, 0);
		}
	}
	return NULL;
}

static void run_client(struct side *side, unsigned long limit)
{
	uint32_t sent = 0, granted = 0, done = 0;
	bool is_last = false;

	while (!is_last || done < sent) {
		struct ibv_wc wc[PLACES];
		int n;

		/* A place is free when its message is complete. Messages complete in order. */
		while (!is_last && sent < granted && sent < done + PLACES) {
			int place = (int)(sent % PLACES);

			is_last = is_over || sent + 1 == limit;
			pattern_fill(side->buffer + (size_t)place * LENGTH, is_last ? 1 : LENGTH, sent, 0);
			say(side, place, is_last ? 1 : LENGTH);
			sent++;
		}
		n = completions(side, wc, PLACES);
		for (int i = 0; i < n; i++) {
			succeeded(&wc[i]);
			if (wc[i].opcode == IBV_WC_RECV) {
				granted += GRANT;
				want(side, 0, 0);
			} else {
				done++;
				atomic_fetch_add(&rounds, 1);
			}
		}
		report_if_due();
	}
}

static void call(const char *address, const char *port, unsigned long limit)
{
	struct side side = { .sleeps = true };

	find(&side, address, port, GRANTS + 1, 0);
	enter(&side, patient);
	make_loop(&side);
	introduce(&side);
	run_client(&side, limit);
	report();
	part(&side);
	rdma_destroy_event_channel(side.channel);
	close(loop);
}

int main(int argc, char **argv)
{
	deadline(TIME);
	end_on_sigterm();
	if (argc == 2 && strcmp(argv[1], "server") == 0) {
		serve_all(&(struct service){ .sleeps = true, .serve = run_server });
	} else if ((argc == 4 || argc == 5) && strcmp(argv[1], "client") == 0) {
		call(argv[2], argv[3], argc == 5 ? number(argv[4], 1, 1000000000) : 0);
	} else {
		fputs("usage: stream server\n       stream client ADDRESS PORT [MESSAGES]\n", stderr);
		return 2;
	}
	puts("held");
	return 0;
}
