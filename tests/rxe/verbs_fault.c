/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_loop's tests of what goes wrong: refused accesses, peers that vanish,
 * closing at any moment, arrivals before attach, threads that connect while
 * another polls. The mock core aborts when an operation completes twice.
 */
#include "verbs_loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPS 64
#define MIB ((size_t)1 << 20)

static struct region src, dst;

static unsigned passed;

void loop_run(struct bench *bench, const struct loop_test *tests, size_t n,
	      const char *only)
{
	for (size_t i = 0; i < n; i++) {
		double start = now_us();

		if (only && !strstr(tests[i].name, only))
			continue;
		printf("%-24s ", tests[i].name);
		tests[i].run(bench);
		passed++;
		printf("ok  %8.1f ms\n", (now_us() - start) / 1e3);
	}
}

unsigned loop_passed(void)
{
	return passed;
}

static void open_regions(struct bench *b)
{
	region_open(b, &src, 65536, VBN_ACCESS_ALL);
	region_open(b, &dst, 65536, VBN_ACCESS_ALL);
}

static void close_regions(struct bench *b)
{
	region_close(b, &src);
	region_close(b, &dst);
}

static void works(struct bench *b, struct side *side)
{
	struct vbn_op op;

	region_fill(&src, 5000, 3);
	memset(dst.mem.addr, 0, 5000);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(b, side, &op, &src, 5000, &dst, false, 0, false));
	CHECK(!bench_wait(b, &op, 5000));
	CHECK(region_same(&dst, 5000, 3));
}

/* A key that opens nothing: the operation says so, the rest is flushed. */
static void test_bad_rkey(struct bench *b)
{
	struct side x, y, other;
	struct region bad;
	struct vbn_op ops[OPS];

	open_regions(b);
	bad = dst;
	bad.announce.data[4] ^= 0x55; /* behind the access */
	bad.announce.data[5] ^= 0xaa;
	pair_connect(b, &x, &b->a, &y, &b->b);
	self_connect(b, &other, &b->a);
	for (int i = 0; i < OPS; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!side_put(b, &x, &ops[i], &src, 100, i == 5 ? &bad : &dst,
				i % 3 == 0, 1, i % 4 != 0));
	}
	for (int i = 0; i < OPS; i++) {
		int status = bench_wait(b, &ops[i], 5000);

		CHECK(status == (i < 5 ? 0 : i == 5 ? -EACCES : -ECONNRESET));
	}
	CHECK(ops[5].wc == 10); /* IBV_WC_REM_ACCESS_ERR */
	while (!x.ep.failures)
		bench_progress(b);
	CHECK(x.ep.failures == 1 && !x.ep.conn);
	CHECK(strstr(x.ep.why, "put") && strstr(x.ep.why, "rank 1"));
	printf("(%s) ", x.ep.why);
	works(b, &other);
	side_close(&y, -ECANCELED);
	side_close(&other, -ECANCELED);
	close_regions(b);
}

/* An access that the registration does not open. */
static void test_denied(struct bench *b)
{
	struct region readable;
	struct vbn_op op;
	struct side x, y;

	open_regions(b);
	region_open(b, &readable, 4096, VBN_ACCESS_READ);
	region_fill(&readable, 4096, 9);
	pair_connect(b, &x, &b->a, &y, &b->b);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_get(b, &x, &op, &src, 4096, &readable));
	CHECK(!bench_wait(b, &op, 5000) && region_same(&src, 4096, 9));
	mock_op_init(&op, NULL, NULL);
	CHECK(side_put(b, &x, &op, &src, 8, &readable, false, 0, false) ==
	      -EACCES);
	CHECK(strstr(vbn_error(), "write access"));
	works(b, &x);
	readable.announce.data[0] =
		VBN_ACCESS_ALL; /* forged: the device says no */
	CHECK(!side_put(b, &x, &op, &src, 8, &readable, false, 0, false));
	CHECK(bench_wait(b, &op, 5000) == -EACCES);
	CHECK(region_same(&readable, 4096, 9));
	while (x.ep.conn)
		bench_progress(b);
	side_close(&y, -ECANCELED);
	region_close(b, &readable);
	close_regions(b);
}

