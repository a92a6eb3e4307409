/*
 * A process executes another program while a peer writes into its memory and reads it. The program
 * has the same process number, and memory of its own at the same address (issue: bytes of WRITEs
 * reached it up to 24 ms later).
 *
 * With `numbers` the target is killed instead, and other processes get the numbers of its first
 * thread and of its device thread, which takes CAP_CHECKPOINT_RESTORE. They have memory at the same
 * address, too.
 *
 * usage: executed ROUNDS [numbers]
 *
 * Starts itself again as the target, once a round: by turns the first thread and another one
 * execute, by a raw system call. The peer is stopped while that happens, as it may be on a busy
 * processor, and goes on when the new program has its memory. Prints how many programs were written
 * to and read.
 *
 */
#include "../common.h"

#include <dirent.h>
#include <linux/sched.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { LENGTH = 64 << 10, SHORT = 4 << 10, SETTLING_MS = 20, SECRET = 0x5c, TIME = 200 };

#define AT ((char *)0x220000000000)

extern char **environ;

/* A target's to and from the process that started it. */
static int line;
static const char *line_name;
/* From the peer to that process: the port, and that work has failed. */
static int news[2];

static void say(int to, char what)
{
	EXPECT(write(to, &what, 1) == 1);
}

static void hear(int from, char what)
{
	char heard = 0;

	EXPECT(read(from, &heard, 1) == 1 && heard == what);
}

struct offer {
	uint64_t addr;
	uint32_t rkey;
};

static const struct rdma_conn_param patient = {
	.responder_resources = 4,
	.initiator_depth = 4,
	.retry_count = 7,
	.rnr_retry_count = 7,
};

static char *memory(void)
{
	char *bytes = mmap(AT, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	EXPECT(bytes == AT);
	return bytes;
}

/*
 * The program that is executed: looks whether others change its memory, until it is told that the
 * peer has noticed.
 */
static int watch(void)
{
	volatile char *bytes = memory();
	int changed = 0;
	char end;

	memset((char *)bytes, SECRET, LENGTH);
	say(line, 'm');
	while (recv(line, &end, 1, MSG_DONTWAIT) != 1)
		usleep(1000);
	for (int i = 0; i < LENGTH; i++)
		changed += bytes[i] != SECRET;
	return changed > 0;
}

static void *execute(void *unused)
{
	char *words[] = { "executed", "watch", (char *)line_name, NULL };

	(void)unused;
	syscall(SYS_execve, "/proc/self/exe", words, environ);
	die("not executed: %s", strerror(errno));
}

/* A connection: a queue pair with a queue. */
static struct ibv_cq *equip(struct rdma_cm_id *id, struct ibv_pd **pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};

	MUST_PTR(*pd = ibv_alloc_pd(id->verbs));
	MUST_PTR(attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0));
	MUST(rdma_create_qp(id, *pd, &attr));
	return attr.send_cq;
}

