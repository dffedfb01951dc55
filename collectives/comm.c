/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: creation and release, and what those of one context share.
 * Creation is local: the uid comes from the list of members and from how
 * often this context has used that list, which is the same on all members:
 * creations that fail count, too, and tell the others by the job's store.
 */
#include "coll.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct list_count {
	struct list_count *next;
	uint64_t hash, used;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all; /* under all_lock */

/* ---- what a context's communicators share ---- */

static void shared_free(struct shared *shared)
{
	struct shared **link = &all;

	pthread_mutex_lock(&all_lock);
	while (*link && *link != shared)
		link = &(*link)->next;
	if (*link)
		*link = shared->next;
	pthread_mutex_unlock(&all_lock);
	early_clear(&shared->early);
	while (shared->lists) {
		struct list_count *list = shared->lists;

		shared->lists = list->next;
		free(list);
	}
	if (shared->kick_fd >= 0)
		close(shared->kick_fd);
	free(shared);
}

static void context_closing(struct vbn_ctx_hook *hook)
{
	struct shared *shared = hook->arg;

	thread_end(shared);
	pthread_mutex_lock(&all_lock);
	shared->ctx = NULL;
	pthread_mutex_unlock(&all_lock);
	for (struct vbn_comm *c = shared->comms; c; c = c->next)
		comm_fail(c, -ENOTCONN,
			  "the communicator's context was closed");
	if (!shared->comms)
		shared_free(shared);
}

struct shared *shared_find(const struct vbn_ctx *ctx)
{
	struct shared *shared;

	pthread_mutex_lock(&all_lock);
	for (shared = all; shared; shared = shared->next)
		if (shared->ctx == ctx)
			break;
	pthread_mutex_unlock(&all_lock);
	return shared;
}

struct shared *shared_get(struct vbn_ctx *ctx)
{
	struct shared *shared = shared_find(ctx);

	if (shared)
		return shared;
	shared = calloc(1, sizeof(*shared));
	if (!shared)
		return NULL;
	shared->ctx = ctx;
	shared->kick_fd = -1;
	shared->early.most = EARLY_BYTES;
	if (wire_install(shared)) {
		free(shared);
		return NULL;
	}
	shared->hook = (struct vbn_ctx_hook){.closing = context_closing,
					     .arg = shared};
	vbn_ctx_at_close(ctx, &shared->hook);
	pthread_mutex_lock(&all_lock);
	shared->next = all;
	all = shared;
	pthread_mutex_unlock(&all_lock);
	return shared;
}

/* After the last communicator: nothing of the job's may stay open. */
static void shared_idle(struct shared *shared)
{
	if (shared->comms)
		return;
	if (shared->pool)
		vbn_pool_destroy(shared->pool);
	shared->pool = NULL;
	if (!shared->ctx)
		shared_free(shared);
}

/* ---- lists ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash ^= value + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) +
		(hash >> 2);
	hash ^= hash >> 30;
	hash *= UINT64_C(0xbf58476d1ce4e5b9);
	hash ^= hash >> 27;
	hash *= UINT64_C(0x94d049bb133111eb);
	return hash ^ hash >> 31;
}

#define UID_NUMBER_MASK ((UINT64_C(1) << UID_NUMBER_BITS) - 1)

static struct list_count *find_list(const struct shared *shared, uint64_t uid)
{
	struct list_count *list = shared->lists;

	while (list && list->hash != (uid & ~UID_NUMBER_MASK))
		list = list->next;
	return list;
}

bool comm_is_past(const struct shared *shared, uint64_t uid)
{
	const struct list_count *list = find_list(shared, uid);
	const int above = 64 - UID_NUMBER_BITS;

	return list && (int64_t)((uid - list->used) << above) < 0;
}

/*
 * The next of this list, which may turn out to be a bad one: nobody's. It is
 * not past before settle_uid(): what comes for it meanwhile is kept.
 */
static int next_uid(struct shared *shared, const int *ranks, int n,
		    const int *indexes, uint64_t *uid)
{
	uint64_t hash = mix(0, (uint64_t)n);
	struct thread *taken = coll_take(shared);
	struct list_count *list;

	for (int i = 0; i < n; i++)
		hash = mix(mix(hash, (uint64_t)(ranks ? ranks[i] : i)),
			   (uint64_t)(indexes ? indexes[i] : 0));
	hash &= ~UID_NUMBER_MASK;
	list = find_list(shared, hash);
	if (!list) {
		list = calloc(1, sizeof(*list));
		if (list) {
			list->hash = hash;
			list->next = shared->lists;
			shared->lists = list;
		}
	}
	if (list)
		*uid = hash | (list->used & UID_NUMBER_MASK);
	coll_give(taken);
	return list ? 0 : vbn_fail(-ENOMEM, "no memory for a communicator");
}

