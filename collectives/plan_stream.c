/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binomial tree of a gather or scatter, and cutting its streams.
 */
#include "plan_stream.h"

static bool gathers(const struct plan_shape *shape)
{
	return shape->operation == PLAN_OP_GATHER;
}

uint64_t stream_index(const struct plan_shape *shape)
{
	uint64_t n = (uint64_t)shape->n, rank = (uint64_t)shape->rank;
	uint64_t root = (uint64_t)shape->root;

	return (gathers(shape) ? rank + n - root : root + n - rank) % n;
}

int stream_rank(const struct plan_shape *shape, uint64_t v)
{
	uint64_t n = (uint64_t)shape->n, root = (uint64_t)shape->root;

	return (int)((gathers(shape) ? root + v : root + n - v) % n);
}

uint64_t stream_subtree(const struct plan_shape *shape, uint64_t v)
{
	uint64_t rest = (uint64_t)shape->n - v, low = v & -v;

	return v == 0 || low > rest ? rest : low;
}

uint64_t stream_end(const struct plan_shape *shape, uint64_t v)
{
	return gathers(shape) ? v + stream_subtree(shape, v)
			      : (uint64_t)shape->n - v;
}

static uint64_t block_at(const struct plan_shape *shape, uint64_t position,
			 uint64_t *off)
{
	uint64_t first = (uint64_t)shape->root + !gathers(shape);

	return plan_block(shape, (int)((first + position) % (uint64_t)shape->n),
			  off);
}

struct stream_piece stream_cut(const struct plan_shape *shape, uint64_t segment,
			       struct stream_cursor *cursor, uint64_t end)
{
	struct stream_piece piece = {.packed = cursor->packed};

	while (cursor->at < end) {
		uint64_t off, len = block_at(shape, cursor->at, &off);
		uint64_t more = len - cursor->in;

		if (more == 0) {
			cursor->at++;
			cursor->in = 0;
			continue;
		}
		off += cursor->in;
		if (piece.len == 0)
			piece.off = off;
		if (more > segment - piece.len)
			more = segment - piece.len;
		if (off != piece.off + piece.len || more == 0)
			break;
		piece.len += more;
		cursor->in += more;
		cursor->packed += more;
	}
	return piece;
}
