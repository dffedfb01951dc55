/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thousand endpoints in one process, over the fake device: 32 contexts, each
 * connected with each. Opened, used and closed ten times they leave nothing
 * behind; and what one connected and used endpoint takes is bounded.
 */
#include "cunit_run.h"
#include "fake_job.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXTS 32
#define ROUNDS	 10
#define BYTES	 4096 /* what a connected peer may take, at most */
#define WAIT_MS	 60000

#define SLACK  4096 /* of the heap, between rounds */
#define SETTLE 20   /* readings of the heap that agree */

static struct vbn_ctx *ctxs[CONTEXTS];
static struct vbn_ep *eps[CONTEXTS][CONTEXTS];
static struct vbn_pool *pool;
static uint64_t *words; /* one per pair */
static struct vbn_rkey rkey;
static unsigned notified, messages;

struct usage {
	size_t heap, registered;
	unsigned mrs, qps, fds;
};

/* A sanitizer's heap, where there is one. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_bytes(void)
{
	struct mallinfo2 info;

	if (__sanitizer_get_current_allocated_bytes)
		return __sanitizer_get_current_allocated_bytes();
	info = mallinfo2();
	return info.uordblks + info.hblkhd;
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static struct usage usage_now(void)
{
	struct fake_counts counts = fake_count();

	return (struct usage){.heap = heap_bytes() - counts.heap,
			      .registered = counts.registered,
			      .mrs = counts.mrs,
			      .qps = counts.qps,
			      .fds = count_fds()};
}

static void fatal(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, vbn_error());
	exit(EXIT_FAILURE);
}

static void progress_all(void)
{
	for (int i = 0; i < CONTEXTS; i++)
		vbn_progress(ctxs[i]);
}

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	(void)arg;
	(void)from;
	(void)value;
	notified++;
}

static void on_message(void *arg, struct vbn_ep *from, const void *data,
		       size_t len)
{
	(void)arg;
	(void)from;
	(void)data;
	messages += len == 40;
}

static void contexts_open(void)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};

	fake_job_open();
	if (vbn_pool_create(&pool, fake_the_job, &opts))
		fatal("pool");
	words = vbn_pool_alloc(pool, CONTEXTS * CONTEXTS * 8, 0);
	if (!words ||
	    vbn_rkey_of(fake_the_job, words, CONTEXTS * CONTEXTS * 8, &rkey))
		fatal("memory");
	for (int i = 0; i < CONTEXTS; i++)
		if (vbn_ctx_open(&ctxs[i], fake_the_job, NULL) ||
		    vbn_notify_handler(ctxs[i], VBN_CHANNEL_USER, on_notify,
				       NULL) ||
		    vbn_message_handler(ctxs[i], VBN_CHANNEL_USER, on_message,
					NULL))
			fatal("context");
}

static void contexts_close(void)
{
	for (int i = 0; i < CONTEXTS; i++)
		vbn_ctx_close(ctxs[i]);
	vbn_pool_free(pool, words);
	vbn_pool_destroy(pool);
	fake_job_close();
}

/* Until @n of @count have come, or for a minute. */
static void progress_until(const unsigned *count, unsigned n, const char *what)
{
	uint64_t end = fake_now_ms() + WAIT_MS;

	while (*count < n && fake_now_ms() < end)
		progress_all();
	if (*count < n)
		fatal(what);
}

static unsigned connected(void)
{
	unsigned n = 0;

	for (int i = 0; i < CONTEXTS; i++)
		for (int j = 0; j < CONTEXTS; j++)
			n += vbn_ep_status(eps[i][j]) == 0;
	return n;
}

static void connect_all(void)
{
	uint64_t end = fake_now_ms() + WAIT_MS;

	for (int i = 0; i < CONTEXTS; i++)
		for (int j = 0; j < CONTEXTS; j++)
			if (vbn_ep_open(&eps[i][j], ctxs[i], 0, j))
				fatal("endpoint");
	while (connected() < CONTEXTS * CONTEXTS && fake_now_ms() < end)
		progress_all();
	if (connected() < CONTEXTS * CONTEXTS)
		fatal("connecting");
}

static void on_done(struct vbn_op *op)
{
	if (op->status)
		fatal("an operation");
	++*(unsigned *)op->arg;
}