/* The peer's queue pair is gone: an error within a bounded time. */
static void test_peer_gone(struct bench *b)
{
	struct vbn_op ops[OPS];
	struct side x, y;
	double start;

	open_regions(b);
	pair_connect(b, &x, &b->a, &y, &b->b);
	works(b, &x);
	side_close(&y, -ECANCELED);
	start = now_us();
	for (int i = 0; i < OPS; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!side_put(b, &x, &ops[i], &src, 100, &dst, true, 0,
				false));
	}
	for (int i = 0; i < OPS; i++)
		CHECK(bench_wait(b, &ops[i], 10000) == -ECONNRESET);
	CHECK(ops[0].wc == 12); /* IBV_WC_RETRY_EXC_ERR */
	printf("(after %.2f s) ", (now_us() - start) / 1e6);
	while (!x.ep.failures)
		bench_progress(b);
	CHECK(!x.ep.conn && x.ep.failures == 1);
	close_regions(b);
}

static void count_done(struct vbn_op *op)
{
	++*(unsigned *)op->arg;
}

/* Closed with operations of every kind in flight, chained ones too. */
static void test_close_in_flight(struct bench *b)
{
	struct vbn_op ops[OPS];
	struct side x, y, other;
	uint64_t result;

	open_regions(b);
	self_connect(b, &other, &b->a);
	for (int round = 0; round < 20; round++) {
		struct atomic_args atomic = {.operand = 1,
					     .result = &result,
					     .remote = (uintptr_t)dst.mem.addr,
					     .key = &dst.announce,
					     .more = round % 2};
		struct message_header header = {.kind = 1};
		unsigned done = 0;

		pair_connect(b, &x, &b->a, &y, &b->b);
		for (int i = 0; i < OPS; i++) {
			mock_op_init(&ops[i], count_done, &done);
			if (i % 4 == 0)
				CHECK(!side_get(b, &x, &ops[i], &src, 60000,
						&dst));
			else if (i % 4 == 1)
				CHECK(!b->ops->atomic(x.ep.conn, &ops[i],
						      &atomic));
			else if (i % 4 == 2)
				CHECK(!b->ops->flush(x.ep.conn, &ops[i]));
			else
				CHECK(!side_put(b, &x, &ops[i], &src, 4000,
						&dst, true, 0,
						i > OPS - 8 || round % 3));
			if (i % 16 == 0)
				CHECK(!b->ops->message(x.ep.conn, &header,
						       src.mem.addr, 200));
		}
		for (int i = 0; i < round; i++)
			bench_progress(b);
		side_close(round % 2 ? &x : &y, -ECANCELED);
		side_close(round % 2 ? &y : &x, -ECANCELED);
		CHECK(done == OPS);
		for (int i = 0; i < OPS; i++)
			CHECK(ops[i].status == 0 ||
			      ops[i].status == -ECANCELED ||
			      ops[i].status == -ECONNRESET);
		works(b, &other);
	}
	side_close(&other, -ECANCELED);
	close_regions(b);
}

/* What was accepted arrives though its sender closes at once. */
static void test_last_words(struct bench *b)
{
	struct message_header header = {.kind = 1};
	struct side x, y;

	for (unsigned round = 0; round < 20; round++) {
		pair_connect(b, &x, &b->a, &y, &b->b);
		for (unsigned i = 0; i < 10; i++)
			CHECK(!b->ops->message(x.ep.conn, &header, "last",
					       round % 2 ? 4 : 0));
		side_close(&x, -ECANCELED);
		for (int i = 0; i < 10; i++)
			bench_progress(b);
		CHECK(y.ep.messages == 10);
		side_close(&y, -ECANCELED);
	}
}

static void close_own(struct vbn_op *op)
{
	side_close(op->arg, -ECANCELED);
}

static void close_on_notify(struct vbn_ep *ep, uint32_t imm)
{
	(void)imm;
	side_close(ep->arg, -ECANCELED);
}

/* Callbacks that close the connection they run for. */
static void test_close_in_callback(struct bench *b)
{
	struct vbn_op ops[8];
	struct side x, y;

	open_regions(b);
	for (int round = 0; round < 8; round++) {
		pair_connect(b, &x, &b->a, &y, &b->b);
		y.ep.on_notify = close_on_notify;
		y.ep.arg = &y;
		for (int i = 0; i < 8; i++) {
			mock_op_init(&ops[i], i == round ? close_own : NULL,
				     &x);
			CHECK(!side_put(b, &x, &ops[i], &src, 50, &dst, true, 0,
					i < 7));
		}
		for (int i = 0; i < 8; i++)
			CHECK(bench_wait(b, &ops[i], 5000) != -EINPROGRESS);
		for (int i = 0; i < 50; i++)
			bench_progress(b);
		side_close(&x, -ECANCELED);
		side_close(&y, -ECANCELED);
	}
	close_regions(b);
}

static void in_order(struct vbn_ep *ep, uint32_t imm)
{
	unsigned *next = ep->arg;

	CHECK((imm & VBN_NOTIFY_MAX) == *next);
	++*next;
}

