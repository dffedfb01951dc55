/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GUARD = 64 };
#define BLOCK_BYTES ((size_t)12 << 20)

bool block_make(struct test *t)
{
	if (posix_memalign((void **)&t->block, 1 << 21, BLOCK_BYTES))
		return false;
	memset(t->block, 0, BLOCK_BYTES);
	return vbn_mem_register(&t->block_mem, t->job, t->block, BLOCK_BYTES,
				VBN_ACCESS_ALL) == 0;
}

void block_drop(struct test *t)
{
	vbn_mem_deregister(t->block_mem);
	free(t->block);
}

/* Given back all at once, when the last user is gone. */
static char *block_take(struct test *t, size_t bytes)
{
	char *at = t->block + t->block_used;

	if (bytes > BLOCK_BYTES - t->block_used)
		return NULL;
	t->block_used += (bytes + 63) / 64 * 64;
	t->block_users++;
	return at;
}

static bool is_odd(enum memory memory)
{
	return memory == ODD || memory == ODD_POOL;
}

bool buffer_make(struct test *t, struct buffer *b, enum memory memory,
		 size_t bytes)
{
	size_t all = bytes + 2 * GUARD + 1;

	b->memory = memory;
	b->bytes = bytes;
	if (memory == POOL || memory == ODD_POOL)
		b->block = vbn_pool_alloc(t->pool, all, 0);
	else if (memory == REGISTERED)
		b->block = block_take(t, all);
	else
		b->block = malloc(all);
	if (!EXPECT(t, b->block != NULL))
		return false;
	memset(b->block, BUFFER_FILL, all);
	b->data = b->block + GUARD + (is_odd(memory) ? 1 : 0);
	return true;
}

void buffer_drop(struct test *t, struct buffer *b)
{
	const char *end = b->data + b->bytes;
	bool intact = true;

	for (int i = 0; i < GUARD; i++)
		intact &=
			b->data[-1 - i] == BUFFER_FILL && end[i] == BUFFER_FILL;
	EXPECT(t, intact);
	if (b->memory == POOL || b->memory == ODD_POOL)
		vbn_pool_free(t->pool, b->block);
	else if (b->memory != REGISTERED)
		free(b->block);
	else if (--t->block_users == 0)
		t->block_used = 0;
}

double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

int run(struct vbn_coll *coll)
{
	int err = vbn_coll_start(coll);

	return err ? err : vbn_coll_wait(coll, WAIT_MS);
}

uint64_t hash(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

struct vbn_comm *make_comm(struct test *t)
{
	struct vbn_comm *comm = NULL;

	EXPECT(t, vbn_comm_create(&comm, t->ctx, NULL, 0, NULL) == 0);
	return comm;
}
