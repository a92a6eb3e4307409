/* usage: rpma ADDRESS PORT server|client
 *
 * Both ends of a connection of librpma. The client writes blocks into the server's memory, makes
 * them visible, reads them back and compares each byte; then each side sends a message with
 * immediate data. Both sleep until completions come. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <librpma.h>

enum { BLOCK = 1 << 20, BLOCKS = 16, MESSAGE = 64, IMMEDIATE = 0x12345678, DESCRIPTOR = 64 };

static struct rpma_conn *conn;

static void must(int outcome, const char *what)
{
	if (outcome) {
		fprintf(stderr, "%s: %s\n", what, rpma_err_2str(outcome));
		exit(1);
	}
}

#define MUST(call) must(call, #call)

static struct rpma_peer *peer(const char *address, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *context;
	struct rpma_peer *made;

	MUST(rpma_utils_get_ibv_context(address, type, &context));
	MUST(rpma_peer_new(context, &made));
	return made;
}

static struct rpma_mr_local *memory(struct rpma_peer *of, size_t size, int usage, unsigned char **bytes)
{
	struct rpma_mr_local *mr;

	*bytes = aligned_alloc(4096, (size + 4095) & ~4095UL);
	memset(*bytes, 0, size);
	MUST(rpma_mr_reg(of, *bytes, size, usage, &mr));
	return mr;
}

/* Sleeps until the next completion, which must be a success of this kind. */
static struct ibv_wc completion(enum ibv_wc_opcode kind)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;

	MUST(rpma_conn_get_cq(conn, &cq));
	MUST(rpma_cq_wait(cq));
	MUST(rpma_cq_get_wc(cq, 1, &wc, NULL));
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != kind) {
		fprintf(stderr, "%s of opcode %d\n", ibv_wc_status_str(wc.status), wc.opcode);
		exit(1);
	}
	return wc;
}

static void event(enum rpma_conn_event expected)
{
	enum rpma_conn_event seen;

	MUST(rpma_conn_next_event(conn, &seen));
	if (seen != expected) {
		fprintf(stderr, "event %s\n", rpma_utils_conn_event_2str(seen));
		exit(1);
	}
}

static void end(struct rpma_peer *of)
{
	MUST(rpma_conn_delete(&conn));
	MUST(rpma_peer_delete(&of));
}

/* One message each way; the server's is the answer. */
static void messages(const struct rpma_mr_local *out, const unsigned char *got, int answers)
{
	for (int turn = 0; turn < 2; turn++) {
		if (turn != answers) {
			MUST(rpma_send_with_imm(conn, out, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, IMMEDIATE, NULL));
			completion(IBV_WC_SEND);
			continue;
		}
		struct ibv_wc wc = completion(IBV_WC_RECV);
		if (!(wc.wc_flags & IBV_WC_WITH_IMM) || ntohl(wc.imm_data) != IMMEDIATE || got[MESSAGE - 1] != 'm') {
			fprintf(stderr, "the message is another\n");
			exit(1);
		}
	}
}