/* It is there, or is not to be. Under the lock. */
static void settle_uid(struct shared *shared, uint64_t uid)
{
	find_list(shared, uid)->used++;
}

static int fill_members(struct vbn_comm *comm, const int *ranks,
			const int *indexes)
{
	int size = vbn_job_size(comm->job), self = vbn_job_rank(comm->job);

	for (int r = 0; r < size; r++)
		comm->member_of[r] = -1;
	for (int i = 0; i < comm->n; i++) {
		int r = ranks ? ranks[i] : i;

		if (r < 0 || r >= size)
			return vbn_fail(
				-EINVAL,
				"member %d of the communicator is rank %d, but ranks are 0 to %d",
				i, r, size - 1);
		if (comm->member_of[r] >= 0)
			return vbn_fail(
				-EINVAL,
				"rank %d is in the communicator's list twice",
				r);
		comm->member_of[r] = i;
		comm->ranks[i] = r;
		comm->indexes[i] = indexes ? indexes[i] : 0;
	}
	comm->rank = comm->member_of[self];
	if (comm->rank < 0)
		return vbn_fail(
			-EINVAL,
			"rank %d creates a communicator that it is not a member of",
			self);
	if (comm->indexes[comm->rank] != vbn_ctx_index(comm->ctx))
		return vbn_fail(
			-EINVAL,
			"the communicator's list says context %d for rank %d, but it is created on context %d",
			comm->indexes[comm->rank], self,
			vbn_ctx_index(comm->ctx));
	return 0;
}

/* Of what its size covers. */
static void read_options(struct vbn_comm_options *opts,
			 const struct vbn_comm_options *given)
{
	*opts = (struct vbn_comm_options){0};
	if (given)
		memcpy(opts, given,
		       given->size < sizeof(*opts) ? given->size
						   : sizeof(*opts));
	else
		opts->size = sizeof(*opts);
}

static int take_options(struct vbn_comm *comm,
			const struct vbn_comm_options *opts)
{
	uint64_t landing = comm->settings.landing;

	if (opts->size < sizeof(opts->size))
		return vbn_fail(-EINVAL, "vbn_comm_options.size is not set");
	if (!landing)
		landing = opts->landing_bytes ? opts->landing_bytes
					      : COMM_LANDING;
	comm->slot_bytes = landing;
	comm->slots = opts->slots ? opts->slots : 4;
	if (comm->slots > COMM_SLOTS_MOST)
		return vbn_fail(-EINVAL, "%u landing slots: 1 to %d",
				comm->slots, COMM_SLOTS_MOST);
	if (landing < LANDING_LEAST || landing > LANDING_MOST)
		return vbn_fail(
			-EINVAL,
			"landing slots of %llu bytes: 64 bytes to 1 GiB",
			(unsigned long long)landing);
	return 0;
}

static int take_tag(struct vbn_comm *comm)
{
	struct shared *shared = comm->shared;

	for (unsigned i = 0; i < COMM_TAGS; i++) {
		unsigned tag = (shared->next_tag + i) % COMM_TAGS;

		if (!shared->by_tag[tag]) {
			shared->next_tag = tag + 1;
			comm->tag = tag;
			return 0;
		}
	}
	return vbn_fail(-ENOSPC,
			"%d communicators are open on this context: free some",
			COMM_TAGS);
}

static void comm_delete(struct vbn_comm *comm)
{
	settings_release(&comm->settings);
	free(comm->topology);
	free(comm->contributions);
	free(comm->ranks);
	free(comm->indexes);
	free(comm->member_of);
	free(comm->by_member);
	free(comm->after);
	free(comm);
}

static struct vbn_comm *comm_new(struct vbn_ctx *ctx, int n)
{
	struct vbn_comm *comm = calloc(1, sizeof(*comm));
	size_t members = (size_t)n;

	if (!comm)
		return NULL;
	comm->ctx = ctx;
	comm->job = vbn_ctx_job(ctx);
	comm->n = n;
	comm->last = &comm->first;
	comm->ranks = calloc(members, sizeof(int));
	comm->indexes = calloc(members, sizeof(int));
	comm->member_of = calloc((size_t)vbn_job_size(comm->job), sizeof(int));
	comm->by_member = calloc(members, sizeof(struct peer *));
	comm->after = calloc(members, sizeof(struct peer *));
	comm->contributions = calloc(members, sizeof(void *));
	engine_make_ops(comm);
	if (!comm->ranks || !comm->indexes || !comm->member_of ||
	    !comm->by_member || !comm->after || !comm->contributions) {
		comm_delete(comm);
		return NULL;
	}
	return comm;
}

/* Makes it one of its context's. */
static int enlist(struct vbn_comm *comm)
{
	struct shared *shared = comm->shared;
	struct thread *taken = coll_take(shared);
	int err = take_tag(comm);

	if (!err) {
		shared->by_tag[comm->tag] = comm;
		comm->next = shared->comms;
		shared->comms = comm;
		err = wire_adopt_early(comm);
		if (err) { /* nothing came of it yet */
			shared->by_tag[comm->tag] = NULL;
			shared->comms = comm->next;
		} else {
			settle_uid(shared, comm->uid);
		}
	}
	coll_give(taken);
	return err;
}

