/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of our rails is joined to which of the peer's. The creating side
 * chooses and its offer names the pairs. Each rail is in one pair at most:
 * first those whose addresses are of one subnet, of these rails of one number,
 * in our order. If none are of one subnet (networks where each port has one of
 * its own) rails of one number are joined. A rail whose port is down is left
 * out as long as there is another.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>

struct choice {
	struct verbs_ctx *ctx;
	const struct conn_info *info;
	const struct rail_addresses *peer;
	unsigned ours, theirs; /* rails that are taken, a bit each */
	bool down;	       /* those whose port is down may be taken */
};

static bool is_usable(const struct rail *rail, bool down)
{
	return down ? !atomic_load(&rail->fatal) : rail_is_up(rail);
}

static int try_pair(const struct choice *c, unsigned i, unsigned j,
		    struct pair *pair)
{
	pair->path.self_rank = c->info->self_rank;
	pair->path.rank = c->info->rank;
	pair->rail = (uint8_t)i;
	pair->peer_rail = (uint8_t)j;
	return path_choose(&c->ctx->job->rail[i].port, &c->peer->rail[j],
			   &pair->path);
}

/* The best of what is left: 0 there is none; 1; 2 of one subnet. */
static int best_pair(const struct choice *c, struct pair *best)
{
	int best_score = 0;

	for (unsigned i = 0; i < c->ctx->nrails; i++) {
		if (c->ours >> i & 1 ||
		    !is_usable(&c->ctx->job->rail[i], c->down))
			continue;
		for (unsigned j = 0; j < c->peer->n; j++) {
			struct pair pair = {.rail = 0};
			int score;

			if (c->theirs >> j & 1 || try_pair(c, i, j, &pair))
				continue;
			score = 2 + 2 * path_one_subnet(&pair.path) + (i == j);
			if (score <= best_score)
				continue;
			best_score = score;
			*best = pair;
		}
	}
	return best_score / 2;
}

static unsigned choose(struct choice *c, struct pair pairs[RAILS_MAX])
{
	int first = best_pair(c, &pairs[0]), score = first;
	unsigned n = 0;

	while (score) {
		const struct pair *pair = &pairs[n];

		n++;
		c->ours |= 1u << pair->rail;
		c->theirs |= 1u << pair->peer_rail;
		if (n == RAILS_MAX)
			break;
		score = best_pair(c, &pairs[n]);
		if (score == 1 &&
		    (first == 2 || pairs[n].rail != pairs[n].peer_rail))
			break;
	}
	return n;
}

int pairs_choose(struct verbs_ctx *ctx, const struct conn_info *info,
		 const struct rail_addresses *peer,
		 struct pair pairs[RAILS_MAX])
{
	struct choice c = {.ctx = ctx, .info = info, .peer = peer};
	unsigned n = choose(&c, pairs);

	if (n)
		return (int)n;
	c.down = true;
	n = choose(&c, pairs);
	/* or else why the first two cannot */
	return n ? (int)n : try_pair(&c, 0, 0, &pairs[0]);
}

int pairs_accept(struct verbs_ctx *ctx, const struct conn_info *info,
		 const struct rail_addresses *peer,
		 const struct conn_offer *offer, struct pair pairs[RAILS_MAX])
{
	for (unsigned i = 0; i < offer->npairs; i++) {
		const struct pair_offer *from = &offer->pair[i];
		int err;

		if (from->to >= ctx->nrails || from->from >= peer->n)
			return vbn_fail(-EPROTO,
					"verbs: rank %d names a port that is "
					"not there",
					info->rank);
		pairs[i] = (struct pair){
			.path = {.self_rank = info->self_rank,
				 .rank = info->rank},
			.rail = from->to,
			.peer_rail = from->from,
		};
		err = path_accept(&ctx->job->rail[from->to].port,
				  &peer->rail[from->from], &from->qp,
				  &pairs[i].path);
		if (err)
			return err;
	}
	return offer->npairs;
}

int pairs_confirm(const struct verbs_conn *conn,
		  const struct conn_offer *answer)
{
	int err = 0;

	if (answer->npairs != conn->npairs)
		return vbn_fail(-EPROTO,
				"verbs: rank %d answers for %u ports, "
				"%u were offered",
				conn->rank, answer->npairs, conn->npairs);
	for (unsigned i = 0; i < conn->npairs && !err; i++)
		err = path_confirm(&conn->pair[i].path, &answer->pair[i].qp);
	return err;
}
