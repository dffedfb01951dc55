/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The PMIx module. Servers may ignore PMIX_TIMEOUT, and PMIx_Init() has none:
 * so libpmix is called on a thread of its own, which is left behind when it
 * does not come back in time, together with what it works on.
 *
 * PMIx is finalized as soon as all have what rank 0 gave: a launcher that saw
 * an open client end would call that a failure, and a program that uses PMIx
 * itself (MPI) has its own count of it.
 */
#include "pmix_module.h"
#include "error.h"
#include "options.h"

#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum verb { BEGIN, EXCHANGE, END };

/* One call: shared by the caller and the thread, freed by the last. */
struct call {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, left;

	enum verb verb;
	unsigned job; /* the process's how many-th exchange */
	struct pmix_place place;
	char text[VBN_PMIX_TEXT_MAX];
	pmix_status_t status;
	const char *step; /* what failed */
};

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stuck; /* a call has never come back */
static struct pmix_place here;
static pmix_proc_t me;
static unsigned jobs;

/* ---- on the thread ---- */

static pmix_status_t get_number(const pmix_proc_t *of, const char *key,
				int *out)
{
	pmix_value_t *value = NULL;
	pmix_status_t rc = PMIx_Get(of, key, NULL, 0, &value);
	uint32_t number = 0;

	if (rc != PMIX_SUCCESS)
		return rc;
	if (value->type == PMIX_UINT32)
		number = value->data.uint32;
	*out = number <= JOB_RANKS_MAX ? (int)number : -1;
	PMIX_VALUE_RELEASE(value);
	return PMIX_SUCCESS;
}

static void begin(struct call *c)
{
	pmix_proc_t all;

	c->step = "PMIx_Init";
	c->status = PMIx_Init(&me, NULL, 0);
	if (c->status != PMIX_SUCCESS)
		return;
	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	c->step = "PMIx_Get of the job's size";
	c->status = get_number(&all, PMIX_JOB_SIZE, &c->place.nranks);
	if (c->status == PMIX_SUCCESS)
		c->place.rank =
			me.rank < JOB_RANKS_MAX ? (int)me.rank : JOB_RANKS_MAX;
	else
		PMIx_Finalize(NULL, 0);
	if (c->status != PMIX_SUCCESS ||
	    get_number(&all, PMIX_LOCAL_SIZE, &c->place.local) != PMIX_SUCCESS)
		c->place.local = 0;
}

static pmix_status_t put_text(const char *key, char *text)
{
	pmix_value_t value;

	PMIX_VALUE_CONSTRUCT(&value);
	value.type = PMIX_STRING;
	value.data.string = text;
	return PMIx_Put(PMIX_GLOBAL, key, &value);
}

static pmix_status_t get_text(const pmix_proc_t *of, const char *key,
			      char *text)
{
	pmix_value_t *value = NULL;
	pmix_status_t rc = PMIx_Get(of, key, NULL, 0, &value);

	if (rc != PMIX_SUCCESS)
		return rc;
	if (value->type != PMIX_STRING ||
	    strlen(value->data.string) >= VBN_PMIX_TEXT_MAX)
		rc = PMIX_ERR_TYPE_MISMATCH;
	else
		strcpy(text, value->data.string);
	PMIX_VALUE_RELEASE(value);
	return rc;
}

static void exchange(struct call *c)
{
	pmix_info_t collect;
	pmix_proc_t zero;
	bool yes = true;
	char key[32];

	snprintf(key, sizeof(key), "verbena.job.%u", c->job);
	PMIX_LOAD_PROCID(&zero, me.nspace, 0);
	c->step = "PMIx_Put";
	if (me.rank == 0)
		c->status = put_text(key, c->text);
	if (c->status == PMIX_SUCCESS) {
		c->step = "PMIx_Commit";
		c->status = PMIx_Commit();
	}
	if (c->status == PMIX_SUCCESS) {
		c->step = "PMIx_Fence";
		PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
		c->status = PMIx_Fence(NULL, 0, &collect, 1);
	}
	if (c->status == PMIX_SUCCESS && me.rank) {
		c->step = "PMIx_Get of what rank 0 has put";
		c->status = get_text(&zero, key, c->text);
	}
}

static void call_free(struct call *c)
{
	pthread_cond_destroy(&c->cond);
	pthread_mutex_destroy(&c->lock);
	explicit_bzero(c->text, sizeof(c->text));
	free(c);
}

static void *thread_main(void *arg)
{
	struct call *c = arg;
	bool left;

	switch (c->verb) {
	case BEGIN:
		begin(c);
		break;
	case EXCHANGE:
		exchange(c);
		break;
	case END:
		c->status = PMIx_Finalize(NULL, 0);
		break;
	}
	pthread_mutex_lock(&c->lock);
	c->done = true;
	left = c->left;
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&c->lock);
	if (left)
		call_free(c);
	return NULL;
}

