/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks know of each other: only pairs that talk take memory, however
 * many ranks there are.
 */
#include "sim_impl.h"

#include <errno.h>
#include <stdlib.h>

static struct sim_peer **find(struct sim_peer **peers, unsigned room,
			      int number)
{
	unsigned at = (unsigned)number * 2654435761u & (room - 1);

	while (peers[at] && peers[at]->peer != number)
		at = (at + 1) & (room - 1);
	return &peers[at];
}

static int make_room(struct sim_rank *rank)
{
	unsigned room = rank->peer_room ? 2 * rank->peer_room : 8;
	struct sim_peer **peers;

	if (2 * (rank->peer_count + 1) <= rank->peer_room)
		return 0;
	peers = calloc(room, sizeof(struct sim_peer *));
	if (!peers)
		return -ENOMEM;
	for (unsigned i = 0; i < rank->peer_room; i++)
		if (rank->peers[i])
			*find(peers, room, rank->peers[i]->peer) =
				rank->peers[i];
	free(rank->peers);
	rank->peers = peers;
	rank->peer_room = room;
	return 0;
}

static struct sim_peer *make(struct sim_rank *rank, int number)
{
	struct sim_peer *peer;

	if (make_room(rank))
		return NULL;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->landings = calloc(rank->sim->opts->slots, sizeof(struct landed));
	if (!peer->landings) {
		free(peer);
		return NULL;
	}
	peer->rank = rank;
	peer->peer = number;
	peer->credits = rank->sim->opts->slots;
	if (rank->sim->opts->warm) {
		peer->opened = OPENED;
		peer->opened_len = UINT64_MAX;
		if (rank->sim->greets)
			peer->opened |= OPENED_OUTPUT | OPENED_READ;
	}
	*find(rank->peers, rank->peer_room, number) = peer;
	rank->peer_count++;
	return peer;
}

struct sim_peer *sim_peer_get(struct sim_rank *rank, int number)
{
	struct sim_peer *peer = NULL, *other;

	if (rank->peer_room)
		peer = *find(rank->peers, rank->peer_room, number);
	if (peer)
		return peer;
	peer = make(rank, number);
	other = peer ? make(&rank->sim->ranks[number], rank->rank) : NULL;
	if (!other)
		return NULL; /* half a pair: the run ends with -ENOMEM */
	peer->other = other;
	other->other = peer;
	return peer;
}

int sim_push_message(struct sim_peer *peer, const struct message *message)
{
	/* Waits reach back a window at most. */
	if (peer->exec.waits > EXEC_WINDOW &&
	    peer->first < peer->exec.waits - EXEC_WINDOW)
		peer->first = peer->exec.waits - EXEC_WINDOW;
	if (peer->end - peer->first >= peer->room) {
		uint64_t room = peer->room ? 2 * peer->room : 2;
		struct message *ring = malloc(room * sizeof(*ring));

		if (!ring)
			return -ENOMEM;
		for (uint64_t i = peer->first; i < peer->end; i++)
			ring[i % room] = peer->messages[i % peer->room];
		free(peer->messages);
		peer->messages = ring;
		peer->room = room;
	}
	peer->messages[peer->end++ % peer->room] = *message;
	return 0;
}

void sim_free_peers(struct sim_rank *rank)
{
	for (unsigned i = 0; i < rank->peer_room; i++) {
		struct sim_peer *peer = rank->peers[i];

		if (!peer)
			continue;
		for (unsigned s = 0; s < rank->sim->opts->slots; s++)
			free(peer->landings[s].memory);
		free(peer->messages);
		free(peer->landings);
		free(peer);
	}
	free(rank->peers);
}
