/* usage: iser PORTAL TARGET INITIATOR
 *
 * Logs in to a target by libiscsi over iSER, writes logical unit 1 full in tasks of 64 KiB, reads
 * it back and compares each byte. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

enum { LUN = 1, BLOCK = 512, TASK = 64 << 10, SIZE = 8 << 20 };

static struct iscsi_context *session;

static void must(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "%s: %s\n", what, iscsi_get_error(session));
		exit(1);
	}
}

static unsigned char byte_at(size_t at)
{
	return at * 31 + at / 509;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static struct scsi_task *good(struct scsi_task *task, const char *what)
{
	must(task && task->status == SCSI_STATUS_GOOD, what);
	return task;
}

static void write_task(size_t from)
{
	static unsigned char bytes[TASK];
	size_t at;

	for (at = 0; at < TASK; at++)
		bytes[at] = byte_at(from + at);
	scsi_free_scsi_task(good(iscsi_write10_sync(session, LUN, from / BLOCK, bytes, TASK, BLOCK,
						    0, 0, 0, 0, 0), "write"));
}

static void read_task(size_t from)
{
	struct scsi_task *task = good(iscsi_read10_sync(session, LUN, from / BLOCK, TASK, BLOCK,
							0, 0, 0, 0, 0), "read");
	size_t at;

	must(task->datain.size == TASK, "length of a read");
	for (at = 0; at < TASK; at++)
		must(task->datain.data[at] == byte_at(from + at), "bytes of a read");
	scsi_free_scsi_task(task);
}

static double each_task(void (*task)(size_t))
{
	double begun = now();
	size_t from;

	for (from = 0; from < SIZE; from += TASK)
		task(from);
	return SIZE / (now() - begun) / 1e6;
}

int main(int argc, char **argv)
{
	double written, read;

	if (argc != 4)
		return 2;
	session = iscsi_create_context(argv[3]);
	must(!iscsi_init_transport(session, ISER_TRANSPORT), "transport");
	must(!iscsi_set_targetname(session, argv[2]), "name of the target");
	must(!iscsi_set_session_type(session, ISCSI_SESSION_NORMAL), "type of session");
	must(!iscsi_full_connect_sync(session, argv[1], LUN), "login");
	written = each_task(write_task);
	read = each_task(read_task);
	must(!iscsi_logout_sync(session), "logout");
	printf("%d bytes verified, WRITE %.2f MB/s, READ %.2f MB/s\n", SIZE, written, read);
	return 0;
}
