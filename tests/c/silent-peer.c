/*
 * Datagrams to a host that never says how much room it has: they wait a moment, and go out.
 *
 * usage: silent-peer OWN PEER        two IPv4 addresses of one network: this machine's, and that of
 *                                    a host without a queue pair
 */
#include "device.h"

enum {
	SIZE = 1024,
	DEPTH = 64,
	COUNT = 2000	/* together far more than is sent before the peer is asked */
};

struct sender {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	char bytes[SIZE];
};

static void open_sender(struct sender *sender, const char *own, const char *peer)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid_of(peer), .hop_limit = 64 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }
	};

	sender->context = open_device_at(own, &ah.grh.sgid_index);
	MUST_PTR(sender->pd = ibv_alloc_pd(sender->context));
	MUST_PTR(sender->cq = ibv_create_cq(sender->context, DEPTH, NULL, NULL, 0));
	MUST_PTR(sender->mr = ibv_reg_mr(sender->pd, sender->bytes, SIZE, 0));
	init.send_cq = init.recv_cq = sender->cq;
	MUST_PTR(sender->qp = ibv_create_qp(sender->pd, &init));
	MUST(ibv_modify_qp(sender->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(ibv_modify_qp(sender->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(ibv_modify_qp(sender->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	MUST_PTR(sender->ah = ibv_create_ah(sender->pd, &ah));
}

static void send_one(struct sender *sender)
{
	struct ibv_sge sge = { (uintptr_t)sender->bytes, SIZE, sender->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.ud.ah = sender->ah;
	wr.wr.ud.remote_qpn = 0x1234;
	wr.wr.ud.remote_qkey = 1;
	MUST(ibv_post_send(sender->qp, &wr, &bad));
}

int main(int argc, char **argv)
{
	static struct sender sender;
	int posted = 0, done = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: silent-peer OWN PEER\n");
		return 2;
	}
	deadline(30);
	open_sender(&sender, argv[1], argv[2]);
	while (done < COUNT) {
		struct ibv_wc wc;

		for (; posted < COUNT && posted - done < DEPTH; posted++)
			send_one(&sender);
		if (ibv_poll_cq(sender.cq, 1, &wc) == 1) {
			succeeded(&wc);
			done++;
		}
	}
	MUST(ibv_destroy_ah(sender.ah));
	MUST(ibv_destroy_qp(sender.qp));
	MUST(ibv_destroy_cq(sender.cq));
	MUST(ibv_dereg_mr(sender.mr));
	MUST(ibv_dealloc_pd(sender.pd));
	MUST(ibv_close_device(sender.context));
	printf("%d datagrams went out\n", done);
	return 0;
}
