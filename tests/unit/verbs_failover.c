/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections of several rails, one of which fails at a random moment, in one
 * of the ways in which rails fail, while operations of all kinds are under way
 * in both directions and requests are carried out in random order: every
 * operation ends once, and well (an atomic may end in doubt); data is right
 * when the notify that follows it arrives; notifies and messages arrive once
 * and in order.
 */
#include "cunit_run.h"
#include "fake_hosts.h"
#include "providers/verbs/failover.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define PIECE	(STRIPE_MIN + 8192)
#define PIECES	6u
#define WORDS	4096u /* behind the pieces: a counter, and a place for gets */
#define BYTES	(PIECES * PIECE + WORDS)
#define OPS	40u
#define QPS_MAX 64

static uint64_t state;

static uint32_t random_number(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 11);
}

/* A direction: from one host to the other. */
struct way {
	struct hosts *h;
	struct bench *from;
	struct side *side, *other;
	struct region src, dst; /* at the sender, at the receiver */
	struct vbn_op ops[OPS];
	unsigned posted, done;
	unsigned sent, seen; /* notifies and messages */
	unsigned wrong, in_doubt;
	uint64_t added, results[OPS];
	uint8_t kind[OPS];
};

static uint8_t *piece_of(struct region *r, unsigned k)
{
	return (uint8_t *)r->mem.addr + (k % PIECES) * PIECE;
}

static uint64_t *counter_of(struct region *r)
{
	return (uint64_t *)((uint8_t *)r->mem.addr + PIECES * PIECE);
}

/* ---- what arrives ---- */

static void arrived(struct way *w, uint32_t value)
{
	const uint8_t *p = piece_of(&w->dst, value);

	w->wrong += value != w->seen;
	w->seen++;
	if (value % 2)
		return; /* without data */
	for (size_t i = 0; i < PIECE; i += 1021)
		w->wrong += p[i] != (uint8_t)(value + i);
	w->wrong += p[PIECE - 1] != (uint8_t)(value + PIECE - 1);
}

static void on_notify(struct vbn_ep *ep, uint32_t imm)
{
	arrived(ep->arg, imm & VBN_NOTIFY_MAX);
}

static void on_message(struct vbn_ep *ep, const struct message_header *header,
		       const void *data, size_t len)
{
	struct way *w = ep->arg;

	for (size_t i = 0; i < len; i++)
		w->wrong += ((const uint8_t *)data)[i] != (uint8_t)header->u32;
	arrived(w, header->u32);
}

static void on_done(struct vbn_op *op)
{
	struct way *w = op->arg;
	unsigned k = (unsigned)(op - w->ops);

	w->done++;
	if (w->kind[k] == 5 && op->status == -EIO)
		w->in_doubt++;
	else if (op->status)
		w->wrong++;
}

/* ---- what is posted ---- */

static int put(struct way *w, struct vbn_op *op, unsigned piece, size_t len,
	       bool notify)
{
	struct put_args args = {
		.local = len ? piece_of(&w->src, piece) : NULL,
		.len = len,
		.mem = len > 64 ? &w->src.mem : NULL,
		.mem_handle = len > 64 ? w->src.handle : NULL,
		.remote = len ? (uintptr_t)piece_of(&w->dst, piece) : 0,
		.key = &w->dst.announce,
		.notify = notify,
		.imm = 1u << 28 | w->sent,
		.more = random_number() % 4 == 0};

	return w->from->ops->put(w->side->ep.conn, op, &args);
}

static void fill_piece(struct way *w, unsigned k)
{
	uint8_t *p = piece_of(&w->src, k);

	for (size_t i = 0; i < PIECE; i++)
		p[i] = (uint8_t)(k + i);
}

static int add_one(struct way *w, struct vbn_op *op)
{
	struct atomic_args args = {
		.operand = 1,
		.result = &w->results[w->posted],
		.remote = (uintptr_t)counter_of(&w->dst),
		.key = &w->dst.announce,
		.more = random_number() % 4 == 0,
	};

	return w->from->ops->atomic(w->side->ep.conn, op, &args);
}