static void in_order_message(struct vbn_ep *ep,
			     const struct message_header *header,
			     const void *data, size_t len)
{
	unsigned *next = ep->arg;

	CHECK(header->u64[0] == *next || (len == 0 && header->u32 == *next));
	CHECK(!len || !memcmp(data, "kept", 4));
	++*next;
}

/* The @i-th arrival: a notify, a message, a bare one. */
static void send_early(struct bench *b, struct side *x, struct vbn_op *op,
		       unsigned i)
{
	struct message_header header = {.kind = 1, .u32 = i % 3 == 2 ? i : 0};

	mock_op_init(op, NULL, NULL);
	header.u64[0] = i % 3 == 1 ? i : 0;
	if (i % 3 == 0)
		CHECK(!side_put(b, x, op, NULL, 0, NULL, true, i, false));
	else
		CHECK(!b->ops->message(x->ep.conn, &header, "kept",
				       i % 3 == 1 ? 4 : 0));
}

/* What comes before attach is kept, and delivered in order. */
static void test_early_arrivals(struct bench *b)
{
	unsigned next = 0, n = b->caps.credits + CREDIT_SLACK;
	struct vbn_op ops[64];
	struct side x, y;

	pair_make(b, &x, &b->a, &y, &b->b);
	side_attach(&x);
	y.ep.on_notify = in_order;
	y.ep.on_message = in_order_message;
	y.ep.arg = &next;
	for (unsigned i = 0; i < n; i++) {
		send_early(b, &x, &ops[i], i);
		if (i == n / 2) /* the rest comes behind held ones */
			for (int k = 0; k < 100; k++)
				bench_progress(b);
		if (i == n / 2)
			side_attach(&y);
	}
	CHECK(b->ops->arm(b->b.pctx) == -EAGAIN);
	while (next < n)
		bench_progress(b);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
	/* held, never attached */
	pair_make(b, &x, &b->a, &y, &b->b);
	side_attach(&x);
	for (unsigned i = 0; i < n; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!side_put(b, &x, &ops[i], NULL, 0, NULL, true, i, false));
	}
	CHECK(!bench_wait(b, &ops[n - 1], 5000));
	bench_progress(b);
	side_close(&y, -ECANCELED);
	bench_progress(b);
	side_close(&x, -ECANCELED);
}

struct churn {
	struct bench *b;
	atomic_bool stop;
	unsigned made;
};

/* As a control thread: makes connections and gives them up. */
static void *churn(void *arg)
{
	struct churn *c = arg;

	while (!atomic_load(&c->stop)) {
		struct side x, y;

		pair_make(c->b, &x, &c->b->a, &y, &c->b->b);
		side_close(&x, -ECANCELED);
		side_close(&y, -ECANCELED);
		c->made++;
	}
	return NULL;
}

static void test_threads(struct bench *b)
{
	struct churn c = {.b = b};
	struct vbn_op ops[OPS];
	pthread_t thread;
	struct side x, y;
	double end = now_us() + 2e6;

	open_regions(b);
	pair_connect(b, &x, &b->a, &y, &b->b);
	CHECK(!pthread_create(&thread, NULL, churn, &c));
	while (now_us() < end) {
		for (int i = 0; i < OPS; i++) {
			mock_op_init(&ops[i], NULL, NULL);
			CHECK(!side_put(b, &x, &ops[i], &src, 64, &dst,
					i % 8 == 0, 0, i % 4));
		}
		for (int i = 0; i < OPS; i++)
			CHECK(!bench_wait(b, &ops[i], 5000));
	}
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
	bench_progress(b);
	works(b, &x);
	printf("(%u connections) ", c.made);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
	close_regions(b);
}

/* A context's worth of connections at once, all used, twice over. */
static void test_many(struct bench *b)
{
	enum { MANY = 1000 };
	static struct side x[MANY], y[MANY];
	static struct vbn_op ops[MANY];

	open_regions(b);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < MANY; i++)
			pair_connect(b, &x[i], &b->a, &y[i], &b->b);
		for (int i = 0; i < MANY; i++) {
			mock_op_init(&ops[i], NULL, NULL);
			CHECK(!side_put(b, &x[i], &ops[i], &src, 400, &dst,
					true, 0, i % 2));
		}
		for (int i = 0; i < MANY; i++)
			CHECK(!bench_wait(b, &ops[i], 5000));
		for (int i = 0; i < MANY; i++)
			while (!y[i].ep.notifies)
				bench_progress(b);
		for (int i = 0; i < MANY; i++) {
			side_close(&x[i], -ECANCELED);
			side_close(&y[i], -ECANCELED);
		}
	}
	close_regions(b);
}

