/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times a collective of an MPI, for perf/compare-collectives, which compiles it
 * with each.
 *
 * usage: mpirun -n RANKS compare_mpi SECONDS OPERATION BYTES...
 */
#include "compare_cells.h"

#include <mpi.h>

struct cell {
	struct coll_shape shape;
	float *in, *out;
};

/* MPI's own handler ends the job with a message at any error. */
static int call(void *self)
{
	struct cell *c = self;
	int count = (int)c->shape.count;

	switch (c->shape.op) {
	case COLL_ALLREDUCE:
		return MPI_Allreduce(c->in, c->out, count, MPI_FLOAT, MPI_SUM,
				     MPI_COMM_WORLD);
	case COLL_REDUCE:
		return MPI_Reduce(c->in, c->out, count, MPI_FLOAT, MPI_SUM, 0,
				  MPI_COMM_WORLD);
	case COLL_BROADCAST:
		return MPI_Bcast(c->out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
	case COLL_ALLGATHER:
		return MPI_Allgather(c->in, count, MPI_FLOAT, c->out, count,
				     MPI_FLOAT, MPI_COMM_WORLD);
	case COLL_REDUCE_SCATTER:
		return MPI_Reduce_scatter_block(c->in, c->out, count, MPI_FLOAT,
						MPI_SUM, MPI_COMM_WORLD);
	case COLL_ALLTOALL:
		return MPI_Alltoall(c->in, count, MPI_FLOAT, c->out, count,
				    MPI_FLOAT, MPI_COMM_WORLD);
	case COLL_GATHER:
		return MPI_Gather(c->in, count, MPI_FLOAT, c->out, count,
				  MPI_FLOAT, 0, MPI_COMM_WORLD);
	case COLL_SCATTER:
		return MPI_Scatter(c->in, count, MPI_FLOAT, c->out, count,
				   MPI_FLOAT, 0, MPI_COMM_WORLD);
	default:
		return MPI_Barrier(MPI_COMM_WORLD);
	}
}

static int barrier(void *self)
{
	(void)self;
	return MPI_Barrier(MPI_COMM_WORLD);
}

static int largest(void *self, double mine, double *most)
{
	(void)self;
	return MPI_Allreduce(&mine, most, 1, MPI_DOUBLE, MPI_MAX,
			     MPI_COMM_WORLD);
}

static int check(struct cell *c)
{
	size_t wrong;

	compare_fill(c->in, &c->shape, c->shape.in);
	memset(c->out, 0xff, c->shape.out * sizeof(float));
	if (c->shape.op == COLL_BROADCAST && c->shape.rank == 0)
		compare_fill(c->out, &c->shape, c->shape.out);
	call(c);
	wrong = compare_wrong(c->out, &c->shape);
	if (wrong > 0)
		fprintf(stderr, "%zu elements are wrong\n", wrong);
	return wrong > 0;
}

static int measure(enum coll_op op, double seconds, size_t bytes)
{
	struct cell c;
	struct coll_loop loop = {call,		 barrier,	 largest, &c,
				 COLL_LOOP_AUTO, COLL_LOOP_AUTO, seconds};
	int rank, nranks;
	double each;
	size_t calls;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	c.shape = coll_shape_of(op, rank, nranks, bytes / sizeof(float));
	c.in = compare_buffer(c.shape.in);
	c.out = compare_buffer(c.shape.out);
	if (check(&c) != 0 || coll_loop_time(&loop, &each, &calls) != 0)
		return 1;
	if (rank == 0)
		printf("%zu %.3f\n", bytes, each * 1e6);
	free(c.in);
	free(c.out);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
		"allreduce",	  "reduce",   "broadcast", "allgather",
		"reduce-scatter", "alltoall", "gather",	   "scatter",
		"barrier"}; /* in the order of enum coll_op */
	int op = 0;

	MPI_Init(&argc, &argv);
	while (argc > 3 && op <= COLL_BARRIER &&
	       strcmp(argv[2], names[op]) != 0)
		op++;
	if (argc <= 3 || op > COLL_BARRIER)
		return 2;
	for (int i = 3; i < argc; i++)
		if (measure((enum coll_op)op, atof(argv[1]),
			    strtoull(argv[i], NULL, 10)))
			MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Finalize();
	return 0;
}
