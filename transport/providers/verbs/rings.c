/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of mailboxes: chunks that are registered for the peers' writes,
 * each cut into rings of one size. A connection begins with a small ring. One
 * that asks gets a large one until those are LARGE_TOTAL together; beyond, one
 * that needs it to send at all gets the least in which every message fits. So
 * all rings together take at most LARGE_TOTAL and 17 KiB a connection.
 *
 * A chunk without a ring in use is given back, unless it is the only one of its
 * size with room.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define CHUNK_BYTES RING_LARGE
#define LARGE_TOTAL ((uint32_t)16 << 20)

_Static_assert(CHUNK_BYTES / RING_SMALL <= 64, "a bit for each ring");
_Static_assert(RING_LARGE <= UNITS_MAX * MAILBOX_UNIT, "units have 12 bits");

int rings_init(struct verbs_ctx *ctx)
{
	int err = pthread_mutex_init(&ctx->rings.lock, NULL);

	return err ? vbn_fail(-err, "verbs: no lock for a context") : 0;
}

static void chunk_free(struct verbs_ctx *ctx, struct ring_chunk *chunk)
{
	register_free(ctx->job, chunk->mr);
	munmap(chunk->base, CHUNK_BYTES);
}

void rings_destroy(struct verbs_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->rings.n; i++)
		chunk_free(ctx, &ctx->rings.chunks[i]);
	free(ctx->rings.chunks);
	pthread_mutex_destroy(&ctx->rings.lock);
}

static uint64_t all_free(const struct ring_chunk *chunk)
{
	return UINT64_MAX >> (64 - CHUNK_BYTES / chunk->piece);
}

static int chunk_map(struct verbs_ctx *ctx, struct ring_chunk *chunk)
{
	int err;

	chunk->base = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (chunk->base == MAP_FAILED)
		return vbn_fail(-ENOMEM,
				"verbs: no memory for mailboxes (%u "
				"bytes)",
				CHUNK_BYTES);
	err = register_all(ctx->job, chunk->base, CHUNK_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			   "registering mailboxes", &chunk->mr);
	if (err)
		munmap(chunk->base, CHUNK_BYTES);
	return err;
}

static int chunk_add(struct verbs_ctx *ctx, uint32_t piece)
{
	struct ring_pool *pool = &ctx->rings;
	struct ring_chunk *chunk;
	int err;

	if (pool->n == pool->room) {
		unsigned room = pool->room ? 2 * pool->room : 16;

		chunk = realloc(pool->chunks, room * sizeof(*chunk));
		if (!chunk)
			return vbn_fail(-ENOMEM, "verbs: out of memory");
		pool->chunks = chunk;
		pool->room = room;
	}
	chunk = &pool->chunks[pool->n];
	err = chunk_map(ctx, chunk);
	if (err)
		return err;
	chunk->piece = piece;
	chunk->free = all_free(chunk);
	pool->n++;
	return 0;
}

/* Of rings of @piece bytes, with one free; any but number @but. */
static struct ring_chunk *with_room(struct ring_pool *pool, uint32_t piece,
				    unsigned but)
{
	for (unsigned i = 0; i < pool->n; i++) {
		struct ring_chunk *chunk = &pool->chunks[i];

		if (chunk->piece == piece && chunk->free && i != but)
			return chunk;
	}
	return NULL;
}

static int take(struct verbs_ctx *ctx, uint32_t piece, struct ring *ring)
{
	struct ring_chunk *chunk = with_room(&ctx->rings, piece, NO_INDEX);
	int err = chunk ? 0 : chunk_add(ctx, piece), bit;

	if (err)
		return err;
	if (!chunk)
		chunk = &ctx->rings.chunks[ctx->rings.n - 1];
	bit = __builtin_ctzll(chunk->free);
	chunk->free &= ~(1ull << bit);
	ring->base = chunk->base + (size_t)bit * piece;
	for (unsigned i = 0; i < ctx->nrails; i++)
		ring->rkey[i] = register_rkey(chunk->mr, i);
	ring->bytes = piece;
	return 0;
}

int ring_take(struct verbs_ctx *ctx, struct ring *ring)
{
	int err;

	pthread_mutex_lock(&ctx->rings.lock);
	err = take(ctx, RING_SMALL, ring);
	pthread_mutex_unlock(&ctx->rings.lock);
	return err;
}

static uint32_t large_bytes(const struct ring_pool *pool)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < pool->n; i++)
		if (pool->chunks[i].piece == RING_LARGE)
			sum += RING_LARGE;
	return sum;
}

int ring_take_large(struct verbs_ctx *ctx, bool needed, struct ring *ring)
{
	struct ring_pool *pool = &ctx->rings;
	int err = -ENOSPC;

	pthread_mutex_lock(&pool->lock);
	if (with_room(pool, RING_LARGE, NO_INDEX) ||
	    large_bytes(pool) < LARGE_TOTAL)
		err = take(ctx, RING_LARGE, ring);
	if (err && needed)
		err = take(ctx, RING_LEAST, ring);
	pthread_mutex_unlock(&pool->lock);
	return err;
}

void ring_give(struct verbs_ctx *ctx, struct ring *ring)
{
	struct ring_pool *pool = &ctx->rings;
	struct ring_chunk *chunk;

	if (!ring->base)
		return;
	pthread_mutex_lock(&pool->lock);
	chunk = pool->chunks;
	while (ring->base < chunk->base ||
	       ring->base >= chunk->base + CHUNK_BYTES)
		chunk++;
	chunk->free |= 1ull
		       << ((size_t)(ring->base - chunk->base) / chunk->piece);
	if (chunk->free == all_free(chunk) &&
	    with_room(pool, chunk->piece, (unsigned)(chunk - pool->chunks))) {
		chunk_free(ctx, chunk);
		*chunk = pool->chunks[--pool->n];
	}
	pthread_mutex_unlock(&pool->lock);
	ring->base = NULL;
}