static void server(const char *address, const char *port)
{
	struct rpma_peer *own = peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	unsigned char *bytes, *out, *in, descriptor[DESCRIPTOR];
	struct rpma_conn_private_data data = { descriptor, 0 };
	struct rpma_conn_req *request;
	struct rpma_ep *listener;
	size_t size;

	int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
	struct rpma_mr_local *mr = memory(own, (size_t)BLOCK * BLOCKS, usage, &bytes);
	struct rpma_mr_local *sent = memory(own, MESSAGE, RPMA_MR_USAGE_SEND, &out);
	struct rpma_mr_local *received = memory(own, MESSAGE, RPMA_MR_USAGE_RECV, &in);
	memset(out, 'm', MESSAGE);
	MUST(rpma_mr_get_descriptor_size(mr, &size));
	MUST(rpma_mr_get_descriptor(mr, descriptor));
	data.len = (uint8_t)size;
	MUST(rpma_ep_listen(own, address, port, &listener));
	MUST(rpma_ep_next_conn_req(listener, NULL, &request));
	MUST(rpma_conn_req_recv(request, received, 0, MESSAGE, NULL));
	MUST(rpma_conn_req_connect(&request, &data, &conn));
	event(RPMA_CONN_ESTABLISHED);
	messages(sent, in, 0);
	event(RPMA_CONN_CLOSED);
	rpma_conn_disconnect(conn);
	MUST(rpma_mr_dereg(&mr));
	MUST(rpma_mr_dereg(&sent));
	MUST(rpma_mr_dereg(&received));
	MUST(rpma_ep_shutdown(&listener));
	end(own);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Writes all blocks, reads them back and compares; the seconds that writing took. */
static double blocks(struct rpma_peer *own, struct rpma_mr_remote *there)
{
	unsigned char *from, *back;
	struct rpma_mr_local *source = memory(own, BLOCK, RPMA_MR_USAGE_WRITE_SRC, &from);
	struct rpma_mr_local *target = memory(own, BLOCK, RPMA_MR_USAGE_READ_DST, &back);
	double took = 0;

	for (size_t at = 0; at < BLOCKS; at++) {
		for (size_t byte = 0; byte < BLOCK; byte++)
			from[byte] = (unsigned char)(at + byte * 31 + byte / 251);
		double begun = now();
		MUST(rpma_write(conn, there, at * BLOCK, source, 0, BLOCK, RPMA_F_COMPLETION_ON_ERROR, NULL));
		MUST(rpma_atomic_write(conn, there, at * BLOCK, (char *)from, RPMA_F_COMPLETION_ON_ERROR, NULL));
		MUST(rpma_flush(conn, there, at * BLOCK, BLOCK, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
		completion(IBV_WC_RDMA_READ);
		took += now() - begun;
		MUST(rpma_read(conn, target, 0, there, at * BLOCK, BLOCK, RPMA_F_COMPLETION_ALWAYS, NULL));
		completion(IBV_WC_RDMA_READ);
		if (memcmp(from, back, BLOCK)) {
			fprintf(stderr, "block %zu comes back with other bytes\n", at);
			exit(1);
		}
	}
	MUST(rpma_mr_dereg(&source));
	MUST(rpma_mr_dereg(&target));
	return took;
}

static void client(const char *address, const char *port)
{
	struct rpma_peer *own = peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_private_data data;
	struct rpma_conn_req *request;
	struct rpma_mr_remote *there;
	unsigned char *out, *in;

	struct rpma_mr_local *sent = memory(own, MESSAGE, RPMA_MR_USAGE_SEND, &out);
	struct rpma_mr_local *received = memory(own, MESSAGE, RPMA_MR_USAGE_RECV, &in);
	memset(out, 'm', MESSAGE);
	MUST(rpma_conn_req_new(own, address, port, NULL, &request));
	MUST(rpma_conn_req_recv(request, received, 0, MESSAGE, NULL));
	MUST(rpma_conn_req_connect(&request, NULL, &conn));
	event(RPMA_CONN_ESTABLISHED);
	MUST(rpma_conn_get_private_data(conn, &data));
	MUST(rpma_mr_remote_from_descriptor(data.ptr, data.len, &there));
	double took = blocks(own, there);
	messages(sent, in, 1);
	MUST(rpma_conn_disconnect(conn));
	event(RPMA_CONN_CLOSED);
	MUST(rpma_mr_remote_delete(&there));
	MUST(rpma_mr_dereg(&sent));
	MUST(rpma_mr_dereg(&received));
	end(own);
	printf("rpma verified, WRITE %.2f MB/s\n", BLOCK * (double)BLOCKS / took / 1e6);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	if (!strcmp(argv[3], "server"))
		server(argv[1], argv[2]);
	else
		client(argv[1], argv[2]);
	return 0;
}
