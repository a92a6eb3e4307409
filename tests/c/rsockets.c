/*
 * Stream rsockets do what the socket call does: each case is run on the kernel's TCP first, and
 * then on rsockets.
 *
 * usage: rsockets ADDRESS
 */
#include "common.h"

#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include <rdma/rsocket.h>

enum {
	/*
	 * A call that is to return at once has this long on a busy machine; librdmacm's polled
	 * listener takes 5 s.
	 */
	SOON_MS = 4000,
	BULK = 4 << 20,
	PIECE = 70001
};

/* The calls of one kind of socket. */
struct calls {
	const char *name;
	int (*socket)(int, int, int), (*bind)(int, const struct sockaddr *, socklen_t), (*listen)(int, int),
		(*accept)(int, struct sockaddr *, socklen_t *), (*connect)(int, const struct sockaddr *, socklen_t), (*shutdown)(int, int),
		(*close)(int), (*poll)(struct pollfd *, nfds_t, int), (*fcntl)(int, int, ...),
		(*getsockname)(int, struct sockaddr *, socklen_t *), (*getpeername)(int, struct sockaddr *, socklen_t *),
		(*getsockopt)(int, int, int, void *, socklen_t *), (*setsockopt)(int, int, int, const void *, socklen_t),
		(*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
	ssize_t (*send)(int, const void *, size_t, int), (*recv)(int, void *, size_t, int), (*readv)(int, const struct iovec *, int),
		(*writev)(int, const struct iovec *, int), (*sendmsg)(int, const struct msghdr *, int), (*recvmsg)(int, struct msghdr *, int);
};

static const struct calls kinds[] = {
	{ "tcp",     socket,	  bind,	       listen,	    accept, connect,  shutdown, close,	 poll,	 fcntl,
	  getsockname,	getpeername,  getsockopt,  setsockopt,	select,	 send,	recv,  readv,  writev,	sendmsg,  recvmsg },
	{ "rsocket", rsocket,	  rbind,	rlisten,    raccept, rconnect, rshutdown, rclose, rpoll, rfcntl,
	  rgetsockname, rgetpeername, rgetsockopt, rsetsockopt, rselect, rsend, rrecv, rreadv, rwritev, rsendmsg, rrecvmsg },
};

static const struct calls *k;
static const char *host;

/* A listener on a free port, and its address. */
static int listening(struct sockaddr_storage *at, socklen_t *length)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *info;
	int fd;

	EXPECT(getaddrinfo(host, NULL, &hints, &info) == 0);
	EXPECT((fd = k->socket(info->ai_family, SOCK_STREAM, 0)) >= 0);
	MUST(k->bind(fd, info->ai_addr, info->ai_addrlen));
	MUST(k->listen(fd, 5));
	*length = sizeof *at;
	MUST(k->getsockname(fd, (struct sockaddr *)at, length));
	EXPECT(*length == info->ai_addrlen && at->ss_family == info->ai_family);
	freeaddrinfo(info);
	return fd;
}

/* The two ends of a connection. */
static void connected(int ends[2])
{
	struct sockaddr_storage at, peer, own;
	socklen_t length, peer_length = sizeof peer, own_length = sizeof own;
	int listener = listening(&at, &length);

	EXPECT((ends[0] = k->socket(at.ss_family, SOCK_STREAM, 0)) >= 0);
	MUST(k->connect(ends[0], (struct sockaddr *)&at, length));
	EXPECT((ends[1] = k->accept(listener, (struct sockaddr *)&peer, &peer_length)) >= 0);
	MUST(k->getsockname(ends[0], (struct sockaddr *)&own, &own_length));
	EXPECT(own_length == peer_length && memcmp(&own, &peer, own_length) == 0);
	peer_length = sizeof peer;
	MUST(k->getpeername(ends[0], (struct sockaddr *)&peer, &peer_length));
	EXPECT(memcmp(&peer, &at, length) == 0);
	MUST(k->close(listener));
}

static void parted(int ends[2])
{
	MUST(k->close(ends[0]));
	MUST(k->close(ends[1]));
}

