/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider's mailboxes: random sequences of messages against a
 * model that owns every byte, the rule at the ring's end, the promise of
 * mailbox_will_fit(), and the packing of immediates.
 */
#include "cunit_run.h"
#include "providers/verbs/mailbox.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE 2048

/* A ring, both of its ends, and what lies in it. */
struct model {
	uint8_t ring[UNITS_MAX * MAILBOX_UNIT];
	uint8_t owner[UNITS_MAX]; /* 1: holds a message not read yet */
	struct mailbox_out out;
	struct mailbox_in in;
	uint32_t lens[QUEUE]; /* written, not read: in units */
	unsigned head, tail, wrong;
};

static void model_init(struct model *m, uint32_t units)
{
	memset(m, 0, sizeof(*m));
	m->out.addr = (uintptr_t)m->ring;
	m->out.units = m->out.room = (uint16_t)units;
	m->in.base = m->ring;
	m->in.units = (uint16_t)units;
}

static void model_write(struct model *m, uint32_t n)
{
	uint64_t to = mailbox_put(&m->out, n) - m->out.addr;
	uint32_t unit = (uint32_t)(to / MAILBOX_UNIT);

	if (to % MAILBOX_UNIT || unit + n > m->out.units) {
		m->wrong++;
		return;
	}
	for (uint32_t i = unit; i < unit + n; i++) {
		m->wrong += m->owner[i]; /* would overwrite */
		m->owner[i] = 1;
		memset(m->ring + (size_t)i * MAILBOX_UNIT,
		       (uint8_t)(m->head + 1), MAILBOX_UNIT);
	}
	m->lens[m->head++ % QUEUE] = n;
}

static void model_read(struct model *m)
{
	uint32_t n = m->lens[m->tail % QUEUE], taken = 0;
	const uint8_t *p = mailbox_take(&m->in, n, &taken);

	m->tail++;
	if (!p || p < m->ring || taken < n) {
		m->wrong++;
		return;
	}
	for (size_t i = 0; i < (size_t)n * MAILBOX_UNIT; i++)
		m->wrong += p[i] != (uint8_t)m->tail;
	memset(m->owner + (p - m->ring) / MAILBOX_UNIT, 0, n);
	m->in.freed = (uint16_t)(m->in.freed + taken);
}

static void model_return(struct model *m)
{
	m->wrong += !mailbox_returned(&m->out, m->in.freed);
	m->in.freed = 0;
}

static void random_ring(uint32_t units, uint32_t longest)
{
	static struct model m;

	model_init(&m, units);
	srand(units + longest);
	for (int step = 0; step < 20000; step++) {
		uint32_t n = 1 + (uint32_t)rand() % longest;

		if (rand() % 2 && m.head - m.tail < QUEUE) {
			if (mailbox_fits(&m.out, n))
				model_write(&m, n);
		} else if (m.head != m.tail) {
			model_read(&m);
		}
		if (mailbox_owes(&m.in) || rand() % 16 == 0)
			model_return(&m);
		if (m.out.room > units || m.wrong)
			break;
	}
	while (m.head != m.tail)
		model_read(&m);
	model_return(&m);
	CU_ASSERT_EQUAL(m.wrong, 0);
	CU_ASSERT(m.head > 1000);
	CU_ASSERT_EQUAL(m.out.room, units); /* nothing lost, nothing gained */
	CU_ASSERT_EQUAL(m.out.at, m.in.at);
}

static void test_random(void)
{
	random_ring(16, 2);
	random_ring(16, 16);
	random_ring(17, 9);
	random_ring(256, 65);
	random_ring(1024, 65);
	random_ring(1024, 3);
}

