/*
 * What goes wrong, and that it goes wrong as it should: the right event, status or completion on
 * both sides, in time, and the next connection works.
 *
 * usage: failures CASE [ADDRESS]                 both sides: starts the server as another process
 *        failures server CASE [PORT]             one side each, for two machines
 *        failures client CASE ADDRESS PORT
 *
 * CASE    what happens
 * absent        nobody listens on the port: REJECTED, status 8
 * rejected      the server rejects with private data: REJECTED, status 28, the queue pair in ERR
 * wrong-rkey    WRITE with a key that names nothing: REM_ACCESS_ERR; the server's queue pair in ERR
 * too-long      SEND longer than the receive: REM_INV_REQ_ERR here, LOC_LEN_ERR there
 * too-long-rxe  the same with the kernel's rxe as the server, which takes it for an error of its
 *               own: REM_OP_ERR, LOC_QP_OP_ERR
 * no-receive    SEND without a receive and without RNR retries: RNR_RETRY_EXC_ERR
 * deregistered  WRITE to memory that is registered no more: REM_ACCESS_ERR, and no byte changes
 * server-parts  the server disconnects: DISCONNECTED on both sides, receives are flushed
 * reply-refused the client rejects the server's acceptance with private data: REJECTED there,
 *               status 28
 * exits         the client exits without a disconnect: DISCONNECTED, at once
 * last-words    the same while the server stands still: it learns of all at once, and the
 *               connection comes before its end
 * bad-lkey      SEND from memory that is registered no more: LOC_PROT_ERR
 * in-use        a port that another process listens on: EADDRINUSE; free again at once when that is
 *               killed
 * cycles        200 connections, one after the other: no descriptor and no memory is left behind
 * killed-server the server is killed in mid-transfer: RETRY_EXC_ERR, DISCONNECTED after
 *               rdma_disconnect, the port free at once
 * killed-client the client is killed in mid-transfer: DISCONNECTED, or RETRY_EXC_ERR on what the
 *               server sends
 */
#include "common.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { SIDE_SIZE = 64 << 10, SHORT = 1024, CYCLES = 200, WARM_UP = 50, TIME = 60 };
enum { SEED_CLIENT = 11, SEED_SERVER = 12 };

#include "holdings.h"
#include "side.h"

static const char rejection[] = "this server takes nobody";

/* exits */

static void exits_server(const char *port)
{
	struct side side = { 0 };

	open_server(&side, port);
	serve(&side, 1, SHORT);
	see_off(&side);
}

static void exits_client(const char *address, const char *port)
{
	struct side side = { 0 };

	join(&side, address, port, patient);
	/* As many programs end: the system has to clean up. */
	exit(0);
}

/* last-words */

/* Waits until a process of this machine has stopped ('T') or has ended ('Z'). */
static void watch(pid_t pid, char wanted)
{
	char name[32], line[256], state = 'Z';
	FILE *file;

	snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
	do {
		file = fopen(name, "re");
		if (file == NULL || fgets(line, sizeof line, file) == NULL)
			state = 'Z';
		else
			EXPECT(sscanf(strrchr(line, ')') + 1, " %c", &state) == 1);
		if (file != NULL)
			fclose(file);
	} while (state != wanted && state != 'Z');
	EXPECT(state == wanted);
}

/*
 * Starts a process for what goes on while this one, the server, has stopped. No verb has been
 * called yet. Returns where it waits for the client's number.
 */
static int start_helper(void)
{
	pid_t server = getpid(), client, helper;
	int ends[2];

	MUST(pipe(ends));
	EXPECT((helper = fork()) >= 0);
	if (helper > 0) {
		close(ends[0]);
		return ends[1];
	}
	close(ends[1]);
	EXPECT(read(ends[0], &client, sizeof client) == sizeof client);
	watch(server, 'T');
	MUST(kill(client, SIGCONT));
	watch(client, 'Z');
	MUST(kill(server, SIGCONT));
	exit(0);
}

static void last_words_server(const char *port)
{
	struct side side = { 0 };
	struct rdma_conn_param param = patient;
	struct rdma_cm_event *event;
	pid_t client;
	int status, helper = start_helper();

	open_server(&side, port);
	MUST(rdma_get_cm_event(side.channel, &event));
	EXPECT(event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data_len >= sizeof client);
	memcpy(&client, event->param.conn.private_data, sizeof client);
	side.id = event->id;
	MUST(rdma_ack_cm_event(event));
	equip(&side, 1, SHORT);
	watch(client, 'T');
	MUST(rdma_accept(side.id, &param));
	EXPECT(write(helper, &client, sizeof client) == sizeof client);
	raise(SIGSTOP);
	await(side.channel, RDMA_CM_EVENT_ESTABLISHED);
	see_off(&side);
	close(helper);
	EXPECT(wait(&status) > 0 && status == 0);
}