static int get(struct way *w, struct vbn_op *op)
{
	struct get_args args = {
		.local = counter_of(&w->src) + 8,
		.len = 1000,
		.mem = &w->src.mem,
		.mem_handle = w->src.handle,
		.remote = (uintptr_t)(counter_of(&w->dst) + 8),
		.key = &w->dst.announce,
	};

	return w->from->ops->get(w->side->ep.conn, op, &args);
}

static int message(struct way *w, size_t len)
{
	struct message_header header = {.kind = 5, .u32 = w->sent};
	uint8_t data[3000];

	memset(data, (int)w->sent, sizeof(data));
	header.u64[0] = len > 500;
	return w->from->ops->message(w->side->ep.conn, &header, data, len);
}

/* A put of a piece may go when all earlier ones of it have been seen. */
static bool piece_free(const struct way *w)
{
	return w->sent < w->seen + PIECES && w->sent < w->seen + CREDITS;
}

/* Of an even number: its data, then its word. Returns what the post said. */
static int post_even(struct way *w, struct vbn_op *op, unsigned kind)
{
	int err;

	fill_piece(w, w->sent);
	if (kind == 0) /* data and word at once */
		return put(w, op, w->sent, PIECE, true);
	err = put(w, op, w->sent, PIECE, false);
	if (err)
		return err;
	/* the word: tried until it is taken */
	w->kind[w->posted++] = 1;
	return 0;
}

static int post_odd(struct way *w, struct vbn_op *op, unsigned kind)
{
	switch (kind) {
	case 0:
		return put(w, op, 0, 0, true);
	case 1:
		return message(w, 0);
	case 2:
		return message(w, 20);
	default:
		return message(w, 2000);
	}
}

static void post_one(struct way *w, bool *word_due)
{
	struct vbn_op *op = &w->ops[w->posted];
	unsigned kind = random_number() % 8;
	int err;

	if (w->posted >= OPS - 1 || !w->side->ep.conn)
		return;
	mock_op_init(op, on_done, w);
	if (*word_due) {
		err = random_number() % 2 ? message(w, 0) : message(w, 30);
		w->sent += !err;
		*word_due = err != 0;
		return;
	}
	if (kind == 5)
		err = add_one(w, op);
	else if (kind == 6)
		err = get(w, op);
	else if (kind == 7)
		err = w->from->ops->flush(w->side->ep.conn, op);
	else if (!piece_free(w))
		return;
	else if (w->sent % 2)
		err = post_odd(w, op, kind);
	else
		err = post_even(w, op, kind);
	CHECK(!err || err == -EAGAIN || err == -ECONNRESET);
	if (err)
		return;
	w->added += kind == 5;
	if (kind < 5 && w->sent % 2 == 0 && kind) {
		*word_due = true;
		return;
	}
	if (kind < 5 && !(w->sent % 2 && kind)) {
		w->kind[w->posted++] = 0;
		w->sent++;
	} else if (kind < 5) {
		w->sent++; /* a message has no operation */
	} else {
		w->kind[w->posted++] = (uint8_t)kind;
	}
}

/* ---- how a rail fails ---- */

struct fault {
	unsigned kind, rail, at;
	bool here; /* at a, or at b */
};

#define FAULTS 6

static uint32_t qpn_of(struct hosts *h, bool here, unsigned rail)
{
	const struct verbs_conn *conn = here ? h->x.ep.conn : h->y.ep.conn;

	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].rail == rail && conn->lane[i].qp)
			return conn->lane[i].qpn & QPN_MASK;
	return 0;
}

static void port_events(struct hosts *h)
{
	struct verbs_job *jobs[] = {h->a.pjob, h->b.pjob};

	for (int j = 0; j < 2; j++)
		for (unsigned i = 0; i < jobs[j]->nrails; i++)
			events_take(&jobs[j]->rail[i]);
}