static void test_rule(void)
{
	struct mailbox_out out = {
		.addr = 4096, .units = 16, .at = 0, .room = 16};
	uint8_t base[16 * MAILBOX_UNIT];
	struct mailbox_in in = {.base = base, .units = 16};
	uint32_t taken;

	CU_ASSERT_EQUAL(mailbox_units(1), 1);
	CU_ASSERT_EQUAL(mailbox_units(64), 1);
	CU_ASSERT_EQUAL(mailbox_units(65), 2);
	CU_ASSERT_EQUAL(mailbox_put(&out, 10), 4096);
	CU_ASSERT(mailbox_fits(&out, 6));
	CU_ASSERT(!mailbox_fits(&out, 7)); /* would begin at the start */
	CU_ASSERT_PTR_EQUAL(mailbox_take(&in, 10, &taken), base);
	CU_ASSERT_EQUAL(taken, 10);
	CU_ASSERT(mailbox_returned(&out, 10));
	CU_ASSERT(mailbox_fits(&out, 7));
	CU_ASSERT_EQUAL(mailbox_put(&out, 7), 4096);
	CU_ASSERT_EQUAL(out.room, 16 - 6 - 7);
	CU_ASSERT_PTR_EQUAL(mailbox_take(&in, 7, &taken), base);
	CU_ASSERT_EQUAL(taken, 13); /* what was skipped comes back with it */
	CU_ASSERT(mailbox_returned(&out, 13));
	CU_ASSERT_EQUAL(mailbox_put(&out, 9), 4096 + 7 * 64); /* to the end */
	CU_ASSERT_PTR_EQUAL(mailbox_take(&in, 9, &taken), base + 7 * 64);
	CU_ASSERT_EQUAL(taken, 9);
	CU_ASSERT(mailbox_returned(&out, 9));
	CU_ASSERT(!mailbox_fits(&out, 17));
	CU_ASSERT_EQUAL(mailbox_put(&out, 16), 4096); /* all of it */
	CU_ASSERT_PTR_EQUAL(mailbox_take(&in, 16, &taken), base);
	CU_ASSERT_EQUAL(taken, 16);
	CU_ASSERT_EQUAL(out.room, 0);
}

/* What a peer says that does not keep to the rule. */
static void test_hostile(void)
{
	struct mailbox_out out = {.units = 16, .room = 10};
	struct mailbox_in in = {.units = 16};
	uint32_t taken = 0;

	CU_ASSERT_PTR_NULL(mailbox_take(&in, 17, &taken));
	CU_ASSERT_EQUAL(in.at, 0);
	CU_ASSERT(!mailbox_returned(&out, 7));
	CU_ASSERT(!mailbox_returned(&out, 4095));
	CU_ASSERT_EQUAL(out.room, 10);
}

/*
 * Wherever the ring stands: when the receiver has read all and keeps as much
 * back as it may, a message of which mailbox_will_fit() said so fits. In rings
 * of 256 units and more that is every one of up to 65.
 */
static void test_will_fit(void)
{
	static const uint16_t sizes[] = {16, 17, 256, 1024};

	for (int s = 0; s < 4; s++) {
		for (uint16_t at = 0; at < sizes[s]; at++) {
			struct mailbox_out out = {
				.units = sizes[s],
				.at = at,
				.room = (uint16_t)(sizes[s] -
						   (sizes[s] / 2 - 1)),
			};

			for (uint32_t n = 1; n <= 65; n++) {
				bool fits = mailbox_fits(&out, n);

				CU_ASSERT_EQUAL(mailbox_will_fit(&out, n),
						fits);
				CU_ASSERT(fits || sizes[s] < 256);
			}
		}
	}
}

static void test_notices(void)
{
	for (uint32_t kind = 0; kind < 4; kind++) {
		bool data = kind == NOTICE_DATA;
		uint32_t values = data ? DATA_VALUES : NOTICE_VALUES;
		uint32_t most = data ? DATA_UNITS : UNITS_MAX;

		for (uint32_t value = 0; value < values; value += 7) {
			uint32_t units = value % (most + 1);
			uint32_t ring = value % 2;
			uint32_t imm = notice_pack(kind, value, ring, units);
			struct notice n = notice_unpack(imm);

			CU_ASSERT_EQUAL(imm >> CHANNEL_SHIFT, 0);
			CU_ASSERT(n.kind == kind && n.value == value &&
				  n.ring == ring && n.units == units);
		}
	}
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"the rule", test_rule},
		{"random sequences", test_random},
		{"peers that break it", test_hostile},
		{"what will fit", test_will_fit},
		{"notices", test_notices},
		CU_TEST_INFO_NULL,
	};

	CU_SuiteInfo suites[] = {
		{.pName = "verbs_mailbox", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
