/* usage: gloo RANK FOLDER DEVICE
 *
 * Sums arrays of two processes by Gloo over ibverbs, and checks each number. Two processes that get
 * the same empty FOLDER find each other. A thread of Gloo sleeps until completions come. */

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce_ring.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

static const int PROCESSES = 2;

/* Adds `count` numbers `rounds` times; the time of one round in µs. */
static double sum(const std::shared_ptr<gloo::Context> &context, size_t count, int rounds)
{
	auto &numbers = *new std::vector<long>(count);
	/* Never destroyed: Gloo does not wait for its last notification, and refuses to end before. */
	auto *reduce = new gloo::AllreduceRing<long>(context, {numbers.data()}, count);
	std::chrono::duration<double, std::micro> took{};

	for (int round = 0; round < rounds; round++) {
		for (size_t at = 0; at < count; at++)
			numbers[at] = (context->rank + 1) * (long)(at + round);
		auto begun = std::chrono::steady_clock::now();
		reduce->run();
		took += std::chrono::steady_clock::now() - begun;
		for (size_t at = 0; at < count; at++)
			if (numbers[at] != 3 * (long)(at + round)) {
				fprintf(stderr, "%zu numbers: %ld at %zu\n", count, numbers[at], at);
				exit(1);
			}
	}
	return took.count() / rounds;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	auto device = gloo::transport::ibverbs::CreateDevice({argv[3], 1, 0});
	gloo::rendezvous::FileStore store(argv[2]);
	auto *kept = new std::shared_ptr<gloo::rendezvous::Context>(std::make_shared<gloo::rendezvous::Context>(atoi(argv[1]), PROCESSES));
	auto &context = *kept;

	context->connectFullMesh(store, device);
	double small = sum(context, 1, 1000);
	double large = sum(context, 1 << 17, 50);
	printf("all sums verified, 8 B %.2f µs, 1 MiB %.2f µs\n", small, large);
	return 0;
}