/* ---- the caller ---- */

static struct timespec moment(int timeout_ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout_ms / 1000;
	t.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static struct call *call_new(enum verb verb)
{
	struct call *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return NULL;
	c->verb = verb;
	c->status = PMIX_SUCCESS;
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->cond, &attr);
	pthread_condattr_destroy(&attr);
	return c;
}

/* 0: it has come back, and is the caller's. */
static int run(struct call *c, int timeout_ms)
{
	struct timespec until = moment(timeout_ms < 0 ? 0 : timeout_ms);
	pthread_t thread;
	int rc = pthread_create(&thread, NULL, thread_main, c);
	bool done;

	if (rc) {
		call_free(c);
		return vbn_fail(-rc, "PMIx: no thread: %s", strerror(rc));
	}
	pthread_detach(thread);
	pthread_mutex_lock(&c->lock);
	while (!c->done && rc != ETIMEDOUT)
		rc = timeout_ms < 0 ? pthread_cond_wait(&c->cond, &c->lock)
				    : pthread_cond_timedwait(&c->cond, &c->lock,
							     &until);
	done = c->done;
	c->left = !done;
	pthread_mutex_unlock(&c->lock);
	if (done)
		return 0;
	atomic_store(&stuck, true);
	return vbn_fail(-ETIMEDOUT,
			"PMIx: the launcher has not answered within %d ms: do "
			"all ranks that it started open a job of verbena's?",
			timeout_ms);
}

static int failed(const struct call *c)
{
	return vbn_fail(-EIO,
			"PMIx: %s: %s; without PMIx, set VBN_RANK, VBN_SIZE, "
			"VBN_ADDRESS and VBN_SECRET on all ranks",
			c->step, PMIx_Error_string(c->status));
}

static int take_turn(int timeout_ms)
{
	struct timespec until = moment(timeout_ms < 0 ? 0 : timeout_ms);
	int rc = timeout_ms < 0 ? pthread_mutex_lock(&one)
				: pthread_mutex_clocklock(&one, CLOCK_MONOTONIC,
							  &until);

	if (rc)
		return vbn_fail(-rc,
				"PMIx: another thread's job has not opened "
				"within %d ms",
				timeout_ms);
	if (!atomic_load(&stuck))
		return 0;
	pthread_mutex_unlock(&one);
	return vbn_fail(-EIO, "PMIx: an earlier call of this process has never "
			      "come back");
}

static void module_end(int timeout_ms)
{
	struct call *c = atomic_load(&stuck) ? NULL : call_new(END);

	if (c && !run(c, timeout_ms))
		call_free(c);
	pthread_mutex_unlock(&one);
}

static int module_begin(struct pmix_place *place, int timeout_ms)
{
	struct call *c;
	int rc = take_turn(timeout_ms);

	if (rc)
		return rc;
	c = call_new(BEGIN);
	rc = c ? run(c, timeout_ms) : vbn_fail(-ENOMEM, "PMIx: no memory");
	if (rc)
		goto unlock;
	here = c->place;
	if (c->status != PMIX_SUCCESS)
		rc = failed(c);
	else if (here.nranks < 1 || here.rank >= here.nranks ||
		 here.local < 0 || here.local > here.nranks)
		rc = vbn_fail(-EPROTO,
			      "PMIx: the launcher says rank %d of %d, %d of "
			      "them here: a job has 1 to %d ranks",
			      here.rank, here.nranks, here.local,
			      JOB_RANKS_MAX);
	if (rc == -EPROTO)
		module_end(timeout_ms);
	else if (rc)
		pthread_mutex_unlock(&one);
	call_free(c);
	if (!rc)
		*place = here;
	return rc;
unlock:
	pthread_mutex_unlock(&one);
	return rc;
}

static int module_exchange(char *text, int timeout_ms)
{
	struct call *c = call_new(EXCHANGE);
	int rc;

	if (!c)
		return vbn_fail(-ENOMEM, "PMIx: no memory");
	c->job = jobs++;
	if (!here.rank)
		snprintf(c->text, sizeof(c->text), "%s", text);
	rc = run(c, timeout_ms);
	if (rc)
		return rc;
	if (c->status != PMIX_SUCCESS)
		rc = failed(c);
	else
		memcpy(text, c->text, sizeof(c->text));
	call_free(c);
	return rc;
}

VBN_API const struct pmix_module vbn_pmix_module;
const struct pmix_module vbn_pmix_module = {
	.begin = module_begin,
	.exchange = module_exchange,
	.end = module_end,
};
