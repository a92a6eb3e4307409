/*
 * Takes slots as processes with an open device would. For programs in a network namespace where
 * nobody else uses a device.
 */
#ifndef FERROCE_TESTS_SLOTS_H
#define FERROCE_TESTS_SLOTS_H

#include "common.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Processes that can have a device open in a network namespace. */
enum { SLOTS = 1023 };

/* Takes one: the kernel gives a name once. */
static int take(unsigned long slot)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ferroce/slot/%lu", slot);

	EXPECT(fd >= 0);
	MUST(bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)));
	MUST(listen(fd, SOMAXCONN));
	return fd;
}

/*
 * Accepts and ends the connections to taken slots, as a device thread does with a process that only
 * asks for the owner.
 */
static void *UNUSED answer(void *epoll)
{
	for (;;) {
		struct epoll_event event;

		if (epoll_wait((int)(intptr_t)epoll, &event, 1, -1) == 1) {
			int connection = accept(event.data.fd, NULL, NULL);

			if (connection >= 0)
				close(connection);
		}
	}
	return NULL;
}

/*
 * Takes all but the first so many, for as long as the process lives. The descriptor of the last
 * one.
 */
static int UNUSED take_all_but(unsigned long free)
{
	struct rlimit files;
	int last = -1, epoll = epoll_create1(EPOLL_CLOEXEC);
	pthread_t thread;

	EXPECT(epoll >= 0);
	MUST(getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &files));
	for (unsigned long slot = free + 1; slot <= SLOTS; slot++) {
		struct epoll_event event = { .events = EPOLLIN };

		event.data.fd = last = take(slot);
		MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, last, &event));
	}
	EXPECT(pthread_create(&thread, NULL, answer, (void *)(intptr_t)epoll) == 0);
	return last;
}

#endif