/* Offers memory, and executes when the peer writes into it. */
static int be_target(const char *port, bool by_another)
{
	struct rdma_event_channel *channel;
	struct rdma_conn_param param = patient;
	struct offer offer;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	volatile char *bytes = memory();
	pthread_t thread;

	MUST_PTR(channel = rdma_create_event_channel());
	id = start_resolving(channel, "127.0.0.1", port);
	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	equip(id, &pd);
	MUST(rdma_resolve_route(id, 500));
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST_PTR(mr = ibv_reg_mr(pd, (char *)bytes, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	offer = (struct offer){ (uintptr_t)bytes, mr->rkey };
	param.private_data = &offer;
	param.private_data_len = sizeof offer;
	MUST(rdma_connect(id, &param));
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	while (bytes[0] == 0)
		usleep(200);
	/* By now the peer works without packets. */
	usleep(SETTLING_MS * 1000);
	say(line, 'r');
	hear(line, 'g');
	if (!by_another)
		execute(NULL);
	MUST(pthread_create(&thread, NULL, execute, NULL));
	for (;;)
		pause();
}

/* Stops a process, and waits until it is. */
static void stop(pid_t pid)
{
	char name[32], text[64] = "";

	snprintf(name, sizeof name, "/proc/%d/stat", pid);
	MUST(kill(pid, SIGSTOP));
	while (strstr(text, ") T ") == NULL) {
		FILE *stat;

		MUST_PTR(stat = fopen(name, "r"));
		EXPECT(fgets(text, sizeof text, stat) != NULL);
		fclose(stat);
		usleep(500);
	}
}

/*
 * Starts a target, and stops the peer when it works on its memory. The target hears by `end` what
 * to do.
 */
static pid_t start_target(char *port, bool by_another, pid_t peer, int *end)
{
	char text[16], *words[] = { "executed", "target", text, port, by_another ? "another" : "first", NULL };
	int ends[2];
	pid_t pid;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	snprintf(text, sizeof text, "%d", ends[1]);
	MUST(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, words, environ));
	close(ends[1]);
	*end = ends[0];
	hear(*end, 'r');
	stop(peer);
	return pid;
}

/* Ends a watching process. Returns whether it was written to. */
static int ask(pid_t pid, int end)
{
	int status;

	say(end, 'e');
	EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) <= 1);
	close(end);
	return WEXITSTATUS(status);
}

/* Runs a target that executes a program. Returns whether that is written to. */
static int run_target(char *port, bool by_another, pid_t peer)
{
	int end;
	pid_t pid = start_target(port, by_another, peer, &end);

	say(end, 'g');
	hear(end, 'm');
	MUST(kill(peer, SIGCONT));
	hear(news[0], 'f');
	return ask(pid, end);
}

/* The number of a process's device thread. */
static pid_t device_thread(pid_t pid)
{
	char name[64], text[32];
	pid_t found = 0;
	struct dirent *entry;
	DIR *tasks;

	snprintf(name, sizeof name, "/proc/%d/task", pid);
	MUST_PTR(tasks = opendir(name));
	while ((entry = readdir(tasks)) != NULL) {
		FILE *comm;

		snprintf(name, sizeof name, "/proc/%d/task/%.16s/comm", pid, entry->d_name);
		if ((comm = fopen(name, "r")) == NULL)
			continue;
		if (fgets(text, sizeof text, comm) != NULL && strcmp(text, "ferroce\n") == 0)
			found = atoi(entry->d_name);
		fclose(comm);
	}
	closedir(tasks);
	EXPECT(found > 0 && found != pid);
	return found;
}

/* Starts a process with this number, which watches. */
static void start_with(pid_t number, int *end)
{
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
	int ends[2];
	long pid;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	/* The kernel gives a number free a little after its process could be waited for. */
	while ((pid = syscall(SYS_clone3, &args, sizeof args)) < 0 && errno == EEXIST)
		sched_yield();
	if (pid < 0)
		die("no process with the number %d: %s", number, strerror(errno));
	if (pid == 0) {
		line = ends[1];
		_exit(watch());
	}
	EXPECT(pid == number);
	close(ends[1]);
	*end = ends[0];
	hear(*end, 'm');
}

/* Kills a target and gives its numbers to other processes. Returns whether those are written to. */
static int replace_target(char *port, pid_t peer)
{
	int end, others[2];
	pid_t pids[2] = { start_target(port, false, peer, &end) };

	pids[1] = device_thread(pids[0]);
	MUST(kill(pids[0], SIGKILL));
	EXPECT(waitpid(pids[0], NULL, 0) == pids[0]);
	close(end);
	for (int i = 0; i < 2; i++)
		start_with(pids[i], &others[i]);
	MUST(kill(peer, SIGCONT));
	hear(news[0], 'f');
	return ask(pids[0], others[0]) | ask(pids[1], others[1]);
}