/* A late answer, a foreign blob: refused, and nothing is left behind. */
static void test_stale_answer(struct bench *b)
{
	struct conn_info info = {.rank = 1, .generation = 1000};
	struct blob offer, answer, junk = {.len = 5};
	void *x, *y;

	CHECK(!b->ops->conn_create(b->a.pctx, &info, &b->b.address, &x,
				   &offer));
	info.generation = 1001;
	CHECK(b->ops->conn_accept(b->b.pctx, &info, &b->a.address, &offer, &y,
				  &answer) == -ESTALE);
	CHECK(strstr(vbn_error(), "generation"));
	info.generation = 1000;
	CHECK(!b->ops->conn_accept(b->b.pctx, &info, &b->a.address, &offer, &y,
				   &answer));
	CHECK(b->ops->conn_finish(x, &junk) == -EPROTO);
	CHECK(b->ops->conn_create(b->a.pctx, &info, &junk, &x, &offer) ==
	      -EPROTO);
	b->ops->conn_close(x, -ECANCELED);
	b->ops->conn_close(y, -ECANCELED);
	bench_progress(b);
}

/* In a process of its own, which may lock 64 KiB only. */
static int locked_out(struct bench *b)
{
	struct rlimit rl = {65536, 65536};
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3,
						  0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
	struct vbn_mem mem = {.len = MIB, .fd = -1};
	struct blob announce;
	struct vbn_ctx core;
	void *pjob, *pctx, *handle;

	CHECK(!b->ops->job_open(NULL, &pjob, &b->caps));
	mem.addr = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &rl));
	CHECK(!syscall(SYS_capset, &header, none));
	CHECK(b->ops->mem_register(pjob, &mem, &handle, &announce) == -ENOMEM);
	CHECK(strstr(vbn_error(), "1048576") && strstr(vbn_error(), "65536") &&
	      strstr(vbn_error(), "ulimit -l"));
	mock_ctx_init(&core);
	CHECK(b->ops->ctx_open(pjob, &core, &pctx, &announce) == -ENOMEM);
	CHECK(strstr(vbn_error(), "ulimit -l"));
	mem.len = 4096;
	CHECK(!b->ops->mem_register(pjob, &mem, &handle, &announce));
	b->ops->mem_deregister(pjob, handle);
	mem.addr = (void *)(uintptr_t)4096;
	CHECK(b->ops->mem_register(pjob, &mem, &handle, &announce) == -EFAULT);
	b->ops->job_close(pjob);
	return 0;
}

static void child_ends_well(pid_t child)
{
	int status = -1;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_memlock(struct bench *b)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		_exit(locked_out(b));
	child_ends_well(child);
}

/* Half a page of the heap is registered; a child writes the other half. */
static void test_fork(struct bench *b)
{
	struct region half = {.mem = {.len = 2048, .access = VBN_ACCESS_ALL}};
	uint8_t *page = aligned_alloc(4096, 4096);
	struct side x, y;
	pid_t child;

	CHECK(page);
	open_regions(b);
	half.mem.addr = page;
	CHECK(!b->ops->mem_register(b->pjob, &half.mem, &half.handle,
				    &half.announce));
	pair_connect(b, &x, &b->a, &y, &b->b);
	for (unsigned i = 0; i < 10; i++) {
		struct vbn_op op;

		memset(page + 2048, 7, 2048);
		child = fork();
		if (!child) {
			memset(page + 2048, 9, 2048);
			_exit(page[2048] != 9);
		}
		page[4095] = 8;
		region_fill(&src, 2048, i);
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_put(b, &x, &op, &src, 2048, &half, false, 0,
				false));
		CHECK(!bench_wait(b, &op, 5000));
		CHECK(region_same(&half, 2048, i) && page[2048] == 7);
		CHECK(page[4095] == 8);
		child_ends_well(child);
	}
	CHECK(system("true") == 0); /* fork and exec */
	works(b, &x);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
	b->ops->mem_deregister(b->pjob, half.handle);
	free(page);
	close_regions(b);
}

const struct loop_test loop_fault_tests[] = {
	{"bad rkey", test_bad_rkey},
	{"access denied", test_denied},
	{"peer gone", test_peer_gone},
	{"close in flight", test_close_in_flight},
	{"close in callback", test_close_in_callback},
	{"last words", test_last_words},
	{"early arrivals", test_early_arrivals},
	{"connect while polling", test_threads},
	{"1000 connections", test_many},
	{"stale answer", test_stale_answer},
	{"locked memory limit", test_memlock},
	{"fork", test_fork},
};
const size_t loop_fault_count =
	sizeof(loop_fault_tests) / sizeof(loop_fault_tests[0]);