static void last_words_client(const char *address, const char *port)
{
	struct side side = { 0 };
	struct rdma_conn_param param = patient;
	pid_t pid = getpid();

	param.private_data = &pid;
	param.private_data_len = sizeof pid;
	find(&side, address, port, 1, SHORT);
	MUST(rdma_connect(side.id, &param));
	raise(SIGSTOP);
	await(side.channel, RDMA_CM_EVENT_ESTABLISHED);
	exit(0);
}

/* absent */

static void absent_client(const char *address, const char *port)
{
	struct side side = { 0 };
	struct rdma_conn_param param = patient;
	struct rdma_cm_event event;

	find(&side, address, port, 0, 0);
	MUST(rdma_connect(side.id, &param));
	event = await(side.channel, RDMA_CM_EVENT_REJECTED);
	if (event.status != 8)
		die("rejected with status %d, not 8 (invalid service id)", event.status);
	release(&side);
	rdma_destroy_event_channel(side.channel);
}

/* rejected */

static void rejected_server(const char *port)
{
	struct side side = { 0 };
	struct rdma_cm_id *id;

	open_server(&side, port);
	id = await(side.channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
	MUST(rdma_reject(id, rejection, sizeof rejection));
	MUST(rdma_destroy_id(id));
	close_server(&side);
}

static void rejected_client(const char *address, const char *port)
{
	struct side side = { 0 };
	struct rdma_conn_param param = patient;
	struct rdma_cm_event *event;
	const char *data;

	find(&side, address, port, 1, SHORT);
	MUST(rdma_connect(side.id, &param));
	MUST(rdma_get_cm_event(side.channel, &event));
	EXPECT(event->event == RDMA_CM_EVENT_REJECTED && event->status == 28);
	data = event->param.conn.private_data;
	EXPECT(event->param.conn.private_data_len >= sizeof rejection && memcmp(data, rejection, sizeof rejection) == 0);
	for (unsigned int i = sizeof rejection; i < event->param.conn.private_data_len; i++)
		EXPECT(data[i] == 0);
	MUST(rdma_ack_cm_event(event));
	EXPECT(state_of(&side) == IBV_QPS_ERR);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	release(&side);
	rdma_destroy_event_channel(side.channel);
}

/* wrong-rkey */

static void wrong_rkey_server(const char *port)
{
	struct side side = { 0 };

	open_server(&side, port);
	serve(&side, 1, SHORT);
	/* The violation ends the queue pair, which flushes the receive. */
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	EXPECT(state_of(&side) == IBV_QPS_ERR);
	pattern_check(side.buffer, SIDE_SIZE, SEED_SERVER, 0);
	see_off(&side);
}

static void wrong_rkey_client(const char *address, const char *port)
{
	struct side side = { 0 };

	join(&side, address, port, patient);
	side.peer.rkey ^= 0x155;
	post(&side, IBV_WR_RDMA_WRITE, SIDE_SIZE);
	expect_completion(&side, IBV_WC_REM_ACCESS_ERR);
	EXPECT(state_of(&side) == IBV_QPS_ERR);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	/* Posting goes on and is flushed. */
	post(&side, IBV_WR_RDMA_WRITE, SHORT);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	part(&side);
	rdma_destroy_event_channel(side.channel);
}

/* too-long */

static void long_server(const char *port, enum ibv_wc_status status)
{
	struct side side = { 0 };

	open_server(&side, port);
	serve(&side, 2, SHORT);
	expect_completion(&side, status);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	EXPECT(state_of(&side) == IBV_QPS_ERR);
	pattern_check(side.buffer + SHORT, SIDE_SIZE - SHORT, SEED_SERVER, SHORT);
	see_off(&side);
}

static void long_client(const char *address, const char *port, enum ibv_wc_status status)
{
	struct side side = { 0 };

	join(&side, address, port, patient);
	post(&side, IBV_WR_SEND, SHORT + 1);
	expect_completion(&side, status);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	part(&side);
	rdma_destroy_event_channel(side.channel);
}

static void too_long_server(const char *port)
{
	long_server(port, IBV_WC_LOC_LEN_ERR);
}

static void too_long_client(const char *address, const char *port)
{
	long_client(address, port, IBV_WC_REM_INV_REQ_ERR);
}

static void too_long_rxe_server(const char *port)
{
	long_server(port, IBV_WC_LOC_QP_OP_ERR);
}

static void too_long_rxe_client(const char *address, const char *port)
{
	long_client(address, port, IBV_WC_REM_OP_ERR);
}

/* server-parts */

static void server_parts_server(const char *port)
{
	struct side side = { 0 };

	open_server(&side, port);
	serve(&side, 1, SHORT);
	MUST(rdma_disconnect(side.id));
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	release(&side);
	close_server(&side);
}

static void server_parts_client(const char *address, const char *port)
{
	struct side side = { 0 };

	join(&side, address, port, patient);
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_disconnect(side.id));
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	EXPECT(state_of(&side) == IBV_QPS_ERR);
	release(&side);
	rdma_destroy_event_channel(side.channel);
}

