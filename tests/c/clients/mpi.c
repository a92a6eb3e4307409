/* Two or more ranks check every byte of point-to-point messages, collectives and one-sided
 * operations of MPI, then rank 0 says how fast messages are. Built by mpicc, run by mpirun. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (4 << 20)

static int rank, ranks;
static long checks;

static void must(int holds, const char *what, long at)
{
	checks++;
	if (!holds) {
		fprintf(stderr, "rank %d: %s is wrong at %ld\n", rank, what, at);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* The byte that a rank puts at a place of a message of a length. */
static unsigned char byte(int from, long length, long at)
{
	return (unsigned char)(from * 131 + length * 7 + at * 13 + (at >> 9));
}

static void fill(unsigned char *to, int from, long length)
{
	for (long at = 0; at < length; at++)
		to[at] = byte(from, length, at);
}

static void compare(const unsigned char *got, int from, long length, const char *what)
{
	for (long at = 0; at < length; at++)
		if (got[at] != byte(from, length, at))
			must(0, what, at);
	checks++;
}

/* Each rank sends to the next and receives from the one before, at every power of two, one byte
 * less and one more. */
static void messages(unsigned char *out, unsigned char *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

	for (long power = 1; power <= LONGEST; power *= 2)
		for (long length = power - 1; length <= power + 1 && length <= LONGEST; length++) {
			MPI_Request both[2];

			fill(out, rank, length);
			memset(in, 0, length);
			MPI_Irecv(in, length, MPI_BYTE, before, 1, MPI_COMM_WORLD, &both[0]);
			MPI_Isend(out, length, MPI_BYTE, next, 1, MPI_COMM_WORLD, &both[1]);
			MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
			compare(in, before, length, "a message");
		}
}

static void collectives(unsigned char *out, unsigned char *in)
{
	for (long length = 1; length <= LONGEST / ranks; length *= 8) {
		long number = 0;

		fill(out, rank, length);
		if (rank == 0)
			memcpy(in, out, length);
		MPI_Bcast(in, length, MPI_BYTE, 0, MPI_COMM_WORLD);
		compare(in, 0, length, "a broadcast");
		MPI_Allgather(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			compare(in + from * length, from, length, "a gather");
		for (int to = 0; to < ranks; to++)
			fill(out + to * length, rank + to * ranks, length);
		MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			compare(in + from * length, from + rank * ranks, length, "an exchange");
		number = rank + length;
		MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		must(number == ranks * length + ranks * (ranks - 1L) / 2, "a sum", length);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

static void one_sided(unsigned char *out, unsigned char *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	long one = 1, old = 0, *counter;
	MPI_Win bytes, counters;

	MPI_Win_create(in, LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &bytes);
	for (long length = 1; length <= LONGEST; length *= 4) {
		fill(out, rank, length);
		MPI_Win_fence(0, bytes);
		MPI_Put(out, length, MPI_BYTE, next, 0, length, MPI_BYTE, bytes);
		MPI_Win_fence(0, bytes);
		compare(in, before, length, "what was put");
		memset(out, 0, length);
		MPI_Win_fence(0, bytes);
		MPI_Get(out, length, MPI_BYTE, next, 0, length, MPI_BYTE, bytes);
		MPI_Win_fence(0, bytes);
		compare(out, rank, length, "what was got");
	}
	MPI_Win_free(&bytes);
	MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &counters);
	*counter = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, counters);
	for (int round = 0; round < 100; round++) {
		MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, counters);
		MPI_Win_flush(0, counters);
	}
	MPI_Win_unlock_all(counters);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counters);
	MPI_Get(&old, 1, MPI_LONG, 0, 0, 1, MPI_LONG, counters);
	MPI_Win_unlock(0, counters);
	must(old == 100L * ranks, "a counter", old);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&counters);
}

/* Half of a round trip, in seconds. */
static double half_trip(unsigned char *buffer, int length, int rounds)
{
	double begin = 0;

	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = -rounds / 10; round < rounds; round++) {
		if (round == 0)
			begin = MPI_Wtime();
		for (int half = 0; half < 2 && rank < 2; half++)
			if (half == rank)
				MPI_Send(buffer, length, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD);
			else
				MPI_Recv(buffer, length, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	return (MPI_Wtime() - begin) / rounds / 2;
}

int main(int argc, char **argv)
{
	unsigned char *out = malloc(LONGEST), *in = malloc(LONGEST);
	double small, large;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 2 || ranks < 2) {
		fprintf(stderr, "usage: mpi messages|collectives|one-sided, on 2 ranks at least\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	if (!strcmp(argv[1], "messages"))
		messages(out, in);
	else if (!strcmp(argv[1], "collectives"))
		collectives(out, in);
	else
		one_sided(out, in);
	small = half_trip(out, 8, 2000);
	large = half_trip(out, 1 << 20, 100);
	if (rank == 0)
		printf("%ld checks, 8 B %.2f us, 1 MiB %.2f GB/s\n", checks, small * 1e6, (1 << 20) / large / 1e9);
	MPI_Finalize();
	free(out);
	free(in);
	return 0;
}
