/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who is where, found out through the job's key-value store when a call takes
 * long or members disagree. Each member has one key per communicator, which
 * it replaces: {seq of its call, description, members that it has heard from
 * in that call}. The last is what tells of a member that has returned
 * already, a broadcast's root say, which publishes nothing. A member that could
 * not create the communicator says that there.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEARD_MOST = 64 };

/* A store that answers later than this has trouble of its own. */
#define STORE_SLOW_MS 100

/* What a member has sent before it went on has come after this. */
#define PASSED_MS 1000

#define UNCREATED "rank %d could not create the communicator: %s"

struct arrival {
	uint32_t failed; /* 1: to create it; what: why */
	uint32_t seq;
	uint32_t digest;
	uint32_t heard_count;
	uint32_t heard[HEARD_MOST];
	char what[128];
};

static void key_of(uint64_t uid, int member, char *key, size_t room)
{
	snprintf(key, room, "coll/%016llx/%d", (unsigned long long)uid, member);
}

static bool heard_from(const struct peer *peer, uint32_t seq)
{
	return peer->seen && (int32_t)(peer->seen_seq - seq) >= 0;
}

static void publish(struct vbn_comm *comm, uint32_t seq)
{
	struct arrival arrival = {.seq = seq};
	char key[64];

	if ((int32_t)(seq - comm->seq) < 0) {
		const struct call *call = comm_call(comm, seq);

		arrival.digest = wire_digest(call);
		call_describe(call, arrival.what, sizeof(arrival.what));
	} else {
		snprintf(arrival.what, sizeof(arrival.what), "no call yet");
	}
	for (struct peer *peer = comm->peers; peer; peer = peer->next)
		if (heard_from(peer, seq) && arrival.heard_count < HEARD_MOST)
			arrival.heard[arrival.heard_count++] =
				(uint32_t)peer->member;
	key_of(comm->uid, comm->rank, key, sizeof(key));
	/* Best effort: a report without us is better than none. */
	(void)vbn_job_set(comm->job, key, &arrival, sizeof(arrival), 100);
	comm->published = true;
}

void report_arrival(struct vbn_coll *coll)
{
	if (coll->published)
		return;
	coll->published = true;
	publish(coll->comm, coll->seq);
}

void report_uncreated(struct vbn_job *job, uint64_t uid, int member)
{
	struct arrival arrival = {.failed = 1};
	char key[64], why[COMM_WHY];

	snprintf(why, sizeof(why), "%s", vbn_error());
	memcpy(arrival.what, why, sizeof(arrival.what) - 1);
	key_of(uid, member, key, sizeof(key));
	/* Best effort: else it is one that has not arrived. */
	if (vbn_job_set(job, key, &arrival, sizeof(arrival), 100))
		(void)vbn_fail(0, "%s", why);
}

static bool fetch(struct vbn_comm *comm, int member, struct arrival *arrival)
{
	size_t len = sizeof(*arrival);
	char key[64];

	key_of(comm->uid, member, key, sizeof(key));
	if (vbn_job_get(comm->job, key, arrival, &len, 0) ||
	    len != sizeof(*arrival) || arrival->heard_count > HEARD_MOST)
		return false;
	arrival->what[sizeof(arrival->what) - 1] = '\0';
	return true;
}

/*
 * Whether the peer's call differs from ours, or it is through with ours and
 * still owes us something, which is no longer on its way.
 */
static bool differs(const struct vbn_coll *coll, struct peer *peer,
		    const struct arrival *arrival)
{
	bool again = peer->passed_at_ms && peer->passed_seq == coll->seq;

	if (arrival->seq == coll->seq)
		return arrival->digest != coll->digest;
	if ((int32_t)(arrival->seq - coll->seq) < 0)
		return false;
	if (again)
		return coll_now_ms() - peer->passed_at_ms >= PASSED_MS;
	peer->passed_seq = coll->seq;
	peer->passed_at_ms = coll_now_ms();
	return false;
}

void report_compare(struct vbn_coll *coll)
{
	struct vbn_comm *comm = coll->comm;
	struct peer *next;

	if (coll->state != COLL_RUNNING)
		return;
	for (struct peer *peer = comm->peers; peer && !comm->error;
	     peer = next) {
		uint64_t asked = coll_now_ms();
		struct arrival arrival;

		next = peer->next;
		if (!comm_needs(comm, peer))
			continue;
		if (fetch(comm, peer->member, &arrival)) {
			if (arrival.failed)
				comm_fail(comm, -ECANCELED, UNCREATED,
					  comm->ranks[peer->member],
					  arrival.what);
			else if (differs(coll, peer, &arrival))
				wire_disagree(comm, peer, coll->seq);
		}
		if (coll_now_ms() - asked > STORE_SLOW_MS)
			break; /* the deadline is not the store's to spend */
	}
}

/*
 * One look at all members not yet known of. Returns how many are unknown;
 * @failed: what the first says who could not create the communicator.
 */
