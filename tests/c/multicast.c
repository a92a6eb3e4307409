/*
 * Datagrams to a multicast group, through ibv_attach_mcast.
 *
 * Every receiver has several queue pairs in the group, and one whose Q_Key is another. Each must
 * get every message exactly once, and the one with the other key none. The sender is in the group
 * too: it gets its own messages, as on hardware.
 *
 * usage: multicast receive DEVICE GROUP
 *        multicast send DEVICE GROUP
 *        multicast rules DEVICE
 */
#include "common.h"

enum { MESSAGES = 40, MEMBERS = 2, ROOM = 256, GRH = 40, QKEY = 0x11223344, OTHER_QKEY = 0x55667788 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port;

struct member {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char buffers[MESSAGES + 8][ROOM];
	unsigned int got[MESSAGES];
};

static union ibv_gid parse(const char *text)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	if (inet_pton(AF_INET, text, &gid.raw[12]) != 1 && inet_pton(AF_INET6, text, &gid) != 1)
		die("%s is no address", text);
	return gid;
}

static void open_device(const char *name)
{
	struct ibv_device **list;

	MUST_PTR(list = ibv_get_device_list(NULL));
	for (int i = 0; list[i] != NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			MUST_PTR(context = ibv_open_device(list[i]));
	ibv_free_device_list(list);
	if (context == NULL)
		die("no device %s", name);
	MUST_PTR(pd = ibv_alloc_pd(context));
	MUST(ibv_query_port(context, 1, &port));
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 8, .max_recv_wr = MESSAGES + 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
	};
	struct ibv_qp *qp;

	MUST_PTR(qp = ibv_create_qp(pd, &attr));
	return qp;
}

static void make_ready(struct ibv_qp *qp, uint32_t qkey)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };

	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static struct member *join(const union ibv_gid *group, uint32_t qkey)
{
	struct member *member;

	MUST_PTR(member = calloc(1, sizeof *member));
	MUST_PTR(member->cq = ibv_create_cq(context, MESSAGES + 64, NULL, NULL, 0));
	MUST_PTR(member->mr = ibv_reg_mr(pd, member->buffers, sizeof member->buffers, IBV_ACCESS_LOCAL_WRITE));
	member->qp = make_qp(member->cq, IBV_QPT_UD);
	make_ready(member->qp, qkey);
	for (uint64_t i = 0; i < MESSAGES + 8; i++) {
		struct ibv_sge sge = { (uintptr_t)member->buffers[i], ROOM, member->mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		MUST(ibv_post_recv(member->qp, &wr, &bad));
	}
	MUST(ibv_attach_mcast(member->qp, group, 0));
	return member;
}

/* Takes a completion; returns whether there was one. Sends complete here too. */
static bool take(struct member *member)
{
	struct ibv_wc wc;
	uint32_t number;
	int n = ibv_poll_cq(member->cq, 1, &wc);

	EXPECT(n >= 0);
	if (n == 0)
		return false;
	succeeded(&wc);
	if (wc.opcode != IBV_WC_RECV)
		return true;
	EXPECT(wc.byte_len == ROOM && (wc.wc_flags & IBV_WC_GRH));
	memcpy(&number, member->buffers[wc.wr_id] + GRH, sizeof number);
	EXPECT(number < MESSAGES);
	pattern_check(member->buffers[wc.wr_id] + GRH + 4, ROOM - GRH - 4, number, 0);
	if (member->got[number]++ != 0)
		die("message %u came twice", number);
	return true;
}

static bool has_all(const struct member *member)
{
	for (int i = 0; i < MESSAGES; i++)
		if (member->got[i] == 0)
			return false;
	return true;
}

static void leave(struct member *member, const union ibv_gid *group)
{
	EXPECT(ibv_destroy_qp(member->qp) == EBUSY);
	MUST(ibv_detach_mcast(member->qp, group, 0));
	EXPECT(ibv_detach_mcast(member->qp, group, 0) == EINVAL);
	MUST(ibv_destroy_qp(member->qp));
	MUST(ibv_destroy_cq(member->cq));
	MUST(ibv_dereg_mr(member->mr));
	free(member);
}

static void receive(const union ibv_gid *group)
{
	struct member *members[MEMBERS], *stranger = join(group, OTHER_QKEY);

	for (int i = 0; i < MEMBERS; i++)
		members[i] = join(group, QKEY);
	printf("in the group\n");
	fflush(stdout);
	for (int i = 0; i < MEMBERS; i++)
		while (!has_all(members[i]))
			take(members[i]);
	/* What came a second time came by now: messages keep their order. */
	for (int i = 0; i < MEMBERS; i++)
		while (take(members[i]))
			;
	EXPECT(!take(stranger));
	for (int i = 0; i < MEMBERS; i++)
		leave(members[i], group);
	leave(stranger, group);
}

static int source_index(const union ibv_gid *group)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	bool v4 = memcmp(group, mapped, sizeof mapped) == 0;

	for (int i = 0; i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;

		if (ibv_query_gid_ex(context, 1, i, &entry, 0) == 0 && v4 == (memcmp(&entry.gid, mapped, sizeof mapped) == 0))
			return i;
	}
	die("no GID of the group's family");
}

