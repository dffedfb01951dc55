/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole transport over the fake verbs device: contexts of one rank that
 * connect with each other. What the core makes of the provider's limits and
 * failures.
 */
#include "cunit_run.h"
#include "fake_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 20000

static struct vbn_ctx *a, *b;
static struct vbn_ep *ep, *back;
static struct vbn_pool *pool;

static void fatal(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, vbn_error());
	exit(EXIT_FAILURE);
}

static bool says(const char *words)
{
	if (strstr(vbn_error(), words))
		return true;
	fprintf(stderr, "\"%s\" lacks \"%s\"\n", vbn_error(), words);
	return false;
}

/* Two contexts, connected, and a pool. */
static void up(void (*tweak)(struct fake_config *config))
{
	struct vbn_ctx *ctxs[2];
	struct vbn_ep *eps[2];

	fake_job_two(tweak, ctxs, eps, &pool);
	a = ctxs[0];
	b = ctxs[1];
	ep = eps[0];
	back = eps[1];
}

static void down(void)
{
	vbn_ep_close(ep);
	vbn_ep_close(back);
	vbn_ctx_close(a);
	vbn_ctx_close(b);
	vbn_pool_destroy(pool);
	fake_job_close();
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

static void *memory(size_t len, struct vbn_rkey *rkey)
{
	void *p = vbn_pool_alloc(pool, len, 0);

	if (!p || (rkey && vbn_rkey_of(fake_the_job, p, len, rkey)))
		fatal("memory");
	memset(p, 0, len);
	return p;
}

/* Until it is taken; then until it is over. */
#define RUN(op, call)                                                          \
	({                                                                     \
		uint64_t end_ = fake_now_ms() + WAIT_MS;                       \
		int err_;                                                      \
                                                                               \
		*(op) = (struct vbn_op){0};                                    \
		while ((err_ = (call)) == -EAGAIN && fake_now_ms() < end_) {   \
			vbn_progress(a);                                       \
			vbn_progress(b);                                       \
		}                                                              \
		err_ ? err_ : fake_job_wait(a, b, op, WAIT_MS);                \
	})

static void progress_until(const unsigned *count, unsigned n)
{
	uint64_t end = fake_now_ms() + WAIT_MS;

	while (*count < n && fake_now_ms() < end) {
		vbn_progress(a);
		vbn_progress(b);
	}
}

/* ---- lengths ---- */

static void small_pieces(struct fake_config *config)
{
	config->ports[0].max_msg_sz = 65536;
}

static void test_split(void)
{
	static const size_t lens[] = {65536, 65537, 3 * 65536 + 1};
	unsigned char *src, *dst;
	struct vbn_rkey rkey;
	struct vbn_op op;

	up(small_pieces);
	src = memory(4 * 65536, NULL);
	dst = memory(4 * 65536, &rkey);
	for (size_t i = 0; i < 4 * 65536; i++)
		src[i] = (unsigned char)(i * 31 + i / 65536);
	for (int i = 0; i < 3; i++) {
		memset(dst, 0, 4 * 65536);
		CU_ASSERT_EQUAL(
			RUN(&op, vbn_put(ep, &op, src, lens[i], &rkey, 0, 0)),
			0);
		CU_ASSERT(!memcmp(src, dst, lens[i]) && !dst[lens[i]]);
		CU_ASSERT_EQUAL(op.bytes, lens[i]);
		memset(src, 0, 4 * 65536);
		CU_ASSERT_EQUAL(
			RUN(&op, vbn_get(ep, &op, src, lens[i], &rkey, 0, 0)),
			0);
		CU_ASSERT(!memcmp(src, dst, lens[i]));
		for (size_t j = lens[i]; j < 4 * 65536; j++)
			src[j] = (unsigned char)(j * 31 + j / 65536);
	}
	down();
}

static unsigned notifies, lengths;

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	(void)from;
	/* in order: each is the number of those before it */
	if (value != *(unsigned *)arg)
		fatal("a notify out of order");
	++*(unsigned *)arg;
}

static void on_message(void *arg, struct vbn_ep *from, const void *data,
		       size_t len)
{
	(void)from;
	(void)data;
	lengths += (unsigned)len;
	++*(unsigned *)arg;
}