/* Runs all targets, one after the other. Returns how many programs were written to. */
static int run_targets(unsigned long rounds, bool by_numbers, pid_t peer)
{
	char port[16];
	ssize_t length = read(news[0], port, sizeof port - 1);
	int written = 0;

	EXPECT(length > 0);
	port[length] = '\0';
	for (unsigned long round = 0; round < rounds; round++)
		written += by_numbers ? replace_target(port, peer) : run_target(port, round % 2, peer);
	return written;
}

/*
 * Works on the memory of the next target until work fails. Returns whether a READ brought bytes of
 * the executed program.
 */
static bool work(struct rdma_event_channel *channel, unsigned long *done)
{
	struct rdma_conn_param param = patient;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct offer offer;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *bytes;
	bool stolen = false;

	MUST(rdma_get_cm_event(channel, &event));
	EXPECT(event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data_len >= sizeof offer);
	memcpy(&offer, event->param.conn.private_data, sizeof offer);
	id = event->id;
	MUST(rdma_ack_cm_event(event));
	cq = equip(id, &pd);
	MUST_PTR(bytes = calloc(2, LENGTH));
	MUST_PTR(mr = ibv_reg_mr(pd, bytes, 2 * LENGTH, IBV_ACCESS_LOCAL_WRITE));
	memset(bytes, 1, LENGTH);
	MUST(rdma_accept(id, &param));
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	for (unsigned long n = 0; ; n++) {
		bool is_read = n % 4 == 3;
		struct ibv_sge sge = { (uintptr_t)bytes + (is_read ? LENGTH : 0), n % 2 ? SHORT : LENGTH, mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE }, *bad;

		wr.wr.rdma.remote_addr = offer.addr;
		wr.wr.rdma.rkey = offer.rkey;
		MUST(ibv_post_send(id->qp, &wr, &bad));
		if (next_completion(cq).status != IBV_WC_SUCCESS)
			break;
		stolen |= is_read && bytes[LENGTH] == SECRET;
		++*done;
	}
	say(news[1], 'f');
	rdma_destroy_qp(id);
	MUST(ibv_dereg_mr(mr));
	free(bytes);
	MUST(ibv_destroy_cq(cq));
	MUST(ibv_dealloc_pd(pd));
	await(channel, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_destroy_id(id));
	return stolen;
}

/* Works on all targets. Returns of how many programs READs brought bytes. */
static unsigned long work_on_all(unsigned long rounds, unsigned long *done)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	unsigned long stolen = 0;

	MUST_PTR(channel = rdma_create_event_channel());
	listener = listen_on(channel, AF_INET6, 0);
	EXPECT(dprintf(news[1], "%u", ntohs(rdma_get_src_port(listener))) > 0);
	while (rounds-- > 0)
		stolen += work(channel, done);
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return stolen;
}

/* The peer is a child: a container's first process cannot be stopped. */
static int lead(unsigned long rounds, bool by_numbers)
{
	unsigned long done = 0, stolen;
	int written, status;
	pid_t peer;

	MUST(pipe(news));
	EXPECT((peer = fork()) >= 0);
	if (peer == 0) {
		deadline(TIME);
		stolen = work_on_all(rounds, &done);
		printf("%lu rounds, %lu operations; read %lu\n", rounds, done, stolen);
		return stolen > 0;
	}
	written = run_targets(rounds, by_numbers, peer);
	EXPECT(waitpid(peer, &status, 0) == peer && WIFEXITED(status));
	printf("processes written to %d\n", written);
	return written > 0 || WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv)
{
	deadline(TIME);
	if (argc >= 3 && strcmp(argv[2], "numbers") != 0) {
		line_name = argv[2];
		line = (int)number(line_name, 0, 1000000);
	}
	if (argc == 3 && strcmp(argv[1], "watch") == 0)
		return watch();
	if (argc == 5 && strcmp(argv[1], "target") == 0)
		return be_target(argv[3], strcmp(argv[4], "another") == 0);
	if (argc == 2 || (argc == 3 && strcmp(argv[2], "numbers") == 0))
		return lead(number(argv[1], 1, 100), argc == 3);
	fputs("usage: executed ROUNDS [numbers]\n", stderr);
	return 2;
}
