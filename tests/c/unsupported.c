/*
 * What no software device has must be refused as the manual pages say, through the inline functions
 * of the header: NULL with errno EOPNOTSUPP, or EOPNOTSUPP as the result; and the device's
 * attributes must not promise it.
 *
 * usage: unsupported
 */
#include "common.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* A call that makes something. */
#define NOT_MADE(call)                                                                                                             \
	do {                                                                                                                       \
		errno = 0;                                                                                                         \
		if ((call) != NULL)                                                                                                \
			die("%s:%d: made: %s", __FILE__, __LINE__, #call);                                                         \
		if (errno != EOPNOTSUPP)                                                                                           \
			die("%s:%d: %s: %s", __FILE__, __LINE__, #call, strerror(errno));                                          \
	} while (0)
/* A call that answers with an errno. */
#define NOT_DONE(call)                                                                                                             \
	do {                                                                                                                       \
		int result = (call);                                                                                               \
		if (result != EOPNOTSUPP)                                                                                          \
			die("%s:%d: %s: %s", __FILE__, __LINE__, #call, strerror(result));                                         \
	} while (0)

static struct ibv_qp_init_attr_ex qp_attr(enum ibv_qp_type type, uint32_t comp_mask)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
		.comp_mask = comp_mask | IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	return attr;
}

static void queue_pairs(void)
{
	struct ibv_qp_init_attr_ex attr = qp_attr(IBV_QPT_RAW_PACKET, 0);
	struct ibv_qp_init_attr plain = { .send_cq = cq, .recv_cq = cq, .cap = attr.cap, .qp_type = IBV_QPT_RC };
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 1 };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_qp *qp;

	NOT_MADE(ibv_create_qp_ex(context, &attr));
	attr = qp_attr(IBV_QPT_RC, IBV_QP_INIT_ATTR_IND_TABLE);
	NOT_MADE(ibv_create_qp_ex(context, &attr));
	attr = qp_attr(IBV_QPT_RC, IBV_QP_INIT_ATTR_RX_HASH);
	NOT_MADE(ibv_create_qp_ex(context, &attr));
	attr = qp_attr(IBV_QPT_RC, IBV_QP_INIT_ATTR_CREATE_FLAGS);
	attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	NOT_MADE(ibv_create_qp_ex(context, &attr));
	attr = qp_attr(IBV_QPT_RC, IBV_QP_INIT_ATTR_MAX_TSO_HEADER);
	attr.max_tso_header = 64;
	NOT_MADE(ibv_create_qp_ex(context, &attr));

	MUST_PTR(qp = ibv_create_qp(pd, &plain));
	NOT_DONE(ibv_query_ece(qp, &ece));
	ece.vendor_id = 0x15b3;
	NOT_DONE(ibv_set_ece(qp, &ece));
	NOT_DONE(ibv_modify_qp_rate_limit(qp, &rate));
	/* No promise about the order of bytes. */
	EXPECT(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 0);
	MUST(ibv_destroy_qp(qp));
}

static void flows(void)
{
	struct ibv_qp_init_attr plain = {
		.send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC
	};
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .port = 1 };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_qp *qp;

	MUST_PTR(qp = ibv_create_qp(pd, &plain));
	NOT_MADE(ibv_create_flow(qp, &flow));
	MUST(ibv_destroy_qp(qp));
	NOT_MADE(ibv_create_flow_action_esp(context, &esp));
	NOT_MADE(ibv_create_counters(context, &counters));
}

static void work_queues(void)
{
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq };
	struct ibv_rwq_ind_table_init_attr table = { 0 };

	NOT_MADE(ibv_create_wq(context, &wq));
	NOT_MADE(ibv_create_rwq_ind_table(context, &table));
}

static void promises(void)
{
	struct ibv_device_attr_ex attr;
	const struct ibv_device_attr *basic = &attr.orig_attr;

	MUST(ibv_query_device_ex(context, NULL, &attr));
	EXPECT(attr.tso_caps.max_tso == 0 && attr.tso_caps.supported_qpts == 0);
	EXPECT(attr.rss_caps.supported_qpts == 0 && attr.rss_caps.max_rwq_indirection_tables == 0);
	EXPECT(attr.max_wq_type_rq == 0 && attr.raw_packet_caps == 0);
	EXPECT(attr.packet_pacing_caps.qp_rate_limit_max == 0 && attr.packet_pacing_caps.supported_qpts == 0);
	EXPECT(attr.tm_caps.max_num_tags == 0 && attr.tm_caps.flags == 0);
	EXPECT(attr.pci_atomic_caps.fetch_add == 0 && attr.pci_atomic_caps.compare_swap == 0);
	EXPECT(basic->max_raw_ipv6_qp == 0 && basic->max_raw_ethy_qp == 0 && basic->max_fmr == 0 && basic->max_ee == 0);
	EXPECT(!(basic->device_cap_flags & (IBV_DEVICE_RESIZE_MAX_WR | IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_MANAGED_FLOW_STEERING)));
	/* And what it has it says. */
	EXPECT(basic->device_cap_flags & IBV_DEVICE_PORT_ACTIVE_EVENT);
	EXPECT(attr.hca_core_clock != 0 && attr.completion_timestamp_mask == UINT64_MAX);
	EXPECT(attr.cq_mod_caps.max_cq_count != 0 && attr.cq_mod_caps.max_cq_period != 0);
	EXPECT(attr.phys_port_cnt_ex == 1 && basic->phys_port_cnt == 1 && basic->max_pkeys == 1);
	/*
	 * FLUSH to global visibility and ATOMIC WRITE have bits beyond the basic 32, which newer
	 * headers name.
	 */
	EXPECT(attr.device_cap_flags_ex == (basic->device_cap_flags | 1ULL << 38 | 1ULL << 40));
}

int main(void)
{
	struct ibv_device **list;

	deadline(20);
	MUST_PTR(list = ibv_get_device_list(NULL));
	MUST_PTR(list[0]);
	MUST_PTR(context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	MUST_PTR(pd = ibv_alloc_pd(context));
	MUST_PTR(cq = ibv_create_cq(context, 8, NULL, NULL, 0));
	queue_pairs();
	flows();
	work_queues();
	promises();
	MUST(ibv_destroy_cq(cq));
	MUST(ibv_dealloc_pd(pd));
	MUST(ibv_close_device(context));
	return 0;
}
