/*
 * A queue pair whose peer nobody answers for: the move to RTR fails as the kernel's verbs have it
 * fail, and nothing else waits for it.
 *
 * usage: no-neighbour OWN ABSENT        two IPv4 addresses of one network: this machine's, and one
 *                                       that nobody has
 */
#include "device.h"

#include <time.h>

struct ends {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint8_t gid_index;
	atomic_int waits;
};

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static struct ibv_qp *queue_pair(struct ends *ends)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ends->cq, .recv_cq = ends->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp;

	MUST_PTR(qp = ibv_create_qp(ends->pd, &init));
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	return qp;
}

/* Moves a queue pair to RTR: 0 or an errno. */
static int to_rtr(struct ends *ends, struct ibv_qp *qp, const char *address, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid_of(address), .hop_limit = 64 } }
	};

	attr.ah_attr.grh.sgid_index = ends->gid_index;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static void *wait_for_nobody(void *argument)
{
	const char **absent = ((void **)argument)[1];
	struct ends *ends = ((void **)argument)[0];
	struct ibv_qp *qp = queue_pair(ends);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	double began = seconds(), took;
	int error;

	atomic_store(&ends->waits, 1);
	error = to_rtr(ends, qp, *absent, 0x1234);
	atomic_store(&ends->waits, 0);
	took = seconds() - began;
	if (error != ETIMEDOUT)
		die("RTR to %s: %s, not %s", *absent, strerror(error), strerror(ETIMEDOUT));
	MUST(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	EXPECT(attr.qp_state == IBV_QPS_INIT);
	MUST(ibv_destroy_qp(qp));
	printf("nobody answers: ETIMEDOUT after %.2f s\n", took);
	return NULL;
}

int main(int argc, char **argv)
{
	struct ends ends = { .gid_index = 0 };
	void *argument[2] = { &ends, &argv[2] };
	pthread_t thread;
	int moves = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: no-neighbour OWN ABSENT\n");
		return 2;
	}
	deadline(60);
	ends.context = open_device_at(argv[1], &ends.gid_index);
	MUST_PTR(ends.pd = ibv_alloc_pd(ends.context));
	MUST_PTR(ends.cq = ibv_create_cq(ends.context, 16, NULL, NULL, 0));
	MUST(pthread_create(&thread, NULL, wait_for_nobody, argument));
	while (!atomic_load(&ends.waits))
		usleep(1000);
	/* Own addresses have no neighbour, and no other queue pair waits. */
	while (atomic_load(&ends.waits)) {
		struct ibv_qp *qp = queue_pair(&ends);

		EXPECT(to_rtr(&ends, qp, argv[1], qp->qp_num) == 0);
		MUST(ibv_destroy_qp(qp));
		moves += atomic_load(&ends.waits);
		usleep(10000);
	}
	MUST(pthread_join(thread, NULL));
	EXPECT(moves > 0);
	printf("%d moves to RTR at its own address meanwhile\n", moves);
	MUST(ibv_destroy_cq(ends.cq));
	MUST(ibv_dealloc_pd(ends.pd));
	MUST(ibv_close_device(ends.context));
	return 0;
}
