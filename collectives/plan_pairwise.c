/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairwise exchange: alltoall in n - 1 rounds, each part straight from who
 * has it to who wants it, so that at any time one rank puts to a rank. In
 * round k rank r puts to r + k and waits for what r - k puts. R. Thakur,
 * R. Rabenseifner, W. Gropp: Optimization of collective communication
 * operations in MPICH. Int. J. High Perform. Comput. Appl. 19(1), 2005.
 *
 * Parts of one length go into OUTPUT. Of a layout a rank does not know where
 * the peer has it: such parts go through landing slots, and so do they in
 * place. There the ranks of round k exchange: r with k - r, for which that is
 * r, n rounds in all. So what a copy out of the landing overwrites is what
 * the same turn has put, and that put is waited for.
 *
 * Parts are cut by their own length, which is all that both ranks know of
 * it. All ranks go through rounds and messages in the same order and put
 * before they wait: a window of 1 and one landing slot are enough.
 */
#include "plan.h"

enum { PUT, WAIT, COPY, PARTS };

static bool lands(const struct plan_page *page)
{
	return page->shape.layout || page->shape.in_place;
}

/* Of round @k, 1..n; the rank itself: there it copies its own part. */
static int peer_at(const struct plan_page *page, uint64_t k, bool put)
{
	uint64_t n = (uint64_t)page->shape.n, r = (uint64_t)page->shape.rank;

	if (page->shape.in_place)
		return (int)((n - r + k) % n);
	return (int)((put ? r + k : r + n - k) % n);
}

/* Message @i of a part: its length, 0 if there is none, and where it begins. */
static uint64_t message_at(const struct plan_page *page, uint64_t len,
			   uint64_t i, uint64_t *skip)
{
	uint64_t chunk = page->shape.chunk;
	uint64_t messages = len == 0 ? 0 : (len - 1) / chunk + 1;

	if (i >= messages)
		return 0;
	*skip = plan_part_off(len, messages, i);
	return plan_part_len(len, messages, i);
}

static bool put_step(const struct plan_page *page, struct plan_step *step)
{
	int peer = peer_at(page, page->round, true);
	uint64_t off, skip, part = plan_block_in(&page->shape, peer, &off);
	uint64_t len = message_at(page, part, page->iteration, &skip);

	if (len == 0)
		return false;
	step->kind = PLAN_PUT;
	step->peer = peer;
	step->len = len;
	step->src = PLAN_INPUT;
	step->src_off = off + skip;
	step->dst = PLAN_LANDING;
	if (page->shape.in_place)
		step->flags = PLAN_SYNC;
	if (!lands(page)) {
		step->dst = PLAN_OUTPUT;
		step->dst_off =
			(uint64_t)page->shape.rank * page->shape.count + skip;
	}
	return true;
}

static bool receive_step(const struct plan_page *page, struct plan_step *step)
{
	int peer = peer_at(page, page->round, false);
	bool wait = page->part == WAIT;
	uint64_t off, skip, part = plan_block(&page->shape, peer, &off);
	uint64_t len = message_at(page, part, page->iteration, &skip);

	if (len == 0 || !(wait || lands(page)))
		return false;
	step->kind = wait ? PLAN_WAIT : PLAN_COPY;
	step->peer = peer;
	step->len = len;
	step->src = PLAN_LANDING;
	step->dst = wait && lands(page) ? PLAN_LANDING : PLAN_OUTPUT;
	step->dst_off = step->dst == PLAN_OUTPUT ? off + skip : 0;
	if (!wait) {
		step->dep[0] = page->next - 1;
		if (page->shape.in_place) /* The put. */
			step->dep[1] = page->next - 2;
	}
	return true;
}

/* The part that stays; once. */
static bool own_step(const struct plan_page *page, struct plan_step *step)
{
	if (page->iteration > 0 || page->part != PUT)
		return false;
	step->kind = PLAN_COPY;
	step->src = PLAN_INPUT;
	step->dst = PLAN_OUTPUT;
	step->len = plan_block(&page->shape, page->shape.rank, &step->dst_off);
	plan_block_in(&page->shape, page->shape.rank, &step->src_off);
	return step->len > 0;
}

/* Elements of message 0 of what comes in round @k: the longest of them. */
static uint64_t comes(const struct plan_page *page, uint64_t k)
{
	uint64_t off;
	int peer = peer_at(page, k, false);
	uint64_t part = plan_block(&page->shape, peer, &off);

	return peer == page->shape.rank ? 0 : message_at(page, part, 0, &off);
}

static bool open_step(struct plan_page *page, struct plan_step *step)
{
	while (page->opens < (unsigned)page->shape.n) {
		uint64_t len = comes(page, ++page->opens);

		if (len == 0)
			continue;
		*step = plan_open(page, peer_at(page, page->opens, false),
				  lands(page) ? PLAN_LANDING : PLAN_OUTPUT);
		step->len = len;
		return true;
	}
	return false;
}

/* How many messages the longer of the round's two parts has. */
static uint64_t turns(const struct plan_page *page)
{
	uint64_t chunk = page->shape.chunk, off;
	uint64_t in = plan_block_in(&page->shape,
				    peer_at(page, page->round, true), &off);
	uint64_t out = plan_block(&page->shape,
				  peer_at(page, page->round, false), &off);
	uint64_t most = in > out ? in : out;

	return most == 0 ? 0 : (most - 1) / chunk + 1;
}

static void begin(struct plan_page *page)
{
	page->round = 1;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	if (open_step(page, step))
		return true;
	for (; page->round <= (unsigned)page->shape.n;
	     page->round++, page->iteration = 0) {
		bool own = peer_at(page, page->round, true) == page->shape.rank;

		for (; page->iteration < turns(page);
		     page->iteration++, page->part = PUT)
			while (page->part < PARTS) {
				bool has = own ? own_step(page, step)
					   : page->part == PUT
						   ? put_step(page, step)
						   : receive_step(page, step);

				page->part++;
				if (has)
					return true;
			}
	}
	return false;
}

static const struct plan_page_ops ops = {begin, next};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, &ops);
	return i == 0;
}

const struct plan_algo plan_pairwise_alltoall = {
	.phase = phase,
	.source =
		"Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
};