/* reply-refused */

static const char refusal[] = "not at these conditions";

static void reply_refused_server(const char *port)
{
	struct side side = { 0 };
	struct rdma_cm_event *event;
	const struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };

	open_server(&side, port);
	side.id = await(side.channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
	equip(&side, 1, SHORT);
	MUST(rdma_accept(side.id, (struct rdma_conn_param *)&param));
	MUST(rdma_get_cm_event(side.channel, &event));
	if (event->event != RDMA_CM_EVENT_REJECTED || event->status != 28)
		die("event %s with status %d", rdma_event_str(event->event), event->status);
	EXPECT(event->param.conn.private_data_len >= sizeof refusal);
	EXPECT(memcmp(event->param.conn.private_data, refusal, sizeof refusal) == 0);
	MUST(rdma_ack_cm_event(event));
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	release(&side);
	close_server(&side);
}

/* An identifier without a queue pair gets the answer itself, to establish or to reject. */
static void reply_refused_client(const char *address, const char *port)
{
	struct rdma_event_channel *channel;
	struct rdma_conn_param param = patient;
	struct rdma_cm_id *id;

	MUST_PTR(channel = rdma_create_event_channel());
	id = start_resolving(channel, address, port);
	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 500));
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	param.qp_num = 0x1234;
	MUST(rdma_connect(id, &param));
	await(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	MUST(rdma_reject(id, refusal, sizeof refusal));
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* no-receive */

static void no_receive_server(const char *port)
{
	struct side side = { 0 };
	struct ibv_wc wc;

	open_server(&side, port);
	serve_with(&side, 0, 0, 0);
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	/* Nothing happened here. */
	EXPECT(ibv_poll_cq(side.cq, 1, &wc) == 0);
	EXPECT(state_of(&side) == IBV_QPS_RTS);
	MUST(rdma_disconnect(side.id));
	release(&side);
	close_server(&side);
}

static void no_receive_client(const char *address, const char *port)
{
	struct side side = { 0 };

	join(&side, address, port, patient);
	post(&side, IBV_WR_SEND, SHORT);
	expect_completion(&side, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	part(&side);
	rdma_destroy_event_channel(side.channel);
}

/* deregistered */

static void deregistered_server(const char *port)
{
	struct side side = { 0 };

	open_server(&side, port);
	serve(&side, 2, 1);
	/* The client asks; the message overwrote the first byte. */
	expect_completion(&side, IBV_WC_SUCCESS);
	pattern_fill(side.buffer, SIDE_SIZE, SEED_SERVER, 0);
	MUST(ibv_dereg_mr(side.mr));
	side.mr = NULL;
	MUST_PTR(side.mr = ibv_reg_mr(side.pd, side.buffer, 1, 0));
	post(&side, IBV_WR_SEND, 1);
	expect_completion(&side, IBV_WC_SUCCESS);
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	pattern_check(side.buffer, SIDE_SIZE, SEED_SERVER, 0);
	MUST(rdma_disconnect(side.id));
	release(&side);
	close_server(&side);
}

static void deregistered_client(const char *address, const char *port)
{
	struct side side = { 0 };
	struct ibv_wc wc;

	join(&side, address, port, patient);
	post(&side, IBV_WR_SEND, 1);
	/* Own completion and the answer, in either order. */
	expect_completion(&side, IBV_WC_SUCCESS);
	expect_completion(&side, IBV_WC_SUCCESS);
	post(&side, IBV_WR_RDMA_WRITE, SIDE_SIZE);
	expect_completion(&side, IBV_WC_REM_ACCESS_ERR);
	EXPECT(ibv_poll_cq(side.cq, 1, &wc) == 0);
	part(&side);
	rdma_destroy_event_channel(side.channel);
}

/* bad-lkey */

static void bad_lkey_server(const char *port)
{
	struct side side = { 0 };
	struct ibv_wc wc;

	open_server(&side, port);
	serve(&side, 1, SHORT);
	await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	EXPECT(ibv_poll_cq(side.cq, 1, &wc) == 0);
	pattern_check(side.buffer, SIDE_SIZE, SEED_SERVER, 0);
	MUST(rdma_disconnect(side.id));
	release(&side);
	close_server(&side);
}

static void bad_lkey_client(const char *address, const char *port)
{
	struct side side = { 0 };
	struct ibv_mr stale;

	join(&side, address, port, patient);
	stale = *side.mr;
	MUST(ibv_dereg_mr(side.mr));
	side.mr = &stale;
	post(&side, IBV_WR_SEND, SHORT);
	expect_completion(&side, IBV_WC_LOC_PROT_ERR);
	side.mr = NULL;
	expect_completion(&side, IBV_WC_WR_FLUSH_ERR);
	part(&side);
	rdma_destroy_event_channel(side.channel);
}

/* in-use */

static void in_use_server(const char *port)
{
	struct side side = { 0 };

	open_server(&side, port);
	for (;;)
		pause();
}

static int bind_to(struct rdma_event_channel *channel, const char *address, const char *port)
{
	struct addrinfo *info;
	struct rdma_cm_id *id;
	int result = 0;

	EXPECT(getaddrinfo(address, port, &(struct addrinfo){ .ai_socktype = SOCK_STREAM }, &info) == 0);
	MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	if (rdma_bind_addr(id, info->ai_addr) != 0)
		result = errno;
	else if (rdma_listen(id, 1) != 0)
		result = errno;
	MUST(rdma_destroy_id(id));
	freeaddrinfo(info);
	return result;
}

/* cycles */

/* Counts descriptors and memory after the warm-up and at the end. */
static void watch_growth(int cycle)
{
	static unsigned int files;
	static long kib;
	unsigned int files_now;
	long kib_now;

	if (cycle != WARM_UP && cycle != CYCLES)
		return;
	files_now = cycle == CYCLES ? descriptors_at_most(files) : descriptors();
	kib_now = resident_kib();
	if (cycle == CYCLES) {
		if (files_now > files)
			die("%u descriptors open after %d cycles, %u after %d", files_now, CYCLES, files, WARM_UP);
		/* Allocators breathe; what a connection needs would add up to far more. */
		if (kib_now > kib + 2048)
			die("%ld KiB resident after %d cycles, %ld after %d", kib_now, CYCLES, kib, WARM_UP);
	}
	files = files_now;
	kib = kib_now;
}

static void cycles_server(const char *port)
{
	struct side side = { 0 };

	open_server(&side, port);
	for (int cycle = 1; cycle <= CYCLES; cycle++) {
		serve(&side, 1, SHORT);
		expect_completion(&side, IBV_WC_SUCCESS);
		pattern_check(side.buffer, SHORT, SEED_CLIENT, 0);
		post(&side, IBV_WR_SEND, SHORT);
		expect_completion(&side, IBV_WC_SUCCESS);
		await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
		MUST(rdma_disconnect(side.id));
		release(&side);
		watch_growth(cycle);
	}
	close_server(&side);
}

static void cycles_client(const char *address, const char *port)
{
	struct side side = { 0 };

	for (int cycle = 1; cycle <= CYCLES; cycle++) {
		join(&side, address, port, patient);
		post(&side, IBV_WR_SEND, SHORT);
		expect_completion(&side, IBV_WC_SUCCESS);
		expect_completion(&side, IBV_WC_SUCCESS);
		pattern_check(side.buffer, SHORT, SEED_CLIENT, 0);
		part(&side);
		watch_growth(cycle);
	}
	rdma_destroy_event_channel(side.channel);
}

/* killed-server, killed-client */

/* Transfers until something fails; says so once it has gone well for a while. */
static enum ibv_wc_status transfer_for_ever(struct side *side, int lucky)
{
	for (;;) {
		struct ibv_wc wc;

		post(side, IBV_WR_RDMA_WRITE, SIDE_SIZE);
		post(side, IBV_WR_RDMA_READ, SIDE_SIZE);
		for (int i = 0; i < 2; i++) {
			wc = next_completion(side->cq);
			if (wc.status != IBV_WC_SUCCESS)
				return wc.status;
		}
		if (lucky > 0 && --lucky == 0) {
			puts("transferring");
			fflush(stdout);
		}
	}
}

/*
 * The server of a client that is killed: what it sends fails, or it hears that the connection is
 * over.
 */
static void bereaved_server(const char *port)
{
	struct side side = { 0 };
	struct rdma_cm_event *event;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	bool over = false;

	open_server(&side, port);
	serve(&side, 0, 0);
	MUST(fcntl(side.channel->fd, F_SETFL, O_NONBLOCK));
	/*
	 * The client has a receive for the first message; later ones wait for a receive that never
	 * comes, until it is dead.
	 */
	post(&side, IBV_WR_SEND, 1);
	while (!over && wc.status == IBV_WC_SUCCESS) {
		if (rdma_get_cm_event(side.channel, &event) == 0) {
			EXPECT(event->event == RDMA_CM_EVENT_DISCONNECTED);
			MUST(rdma_ack_cm_event(event));
			over = true;
		} else {
			EXPECT(errno == EAGAIN);
			if (ibv_poll_cq(side.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
				post(&side, IBV_WR_SEND, 1);
			usleep(1000);
		}
	}
	if (!over && wc.status != IBV_WC_RETRY_EXC_ERR)
		die("the message ended with %s", ibv_wc_status_str(wc.status));
	rdma_disconnect(side.id);
	release(&side);
	close_server(&side);
}

/* The server of a client that survives it does nothing itself. */
static void doomed_server(const char *port)
{
	struct side side = { 0 };

	open_server(&side, port);
	serve(&side, 0, 0);
	for (;;)
		pause();
}

/* Both ends give up a silent peer after one retry: several seconds. */
static const struct rdma_conn_param impatient = { .retry_count = 1, .rnr_retry_count = 7, .initiator_depth = 1, .responder_resources = 1 };

static bool same_host(struct rdma_cm_id *id)
{
	struct rdma_ib_addr *ib = &id->route.addr.addr.ibaddr;

	return memcmp(&ib->sgid, &ib->dgid, sizeof ib->sgid) == 0;
}

static void killed_server_client(const char *address, const char *port)
{
	struct side side = { 0 };
	enum ibv_wc_status status;

	join(&side, address, port, impatient);
	status = transfer_for_ever(&side, 20);
	if (status != IBV_WC_RETRY_EXC_ERR)
		die("the transfer ended with %s", ibv_wc_status_str(status));
	EXPECT(state_of(&side) == IBV_QPS_ERR);
	/*
	 * On one host the peer's end is noticed. Over the wire nobody answers the request to
	 * disconnect, for more than a minute.
	 */
	MUST(rdma_disconnect(side.id));
	if (same_host(side.id))
		await(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	release(&side);
	rdma_destroy_event_channel(side.channel);
}

static void killed_client_client(const char *address, const char *port)
{
	struct side side = { 0 };

	join(&side, address, port, impatient);
	transfer_for_ever(&side, 20);
	die("the transfer ended before the end of this process");
}

/* The cases, and the driver that starts both sides. */

static const struct failure {
	const char *name;
	void (*server)(const char *port);
	void (*client)(const char *address, const char *port);
} failures[] = {
	{ "absent", NULL, absent_client },
	{ "rejected", rejected_server, rejected_client },
	{ "wrong-rkey", wrong_rkey_server, wrong_rkey_client },
	{ "too-long", too_long_server, too_long_client },
	{ "too-long-rxe", too_long_rxe_server, too_long_rxe_client },
	{ "server-parts", server_parts_server, server_parts_client },
	{ "reply-refused", reply_refused_server, reply_refused_client },
	{ "no-receive", no_receive_server, no_receive_client },
	{ "deregistered", deregistered_server, deregistered_client },
	{ "exits", exits_server, exits_client },
	{ "last-words", last_words_server, last_words_client },
	{ "bad-lkey", bad_lkey_server, bad_lkey_client },
	{ "in-use", in_use_server, NULL },
	{ "cycles", cycles_server, cycles_client },
	{ "killed-server", doomed_server, killed_server_client },
	{ "killed-client", bereaved_server, killed_client_client },
};

/*
 * Starts another process of this program; its standard output comes back as a stream. No verb has
 * been called yet.
 */
static pid_t start(FILE **output, const char *const argv[])
{
	int pipe_ends[2];
	pid_t pid;

	MUST(pipe(pipe_ends));
	fflush(NULL);
	EXPECT((pid = fork()) >= 0);
	if (pid == 0) {
		dup2(pipe_ends[1], 1);
		close(pipe_ends[0]);
		close(pipe_ends[1]);
		execv("/proc/self/exe", (char *const *)argv);
		_exit(127);
	}
	close(pipe_ends[1]);
	MUST_PTR(*output = fdopen(pipe_ends[0], "r"));
	return pid;
}

static pid_t start_server(const char *name, char port[static 8], const char *wanted_port)
{
	const char *argv[] = { "failures", "server", name, wanted_port, NULL };
	FILE *output;
	pid_t pid = start(&output, argv);

	if (fscanf(output, "listening on port %7[0-9]", port) != 1)
		die("the server did not start");
	/* The pipe stays open: a server that writes more must not be killed by it. */
	return pid;
}

static void ended_well(pid_t pid)
{
	int status;

	EXPECT(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		die("the other process ended with status %#x", status);
}

static void kill_now(pid_t pid)
{
	int status;

	MUST(kill(pid, SIGKILL));
	EXPECT(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/*
 * A server and a client as two processes, of which one is killed while they transfer. Afterwards
 * the port works at once.
 */
static void drive_killed(const struct failure *failure, const char *address, bool kill_server)
{
	char port[8], line[64], again[8];
	pid_t server = start_server(failure->name, port, NULL), client, next;
	const char *argv[] = { "failures", "client", failure->name, address, port, NULL };
	FILE *output;

	client = start(&output, argv);
	if (fgets(line, sizeof line, output) == NULL || strcmp(line, "transferring\n") != 0)
		die("the client does not transfer");
	kill_now(kill_server ? server : client);
	if (kill_server) {
		next = start_server("rejected", again, port);
		EXPECT(strcmp(port, again) == 0);
		rejected_client(address, again);
		ended_well(next);
	}
	ended_well(kill_server ? client : server);
}

static void drive_in_use(const char *address)
{
	char port[8];
	pid_t server = start_server("in-use", port, NULL);
	struct rdma_event_channel *channel;
	int result;

	MUST_PTR(channel = rdma_create_event_channel());
	if ((result = bind_to(channel, address, port)) != EADDRINUSE)
		die("the bind to a port in use: %s", strerror(result));
	kill_now(server);
	if ((result = bind_to(channel, address, port)) != 0)
		die("the bind to the port of a killed process: %s", strerror(result));
	rdma_destroy_event_channel(channel);
}

/* A port that was free a moment ago. */
static void drive_absent(const char *address)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	char port[8];

	MUST_PTR(channel = rdma_create_event_channel());
	id = listen_on(channel, AF_INET6, 0);
	snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(id)));
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	absent_client(address, port);
}

static void drive(const struct failure *failure, const char *address)
{
	char port[8];
	pid_t server;

	if (strcmp(failure->name, "absent") == 0) {
		drive_absent(address);
	} else if (strcmp(failure->name, "in-use") == 0) {
		drive_in_use(address);
	} else if (strncmp(failure->name, "killed-", 7) == 0) {
		drive_killed(failure, address, strcmp(failure->name, "killed-server") == 0);
	} else {
		server = start_server(failure->name, port, NULL);
		failure->client(address, port);
		ended_well(server);
	}
}

static const struct failure *named(const char *name)
{
	for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
		if (strcmp(failures[i].name, name) == 0)
			return &failures[i];
	return NULL;
}

static int usage(void)
{
	fputs("usage: failures CASE [ADDRESS]\n"
	      "       failures server CASE [PORT]\n"
	      "       failures client CASE ADDRESS PORT\n"
	      "CASE is one of:", stderr);
	for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
		fprintf(stderr, " %s", failures[i].name);
	fputc('\n', stderr);
	return 2;
}

int main(int argc, char **argv)
{
	const struct failure *failure;

	deadline(TIME);
	if (argc >= 3 && argc <= 4 && strcmp(argv[1], "server") == 0) {
		failure = named(argv[2]);
		if (failure == NULL || failure->server == NULL)
			return usage();
		failure->server(argv[3]);
		return 0;
	}
	if (argc == 5 && strcmp(argv[1], "client") == 0) {
		failure = named(argv[2]);
		if (failure == NULL || failure->client == NULL)
			return usage();
		failure->client(argv[3], argv[4]);
		return 0;
	}
	if (argc < 2 || argc > 3 || (failure = named(argv[1])) == NULL)
		return usage();
	drive(failure, argc == 3 ? argv[2] : "127.0.0.1");
	return 0;
}