static void send_all(const union ibv_gid *group)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .dgid = *group, .sgid_index = source_index(group), .hop_limit = 8 }
	};
	struct member *self = join(group, QKEY);
	struct ibv_ah *ah;
	char *text;
	struct ibv_mr *mr;

	MUST_PTR(ah = ibv_create_ah(pd, &attr));
	MUST_PTR(text = malloc(ROOM));
	MUST_PTR(mr = ibv_reg_mr(pd, text, ROOM, 0));
	for (uint32_t number = 0; number < MESSAGES; number++) {
		struct ibv_sge sge = { (uintptr_t)text, ROOM - GRH, mr->lkey };
		struct ibv_send_wr wr = {
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.wr.ud = { .ah = ah, .remote_qpn = 0xffffff, .remote_qkey = QKEY },
		}, *bad;

		memcpy(text, &number, sizeof number);
		pattern_fill(text + 4, ROOM - GRH - 4, number, 0);
		MUST(ibv_post_send(self->qp, &wr, &bad));
		/* Its own copy comes back: by then the buffer is free, and nobody is flooded. */
		while (self->got[number] == 0)
			take(self);
	}
	while (take(self))
		;
	leave(self, group);
	MUST(ibv_destroy_ah(ah));
	MUST(ibv_dereg_mr(mr));
	free(text);
}

static void rules(void)
{
	union ibv_gid group = parse("239.255.1.1"), host = parse("10.1.2.3");
	struct ibv_device_attr attr;
	struct ibv_cq *cq;
	struct ibv_qp *rc, *ud;
	int joined = 0, result;

	MUST(ibv_query_device(context, &attr));
	EXPECT(attr.max_mcast_grp > 0 && attr.max_mcast_qp_attach > 1);
	EXPECT(attr.max_total_mcast_qp_attach >= attr.max_mcast_grp);
	MUST_PTR(cq = ibv_create_cq(context, 8, NULL, NULL, 0));
	rc = make_qp(cq, IBV_QPT_RC);
	ud = make_qp(cq, IBV_QPT_UD);
	EXPECT(ibv_attach_mcast(rc, &group, 0) == EINVAL);
	EXPECT(ibv_attach_mcast(ud, &host, 0) == EINVAL);
	EXPECT(ibv_detach_mcast(ud, &group, 0) == EINVAL);
	MUST(ibv_attach_mcast(ud, &group, 0));
	/* Once more changes nothing, and one detach ends it. */
	MUST(ibv_attach_mcast(ud, &group, 0));
	MUST(ibv_detach_mcast(ud, &group, 0));
	EXPECT(ibv_detach_mcast(ud, &group, 0) == EINVAL);
	/* The limit is what the device says. */
	do {
		group.raw[15]++;
		result = ibv_attach_mcast(ud, &group, 0);
		joined += result == 0;
	} while (result == 0);
	EXPECT(result == ENOMEM && joined == attr.max_mcast_grp);
	for (; joined > 0; joined--) {
		group.raw[15]--;
		MUST(ibv_detach_mcast(ud, &group, 0));
	}
	MUST(ibv_destroy_qp(ud));
	MUST(ibv_destroy_qp(rc));
	MUST(ibv_destroy_cq(cq));
}

int main(int argc, char **argv)
{
	bool is_rules = argc == 3 && strcmp(argv[1], "rules") == 0;

	if (argc != 4 && !is_rules) {
		fprintf(stderr, "usage: %s receive|send DEVICE GROUP\n       %s rules DEVICE\n", argv[0], argv[0]);
		return 2;
	}
	deadline(30);
	open_device(argv[2]);
	if (is_rules) {
		rules();
	} else {
		union ibv_gid group = parse(argv[3]);

		if (strcmp(argv[1], "receive") == 0)
			receive(&group);
		else
			send_all(&group);
	}
	MUST(ibv_dealloc_pd(pd));
	MUST(ibv_close_device(context));
	return 0;
}
