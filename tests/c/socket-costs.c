/*
 * What a connection between two processes costs. `cargo xtask aims sockets` runs this with and
 * without `ferroce run --sockets`.
 *
 * usage: socket-costs ping|epoll|stream|connections|idle|requests|connects tcp|unix COUNT
 *
 * ping: µs there and back, in blocking reads; epoll: the same in epoll_wait; stream: GB/s in writes
 * of 64 KiB; connections: µs to connect, accept and close; idle: bytes (Pss) of an idle connection
 * and end; requests, connects: µs of processor time that a client spends on each with a server that
 * never has the library. The number is the last word that is printed.
 */
#include "common.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	PIECE = 64 << 10,
	FILES = 20000,
	SILENCE_SECONDS = 10,
	PATIENCE_MS = 60000
};

static const char *work;
static unsigned long count;
static bool is_unix;

static bool works(const char *name)
{
	return strcmp(work, name) == 0;
}

static void all_written(int fd, const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t written = write(fd, bytes, length);

		EXPECT(written > 0);
		bytes += written;
		length -= written;
	}
}

/* Reads all of it, or nothing at the end. */
static bool all_read(int fd, char *bytes, size_t length)
{
	size_t done = 0;

	while (done < length) {
		ssize_t got = read(fd, bytes + done, length - done);

		EXPECT(got > 0 || (got == 0 && done == 0));
		if (got == 0)
			return false;
		done += got;
	}
	return true;
}

static void no_delay(int fd)
{
	int one = 1;

	if (!is_unix)
		MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
}

/* A set with one descriptor; -1 where reads block. */
static int set_of(int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set = -1;

	if (works("epoll")) {
		EXPECT((set = epoll_create1(0)) >= 0);
		MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	}
	return set;
}

static bool received(int set, int fd, char word[8])
{
	struct epoll_event event;

	if (set >= 0)
		EXPECT(epoll_wait(set, &event, 1, PATIENCE_MS) == 1);
	return all_read(fd, word, 8);
}

/* Proportional bytes of this process. */
static double pss(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[200];
	double kib = -1;

	EXPECT(file);
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "Pss: %lf kB", &kib) == 1)
			break;
	fclose(file);
	EXPECT(kib >= 0);
	return kib * 1024;
}

static double slab(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[200];
	double kib = 0;

	EXPECT(file);
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "Slab: %lf kB", &kib) == 1)
			break;
	fclose(file);
	return kib * 1024;
}

/* The server's end of everything. */
static void serve(int told)
{
	static char piece[4 * PIECE];
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t length = is_unix ? sizeof name : sizeof at;
	struct sockaddr *address = is_unix ? (struct sockaddr *)&name : (struct sockaddr *)&at;
	int listener = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM, 0), fd, set, one = 1;
	int *kept = calloc(count, sizeof *kept);
	double before;

	EXPECT(listener >= 0 && kept);
	if (is_unix)
		length = sizeof(sa_family_t) + 1 + sprintf(name.sun_path + 1, "socket-costs/%d", getpid());
	else
		MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	MUST(bind(listener, address, length));
	MUST(listen(listener, 1000));
	MUST(getsockname(listener, address, &length));
	all_written(told, (char *)&length, sizeof length);
	all_written(told, (char *)address, length);
	if (works("connections") || works("connects")) {
		while ((fd = accept(listener, NULL, NULL)) >= 0)
			close(fd);
		die("accept: %s", strerror(errno));
	}
	before = pss();
	for (unsigned long i = 0; works("idle") && i < count; i++) {
		EXPECT((kept[i] = accept(listener, NULL, NULL)) >= 0);
		EXPECT(all_read(kept[i], piece, 8));
		all_written(kept[i], piece, 8);
	}
	EXPECT((fd = accept(listener, NULL, NULL)) >= 0);
	no_delay(fd);
	set = set_of(fd);
	if (works("stream")) {
		while (read(fd, piece, sizeof piece) > 0)
			;
	} else {
		while (received(set, fd, piece)) {
			before = works("idle") ? pss() - before : 0;
			all_written(fd, works("idle") ? (char *)&before : piece, 8);
		}
	}
	_exit(0);
}

