/*
 * Messages of sleepers.c. Each queue pair has tokens. The side that has a token gives it to the
 * other with a message, at once or after a WRITE or a READ of its own; so each completion is waited
 * for, that of a send at the latest when the send queue is full.
 */
#ifndef FERROCE_TESTS_SLEEPERS_MESSAGES_H
#define FERROCE_TESTS_SLEEPERS_MESSAGES_H

#include "state.h"

struct header {
	uint32_t number, length;
	/* It is a token. Others are not solicited, and a token follows them. */
	uint32_t is_token;
};

enum { AHEAD = 2 };

static char *receive_place(struct pair *pair, unsigned long index)
{
	return pair->memory + index * LONGEST;
}

static char *send_place(struct pair *pair, unsigned long index)
{
	return pair->memory + (RECEIVES + index) * LONGEST;
}

/* What the peer reads, what it writes, and what is read from the peer. */
static char *shared(struct pair *pair, int which)
{
	return pair->memory + (RECEIVES + SENDS) * LONGEST + which * SHARED;
}

static void post_receive(struct pair *pair, unsigned long index)
{
	struct ibv_sge sge = { (uintptr_t)receive_place(pair, index), LONGEST, pair->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(pair->id->qp, &wr, &bad));
}

static unsigned long free_place(struct pair *pair)
{
	for (unsigned long i = 0; i < SENDS; i++)
		if (!pair->is_taken[i]) {
			pair->is_taken[i] = true;
			pair->outstanding++;
			return i;
		}
	die("no place in the send queue");
}

static void post_send(struct pair *pair, struct ibv_send_wr wr, char *from, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)from, length, pair->mr->lkey };
	struct ibv_send_wr *bad;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags |= IBV_SEND_SIGNALED;
	MUST(ibv_post_send(pair->id->qp, &wr, &bad));
}

/* Mostly some bytes, sometimes a packet or more. */
static uint32_t some_length(void)
{
	uint32_t kind = chance(100);
	uint32_t most = kind < 80 ? 200 : kind < 97 ? 4096 : LONGEST;

	return sizeof(struct header) + chance(most - sizeof(struct header));
}

static void send_message(struct pair *pair, bool is_token)
{
	unsigned long place = free_place(pair);
	char *from = send_place(pair, place);
	struct header header = { pair->sent++, some_length(), is_token };
	bool is_solicited = is_token && (pair->receives->is_solicited || chance(2));
	struct ibv_send_wr wr = {
		.wr_id = place,
		.opcode = IBV_WR_SEND,
		.send_flags = is_solicited ? IBV_SEND_SOLICITED : 0,
	};

	memcpy(from, &header, sizeof header);
	pattern_fill(from + sizeof header, header.length - sizeof header, header.number, 0);
	post_send(pair, wr, from, header.length);
}

static void give_token(struct pair *pair)
{
	if (chance(4) == 0)
		send_message(pair, false);
	send_message(pair, true);
}

/* Begins with a request whose completion gives the token. */
static void go_round(struct pair *pair, bool reads)
{
	struct ibv_send_wr wr = {
		.wr_id = free_place(pair),
		.opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
	};

	wr.wr.rdma.remote_addr = pair->peer_address + (reads ? 0 : SHARED);
	wr.wr.rdma.rkey = pair->peer_key;
	pair->reserved += AHEAD;
	post_send(pair, wr, shared(pair, reads ? 2 : 0), 1 + chance(SHARED));
}

/* Lets tokens go that are here and may. The caller has the lock. */
static void pump(struct pair *pair)
{
	while (pair->ready > 0 && (is_server || pair->is_active) && !pair->is_flushed &&
	       pair->outstanding + pair->reserved + 1 + AHEAD <= SENDS) {
		uint32_t kind = chance(8);

		pair->ready--;
		if (kind < 2)
			go_round(pair, kind == 0);
		else
			give_token(pair);
	}
}

static void on_message(struct pair *pair, const struct ibv_wc *wc)
{
	char *place = receive_place(pair, wc->wr_id);
	struct header header;

	memcpy(&header, place, sizeof header);
	if (header.number != pair->received || header.length != wc->byte_len)
		die("pair %d: message %u of %u bytes, not %u of %u", index_of(pair), header.number,
		    wc->byte_len, pair->received, header.length);
	pattern_check(place + sizeof header, header.length - sizeof header, header.number, 0);
	pair->received++;
	pair->ready += (int)header.is_token;
	count(MESSAGES);
	post_receive(pair, wc->wr_id);
}

static void on_sent(struct pair *pair, const struct ibv_wc *wc)
{
	EXPECT(pair->is_taken[wc->wr_id]);
	pair->is_taken[wc->wr_id] = false;
	pair->outstanding--;
	if (wc->opcode == IBV_WC_SEND)
		return;
	EXPECT(wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_RDMA_WRITE);
	if (wc->opcode == IBV_WC_RDMA_READ)
		pattern_check(shared(pair, 2), 1, 0, 0);
	pair->reserved -= AHEAD;
	give_token(pair);
}

static struct pair *pair_of(uint32_t qp_num)
{
	for (int i = 0; i < PAIRS; i++)
		if (pairs[i].id->qp->qp_num == qp_num)
			return &pairs[i];
	die("a completion of queue pair %u", qp_num);
}

static void on_completion(const struct ibv_wc *wc)
{
	struct pair *pair = pair_of(wc->qp_num);

	pthread_mutex_lock(&pair->lock);
	pair->moved++;
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		pair->is_flushed = true;
	} else {
		succeeded(wc);
		if (wc->opcode == IBV_WC_RECV)
			on_message(pair, wc);
		else
			on_sent(pair, wc);
		pump(pair);
	}
	pthread_mutex_unlock(&pair->lock);
}

/* Takes all that is in a queue. Returns whether there was something. */
static bool drain(struct queue *queue)
{
	int most = 1 + (int)chance(8), n;
	bool found = false;
	struct ibv_wc wc[8];

	pthread_mutex_lock(&queue->order);
	while ((n = ibv_poll_cq(queue->cq, most, wc)) > 0) {
		found = true;
		for (int i = 0; i < n; i++)
			on_completion(&wc[i]);
	}
	EXPECT(n == 0);
	pthread_mutex_unlock(&queue->order);
	return found;
}

#endif