static short polled(int fd, short events, int timeout)
{
	struct pollfd one = { fd, events, 0 };

	EXPECT(k->poll(&one, 1, timeout) >= 0);
	return one.revents;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A descriptor that is none, or was never connected. */
static void misuse(void)
{
	char byte;
	int fd, pipes[2];

	MUST(pipe(pipes));
	if (k->socket == rsocket) {
		REFUSED(k->close(pipes[0]) == -1, EBADF);
		REFUSED(k->send(pipes[0], "x", 1, 0) == -1, EBADF);
		REFUSED(k->recv(7777, &byte, 1, 0) == -1, EBADF);
	}
	close(pipes[0]);
	close(pipes[1]);
	EXPECT((fd = k->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) >= 0);
	EXPECT(k->fcntl(fd, F_GETFL) & O_NONBLOCK);
	EXPECT(k->fcntl(fd, F_GETFD) & FD_CLOEXEC);
	REFUSED(k->recv(fd, &byte, 1, 0) == -1, ENOTCONN);
	REFUSED(k->accept(fd, NULL, NULL) == -1, EINVAL);
	REFUSED(k->shutdown(fd, SHUT_WR), ENOTCONN);
	MUST(k->close(fd));
	REFUSED(k->close(fd), EBADF);
}

static atomic_int closing;

static void *closes(void *fd)
{
	atomic_fetch_add(&closing, 1);
	while (atomic_load(&closing) < 2)
		sched_yield();
	return (void *)(intptr_t)(k->close((int)(intptr_t)fd) == 0);
}

/* Of two threads that close a descriptor, one has closed it. */
static void racing_close(void)
{
	pthread_t threads[2];
	void *closed[2];

	for (int i = 0; i < 200; i++) {
		int fd = k->socket(AF_INET, SOCK_STREAM, 0);

		EXPECT(fd >= 0);
		atomic_store(&closing, 0);
		for (int j = 0; j < 2; j++)
			MUST(pthread_create(&threads[j], NULL, closes, (void *)(intptr_t)fd));
		for (int j = 0; j < 2; j++)
			MUST(pthread_join(threads[j], &closed[j]));
		EXPECT((closed[0] != NULL) + (closed[1] != NULL) == 1);
	}
}

static void *connects_later(void *at)
{
	int fd = k->socket(((struct sockaddr_storage *)at)->ss_family, SOCK_STREAM, 0);

	/* The other thread sleeps by then, as a rule; the case holds if not. */
	usleep(100000);
	MUST(k->connect(fd, at, sizeof(struct sockaddr_in6)));
	EXPECT(k->send(fd, "x", 1, 0) == 1);
	return (void *)(intptr_t)fd;
}

/* A thread that polls a listener hears of a connection at once. */
static void polled_listener(void)
{
	struct sockaddr_storage at;
	socklen_t length;
	pthread_t thread;
	void *client;
	char byte;
	int listener = listening(&at, &length), fd;
	long start = now_ms();

	EXPECT(polled(listener, POLLIN, 0) == 0);
	MUST(pthread_create(&thread, NULL, connects_later, &at));
	EXPECT(polled(listener, POLLIN, 60000) == POLLIN);
	EXPECT(now_ms() - start < SOON_MS);
	EXPECT((fd = k->accept(listener, NULL, NULL)) >= 0);
	EXPECT(k->recv(fd, &byte, 1, 0) == 1 && byte == 'x');
	MUST(pthread_join(thread, &client));
	MUST(k->fcntl(listener, F_SETFL, O_NONBLOCK));
	REFUSED(k->accept(listener, NULL, NULL) == -1, EAGAIN);
	MUST(k->close((int)(intptr_t)client));
	MUST(k->close(fd));
	MUST(k->close(listener));
}

static int socket_error(int fd)
{
	int error = -1;
	socklen_t length = sizeof error;

	MUST(k->getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
	return error;
}

/* Connecting without blocking: to a listener, and where there is none. */
static void nonblocking_connect(void)
{
	struct sockaddr_storage at;
	socklen_t length;
	int listener = listening(&at, &length), fd;

	EXPECT((fd = k->socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
	if (k->connect(fd, (struct sockaddr *)&at, length) != 0) {
		EXPECT(errno == EINPROGRESS);
		EXPECT(polled(fd, POLLOUT, 60000) == POLLOUT);
	}
	EXPECT(socket_error(fd) == 0);
	MUST(k->close(fd));
	MUST(k->close(listener));
	EXPECT((fd = k->socket(at.ss_family, SOCK_STREAM, 0)) >= 0);
	REFUSED(k->connect(fd, (struct sockaddr *)&at, length), ECONNREFUSED);
	MUST(k->close(fd));
	EXPECT((fd = k->socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
	if (k->connect(fd, (struct sockaddr *)&at, length) != 0 && errno == EINPROGRESS) {
		EXPECT(polled(fd, POLLOUT, 60000) & POLLERR);
		EXPECT(socket_error(fd) == ECONNREFUSED);
	}
	MUST(k->close(fd));
	EXPECT((fd = k->socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
	if (k->connect(fd, (struct sockaddr *)&at, length) != 0 && errno == EINPROGRESS) {
		EXPECT(polled(fd, POLLOUT, 60000) & POLLERR);
		REFUSED(k->connect(fd, (struct sockaddr *)&at, length), ECONNREFUSED);
		EXPECT(socket_error(fd) == 0);
	}
	MUST(k->close(fd));
}

/* At the limit of descriptors a connection waits until there is one for it. */
static void descriptor_limit(void)
{
	struct sockaddr_storage at;
	struct rlimit limit, none;
	socklen_t length;
	char byte;
	int listener = listening(&at, &length), client, fd;

	EXPECT((client = k->socket(at.ss_family, SOCK_STREAM, 0)) >= 0);
	MUST(k->connect(client, (struct sockaddr *)&at, length));
	EXPECT(polled(listener, POLLIN, 60000) == POLLIN);
	EXPECT((fd = dup(2)) >= 0);
	close(fd);
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	none = (struct rlimit){ .rlim_cur = (rlim_t)fd, .rlim_max = limit.rlim_max };
	MUST(setrlimit(RLIMIT_NOFILE, &none));
	REFUSED(k->accept(listener, NULL, NULL) == -1, EMFILE);
	MUST(setrlimit(RLIMIT_NOFILE, &limit));
	EXPECT((fd = k->accept(listener, NULL, NULL)) >= 0);
	EXPECT(k->send(client, "l", 1, 0) == 1);
	EXPECT(k->recv(fd, &byte, 1, 0) == 1 && byte == 'l');
	MUST(k->close(fd));
	MUST(k->close(client));
	MUST(k->close(listener));
}

/* Vectors and flags. */
static void vectors(void)
{
	char a[3], b[5], c[8] = "";
	struct iovec out[] = { { "ab", 2 }, { "", 0 }, { "cdef", 4 }, { "gh", 2 } };
	struct iovec in[] = { { a, sizeof a }, { b, sizeof b } };
	struct msghdr msg = { .msg_iov = out, .msg_iovlen = 4 };
	int ends[2];

	connected(ends);
	REFUSED(k->recv(ends[1], c, sizeof c, MSG_DONTWAIT) == -1, EAGAIN);
	EXPECT(k->writev(ends[0], out, 4) == 8);
	EXPECT(k->recv(ends[1], c, 8, MSG_PEEK | MSG_WAITALL) == 8 && memcmp(c, "abcdefgh", 8) == 0);
	EXPECT(k->recv(ends[1], c, 2, MSG_PEEK) == 2);
	EXPECT(k->readv(ends[1], in, 2) == 8 && memcmp(a, "abc", 3) == 0 && memcmp(b, "defgh", 5) == 0);
	/* A stream ignores the name. */
	msg.msg_name = c;
	msg.msg_namelen = sizeof c;
	EXPECT(k->sendmsg(ends[0], &msg, 0) == 8);
	msg = (struct msghdr){ .msg_iov = in, .msg_iovlen = 2 };
	EXPECT(k->recvmsg(ends[1], &msg, MSG_WAITALL) == 8 && memcmp(b, "defgh", 5) == 0);
	EXPECT(polled(ends[1], POLLIN | POLLOUT, 0) == POLLOUT);
	parted(ends);
}

/* Waits until a connection is over in the eyes of what carries it. */
static void over(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t length;

	do {
		length = sizeof info;
		MUST(k->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	} while (info.tcpi_state != TCP_CLOSE && usleep(1000) == 0);
}

/* Each direction ends for itself. */
static void halves(void)
{
	char bytes[8];
	int ends[2];

	connected(ends);
	/*
	 * A call that succeeds leaves errno as it was: rstream asks for it after rrecv has returned
	 * 0.
	 */
	errno = 0;
	EXPECT(polled(ends[1], POLLIN, 20) == 0 && errno == 0);
	EXPECT(k->send(ends[0], "last", 4, 0) == 4);
	MUST(k->shutdown(ends[0], SHUT_WR));
	REFUSED(k->send(ends[0], "x", 1, MSG_NOSIGNAL) == -1, EPIPE);
	EXPECT(k->recv(ends[1], bytes, 4, MSG_WAITALL) == 4 && memcmp(bytes, "last", 4) == 0);
	EXPECT(polled(ends[1], POLLIN, 60000) == POLLIN);
	EXPECT(k->recv(ends[1], bytes, 8, 0) == 0 && errno == EPIPE);
	EXPECT(k->send(ends[1], "still", 5, 0) == 5);
	EXPECT(k->recv(ends[0], bytes, 5, MSG_WAITALL) == 5 && memcmp(bytes, "still", 5) == 0);
	MUST(k->close(ends[1]));
	EXPECT(k->recv(ends[0], bytes, 8, 0) == 0);
	EXPECT(polled(ends[0], POLLIN | POLLOUT, 60000) & POLLHUP);
	/* An end that both have said is no error. */
	over(ends[0]);
	EXPECT(!(polled(ends[0], POLLIN | POLLOUT, 60000) & POLLERR));
	EXPECT(socket_error(ends[0]) == 0);
	MUST(k->close(ends[0]));
}

/* Bytes that were sent before the end arrive; then writing fails. */
static void closed_peer(void)
{
	static char bytes[BULK];
	int ends[2], tries = 0;
	ssize_t sent;

	connected(ends);
	pattern_fill(bytes, PIECE, 3, 0);
	EXPECT(k->send(ends[0], bytes, PIECE, 0) == PIECE);
	MUST(k->close(ends[0]));
	memset(bytes, 0, PIECE);
	/* Until the last byte is read there is something to read, and nothing wrong. */
	EXPECT(polled(ends[1], POLLIN, 60000) == POLLIN);
	EXPECT(k->recv(ends[1], bytes, PIECE, MSG_WAITALL) == PIECE);
	pattern_check(bytes, PIECE, 3, 0);
	EXPECT(k->recv(ends[1], bytes, 1, 0) == 0);
	do
		sent = k->send(ends[1], bytes, 1000, MSG_NOSIGNAL);
	while (sent > 0 && tries++ < 1000 && usleep(1000) == 0);
	EXPECT(sent == -1 && (errno == EPIPE || errno == ECONNRESET));
	MUST(k->close(ends[1]));
}

/* A full connection is not writable until the peer reads. */
static void full(void)
{
	static char bytes[BULK];
	size_t sent = 0, got = 0;
	ssize_t n;
	int ends[2];

	connected(ends);
	MUST(k->fcntl(ends[0], F_SETFL, O_NONBLOCK));
	pattern_fill(bytes, sizeof bytes, 5, 0);
	while ((n = k->send(ends[0], bytes + sent % PIECE, PIECE - sent % PIECE, 0)) > 0)
		sent += n;
	EXPECT(errno == EAGAIN && sent > 0);
	EXPECT(!(polled(ends[0], POLLOUT, 0) & POLLOUT));
	while (got < sent) {
		EXPECT((n = k->recv(ends[1], bytes, PIECE - got % PIECE, 0)) > 0);
		pattern_check(bytes, n, 5, got % PIECE);
		got += n;
	}
	EXPECT(polled(ends[0], POLLOUT, 60000) == POLLOUT);
	parted(ends);
}

static void *sends(void *fd)
{
	static const size_t pieces[] = { 1, 64, 65, 2048, 100000, 3, 65536, 500000 };
	char *bytes = malloc(BULK);
	size_t at = 0;

	pattern_fill(bytes, BULK, 7, 0);
	for (int i = 0; at < BULK; i++) {
		size_t n = pieces[i % 8] < BULK - at ? pieces[i % 8] : BULK - at;

		EXPECT(k->send((int)(intptr_t)fd, bytes + at, n, 0) == (ssize_t)n);
		at += n;
	}
	free(bytes);
	return NULL;
}

static void *receives(void *fd)
{
	char *bytes = malloc(PIECE);
	ssize_t n;

	for (size_t at = 0; at < BULK; at += n) {
		EXPECT((n = k->recv((int)(intptr_t)fd, bytes, PIECE, 0)) > 0);
		pattern_check(bytes, n, 7, at);
	}
	free(bytes);
	return NULL;
}

/* Both directions at once, with a thread for each end of each. */
static void both_ways(void)
{
	pthread_t threads[4];
	int ends[2];

	connected(ends);
	for (int i = 0; i < 4; i++)
		MUST(pthread_create(&threads[i], NULL, i < 2 ? sends : receives, (void *)(intptr_t)ends[i % 2]));
	for (int i = 0; i < 4; i++)
		MUST(pthread_join(threads[i], NULL));
	parted(ends);
}

/* Sockets and other descriptors in one call. */
static void mixed(void)
{
	struct timeval soon = { 60, 0 };
	int ends[2], pipes[2];
	fd_set readable;
	char byte;

	connected(ends);
	MUST(pipe(pipes));
	struct pollfd fds[] = { { ends[1], POLLIN, 0 }, { pipes[0], POLLIN, 0 }, { -1, POLLIN, 0 } };
	EXPECT(k->poll(fds, 3, 20) == 0);
	EXPECT(write(pipes[1], "p", 1) == 1);
	EXPECT(k->poll(fds, 3, 60000) == 1 && fds[1].revents == POLLIN && fds[0].revents == 0);
	EXPECT(k->send(ends[0], "s", 1, 0) == 1);
	EXPECT(read(pipes[0], &byte, 1) == 1);
	EXPECT(k->poll(fds, 3, 60000) == 1 && fds[0].revents == POLLIN && fds[1].revents == 0);
	FD_ZERO(&readable);
	FD_SET(ends[1], &readable);
	FD_SET(pipes[0], &readable);
	EXPECT(k->select((ends[1] > pipes[0] ? ends[1] : pipes[0]) + 1, &readable, NULL, NULL, &soon) == 1);
	EXPECT(FD_ISSET(ends[1], &readable) && !FD_ISSET(pipes[0], &readable));
	parted(ends);
	close(pipes[0]);
	close(pipes[1]);
}

static void last_poll(void *fd)
{
	char byte;

	EXPECT(polled((int)(intptr_t)fd, POLLIN, 20) == 0);
	EXPECT(k->send((int)(intptr_t)fd, "d", 1, 0) == 1);
	EXPECT(k->recv((int)(intptr_t)fd, &byte, 1, 0) == 1 && byte == 'e');
}

static pthread_key_t at_end;

static void *ends_with_a_call(void *fd)
{
	/* The destructor of a key runs after those of thread-local variables. */
	MUST(pthread_setspecific(at_end, fd));
	EXPECT(polled((int)(intptr_t)fd, POLLIN, 20) == 0);
	return NULL;
}

/* A thread may wait in its last moments. */
static void ending_thread(void)
{
	pthread_t thread;
	char byte;
	int ends[2];

	connected(ends);
	MUST(pthread_key_create(&at_end, last_poll));
	MUST(pthread_create(&thread, NULL, ends_with_a_call, (void *)(intptr_t)ends[0]));
	EXPECT(k->recv(ends[1], &byte, 1, 0) == 1 && byte == 'd');
	EXPECT(k->send(ends[1], "e", 1, 0) == 1);
	MUST(pthread_join(thread, NULL));
	MUST(pthread_key_delete(at_end));
	parted(ends);
}

static atomic_int caught;

static void catch(int signal)
{
	(void)signal;
	atomic_fetch_add(&caught, 1);
}

struct reader {
	int fd;
	bool polls;
	ssize_t result;
	int error;
	atomic_bool done;
};

static void *reads_one(void *argument)
{
	struct reader *reader = argument;
	struct pollfd one = { reader->fd, POLLIN, 0 };
	char byte;

	reader->result = reader->polls ? k->poll(&one, 1, -1) : k->recv(reader->fd, &byte, 1, 0);
	reader->error = errno;
	atomic_store(&reader->done, true);
	return NULL;
}

/* Signals come to a thread that waits to read, until its call ends or it has caught 50 of them. */
static void interrupted(struct reader *reader, int flags, int from)
{
	struct sigaction action = { .sa_handler = catch, .sa_flags = flags };
	pthread_t thread;

	MUST(sigaction(SIGUSR1, &action, NULL));
	atomic_store(&caught, 0);
	MUST(pthread_create(&thread, NULL, reads_one, reader));
	while (atomic_load(&caught) < 50 && !atomic_load(&reader->done)) {
		MUST(pthread_kill(thread, SIGUSR1));
		usleep(1000);
	}
	if (from >= 0)
		EXPECT(k->send(from, "r", 1, 0) == 1);
	MUST(pthread_join(thread, NULL));
}

/* A handler with SA_RESTART does not end a call that reads; every handler ends one that polls. */
static void signals(void)
{
	int ends[2];

	connected(ends);
	struct reader reader = { .fd = ends[1] }, restarted = reader, poller = { .fd = ends[1], .polls = true };
	interrupted(&restarted, SA_RESTART, ends[0]);
	EXPECT(restarted.result == 1 && atomic_load(&caught) >= 50);
	interrupted(&reader, 0, -1);
	EXPECT(reader.result == -1 && reader.error == EINTR);
	interrupted(&poller, SA_RESTART, -1);
	EXPECT(poller.result == -1 && poller.error == EINTR);
	parted(ends);
}

/*
 * Of librdmacm 65, whose header Debian does not have: looked up, since a program built here cannot
 * name them.
 */
static int (*create)(int), (*ctl)(int, int, int, struct epoll_event *), (*wait_for)(int, struct epoll_event *, int, int);

struct waiter {
	int ep, timeout, result;
	struct epoll_event got;
};

static void *waits(void *argument)
{
	struct waiter *waiter = argument;

	waiter->result = wait_for(waiter->ep, &waiter->got, 1, waiter->timeout);
	return NULL;
}

/*
 * What is ready has its turn however few events are taken at once; one of several threads is told
 * of EPOLLONESHOT.
 */
static void shared_repoll(void)
{
	struct epoll_event one = { .events = EPOLLIN, .data.u64 = 1 }, two = { .events = EPOLLIN, .data.u64 = 2 }, got[2];
	int a[2], b[2], ep;
	pthread_t threads[2];

	EXPECT((ep = create(0)) >= 0);
	MUST(pipe(a));
	MUST(pipe(b));
	MUST(ctl(ep, EPOLL_CTL_ADD, a[0], &one));
	MUST(ctl(ep, EPOLL_CTL_ADD, b[0], &two));
	EXPECT(write(a[1], "a", 1) == 1 && write(b[1], "b", 1) == 1);
	EXPECT(wait_for(ep, &got[0], 1, 0) == 1 && wait_for(ep, &got[1], 1, 0) == 1);
	EXPECT(got[0].data.u64 + got[1].data.u64 == 3);
	MUST(ctl(ep, EPOLL_CTL_DEL, b[0], NULL));
	one.events |= EPOLLONESHOT;
	for (int i = 0; i < 50; i++) {
		struct waiter waiters[] = { { .ep = ep, .timeout = 5 }, { .ep = ep, .timeout = 5 } };

		MUST(ctl(ep, EPOLL_CTL_MOD, a[0], &one));
		for (int j = 0; j < 2; j++)
			MUST(pthread_create(&threads[j], NULL, waits, &waiters[j]));
		for (int j = 0; j < 2; j++)
			MUST(pthread_join(threads[j], NULL));
		EXPECT(waiters[0].result + waiters[1].result == 1);
	}
	MUST(k->close(ep));
	for (int i = 0; i < 2; i++) {
		close(a[i]);
		close(b[i]);
	}
}

/*
 * A closed rsocket is no member any more: not for a thread that sleeps, and not for the next one
 * with its number.
 */
static void closed_member(void)
{
	struct epoll_event old = { .events = EPOLLIN, .data.u64 = 1 }, other = { .events = EPOLLIN, .data.u64 = 2 }, new = old;
	struct sockaddr_storage at;
	socklen_t length;
	int listener = listening(&at, &length), ends[2], pipes[2], fds[16], n = 0, member, accepted;
	struct waiter waiter = { .timeout = -1 };
	pthread_t thread;
	char byte;

	EXPECT((waiter.ep = create(0)) >= 0);
	connected(ends);
	MUST(pipe(pipes));
	member = ends[1];
	MUST(ctl(waiter.ep, EPOLL_CTL_ADD, member, &old));
	MUST(ctl(waiter.ep, EPOLL_CTL_ADD, pipes[0], &other));
	MUST(pthread_create(&thread, NULL, waits, &waiter));
	/* The other thread sleeps by then, as a rule; the case holds if not. */
	usleep(100000);
	MUST(k->close(member));
	do
		EXPECT(n < 16 && (fds[n] = k->socket(at.ss_family, SOCK_STREAM, 0)) >= 0);
	while (fds[n++] != member);
	MUST(k->connect(member, (struct sockaddr *)&at, length));
	EXPECT((accepted = k->accept(listener, NULL, NULL)) >= 0);
	new.data.u64 = 3;
	MUST(ctl(waiter.ep, EPOLL_CTL_ADD, member, &new));
	EXPECT(write(pipes[1], "p", 1) == 1);
	MUST(pthread_join(thread, NULL));
	EXPECT(waiter.result == 1 && waiter.got.data.u64 == 2);
	EXPECT(read(pipes[0], &byte, 1) == 1);
	EXPECT(k->send(accepted, "n", 1, 0) == 1);
	EXPECT(wait_for(waiter.ep, &waiter.got, 1, 60000) == 1 && waiter.got.data.u64 == 3);
	MUST(k->close(waiter.ep));
	MUST(k->close(ends[0]));
	MUST(k->close(accepted));
	MUST(k->close(listener));
	while (n > 0)
		MUST(k->close(fds[--n]));
	close(pipes[0]);
	close(pipes[1]);
}

static void repolled(void)
{
	struct epoll_event one = { .events = EPOLLIN, .data.u64 = 1 }, two = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 2 }, got[4];
	int ends[2], pipes[2], ep;

	create = dlsym(RTLD_DEFAULT, "repoll_create");
	ctl = dlsym(RTLD_DEFAULT, "repoll_ctl");
	wait_for = dlsym(RTLD_DEFAULT, "repoll_wait");
	EXPECT(create && ctl && wait_for && (ep = create(EPOLL_CLOEXEC)) >= 0);
	connected(ends);
	MUST(pipe(pipes));
	MUST(ctl(ep, EPOLL_CTL_ADD, ends[1], &one));
	MUST(ctl(ep, EPOLL_CTL_ADD, pipes[0], &two));
	REFUSED(ctl(ep, EPOLL_CTL_ADD, ends[1], &one), EEXIST);
	EXPECT(wait_for(ep, got, 4, 20) == 0);
	EXPECT(k->send(ends[0], "s", 1, 0) == 1);
	EXPECT(wait_for(ep, got, 4, 60000) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 1);
	EXPECT(write(pipes[1], "p", 1) == 1);
	EXPECT(wait_for(ep, got, 4, 60000) == 2);
	EXPECT(wait_for(ep, got, 4, 0) == 1 && got[0].data.u64 == 1);
	MUST(ctl(ep, EPOLL_CTL_MOD, pipes[0], &two));
	MUST(k->close(ends[1]));
	EXPECT(wait_for(ep, got, 4, 60000) == 1 && got[0].data.u64 == 2);
	REFUSED(ctl(ep, EPOLL_CTL_DEL, ends[1], NULL), ENOENT);
	MUST(k->close(ep));
	MUST(k->close(ends[0]));
	close(pipes[0]);
	close(pipes[1]);
}

/* Options that mean something to both. */
static void options(void)
{
	int ends[2], on = 1, value = 0;
	socklen_t length = sizeof value;

	connected(ends);
	MUST(k->setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	MUST(k->getsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &length));
	EXPECT(value == 1 && length == sizeof value);
	MUST(k->getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &value, &length));
	EXPECT(value == SOCK_STREAM);
	MUST(k->setsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	MUST(k->setsockopt(ends[0], IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on));
	REFUSED(k->getsockopt(ends[0], SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
	parted(ends);
}

/* What only rsockets have: memory that the peer writes to. */
static void iomaps(void)
{
	static char target[10000], source[10000];
	struct sockaddr_storage at;
	socklen_t length;
	int listener = listening(&at, &length), ends[2], entries = 4;
	char byte;

	EXPECT((ends[0] = rsocket(at.ss_family, SOCK_STREAM, 0)) >= 0);
	MUST(rsetsockopt(ends[0], SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries));
	MUST(rconnect(ends[0], (struct sockaddr *)&at, length));
	EXPECT((ends[1] = raccept(listener, NULL, NULL)) >= 0);
	/* The client has a table, so the server may map. */
	REFUSED(riomap(ends[0], source, sizeof source, PROT_WRITE, 0, 0) == -1, ENOMEM);
	EXPECT(riomap(ends[1], target, sizeof target, PROT_WRITE, 0, 500) == 500);
	EXPECT(rsend(ends[1], "m", 1, 0) == 1);
	EXPECT(rrecv(ends[0], &byte, 1, 0) == 1);
	pattern_fill(source, sizeof source, 9, 0);
	EXPECT(riowrite(ends[0], source, sizeof source, 499, 0) == 0);
	EXPECT(riowrite(ends[0], source, sizeof source, 500, 0) == sizeof source);
	EXPECT(rsend(ends[0], "w", 1, 0) == 1);
	EXPECT(rrecv(ends[1], &byte, 1, 0) == 1);
	pattern_check(target, sizeof target, 9, 0);
	REFUSED(riounmap(ends[1], target, 1), EINVAL);
	MUST(riounmap(ends[1], target, sizeof target));
	MUST(rclose(ends[0]));
	MUST(rclose(ends[1]));
	MUST(rclose(listener));
}

/* The private data of an rsocket, in the byte order of the network. */
struct greeting {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t reserved[3], iomaps;
	struct {
		uint64_t address;
		uint32_t key, length;
	} list, buffer;
};

/* Accepts an rsocket's connection, grants it credits, and posts no receive. */
static struct rdma_cm_id *accept_deaf(struct rdma_event_channel *channel, void *memory, uint32_t length)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct rdma_cm_id *id = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
	struct greeting greeting = { .version = 1, .credits = htons(16) };
	struct rdma_conn_param param = { .private_data = &greeting, .private_data_len = sizeof greeting, .rnr_retry_count = 7 };
	struct ibv_mr *mr;

	MUST(rdma_create_qp(id, NULL, &attr));
	MUST_PTR(mr = ibv_reg_mr(id->pd, memory, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	greeting.list.address = greeting.buffer.address = htobe64((uintptr_t)memory);
	greeting.list.key = greeting.buffer.key = htonl(mr->rkey);
	greeting.list.length = htonl(2);
	greeting.buffer.length = htonl(length);
	MUST(rdma_accept(id, &param));
	return id;
}

/* A peer that takes nothing does not hold rclose longer than the program says. */
static void deaf_peer(void)
{
	static char memory[4096];
	struct linger linger = { .l_onoff = 1, .l_linger = 1 }, read_back = { 0 };
	socklen_t length = sizeof read_back;
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *info;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id;
	long start, took;
	int fd;

	EXPECT(channel && getaddrinfo(host, NULL, &hints, &info) == 0);
	MUST(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, info->ai_addr));
	if (listener->verbs->device->transport_type == IBV_TRANSPORT_IWARP) {
		/* No sender waits there: a message without a receive ends the connection. */
		freeaddrinfo(info);
		MUST(rdma_destroy_id(listener));
		rdma_destroy_event_channel(channel);
		return;
	}
	MUST(rdma_listen(listener, 1));
	EXPECT((fd = rsocket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
	REFUSED(rconnect(fd, rdma_get_local_addr(listener), info->ai_addrlen), EINPROGRESS);
	freeaddrinfo(info);
	id = accept_deaf(channel, memory, sizeof memory);
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	EXPECT(polled(fd, POLLOUT, 60000) == POLLOUT);
	EXPECT(rsend(fd, "x", 1, 0) == 1);
	MUST(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	MUST(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &read_back, &length));
	EXPECT(length == sizeof read_back && read_back.l_onoff == 1 && read_back.l_linger == 1);
	start = now_ms();
	MUST(rclose(fd));
	took = now_ms() - start;
	EXPECT(took >= 900 && took < 1000 + SOON_MS);
	await(channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	MUST(rdma_destroy_id(id));
	MUST(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "misuse", misuse },
		{ "racing_close", racing_close },
		{ "polled_listener", polled_listener },
		{ "nonblocking_connect", nonblocking_connect },
		{ "descriptor_limit", descriptor_limit },
		{ "vectors", vectors },
		{ "halves", halves },
		{ "closed_peer", closed_peer },
		{ "full", full },
		{ "both_ways", both_ways },
		{ "mixed", mixed },
		{ "ending_thread", ending_thread },
		{ "signals", signals },
		{ "options", options },
	};

	if (argc != 2) {
		fprintf(stderr, "usage: rsockets ADDRESS\n");
		return 2;
	}
	host = argv[1];
	deadline(50);
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (k = kinds; k < kinds + 2; k++) {
			fprintf(stderr, "%s %s\n", cases[i].name, k->name);
			cases[i].run();
		}
	k = &kinds[1];
	iomaps();
	repolled();
	shared_repoll();
	closed_member();
	deaf_peer();
	puts("as the socket call does");
	return 0;
}