static struct sockaddr_storage server;
static socklen_t server_length;
static pid_t child;

static int connected(void)
{
	int fd = socket(server.ss_family, SOCK_STREAM, 0);

	EXPECT(fd >= 0);
	MUST(connect(fd, (struct sockaddr *)&server, server_length));
	return fd;
}

static double stream(int fd)
{
	static char piece[PIECE];
	double start = now_us(CLOCK_MONOTONIC);

	for (unsigned long i = 0; i < count; i++)
		all_written(fd, piece, sizeof piece);
	MUST(shutdown(fd, SHUT_WR));
	EXPECT(!all_read(fd, piece, 1));
	return (double)count * PIECE / 1e3 / (now_us(CLOCK_MONOTONIC) - start);
}

static double requests(int fd, clockid_t clock)
{
	int set = set_of(fd);
	char word[8] = "request";
	double start = 0;

	for (unsigned long i = 0; i < count + count / 10; i++) {
		if (i == count / 10)
			start = now_us(clock);
		all_written(fd, word, sizeof word);
		EXPECT(received(set, fd, word));
	}
	return (now_us(clock) - start) / count;
}

static double connects(clockid_t clock)
{
	double start = now_us(clock);
	char byte;

	for (unsigned long i = 0; i < count; i++) {
		int fd = connected();

		EXPECT(!all_read(fd, &byte, 1));
		close(fd);
	}
	return (now_us(clock) - start) / count;
}

static double idle(void)
{
	int *fds = calloc(count, sizeof *fds), asked;
	char word[8] = "traffic";
	double before = pss(), kernel = slab(), its;

	EXPECT(fds);
	for (unsigned long i = 0; i < count; i++) {
		fds[i] = connected();
		all_written(fds[i], word, sizeof word);
		EXPECT(all_read(fds[i], word, sizeof word));
	}
	asked = connected();
	sleep(SILENCE_SECONDS);
	all_written(asked, word, sizeof word);
	EXPECT(all_read(asked, (char *)&its, sizeof its));
	printf("kernel %.0f\n", (slab() - kernel) / count / 2);
	return (pss() - before + its) / count / 2;
}

/* Starts the server; one that never has the library is a program of its own. */
static void started(char **argv)
{
	int pipes[2];
	char told[16];

	MUST(pipe(pipes));
	EXPECT((child = fork()) >= 0);
	if (child == 0) {
		deadline(120);
		if (!works("requests") && !works("connects"))
			serve(pipes[1]);
		unsetenv("LD_PRELOAD");
		sprintf(told, "%d", pipes[1]);
		execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], told, NULL);
		die("exec: %s", strerror(errno));
	}
	close(pipes[1]);
	EXPECT(all_read(pipes[0], (char *)&server_length, sizeof server_length));
	EXPECT(server_length <= sizeof server && all_read(pipes[0], (char *)&server, server_length));
	close(pipes[0]);
}

int main(int argc, char **argv)
{
	struct rlimit files;
	double result;
	int fd;

	if (argc < 4) {
		fprintf(stderr, "usage: socket-costs ping|epoll|stream|connections|idle|requests|connects tcp|unix COUNT\n");
		return 2;
	}
	work = argv[1];
	is_unix = strcmp(argv[2], "unix") == 0;
	count = number(argv[3], 1, 100000000);
	MUST(getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max < FILES ? files.rlim_max : FILES;
	MUST(setrlimit(RLIMIT_NOFILE, &files));
	deadline(120);
	if (argc == 5)
		serve((int)number(argv[4], 0, 1000));
	started(argv);
	if (works("idle")) {
		result = idle();
	} else if (works("connections") || works("connects")) {
		result = connects(works("connects") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC);
	} else {
		fd = connected();
		no_delay(fd);
		result = works("stream") ? stream(fd) : requests(fd, works("requests") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC);
		close(fd);
	}
	printf("%.3f\n", result);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