/* Of length 0: put, put with notify, message, send; all arrive. */
static void test_empty(void)
{
	unsigned messages = 0;
	struct vbn_op op, recv;

	up(NULL);
	notifies = lengths = 0;
	if (vbn_notify_handler(b, VBN_CHANNEL_USER, on_notify, &notifies) ||
	    vbn_message_handler(b, VBN_CHANNEL_USER, on_message, &messages))
		fatal("handlers");
	CU_ASSERT_EQUAL(RUN(&op, vbn_put(ep, &op, NULL, 0, NULL, 0, 0)), 0);
	CU_ASSERT_EQUAL(RUN(&op, vbn_put_notify(ep, &op, NULL, 0, NULL, 0,
						VBN_CHANNEL_USER, 0, 0)),
			0);
	CU_ASSERT_EQUAL(vbn_message(ep, VBN_CHANNEL_USER, NULL, 0), 0);
	recv = (struct vbn_op){0};
	CU_ASSERT_EQUAL(vbn_recv(back, &recv, NULL, 0), 0);
	CU_ASSERT_EQUAL(RUN(&op, vbn_send(ep, &op, NULL, 0, 0)), 0);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &recv, WAIT_MS), 0);
	progress_until(&messages, 1);
	CU_ASSERT(notifies == 1 && messages == 1 && lengths == 0);
	down();
}

/* ---- a receiver that does not progress ---- */

#define MANY 10000

static void test_idle_receiver(void)
{
	static struct vbn_op ops[MANY];
	unsigned posted = 0, again = 0;

	up(NULL);
	notifies = 0;
	if (vbn_notify_handler(b, VBN_CHANNEL_USER, on_notify, &notifies))
		fatal("handler");
	while (again < 20000) {
		int err = vbn_notify(ep, &ops[posted], VBN_CHANNEL_USER, posted,
				     0);

		CU_ASSERT_FATAL(!err || err == -EAGAIN);
		posted += !err;
		again += err == -EAGAIN;
		vbn_progress(a);
	}
	CU_ASSERT(posted > 0 && posted < 1000);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	CU_ASSERT_EQUAL(notifies, 0);
	while (posted < MANY) {
		posted += !vbn_notify(ep, &ops[posted], VBN_CHANNEL_USER,
				      posted, 0);
		vbn_progress(a);
		vbn_progress(b);
	}
	progress_until(&notifies, MANY);
	CU_ASSERT_EQUAL(notifies, MANY);
	for (int i = 0; i < MANY; i++)
		CU_ASSERT_EQUAL(fake_job_wait(a, b, &ops[i], WAIT_MS), 0);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	down();
}

/* ---- atomics ---- */

static void no_atomics(struct fake_config *config)
{
	config->attr.atomic_cap = IBV_ATOMIC_NONE;
}

static void test_no_atomics(void)
{
	struct vbn_rkey rkey;
	uint64_t *word;
	uint64_t before;
	struct vbn_op op;

	up(no_atomics);
	word = memory(64, &rkey);
	CU_ASSERT_EQUAL(
		RUN(&op, vbn_fetch_add(ep, &op, &before, 1, &rkey, 0, 0)),
		-EOPNOTSUPP);
	CU_ASSERT(says("atomics"));
	CU_ASSERT_EQUAL(RUN(&op, vbn_put(ep, &op, word, 8, &rkey, 8, 0)), 0);
	down();
}

/* ---- registrations ---- */

#define REGIONS 60

static void few_registrations(struct fake_config *config)
{
	config->attr.max_mr = 40;
}

/* As many as the device has; the error says so; freeing makes room. */
static void test_max_mr(void)
{
	static char buffer[REGIONS][4096] __attribute__((aligned(4096)));
	struct vbn_mem *mems[REGIONS];
	struct vbn_rkey rkey;
	struct vbn_op op;
	int n = 0, err;

	up(few_registrations);
	for (;;) {
		err = vbn_mem_register(&mems[n], fake_the_job, buffer[n], 4096,
				       VBN_ACCESS_ALL);
		if (err)
			break;
		CU_ASSERT_FATAL(++n < REGIONS);
	}
	CU_ASSERT_EQUAL(err, -ENOMEM);
	CU_ASSERT(says("max_mr") && says("40"));
	CU_ASSERT_FATAL(n > 2);
	if (vbn_rkey_of(fake_the_job, buffer[1], 4096, &rkey))
		fatal("key");
	strcpy(buffer[0], "still works");
	CU_ASSERT_EQUAL(
		RUN(&op, vbn_put(ep, &op, buffer[0], 4096, &rkey, 0, 0)), 0);
	CU_ASSERT_STRING_EQUAL(buffer[1], "still works");
	vbn_mem_deregister(mems[--n]);
	err = vbn_mem_register(&mems[n], fake_the_job, buffer[n], 4096,
			       VBN_ACCESS_ALL);
	CU_ASSERT_EQUAL(err, 0);
	n += !err;
	while (n)
		vbn_mem_deregister(mems[--n]);
	down();
}

