/* SPDX-License-Identifier: BSD-3-Clause */
/* See fake_rig.h. */
#include "fake_rig.h"

#include <errno.h>
#include <string.h>

#define WAIT_MS 10000

unsigned rig_devices = 1;

void rig_open_bare(struct rig *rig, void (*tweak)(struct fake_config *config))
{
	memset(rig, 0, sizeof(*rig));
	for (unsigned i = 1; i <= rig_devices; i++) {
		struct fake_config config;

		fake_config_init(&config, i);
		if (tweak)
			tweak(&config);
		fake_device_add(&config);
	}
	bench_open(&rig->b, &provider_verbs);
	region_open(&rig->b, &rig->src, RIG_BYTES, VBN_ACCESS_ALL);
	region_open(&rig->b, &rig->dst, RIG_BYTES, VBN_ACCESS_ALL);
}

void rig_connect(struct rig *rig)
{
	uint32_t qpn[RIG_QPS];
	unsigned before = fake_qps(NULL, 0), n;

	pair_connect(&rig->b, &rig->x, &rig->b.a, &rig->y, &rig->b.b);
	n = fake_qps(qpn, RIG_QPS);
	CHECK(n > before && n <= RIG_QPS && (n - before) % 2 == 0);
	rig->qps = (n - before) / 2;
	rig->xqp = qpn[before];
	rig->yqp = qpn[before + rig->qps];
}

void rig_open(struct rig *rig, void (*tweak)(struct fake_config *config))
{
	rig_open_bare(rig, tweak);
	rig_connect(rig);
}

void rig_disconnect(struct rig *rig)
{
	side_close(&rig->x, -ECANCELED);
	side_close(&rig->y, -ECANCELED);
}

void rig_close(struct rig *rig)
{
	rig_disconnect(rig);
	region_close(&rig->b, &rig->src);
	region_close(&rig->b, &rig->dst);
	bench_close(&rig->b);
	CHECK(fake_reset() == 0);
}

int rig_wait(struct rig *rig, struct vbn_op *op)
{
	CHECK(bench_wait(&rig->b, op, WAIT_MS) != -EINPROGRESS);
	return op->status;
}

void rig_works(struct rig *rig, struct side *side)
{
	static unsigned seed = 1;
	struct vbn_op op;

	region_fill(&rig->src, 5000, ++seed);
	memset(rig->dst.mem.addr, 0, 5000);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(&rig->b, side, &op, &rig->src, 5000, &rig->dst, false,
			0, false));
	CHECK(!rig_wait(rig, &op));
	CHECK(region_same(&rig->dst, 5000, seed));
}

static int post_atomic(struct rig *rig, struct vbn_op *op, bool more)
{
	static uint64_t result;
	struct atomic_args args = {.operand = 1,
				   .result = &result,
				   .remote = (uintptr_t)rig->dst.mem.addr,
				   .key = &rig->dst.announce,
				   .more = more};

	return rig->b.ops->atomic(rig->x.ep.conn, op, &args);
}

int rig_post(struct rig *rig, struct vbn_op *op, unsigned kind, bool more)
{
	struct get_args get = {.local = rig->src.mem.addr,
			       .len = 100,
			       .mem = &rig->src.mem,
			       .mem_handle = rig->src.handle,
			       .remote = (uintptr_t)rig->dst.mem.addr,
			       .key = &rig->dst.announce,
			       .more = more};

	switch (kind) {
	case 0:
		return side_put(&rig->b, &rig->x, op, &rig->src, 100, &rig->dst,
				false, 0, more);
	case 1:
		return side_put(&rig->b, &rig->x, op, &rig->src, 3000,
				&rig->dst, true, 7, more);
	case 2:
		return rig->b.ops->get(rig->x.ep.conn, op, &get);
	case 3:
		return post_atomic(rig, op, more);
	default:
		return rig->b.ops->flush(rig->x.ep.conn, op);
	}
}