/* Take it, however long it takes until there is credit. */
#define POST(call)                                                             \
	do {                                                                   \
		int err_;                                                      \
                                                                               \
		while ((err_ = (call)) == -EAGAIN)                             \
			progress_all();                                        \
		if (err_)                                                      \
			fatal(#call);                                          \
	} while (0)

/* A put with notify, a get, a send and a message by each. */
static void use_all(void)
{
	static struct vbn_op ops[CONTEXTS][4];
	static uint64_t got[CONTEXTS], sent[CONTEXTS];
	static const char text[40] = "a message";
	unsigned done = 0;

	notified = messages = 0;
	for (int i = 0; i < CONTEXTS; i++) {
		for (int j = 0; j < CONTEXTS; j++) {
			size_t at = ((size_t)i * CONTEXTS + (size_t)j) * 8;
			struct vbn_op *op = ops[j];

			for (int k = 0; k < 4; k++)
				op[k] = (struct vbn_op){.done = on_done,
							.arg = &done};
			POST(vbn_recv(eps[j][i], &op[3], &got[j], 8));
			POST(vbn_put_notify(eps[i][j], &op[0], words, 8, &rkey,
					    at, VBN_CHANNEL_USER, 1, 0));
			POST(vbn_get(eps[i][j], &op[1], words, 8, &rkey, at,
				     0));
			POST(vbn_send(eps[i][j], &op[2], &sent[j], 8, 0));
			POST(vbn_message(eps[i][j], VBN_CHANNEL_USER, text,
					 sizeof(text)));
		}
		progress_until(&done, 4 * CONTEXTS * (unsigned)(i + 1), "done");
	}
	progress_until(&notified, CONTEXTS * CONTEXTS, "notifies");
	progress_until(&messages, CONTEXTS * CONTEXTS, "messages");
}

/* Closing is heard of by the peer's context: wait until all queues are gone. */
static void close_all(void)
{
	uint64_t end = fake_now_ms() + WAIT_MS;

	for (int i = 0; i < CONTEXTS; i++)
		for (int j = 0; j < CONTEXTS; j++)
			vbn_ep_close(eps[i][j]);
	while (fake_count().qps && fake_now_ms() < end)
		progress_all();
}

/* The control threads have said good-bye to each other, too. */
static struct usage settled(void)
{
	struct usage last = usage_now(), now;
	int same = 0;

	for (int ms = 0; ms < WAIT_MS && same < SETTLE; ms++) {
		progress_all();
		usleep(1000);
		now = usage_now();
		same = now.heap == last.heap ? same + 1 : 0;
		last = now;
	}
	return last;
}

static void test_rounds(void)
{
	struct usage first = {.heap = 0}, now = first;

	contexts_open();
	for (int round = 0; round < ROUNDS; round++) {
		connect_all();
		use_all();
		close_all();
		now = settled();
		if (!round)
			first = now;
		CU_ASSERT_EQUAL(now.qps, 0);
		CU_ASSERT_EQUAL(now.fds, first.fds);
		CU_ASSERT_EQUAL(now.mrs, first.mrs);
		CU_ASSERT_EQUAL(now.registered, first.registered);
		CU_ASSERT(now.heap <= first.heap + SLACK);
	}
	printf("(heap after the first round %zu, after the last %zu) ",
	       first.heap, now.heap);
	contexts_close();
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

static void test_bytes(void)
{
	struct usage before, after;
	size_t heap, registered, each;

	contexts_open();
	before = settled();
	connect_all();
	use_all();
	after = settled();
	heap = after.heap - before.heap;
	registered = after.registered - before.registered;
	each = (heap + registered) / (CONTEXTS * CONTEXTS);
	printf("(%zu bytes a connected peer: %zu heap, %zu registered; %u "
	       "queue pairs) ",
	       each, heap / (CONTEXTS * CONTEXTS),
	       registered / (CONTEXTS * CONTEXTS), after.qps);
	CU_ASSERT(each < BYTES);
	CU_ASSERT_EQUAL(after.fds, before.fds);
	close_all();
	contexts_close();
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

/*
 * The C library's cache of freed memory counts as used, and is what it happens
 * to be: start again without it.
 */
static void without_cache(char **argv)
{
	if (getenv("GLIBC_TUNABLES"))
		return;
	setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
	execv("/proc/self/exe", argv);
	fatal("execv");
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		{"bytes a connected peer", test_bytes},
		{"opened and closed ten times", test_rounds},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "a thousand endpoints", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	(void)argc;
	without_cache(argv);
	return run_suites(suites);
}