static void fail(struct hosts *h, const struct fault *f, unsigned rails)
{
	int device = (int)(f->here ? f->rail : rails + f->rail);
	uint32_t qpn = qpn_of(h, f->here, f->rail);

	switch (f->kind) {
	case 0: /* noticed by its event */
		fake_port_state(device, 1, IBV_PORT_DOWN);
		port_events(h);
		break;
	case 1: /* by retries that run out; the event comes later */
		fake_port_state(device, 1, IBV_PORT_DOWN);
		break;
	case 2: /* carried out, the answer lost */
		fake_fail_request(qpn, 1 + random_number() % 3,
				  IBV_WC_RETRY_EXC_ERR, true);
		break;
	case 3:
		fake_fail_request(qpn, 1 + random_number() % 3,
				  IBV_WC_RETRY_EXC_ERR, false);
		break;
	case 4:
		fake_vanish(qpn);
		break;
	default:
		fake_break_device(device);
		port_events(h);
	}
}

/* ---- the run ---- */

static void step(struct hosts *h)
{
	uint32_t qpn[QPS_MAX];
	unsigned n = fake_qps(qpn, QPS_MAX);

	if (n)
		fake_step_qp(qpn[random_number() % n], 1 + random_number() % 3);
	if (random_number() % 3 == 0)
		bench_progress(&h->a);
	if (random_number() % 3 == 0)
		bench_progress(&h->b);
}

static void way_open(struct hosts *h, struct way *w, bool here)
{
	memset(w, 0, sizeof(*w));
	w->h = h;
	w->from = here ? &h->a : &h->b;
	w->side = here ? &h->x : &h->y;
	w->other = here ? &h->y : &h->x;
	region_open(w->from, &w->src, BYTES, VBN_ACCESS_ALL);
	region_open(here ? &h->b : &h->a, &w->dst, BYTES, VBN_ACCESS_ALL);
	w->other->ep.on_notify = on_notify;
	w->other->ep.on_message = on_message;
	w->other->ep.arg = w;
}

static void way_close(struct hosts *h, struct way *w)
{
	region_close(w->from, &w->src);
	region_close(w->from == &h->a ? &h->b : &h->a, &w->dst);
}

static bool is_over(const struct way *w)
{
	return w->done == w->posted && w->seen == w->sent;
}

static void tell(const struct way *w, unsigned seed, const struct fault *f)
{
	fprintf(stderr,
		"seed %u fault %u rail %u at %u here %d: %u of %u done, %u of "
		"%u seen, %u wrong, %u in doubt; %s %s\n",
		seed, f->kind, f->rail, f->at, f->here, w->done, w->posted,
		w->seen, w->sent, w->wrong, w->in_doubt, w->side->ep.why,
		w->other->ep.why);
}

static void way_check(struct way *w, unsigned seed, const struct fault *f)
{
	uint64_t counter = *counter_of(&w->dst);
	bool ok = is_over(w) && !w->wrong && !w->side->ep.failures &&
		  counter <= w->added && counter >= w->added - w->in_doubt;

	if (!ok)
		tell(w, seed, f);
	CU_ASSERT(ok);
}

struct story {
	unsigned seed;
	const char *subnets;
	struct fault f[2];
	unsigned faults;  /* of other rails each */
	unsigned closing; /* when a side closes; 0: after all */
	bool broken;	  /* no rail may be left */
};

static struct way ways[2];

static void story_plan(struct story *s)
{
	unsigned rails = (unsigned)strlen(s->subnets);

	state = 0x9e3779b97f4a7c15u * (s->seed + 1);
	for (unsigned i = 0; i < s->faults; i++)
		s->f[i] = (struct fault){.kind = (s->seed + i) % FAULTS,
					 .rail = random_number() % rails,
					 .at = random_number() % 300,
					 .here = random_number() % 2};
	s->f[1].rail = (s->f[0].rail + 1) % rails;
	if (s->closing)
		s->closing = s->f[0].at + random_number() % 60;
}

static void story_open(const struct story *s, struct hosts *h)
{
	if (random_number() % 3 == 0)
		setenv("VBN_IB_QPS", "2", 1);
	hosts_open(h, s->subnets, s->subnets, 4096);
	unsetenv("VBN_IB_QPS");
	way_open(h, &ways[0], true);
	way_open(h, &ways[1], false);
	fake_defer(true);
}

static void story_close(struct hosts *h)
{
	fake_defer(false);
	side_close(&h->x, -ECANCELED);
	side_close(&h->y, -ECANCELED);
	way_close(h, &ways[0]);
	way_close(h, &ways[1]);
	hosts_close(h);
}

