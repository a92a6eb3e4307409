/*
 * Rules of RDMA CM for datagram services, multicast groups, options, paths and vendor options: one
 * process, both ends.
 *
 * usage: cm-datagram [ADDRESS [GROUP [quiet]]]
 *
 * ADDRESS is one of this machine, 127.0.0.1 by default; GROUP one of its family, 239.77.1.2.
 * `quiet`: nothing is sent to the group, for interfaces that the kernel has no multicast route for.
 */
#include "common.h"

#include <fcntl.h>
#include <infiniband/ib.h>
#include <rdma/rdma_verbs.h>

enum { TIME = 60, QKEY = 0x01234567 };

static const char *address = "127.0.0.1", *group = "239.77.1.2";
static struct rdma_event_channel *active, *passive;

static struct sockaddr_storage numeric(const char *host, unsigned int port)
{
	struct sockaddr_storage storage = { 0 };
	struct addrinfo *info;
	char text[8];

	snprintf(text, sizeof text, "%u", port);
	EXPECT(getaddrinfo(host, text, &(struct addrinfo){ .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, &info) == 0);
	memcpy(&storage, info->ai_addr, info->ai_addrlen);
	freeaddrinfo(info);
	return storage;
}

static unsigned int port_of(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

/* An identifier that listens at the address, in a port space. */
static struct rdma_cm_id *listener_of(enum rdma_port_space ps, unsigned int port)
{
	struct sockaddr_storage at = numeric(address, port);
	struct rdma_cm_id *id;

	MUST(rdma_create_id(passive, &id, NULL, ps));
	MUST(rdma_bind_addr(id, (struct sockaddr *)&at));
	MUST(rdma_listen(id, 10));
	return id;
}

static struct rdma_cm_id *addressed(enum rdma_port_space ps, unsigned int port)
{
	struct sockaddr_storage to = numeric(address, port);
	struct rdma_cm_id *id;

	MUST(rdma_create_id(active, &id, NULL, ps));
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	await(active, RDMA_CM_EVENT_ADDR_RESOLVED);
	return id;
}

static struct rdma_cm_id *routed(enum rdma_port_space ps, unsigned int port)
{
	struct rdma_cm_id *id = addressed(ps, port);

	MUST(rdma_resolve_route(id, 1000));
	await(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

/* The next event, not yet acknowledged, which must be this one. */
static struct rdma_cm_event *hold(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted, int status)
{
	struct rdma_cm_event *event;

	MUST(rdma_get_cm_event(channel, &event));
	if (event->event != wanted || event->status != status)
		die("event %s with status %d, not %s with %d", rdma_event_str(event->event), event->status, rdma_event_str(wanted), status);
	return event;
}

static void expect_silence(struct rdma_event_channel *channel)
{
	int flags = fcntl(channel->fd, F_GETFL);
	struct rdma_cm_event *event;

	MUST(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK));
	REFUSED(rdma_get_cm_event(channel, &event), EAGAIN);
	MUST(fcntl(channel->fd, F_SETFL, flags));
}

/* A service tells its queue pair; both sides see all of the other's private data. */
static void services(enum rdma_port_space ps)
{
	struct rdma_cm_id *listener = listener_of(ps, 0), *client = routed(ps, port_of(listener)), *server;
	uint8_t question[181], reply[137];
	struct rdma_conn_param param = { .private_data = question, .private_data_len = 181 };
	struct rdma_cm_event *event;
	struct ibv_qp_attr attr;
	int mask;

	EXPECT(client->qp_type == IBV_QPT_UD && listener->qp_type == IBV_QPT_UD);
	pattern_fill(question, sizeof question, 1, 0);
	pattern_fill(reply, sizeof reply, 2, 0);
	REFUSED(rdma_connect(client, &param), EINVAL);
	param.private_data_len = 180;
	MUST(rdma_connect(client, &param));
	event = hold(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	server = event->id;
	EXPECT(event->listen_id == listener && server->qp_type == IBV_QPT_UD && server->verbs != NULL);
	EXPECT(rdma_get_dst_port(server) == rdma_get_src_port(client));
	EXPECT(event->param.ud.private_data_len == 180);
	pattern_check(event->param.ud.private_data, 180, 1, 0);
	MUST(rdma_ack_cm_event(event));

	attr.qp_state = IBV_QPS_INIT;
	MUST(rdma_init_qp_attr(server, &attr, &mask));
	EXPECT(mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) && attr.qkey == QKEY && attr.port_num == 1);
	attr.qp_state = IBV_QPS_RTS;
	MUST(rdma_init_qp_attr(server, &attr, &mask));
	EXPECT(mask == (IBV_QP_STATE | IBV_QP_SQ_PSN));

	param = (struct rdma_conn_param){ .private_data = reply, .private_data_len = 137, .qp_num = 0x77 };
	REFUSED(rdma_accept(server, &param), EINVAL);
	param.private_data_len = 136;
	MUST(rdma_accept(server, &param));
	event = hold(active, RDMA_CM_EVENT_ESTABLISHED, 0);
	EXPECT(event->id == client && event->param.ud.qp_num == 0x77 && event->param.ud.qkey == QKEY);
	EXPECT(event->param.ud.ah_attr.is_global && event->param.ud.ah_attr.port_num == 1);
	EXPECT(memcmp(&event->param.ud.ah_attr.grh.dgid, &client->route.path_rec->dgid, 16) == 0);
	EXPECT(event->param.ud.private_data_len == 136);
	pattern_check(event->param.ud.private_data, 136, 2, 0);
	MUST(rdma_ack_cm_event(event));
	/* The service hears nothing more, and there is nothing to end. */
	REFUSED(rdma_accept(server, &param), EINVAL);
	MUST(rdma_disconnect(client));
	MUST(rdma_disconnect(server));
	expect_silence(active);
	expect_silence(passive);
	MUST(rdma_destroy_id(client));
	MUST(rdma_destroy_id(server));
	MUST(rdma_destroy_id(listener));
}

/* What a service that says no, or is none, looks like. */
static void refusals(void)
{
	struct rdma_cm_id *listener = listener_of(RDMA_PS_UDP, 0), *client = routed(RDMA_PS_UDP, port_of(listener));
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *event;
	int port = port_of(listener);

	MUST(rdma_connect(client, &param));
	event = hold(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	MUST(rdma_reject(event->id, "not you", 7));
	REFUSED(rdma_accept(event->id, &param), EINVAL);
	struct rdma_cm_id *server = event->id;
	MUST(rdma_ack_cm_event(event));
	MUST(rdma_destroy_id(server));
	event = hold(active, RDMA_CM_EVENT_UNREACHABLE, 2);
	MUST(rdma_ack_cm_event(event));
	MUST(rdma_destroy_id(client));

	/* The port of the same number in another port space is somebody else's. */
	client = routed(RDMA_PS_IPOIB, port);
	MUST(rdma_connect(client, &param));
	MUST(rdma_ack_cm_event(hold(active, RDMA_CM_EVENT_UNREACHABLE, 1)));
	MUST(rdma_destroy_id(client));
	MUST(rdma_destroy_id(listener_of(RDMA_PS_TCP, port)));
	MUST(rdma_destroy_id(listener));
}

struct leaver {
	struct rdma_cm_id *id;
	struct sockaddr *group;
};

static void *leave(void *argument)
{
	struct leaver *leaver = argument;

	MUST(rdma_leave_multicast(leaver->id, leaver->group));
	return NULL;
}

static void groups(void)
{
	struct sockaddr_storage at = numeric(address, 0), joined = numeric(group, 0), single = at;
	struct rdma_cm_join_mc_attr_ex attr = { .addr = (struct sockaddr *)&joined };
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct sockaddr *addr = (struct sockaddr *)&joined;
	struct rdma_cm_id *id, *other;
	struct rdma_cm_event *event;
	struct leaver leaver;
	pthread_t thread;

	MUST(rdma_create_id(active, &id, NULL, RDMA_PS_UDP));
	REFUSED(rdma_join_multicast(id, addr, NULL), EINVAL);
	MUST(rdma_create_id(active, &other, NULL, RDMA_PS_UDP));
	MUST(rdma_bind_addr(other, (struct sockaddr *)&any));
	REFUSED(rdma_join_multicast(other, addr, NULL), ENODEV);
	MUST(rdma_destroy_id(other));
	MUST(rdma_create_id(active, &other, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(other, (struct sockaddr *)&at));
	REFUSED(rdma_join_multicast(other, addr, NULL), EINVAL);
	MUST(rdma_destroy_id(other));

	MUST(rdma_bind_addr(id, (struct sockaddr *)&at));
	REFUSED(rdma_join_multicast(id, (struct sockaddr *)&single, NULL), EINVAL);
	REFUSED(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	REFUSED(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_RESERVED;
	REFUSED(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.comp_mask &= ~RDMA_CM_JOIN_MC_ATTR_RESERVED;
	REFUSED(rdma_leave_multicast(id, addr), EADDRNOTAVAIL);

	MUST(rdma_join_multicast_ex(id, &attr, &attr));
	event = hold(active, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	EXPECT(event->id == id && event->param.ud.private_data == &attr && event->param.ud.private_data_len == 0);
	EXPECT(event->param.ud.qp_num == 0xffffff && event->param.ud.qkey == QKEY);
	EXPECT(event->param.ud.ah_attr.is_global && event->param.ud.ah_attr.grh.hop_limit != 0);
	if (joined.ss_family == AF_INET6)
		EXPECT(memcmp(&event->param.ud.ah_attr.grh.dgid, &((struct sockaddr_in6 *)&joined)->sin6_addr, 16) == 0);
	else
		EXPECT(memcmp(&event->param.ud.ah_attr.grh.dgid.raw[12], &((struct sockaddr_in *)&joined)->sin_addr, 4) == 0 &&
		       event->param.ud.ah_attr.grh.dgid.raw[11] == 0xff);
	/* Leaving waits for the acknowledgement. */
	leaver = (struct leaver){ id, addr };
	MUST(pthread_create(&thread, NULL, leave, &leaver));
	for (int i = 0; i < 10; i++) {
		EXPECT(pthread_tryjoin_np(thread, NULL) == EBUSY);
		usleep(5000);
	}
	MUST(rdma_ack_cm_event(event));
	MUST(pthread_join(thread, NULL));
	REFUSED(rdma_leave_multicast(id, addr), EADDRNOTAVAIL);

	/* An event that nobody has fetched vanishes. */
	MUST(rdma_join_multicast(id, addr, NULL));
	MUST(rdma_leave_multicast(id, addr));
	expect_silence(active);
	MUST(rdma_destroy_id(id));

	/* A synchronous join is over when it returns. */
	MUST(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP));
	MUST(rdma_bind_addr(id, (struct sockaddr *)&at));
	MUST(rdma_join_multicast(id, addr, &attr));
	EXPECT(id->event != NULL && id->event->event == RDMA_CM_EVENT_MULTICAST_JOIN && id->event->param.ud.private_data == &attr);
	MUST(rdma_leave_multicast(id, addr));
	MUST(rdma_destroy_id(id));
}

/* A member of the group, with a queue pair and a receive. */
struct member {
	struct rdma_cm_id *id;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	unsigned char bytes[40 + 64];
};

static void become(struct member *member, uint32_t create_flags)
{
	struct sockaddr_storage at = numeric(address, 0), joined = numeric(group, 0);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = create_flags,
	};

	MUST(rdma_create_id(NULL, &member->id, NULL, RDMA_PS_UDP));
	MUST(rdma_bind_addr(member->id, (struct sockaddr *)&at));
	MUST(rdma_create_qp_ex(member->id, &attr));
	MUST(rdma_join_multicast(member->id, (struct sockaddr *)&joined, NULL));
	MUST_PTR(member->ah = ibv_create_ah(member->id->pd, &member->id->event->param.ud.ah_attr));
	MUST_PTR(member->mr = rdma_reg_msgs(member->id, member->bytes, sizeof member->bytes));
	MUST(rdma_post_recv(member->id, member, member->bytes, sizeof member->bytes, member->mr));
}

static void speak(struct member *member, uint32_t seed)
{
	unsigned char words[64];
	struct ibv_wc wc;

	pattern_fill(words, sizeof words, seed, 0);
	MUST(rdma_post_ud_send(member->id, NULL, words, sizeof words, NULL, IBV_SEND_INLINE, member->ah, 0xffffff));
	EXPECT(rdma_get_send_comp(member->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static void hear(struct member *member, uint32_t seed)
{
	struct ibv_wc wc;

	EXPECT(rdma_get_recv_comp(member->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 40 + 64);
	pattern_check(member->bytes + 40, 64, seed, 0);
	MUST(rdma_post_recv(member->id, member, member->bytes, sizeof member->bytes, member->mr));
}

static void part(struct member *member)
{
	MUST(rdma_dereg_mr(member->mr));
	MUST(ibv_destroy_ah(member->ah));
	/* The queue pair can go although it is a member. */
	rdma_destroy_qp(member->id);
	EXPECT(member->id->qp == NULL);
	MUST(rdma_destroy_id(member->id));
}

/*
 * What is sent to a group comes to all its members: to the sender too, unless it does not want to
 * hear itself.
 */
static void group_traffic(void)
{
	static struct member plain, deaf;
	struct ibv_wc wc;

	become(&plain, 0);
	become(&deaf, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	speak(&deaf, 1);
	hear(&plain, 1);
	speak(&plain, 2);
	hear(&plain, 2);
	/* The first message would have come before this one. */
	hear(&deaf, 2);
	EXPECT(ibv_poll_cq(deaf.id->recv_cq, 1, &wc) == 0);
	part(&plain);
	part(&deaf);
}

/* Options are of the kinds, and for the states, that they are made for. */
static void options(void)
{
	struct sockaddr_storage at = numeric(address, 0);
	struct rdma_cm_id *id, *other, *connects;
	uint8_t timeout = 14, large = 32;
	int on = 1, off = 0;

	MUST(rdma_create_id(active, &id, NULL, RDMA_PS_UDP));
	MUST(rdma_create_id(active, &connects, NULL, RDMA_PS_TCP));
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
	MUST(rdma_set_option(connects, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	REFUSED(rdma_set_option(connects, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &large, 1), EINVAL);
	REFUSED(rdma_set_option(connects, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &on, sizeof on), EINVAL);
	MUST(rdma_destroy_id(connects));

	/* Two identifiers share an address if both say so, and neither listens. */
	MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
	MUST(rdma_bind_addr(id, (struct sockaddr *)&at));
	at = numeric(address, port_of(id));
	MUST(rdma_create_id(active, &other, NULL, RDMA_PS_UDP));
	REFUSED(rdma_bind_addr(other, (struct sockaddr *)&at), EADDRINUSE);
	MUST(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
	MUST(rdma_bind_addr(other, (struct sockaddr *)&at));
	REFUSED(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &off, sizeof off), EINVAL);
	REFUSED(rdma_listen(other, 1), EADDRINUSE);
	MUST(rdma_destroy_id(id));
	MUST(rdma_listen(other, 1));
	REFUSED(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on), EINVAL);
	MUST(rdma_destroy_id(other));
}

/* An identifier whose route the program brings, and the options that leave their trace in it. */
static void paths(void)
{
	struct rdma_cm_id *listener = listener_of(RDMA_PS_TCP, 0), *id = addressed(RDMA_PS_TCP, port_of(listener));
	struct ibv_path_data data = { .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL };
	uint8_t tos = 0x40;

	data.path = (struct ibv_path_record){
		.sgid = id->route.addr.addr.ibaddr.sgid,
		.dgid = id->route.addr.addr.ibaddr.dgid,
		.flowlabel_hoplimit = htobe32(0x12345 << 8 | 17),
		.tclass = 0x20,
		.mtu = 2 << 6 | IBV_MTU_512,
		.packetlifetime = 2 << 6 | 15,
	};
	REFUSED(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, sizeof data - 1), EINVAL);
	data.flags = IBV_PATH_FLAG_GMP;
	REFUSED(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, sizeof data), EINVAL);
	data.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	data.path.dgid.raw[15] ^= 1;
	REFUSED(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, sizeof data), EINVAL);
	data.path.dgid.raw[15] ^= 1;
	MUST(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, sizeof data));
	await(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	EXPECT(id->route.num_paths == 1 && id->route.path_rec->mtu == IBV_MTU_512 && id->route.path_rec->hop_limit == 17);
	EXPECT(id->route.path_rec->traffic_class == 0x20 && be32toh(id->route.path_rec->flow_label) == 0x12345);
	EXPECT(id->route.path_rec->packet_life_time == 15);
	REFUSED(rdma_resolve_route(id, 1000), EINVAL);
	MUST(rdma_destroy_id(id));

	id = addressed(RDMA_PS_TCP, port_of(listener));
	MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
	MUST(rdma_resolve_route(id, 1000));
	await(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	EXPECT(id->route.path_rec->traffic_class == 0x40);
	MUST(rdma_destroy_id(id));
	MUST(rdma_destroy_id(listener));
}

/*
 * Vendor options of queue pairs that are the program's business travel both ways, and can be a
 * reason to refuse.
 */
static void vendor_options(void)
{
	struct rdma_cm_id *listener = listener_of(RDMA_PS_TCP, 0), *client, *server;
	struct ibv_ece ours = { .vendor_id = 0x1a2b3c, .options = 0xdeadbeef }, theirs, none = { 0 };
	struct rdma_conn_param param = { .qp_num = 0x11 };
	struct rdma_cm_event *event;

	for (int refuse = 0; refuse < 2; refuse++) {
		client = routed(RDMA_PS_TCP, port_of(listener));
		REFUSED(rdma_set_local_ece(client, &none), EINVAL);
		REFUSED(rdma_get_remote_ece(client, NULL), EINVAL);
		MUST(rdma_set_local_ece(client, &ours));
		MUST(rdma_get_remote_ece(client, &theirs));
		EXPECT(theirs.vendor_id == 0 && theirs.options == 0);
		/* A number that was used before would make the connection before it a stale one. */
		param.qp_num++;
		MUST(rdma_connect(client, &param));
		event = hold(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		server = event->id;
		MUST(rdma_ack_cm_event(event));
		MUST(rdma_get_remote_ece(server, &theirs));
		EXPECT(theirs.vendor_id == 0x1a2b3c && theirs.options == 0xdeadbeef && theirs.comp_mask == 0);
		if (refuse) {
			MUST(rdma_reject_ece(server, "no", 2));
			event = hold(active, RDMA_CM_EVENT_REJECTED, 35);
			EXPECT(memcmp(event->param.conn.private_data, "no", 3) == 0);
			MUST(rdma_ack_cm_event(event));
		} else {
			theirs.options = 0x55;
			MUST(rdma_set_local_ece(server, &theirs));
			param.qp_num++;
			MUST(rdma_accept(server, &param));
			await(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
			MUST(rdma_get_remote_ece(client, &theirs));
			EXPECT(theirs.vendor_id == 0x1a2b3c && theirs.options == 0x55);
			/* Data came before the last message. */
			REFUSED(rdma_notify(server, IBV_EVENT_PORT_ERR), EINVAL);
			MUST(rdma_notify(server, IBV_EVENT_COMM_EST));
			await(passive, RDMA_CM_EVENT_ESTABLISHED);
			REFUSED(rdma_notify(server, IBV_EVENT_COMM_EST), EISCONN);
			MUST(rdma_establish(client));
			expect_silence(passive);
		}
		MUST(rdma_destroy_id(client));
		MUST(rdma_destroy_id(server));
	}
	MUST(rdma_destroy_id(listener));
}

/* A GID is an address, a service id a port. */
static void infiniband_addresses(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST | RAI_FAMILY | RAI_PASSIVE, .ai_family = AF_IB }, *info;
	struct rdma_cm_id *listener, *client;
	char gid[INET6_ADDRSTRLEN + 8], port[8];
	struct sockaddr_ib *sib;

	snprintf(gid, sizeof gid, "%s%s", strchr(address, ':') ? "" : "::ffff:", address);
	EXPECT(rdma_getaddrinfo(gid, "0", &hints, &info) == 0);
	EXPECT(info->ai_family == AF_IB && info->ai_src_len == sizeof(struct sockaddr_ib));
	MUST(rdma_create_id(passive, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, info->ai_src_addr));
	EXPECT(port_of(listener) != 0);
	sib = (struct sockaddr_ib *)rdma_get_local_addr(listener);
	EXPECT(sib->sib_family == AF_IB && (be64toh(sib->sib_sid) & 0xffff) == port_of(listener));
	EXPECT(be64toh(sib->sib_sid) >> 16 == RDMA_PS_TCP);
	rdma_freeaddrinfo(info);
	MUST(rdma_listen(listener, 1));
	EXPECT(listener->verbs != NULL);

	hints.ai_flags &= ~RAI_PASSIVE;
	snprintf(port, sizeof port, "%u", port_of(listener));
	EXPECT(rdma_getaddrinfo(gid, port, &hints, &info) == 0);
	MUST(rdma_create_id(active, &client, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(client, NULL, info->ai_dst_addr, 1000));
	rdma_freeaddrinfo(info);
	await(active, RDMA_CM_EVENT_ADDR_RESOLVED);
	EXPECT(rdma_get_peer_addr(client)->sa_family == AF_IB && rdma_get_dst_port(client) == rdma_get_src_port(listener));
	MUST(rdma_resolve_route(client, 1000));
	await(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(rdma_connect(client, &(struct rdma_conn_param){ .qp_num = 0x99 }));
	await(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(rdma_destroy_id(client));
	MUST(rdma_destroy_id(listener));
}

int main(int argc, char **argv)
{
	deadline(TIME);
	if (argc > 4 || (argc >= 2 && argv[1][0] == '-')) {
		fputs("usage: cm-datagram [ADDRESS [GROUP [quiet]]]\n", stderr);
		return 2;
	}
	if (argc >= 2)
		address = argv[1];
	if (argc >= 3)
		group = argv[2];
	MUST_PTR(active = rdma_create_event_channel());
	MUST_PTR(passive = rdma_create_event_channel());
	services(RDMA_PS_UDP);
	services(RDMA_PS_IPOIB);
	refusals();
	groups();
	if (argc < 4)
		group_traffic();
	options();
	paths();
	vendor_options();
	infiniband_addresses();
	return 0;
}