static int look(struct vbn_comm *comm, uint32_t seq, bool *known,
		uint64_t deadline, char *failed, size_t room)
{
	int unknown = 0;

	for (int i = 0; i < comm->n; i++) {
		struct arrival arrival;

		if (known[i] || coll_now_ms() >= deadline)
			continue;
		if (!fetch(comm, i, &arrival))
			continue;
		if (arrival.failed && !failed[0])
			snprintf(failed, room, UNCREATED, comm->ranks[i],
				 arrival.what);
		if (arrival.failed || (int32_t)(arrival.seq - seq) < 0)
			continue;
		known[i] = true;
		for (uint32_t k = 0; k < arrival.heard_count; k++)
			if (arrival.heard[k] < (uint32_t)comm->n)
				known[arrival.heard[k]] = true;
	}
	for (int i = 0; i < comm->n; i++)
		unknown += !known[i];
	return unknown;
}

static void list_ranks(const struct vbn_comm *comm, const bool *listed,
		       bool value, char *text, size_t room)
{
	size_t at = 0;

	text[0] = '\0';
	for (int i = 0; i < comm->n; i++) {
		if (listed[i] != value)
			continue;
		if (at + 24 > room) {
			snprintf(text + at, room - at, ", ...");
			return;
		}
		at += (size_t)snprintf(text + at, room - at, "%s%d",
				       at ? ", " : "", comm->ranks[i]);
	}
}

void report_missing(struct vbn_coll *coll, char *text, size_t room)
{
	struct vbn_comm *comm = coll->comm;
	uint64_t deadline = coll_now_ms() + 300;
	bool *known = calloc((size_t)comm->n, sizeof(*known));
	const struct exec_entry *entry =
		comm->quick ? NULL : exec_oldest(&comm->exec);
	char ranks[200], failed[200] = "";
	int unknown;

	snprintf(text, room, "it is not known who has not arrived");
	if (!known)
		return;
	report_arrival(comm->first); /* not a later one */
	known[comm->rank] = true;
	for (struct peer *peer = comm->peers; peer; peer = peer->next)
		known[peer->member] |= heard_from(peer, coll->seq);
	do {
		unknown = look(comm, coll->seq, known, deadline, failed,
			       sizeof(failed));
		if (unknown && !failed[0])
			vbn_ctx_wait(comm->ctx, 20);
	} while (unknown && !failed[0] && coll_now_ms() < deadline);
	if (failed[0]) {
		snprintf(text, room, "%s", failed);
	} else if (unknown) {
		list_ranks(comm, known, false, ranks, sizeof(ranks));
		snprintf(text, room, "not arrived: rank %s", ranks);
	} else if (entry && entry->peer) {
		snprintf(text, room,
			 "all members have arrived; slow or stopped: rank %d",
			 comm->ranks[entry->step.peer]);
	} else {
		snprintf(text, room, "all members have arrived");
	}
	free(known);
}

/* ---- disagreement ---- */

struct statement {
	bool known;
	char what[128];
};

static int collect(struct vbn_comm *comm, struct statement *all,
		   uint64_t deadline)
{
	int unknown = 0;

	for (int i = 0; i < comm->n; i++) {
		struct arrival arrival;

		if (all[i].known)
			continue;
		if (coll_now_ms() < deadline && fetch(comm, i, &arrival) &&
		    !arrival.failed && arrival.seq == comm->fault_seq) {
			all[i].known = true;
			memcpy(all[i].what, arrival.what, sizeof(arrival.what));
		}
		unknown += !all[i].known;
	}
	return unknown;
}

/* "rank 0, 1: barrier; rank 2: ..." */
static void compose(struct vbn_comm *comm, const struct statement *all)
{
	size_t at = (size_t)snprintf(comm->why, sizeof(comm->why),
				     "the members' calls %u differ",
				     comm->fault_seq);
	bool *group = calloc((size_t)comm->n, 2 * sizeof(*group));
	bool *done = group ? group + comm->n : NULL;

	for (int i = 0; group && i < comm->n; i++) {
		char ranks[100];

		if (done[i])
			continue;
		for (int j = 0; j < comm->n; j++) {
			group[j] = !strcmp(all[i].what, all[j].what);
			done[j] |= group[j];
		}
		list_ranks(comm, group, true, ranks, sizeof(ranks));
		if (at + 1 < sizeof(comm->why))
			at += (size_t)snprintf(comm->why + at,
					       sizeof(comm->why) - at,
					       "%s rank %s: %s", i ? ";" : ":",
					       ranks, all[i].what);
	}
	free(group);
}

void report_disagreement(struct vbn_comm *comm)
{
	struct statement *all;
	uint64_t deadline = coll_now_ms() + 500;

	if (comm->reported || comm->error != -EPROTO || !comm->shared->ctx)
		return;
	comm->reported = true;
	publish(comm, comm->fault_seq);
	all = calloc((size_t)comm->n, sizeof(*all));
	if (!all)
		return;
	for (int i = 0; i < comm->n; i++)
		snprintf(all[i].what, sizeof(all[i].what), "has said nothing");
	while (collect(comm, all, deadline) && coll_now_ms() < deadline)
		vbn_ctx_wait(comm->ctx, 20);
	compose(comm, all);
	free(all);
}
