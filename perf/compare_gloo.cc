// SPDX-License-Identifier: BSD-3-Clause
//
// Times Gloo's allreduce between processes of this machine, for
// perf/compare-collectives: the best of its ring, its chunked ring and its
// halving and doubling, over TCP on the loopback interface, which is what it
// has within a machine. Each rank is a process; its sums are in place.
//
// usage: compare_gloo RANKS DIRECTORY SECONDS BYTES...
//   DIRECTORY  empty, for the ranks to find each other
#include "compare_cells.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

using Context = std::shared_ptr<gloo::rendezvous::Context>;

// Connections without a thread for events are faster; but two ranks that send
// each other more than their sockets hold would wait for one another.
constexpr size_t direct_bytes = 4 << 20;

// threaded: for large sizes, and for what is around the measurement.
struct ranks {
	Context threaded;
	std::vector<Context> direct;
};

// One algorithm at one size.
struct cell {
	const ranks &among;
	std::unique_ptr<gloo::Algorithm> algorithm;
};

int call(void *self)
{
	static_cast<cell *>(self)->algorithm->run();
	return 0;
}

int barrier(void *self)
{
	gloo::BarrierOptions options(static_cast<cell *>(self)->among.threaded);

	gloo::barrier(options);
	return 0;
}

int largest(void *self, double mine, double *most)
{
	gloo::AllreduceOptions options(
		static_cast<cell *>(self)->among.threaded);

	*most = mine;
	options.setOutput(most, 1);
	options.setReduceFunction(
		[](void *a, const void *b, const void *c, size_t n) {
			gloo::max<double>(a, b, c, n);
		});
	gloo::allreduce(options);
	return 0;
}

void check(cell &c, float *data, const coll_shape &shape)
{
	size_t wrong;

	compare_fill(data, &shape, shape.out);
	call(&c);
	wrong = compare_wrong(data, &shape);
	if (wrong > 0) {
		fprintf(stderr, "%zu elements are wrong\n", wrong);
		exit(1);
	}
	// Each call sums the sums: zeros stay zeros.
	memset(data, 0, shape.out * sizeof(float));
}

template <typename Algorithm>
double time_over(const ranks &among, const Context &context, float *data,
		 const coll_shape &shape, double seconds)
{
	std::vector<float *> buffers = {data};
	cell c = {among,
		  std::make_unique<Algorithm>(context, buffers,
					      static_cast<int>(shape.count))};
	coll_loop loop = {call,		  barrier,	  largest, &c,
			  COLL_LOOP_AUTO, COLL_LOOP_AUTO, seconds};
	double each;
	size_t calls;

	check(c, data, shape);
	coll_loop_time(&loop, &each, &calls);
	return each;
}

// The plain ring, which sends a rank's whole part at once, loses by far where
// that is much.
double best_over(const ranks &among, const Context &context, float *data,
		 const coll_shape &shape, double seconds)
{
	double best = std::min(time_over<gloo::AllreduceRingChunked<float>>(
				       among, context, data, shape, seconds),
			       time_over<gloo::AllreduceHalvingDoubling<float>>(
				       among, context, data, shape, seconds));

	if (context == among.threaded)
		return best;
	return std::min(best, time_over<gloo::AllreduceRing<float>>(
				      among, context, data, shape, seconds));
}

void measure(const ranks &among, double seconds, size_t bytes)
{
	coll_shape shape =
		coll_shape_of(COLL_ALLREDUCE, among.threaded->rank,
			      among.threaded->size, bytes / sizeof(float));
	float *data = compare_buffer(shape.out);
	std::vector<Context> over = among.direct;
	std::vector<double> each;

	if (bytes > direct_bytes)
		over = {among.threaded};
	for (const Context &context : over)
		each.push_back(best_over(among, context, data, shape, seconds));
	if (shape.rank == 0)
		printf("%zu %.3f\n", bytes,
		       *std::min_element(each.begin(), each.end()) * 1e6);
	fflush(stdout);
	free(data);
}

Context connect(int rank, int nranks, const std::string &path,
		const char *prefix)
{
	gloo::transport::tcp::attr attr;
	gloo::rendezvous::FileStore files(path);
	gloo::rendezvous::PrefixStore store(prefix, files);
	auto context =
		std::make_shared<gloo::rendezvous::Context>(rank, nranks);

	attr.iface = "lo";
	auto device = gloo::transport::tcp::CreateDevice(attr);
	context->connectFullMesh(store, device);
	return context;
}

Context connect_direct(int rank, int nranks, const std::string &path,
		       bool polls)
{
	Context context =
		connect(rank, nranks, path, polls ? "polling" : "sleeping");

	for (int i = 0; i < nranks; i++)
		if (i != rank)
			context->getPair(i)->setSync(true, polls);
	return context;
}

void run(int rank, int nranks, const std::string &path, char **arguments)
{
	ranks among = {connect(rank, nranks, path, "threaded"),
		       {connect_direct(rank, nranks, path, false)}};

	if (static_cast<unsigned>(nranks) <=
	    std::thread::hardware_concurrency())
		among.direct.push_back(
			connect_direct(rank, nranks, path, true));
	for (char **size = arguments + 1; *size; size++)
		measure(among, atof(arguments[0]),
			strtoull(*size, nullptr, 10));
}

} // namespace

int main(int argc, char **argv)
{
	int nranks = argc > 4 ? atoi(argv[1]) : 0, rank = 0, status, bad = 0;

	if (nranks < 1)
		return 2;
	while (rank < nranks - 1 && fork() != 0)
		rank++;
	run(rank, nranks, argv[2], argv + 3);
	if (rank != nranks - 1)
		return 0;
	while (wait(&status) > 0)
		bad |= status;
	return bad != 0;
}
