// The entry point of the image, linked statically: the image holds no C library and no shell.
// Copies /ferroce, which the programs of another container need, into a volume that both share.
// usage: install [FOLDER], by default /target
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static const char source[] = "/ferroce";
static const char *target = "/target";

static int failed(const char *path)
{
	fprintf(stderr, "install: %s: %s\n", path, strerror(errno));
	return 1;
}

static int copy_file(const char *from, const char *to, const struct stat *status)
{
	int in = open(from, O_RDONLY | O_CLOEXEC);
	if (in < 0)
		return failed(from);
	// A container that starts again finds what it has copied before.
	unlink(to);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, status->st_mode & 0777);
	if (out < 0)
		return failed(to);
	for (off_t left = status->st_size; left > 0;) {
		ssize_t copied = sendfile(out, in, NULL, (size_t)left);
		if (copied <= 0)
			return failed(to);
		left -= copied;
	}
	// Other users' programs load it, whatever the umask of this container.
	if (fchmod(out, status->st_mode & 0777) || close(out))
		return failed(to);
	close(in);
	return 0;
}

static int copy_link(const char *from, const char *to)
{
	char content[PATH_MAX] = {0};
	if (readlink(from, content, sizeof content - 1) < 0)
		return failed(from);
	unlink(to);
	return symlink(content, to) ? failed(to) : 0;
}

static int copy(const char *from, const struct stat *status, int kind, struct FTW *where)
{
	(void)where;
	char to[PATH_MAX];
	if (snprintf(to, sizeof to, "%s%s", target, from + strlen(source)) >= (int)sizeof to) {
		errno = ENAMETOOLONG;
		return failed(from);
	}
	if (kind == FTW_D)
		return mkdir(to, 0755) && errno != EEXIST ? failed(to) : 0;
	if (kind == FTW_SL)
		return copy_link(from, to);
	if (kind == FTW_F)
		return copy_file(from, to, status);
	return failed(from);
}

int main(int count, char **words)
{
	if (count > 1)
		target = words[1];
	return nftw(source, copy, 16, FTW_PHYS) ? 1 : 0;
}
