/*
 * What a process has of the system, for programs that look whether it grows: descriptors, UDP
 * sockets, lines of /proc, resident memory.
 */
#ifndef FERROCE_TESTS_HOLDINGS_H
#define FERROCE_TESTS_HOLDINGS_H

#include "common.h"

#include <dirent.h>
#include <sys/socket.h>

/* Entries of a folder whose names have these letters. */
static unsigned int UNUSED entries(const char *folder, const char *with)
{
	DIR *dir;
	struct dirent *entry;
	unsigned int count = 0;

	MUST_PTR(dir = opendir(folder));
	while ((entry = readdir(dir)) != NULL)
		count += strstr(entry->d_name, with) != NULL;
	closedir(dir);
	return count;
}

/* Open descriptors of this process, and the same few entries besides each time. */
static unsigned int UNUSED descriptors(void)
{
	return entries("/proc/self/fd", "");
}

/*
 * The same, once there are no more than `most`, or after some seconds: the device's thread may be
 * about to close some.
 */
static unsigned int UNUSED descriptors_at_most(unsigned int most)
{
	unsigned int now = descriptors();

	for (int i = 0; now > most && i < 5000; i++) {
		usleep(1000);
		now = descriptors();
	}
	return now;
}

static bool is_udp(int fd)
{
	int type = 0, domain = 0;
	socklen_t len = sizeof type;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_DGRAM)
		return false;
	len = sizeof domain;
	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && (domain == AF_INET || domain == AF_INET6);
}

/* UDP sockets among the open descriptors of this process. */
static unsigned int UNUSED udp_sockets(void)
{
	DIR *dir;
	struct dirent *entry;
	unsigned int count = 0;

	MUST_PTR(dir = opendir("/proc/self/fd"));
	while ((entry = readdir(dir)) != NULL)
		count += is_udp(atoi(entry->d_name));
	closedir(dir);
	return count;
}

/* Says what the open descriptors are. */
static void UNUSED tell_descriptors(void)
{
	DIR *dir;
	struct dirent *entry;
	char path[300], what[300];
	ssize_t len;

	MUST_PTR(dir = opendir("/proc/self/fd"));
	while ((entry = readdir(dir)) != NULL) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		len = readlink(path, what, sizeof what - 1);
		if (len >= 0)
			fprintf(stderr, "%s %.*s\n", entry->d_name, (int)len, what);
	}
	closedir(dir);
}

/* Lines of a file that have these letters. */
static unsigned int UNUSED lines(const char *name, const char *with)
{
	FILE *file;
	char line[512];
	unsigned int count = 0;

	MUST_PTR(file = fopen(name, "re"));
	while (fgets(line, sizeof line, file) != NULL)
		count += strstr(line, with) != NULL;
	fclose(file);
	return count;
}

/* Resident memory of this process. */
static long UNUSED resident_kib(void)
{
	FILE *file;
	char line[128];
	long kib = -1;

	MUST_PTR(file = fopen("/proc/self/status", "re"));
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(file);
	EXPECT(kib > 0);
	return kib;
}

#endif