/* ---- failure ---- */

/* The queue pairs of a's connection to b go, those of others stay. */
static void break_connection(const uint32_t *qpn, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		fake_vanish(qpn[i]);
}

static void test_after_failure(void)
{
	struct vbn_ep *self;
	struct vbn_rkey rkey;
	uint32_t qpn[64];
	struct vbn_op ops[8], op;
	uint64_t end;
	unsigned n;
	char *p;

	up(NULL);
	n = fake_qps(qpn, 64);
	p = memory(4096, &rkey);
	if (fake_job_connect(a, a, &self, NULL))
		fatal("self");
	CU_ASSERT_EQUAL(RUN(&op, vbn_put(ep, &op, p, 8, &rkey, 64, 0)), 0);
	break_connection(qpn, n);
	for (int i = 0; i < 8; i++) {
		ops[i] = (struct vbn_op){0};
		CU_ASSERT_EQUAL(vbn_put(ep, &ops[i], p, 8, &rkey, 64, 0), 0);
	}
	for (int i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(fake_job_wait(a, b, &ops[i], WAIT_MS),
				-ECONNRESET);
	CU_ASSERT_EQUAL(ops[0].wc, IBV_WC_RETRY_EXC_ERR);
	end = fake_now_ms() + WAIT_MS;
	while (!vbn_ep_status(ep) && fake_now_ms() < end)
		vbn_progress(a);
	/* at once, each kind, and no crash */
	CU_ASSERT_EQUAL(vbn_put(ep, &op, p, 8, &rkey, 0, 0), -ECONNRESET);
	CU_ASSERT_EQUAL(vbn_get(ep, &op, p, 8, &rkey, 0, 0), -ECONNRESET);
	CU_ASSERT_EQUAL(vbn_notify(ep, &op, VBN_CHANNEL_USER, 1, 0),
			-ECONNRESET);
	CU_ASSERT_EQUAL(vbn_send(ep, &op, p, 8, 0), -ECONNRESET);
	CU_ASSERT_EQUAL(vbn_flush(ep, &op), -ECONNRESET);
	/* other endpoints live on */
	CU_ASSERT_EQUAL(RUN(&op, vbn_put(self, &op, p, 8, &rkey, 64, 0)), 0);
	vbn_ep_close(self);
	down();
}

/* What failed can be opened anew, and old messages do not disturb it. */
static void test_reconnect(void)
{
	struct vbn_rkey rkey;
	uint32_t qpn[64];
	struct vbn_op op;
	unsigned n;
	char *p;

	up(NULL);
	p = memory(4096, &rkey);
	for (int round = 0; round < 5; round++) {
		CU_ASSERT_EQUAL(RUN(&op, vbn_put(ep, &op, p, 8, &rkey, 64, 0)),
				0);
		n = fake_qps(qpn, 64);
		break_connection(qpn, n);
		CU_ASSERT_EQUAL(RUN(&op, vbn_put(ep, &op, p, 8, &rkey, 64, 0)),
				-ECONNRESET);
		vbn_ep_close(ep);
		vbn_ep_close(back);
		if (fake_job_connect(a, b, &ep, &back))
			fatal("anew");
	}
	CU_ASSERT_EQUAL(RUN(&op, vbn_put(ep, &op, p, 8, &rkey, 64, 0)), 0);
	down();
}

int main(void)
{
	CU_TestInfo limits[] = {
		{"longer than a message", test_split},
		{"of no length", test_empty},
		{"10,000 notifies to an idle receiver", test_idle_receiver},
		{"no atomics", test_no_atomics},
		{"as many registrations as there are", test_max_mr},
		CU_TEST_INFO_NULL,
	};
	CU_TestInfo failures[] = {
		{"operations after a failure", test_after_failure},
		{"connecting anew", test_reconnect},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "limits", .pTests = limits},
		{.pName = "failures", .pTests = failures},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	return run_suites(suites);
}