static int create(struct vbn_comm **out, struct shared *shared, uint64_t uid,
		  const int *ranks, int n, const struct vbn_comm_options *opts)
{
	struct vbn_comm *comm = comm_new(shared->ctx, n);
	int err;

	if (!comm)
		return vbn_fail(-ENOMEM, "no memory for a communicator");
	comm->shared = shared;
	comm->uid = uid;
	err = settings_read(&comm->settings);
	if (!err)
		err = take_options(comm, opts);
	if (!err)
		err = fill_members(comm, ranks, opts->indexes);
	if (!err)
		err = topology_make(comm, vbn_job_timeout_ms(comm->job));
	if (!err)
		err = enlist(comm);
	if (err)
		comm_delete(comm);
	else
		*out = comm;
	return err;
}

/* The others of what is not to be are told, if it was to be on this context. */
static void give_up(struct shared *shared, uint64_t uid, const int *ranks,
		    int n, const int *indexes)
{
	struct vbn_job *job = vbn_ctx_job(shared->ctx);
	struct thread *taken = coll_take(shared);

	early_drop(&shared->early, uid);
	settle_uid(shared, uid);
	coll_give(taken);
	for (int i = 0; n > 1 && i < n; i++) {
		if ((ranks ? ranks[i] : i) != vbn_job_rank(job))
			continue;
		if ((indexes ? indexes[i] : 0) == vbn_ctx_index(shared->ctx))
			report_uncreated(job, uid, i);
		return;
	}
}

int vbn_comm_create(struct vbn_comm **out, struct vbn_ctx *ctx,
		    const int *ranks, int n,
		    const struct vbn_comm_options *given)
{
	int size = vbn_job_size(vbn_ctx_job(ctx)), err;
	struct vbn_comm_options opts;
	struct shared *shared;
	uint64_t uid = 0;

	if (!ranks)
		n = size;
	if (n < 1 || n > size)
		return vbn_fail(
			-EINVAL,
			"a communicator of %d members in a job of %d ranks", n,
			size);
	read_options(&opts, given);
	shared = shared_get(ctx);
	if (!shared)
		return vbn_fail(-ENOMEM, "no memory for a communicator");
	err = next_uid(shared, ranks, n, opts.indexes, &uid);
	if (err)
		return err;
	err = create(out, shared, uid, ranks, n, &opts);
	if (err)
		give_up(shared, uid, ranks, n, opts.indexes);
	return err;
}

struct peer *comm_peer(struct vbn_comm *comm, int member)
{
	struct peer *peer = comm->by_member[member];

	if (peer)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	if (vbn_ep_open(&peer->ep, comm->ctx, comm->ranks[member],
			comm->indexes[member])) {
		free(peer);
		return NULL;
	}
	peer->comm = comm;
	peer->member = member;
	peer->owes_abort = comm->fault != 0;
	peer->next = comm->peers;
	comm->peers = peer;
	comm->by_member[member] = peer;
	comm->after[(member - comm->rank + comm->n) % comm->n] = peer;
	return peer;
}

/* Free what a communicator holds. No operation is in flight. */
void comm_release(struct vbn_comm *comm)
{
	struct shared *shared = comm->shared;
	struct vbn_comm **link = &shared->comms;

	while (*link != comm)
		link = &(*link)->next;
	*link = comm->next;
	coll_release(&comm->blocking);
	while (comm->peers) {
		struct peer *peer = comm->peers;

		comm->peers = peer->next;
		/* A broken one's peers may still be writing: not reused. */
		if (peer->memory && !comm->error && !comm->fault)
			vbn_pool_free(shared->pool, peer->memory);
		/*
		 * Its endpoint stays open with the context: closed, it would
		 * break what the peer has in common with us still or again.
		 */
		free(peer);
	}
	comm_delete(comm);
	shared_idle(shared);
}

void vbn_comm_free(struct vbn_comm *comm)
{
	struct thread *taken;

	if (!comm)
		return;
	taken = coll_take(comm->shared);
	if (comm->first)
		comm_fail(comm, -ECANCELED,
			  "rank %d freed the communicator in mid call",
			  comm->ranks[comm->rank]);
	engine_settle(comm, 300);
	comm->shared->by_tag[comm->tag] = NULL;
	if (comm->ops_busy > 0)
		comm->orphan = true; /* the last operation releases it */
	else
		comm_release(comm);
	coll_give(taken);
}

int vbn_comm_rank(const struct vbn_comm *comm)
{
	return comm->rank;
}

int vbn_comm_size(const struct vbn_comm *comm)
{
	return comm->n;
}