static bool all_over(const bool due[2])
{
	return is_over(&ways[0]) && is_over(&ways[1]) && !due[0] && !due[1];
}

static void story_run(const struct story *s, struct hosts *h)
{
	unsigned rails = (unsigned)strlen(s->subnets);
	bool due[2] = {false, false};

	for (unsigned i = 0; i < 400; i++) {
		for (unsigned k = 0; k < s->faults; k++)
			if (i == s->f[k].at && h->x.ep.conn && h->y.ep.conn)
				fail(h, &s->f[k], rails);
		for (int k = 0; k < 2; k++)
			if (random_number() % 3 == 0)
				post_one(&ways[k], &due[k]);
		step(h);
		if (i == s->closing && i)
			side_close(random_number() % 2 ? &h->x : &h->y,
				   -ECANCELED);
	}
	port_events(h);
	for (unsigned i = 0; i < 100000 && !all_over(due); i++) {
		if ((s->closing || s->broken) && i > 3000)
			break;
		for (int k = 0; k < 2; k++)
			if (due[k])
				post_one(&ways[k], &due[k]);
		step(h);
	}
}

static void run(struct story s)
{
	struct hosts h;

	story_plan(&s);
	story_open(&s, &h);
	story_run(&s, &h);
	if (!s.closing && !s.broken) {
		way_check(&ways[0], s.seed, &s.f[0]);
		way_check(&ways[1], s.seed, &s.f[0]);
	}
	story_close(&h);
	/* whatever became of the connection */
	CU_ASSERT_EQUAL(ways[0].done, ways[0].posted);
	CU_ASSERT_EQUAL(ways[1].done, ways[1].posted);
}

static unsigned seeds = 60;

static void test_two(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){.seed = i, .subnets = "12", .faults = 1});
}

static void test_three(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){
			.seed = 1000 + i, .subnets = "123", .faults = 1});
}

static void test_two_of_three(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){
			.seed = 2000 + i, .subnets = "123", .faults = 2});
}

static void test_all_fail(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){.seed = 3000 + i,
				   .subnets = "12",
				   .faults = 2,
				   .broken = true});
}

static void test_close(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){.seed = 4000 + i,
				   .subnets = "12",
				   .faults = 1,
				   .closing = 1});
}

/* A connection of a context with itself. */
static void test_self(void)
{
	for (unsigned k = 0; k < 2; k++) {
		struct vbn_op ops[20];
		struct region r;
		struct side self;
		struct hosts h;

		hosts_open(&h, "12", "12", 4096);
		region_open(&h.a, &r, 2 * STRIPE_MIN, VBN_ACCESS_ALL);
		self_connect(&h.a, &self, &h.a.a);
		fake_defer(true);
		for (unsigned i = 0; i < 20; i++) {
			mock_op_init(&ops[i], NULL, NULL);
			CHECK(!side_put(&h.a, &self, &ops[i], &r,
					i % 3 ? 3000 : 2 * STRIPE_MIN, &r,
					i % 8 == 0, i, false));
			fake_step(random_number() % 3);
		}
		fake_port_state((int)k, 1, IBV_PORT_DOWN);
		port_events(&h);
		bench_progress(&h.a);
		fake_defer(false);
		for (unsigned i = 0; i < 20; i++)
			CU_ASSERT_EQUAL(hosts_wait(&h, &ops[i]), 0);
		for (unsigned i = 0; i < 20; i++)
			hosts_progress(&h);
		CU_ASSERT(self.ep.notifies == 3 && !self.ep.failures);
		side_close(&self, -ECANCELED);
		region_close(&h.a, &r);
		hosts_close(&h);
	}
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		{"one of two rails", test_two},
		{"one of three", test_three},
		{"two of three", test_two_of_three},
		{"all of two", test_all_fail},
		{"closing", test_close},
		{"with itself", test_self},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "failover", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	if (argc > 3) { /* SEED SUBNETS FAULTS: one run */
		run((struct story){.seed = (unsigned)atoi(argv[1]),
				   .subnets = argv[2],
				   .faults = (unsigned)atoi(argv[3])});
		return 0;
	}
	if (argc > 1)
		seeds = (unsigned)atoi(argv[1]);
	return run_suites(suites);
}
