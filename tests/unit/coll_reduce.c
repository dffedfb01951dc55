/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every reduction kernel of every level that the processor has, against
 * coll_reduce_ref.c, bit for bit: all pairs of special values, all 16-bit
 * values, every length around a vector at odd addresses, in place on either
 * side, long ranges, and nothing written outside.
 */
#include "coll_reduce_ref.h"
#include "cunit_run.h"
#include "reduce.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	WIDEST = 8,
	LONG = 3001,
	ROOM = LONG * WIDEST + 512,
	GUARD = 64,
	MEMBERS = 3,
	SOURCES = 9
};

/* One kernel, and what it is to do. */
struct trial {
	const struct reduce_kernel *kernel;
	struct ref_call call;
	bool wire16;
	unsigned form;
};

static char a[ROOM], b[ROOM], d[ROOM], want[ROOM];
static char sources[SOURCES][ROOM];

static uint64_t state = 12345;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* @run on every kernel of every level, in each form, with and without end. */
static void each(void (*run)(struct trial *trial))
{
	for (int i = 0; i < REDUCE_LEVELS * VBN_TYPES * VBN_REDUCTIONS * 2;
	     i++) {
		enum vbn_type type = i / 2 % VBN_TYPES;
		enum vbn_reduction reduction =
			i / 2 / VBN_TYPES % VBN_REDUCTIONS;
		enum reduce_level level = i / 2 / VBN_TYPES / VBN_REDUCTIONS;
		struct trial trial = {
			.kernel = reduce_find_level(level, type, reduction,
						    i % 2),
			.wire16 = i % 2,
		};

		for (unsigned j = 0; trial.kernel && j < 2 * REDUCE_FORMS;
		     j++) {
			const struct reduce_kernel *kernel = trial.kernel;
			bool widens = kernel->wide != kernel->narrow;

			if (!widens && j / 2 != 0 && j / 2 != REDUCE_FORMS - 1)
				continue;
			trial.form = j / 2;
			trial.call = (struct ref_call){
				.type = type,
				.reduction = reduction,
				.a_wide = widens && j / 2 & REDUCE_A_WIDE,
				.b_wide = widens && j / 2 & REDUCE_B_WIDE,
				.dst_wide = widens && j / 2 & REDUCE_DST_WIDE,
				.members = j % 2 ? MEMBERS : 1,
			};
			run(&trial);
		}
	}
}

static size_t bytes_of(const struct trial *t, bool wide)
{
	return wide ? t->kernel->wide : t->kernel->narrow;
}

static void expect_same(const struct trial *t, const char *got,
			const char *expected, size_t bytes, size_t n)
{
	if (memcmp(got, expected, bytes) == 0)
		return;
	for (size_t i = 0; i < bytes; i++)
		if (got[i] != expected[i]) {
			printf("\n  %s %s, wire16 %d, form %u, members %u, "
			       "n %zu: byte %zu differs\n",
			       reduce_type_name(t->call.type),
			       reduce_name(t->call.reduction), t->wire16,
			       t->form, t->call.members, n, i);
			break;
		}
	CU_FAIL_FATAL("other bits than the reference");
}

/* Through the function that a caller would use. */
static void combine(const struct trial *t, void *dst, const void *x,
		    const void *y, size_t n)
{
	if (t->call.members == 1)
		reduce_run(t->kernel, t->form, dst, x, y, n);
	else
		reduce_finish(t->kernel, t->form, dst, x, y, n,
			      t->call.members);
}

static void reference(const struct trial *t, char *dst, const char *x,
		      const char *y, size_t n)
{
	size_t xs = bytes_of(t, t->call.a_wide);
	size_t ys = bytes_of(t, t->call.b_wide);
	size_t ds = bytes_of(t, t->call.dst_wide);

	for (size_t i = 0; i < n; i++)
		ref_combine(&t->call, dst + i * ds, x + i * xs, y + i * ys);
}

/* ---- special values ---- */

static void put_special(const struct trial *t, bool wide, char *to, int i)
{
	ref_special(t->call.type, bytes_of(t, wide), i, to);
}

static void special_pairs(struct trial *t)
{
	const size_t n = (size_t)REF_SPECIALS * REF_SPECIALS;

	for (int i = 0; i < REF_SPECIALS * REF_SPECIALS; i++) {
		put_special(t, t->call.a_wide,
			    a + i * bytes_of(t, t->call.a_wide),
			    i / REF_SPECIALS);
		put_special(t, t->call.b_wide,
			    b + i * bytes_of(t, t->call.b_wide),
			    i % REF_SPECIALS);
	}
	combine(t, d, a, b, n);
	reference(t, want, a, b, n);
	expect_same(t, d, want, n * bytes_of(t, t->call.dst_wide), n);
}

static void specials(void)
{
	each(special_pairs);
}

/* ---- lengths, addresses, places ---- */

/* Random bits, and often enough numbers whose sums are in range. */
static void fill(const struct trial *t, bool wide, char *to, size_t n)
{
	size_t bytes = bytes_of(t, wide);

	for (size_t i = 0; i < n; i++) {
		uint64_t bits = draw();
		double value = (double)(int32_t)draw() / 65536;
		float single = (float)value;
		uint16_t half;

		if (draw() % 8 == 0) {
			put_special(t, wide, to + i * bytes,
				    (int)(draw() % REF_SPECIALS));
			continue;
		}
		if (ref_floating(t->call.type) && bits % 4) {
			half = bytes == 2 ? ref_narrow(t->call.type, single)
					  : 0;
			memcpy(&bits,
			       bytes == 8   ? (void *)&value
			       : bytes == 4 ? (void *)&single
					    : (void *)&half,
			       bytes);
		}
		memcpy(to + i * bytes, &bits, bytes);
	}
}

/* @place: 0 a third buffer, 1 the first operand, 2 the second. */
static void at_place(const struct trial *t, size_t n, size_t at, int place)
{
	char *x = a + GUARD + at % 9, *y = b + GUARD + at / 9 % 9;
	char *places[] = {d + GUARD + at / 81 % 70, x, y};
	char *wholes[] = {d, a, b};
	char *to = places[place], *whole = wholes[place];
	size_t used = GUARD * 2 + 80 + n * WIDEST;

	memset(a, 0x5a, used);
	memset(b, 0x5a, used);
	memset(d, 0x5a, used);
	fill(t, t->call.a_wide, x, n);
	fill(t, t->call.b_wide, y, n);
	memcpy(want, whole, used);
	reference(t, want + (to - whole), x, y, n);
	combine(t, to, x, y, n);
	expect_same(t, whole, want, used, n);
}

static void at_places(const struct trial *t, size_t n, size_t at)
{
	size_t ds = bytes_of(t, t->call.dst_wide);

	at_place(t, n, at, 0);
	if (bytes_of(t, t->call.a_wide) == ds)
		at_place(t, n, at, 1);
	if (bytes_of(t, t->call.b_wide) == ds)
		at_place(t, n, at, 2);
}

static void short_ranges(struct trial *t)
{
	for (size_t n = 0; n <= 70; n++)
		at_places(t, n, draw() % 100000);
}

static void long_ranges(struct trial *t)
{
	at_places(t, LONG, draw() % 100000);
	at_places(t, 200 + draw() % 1500, draw() % 100000);
}

static void lengths(void)
{
	each(short_ranges);
}

static void bulk(void)
{
	each(long_ranges);
}

/* ---- conversions ---- */

static void expect_converted(const struct trial *t, const char *src, size_t n)
{
	size_t in = bytes_of(t, t->call.a_wide);
	size_t out = bytes_of(t, t->call.dst_wide);

	memset(d, 0x5a, n * out + 1);
	for (size_t i = 0; i < n; i++)
		ref_convert(&t->call, want + i * out, src + i * in);
	want[n * out] = 0x5a;
	reduce_convert(t->kernel, t->form, d, src, n, t->call.members);
	expect_same(t, d, want, n * out + 1, n);
}

static void convert_random(struct trial *t)
{
	static const size_t lengths_tried[] = {0, 1, 5, 63, 70, LONG};

	if (t->form & REDUCE_B_WIDE)
		return;
	for (size_t i = 0; i < sizeof(lengths_tried) / sizeof(size_t); i++) {
		size_t at = draw() % 9;

		fill(t, t->call.a_wide, a + at, lengths_tried[i]);
		expect_converted(t, a + at, lengths_tried[i]);
	}
}

/* All values; narrow, each and what lies between it and the next. */
static void convert_all(struct trial *t)
{
	enum { BLOCK = 1024 };
	const enum vbn_type type = t->call.type;

	if (!ref_widens(type, t->call.reduction) || t->wire16 ||
	    t->call.members != 1 || t->form & REDUCE_B_WIDE ||
	    t->call.a_wide == t->call.dst_wide)
		return;
	for (unsigned bits = 0; bits < 65536; bits += BLOCK) {
		for (unsigned i = 0; !t->call.a_wide && i < BLOCK; i++) {
			uint16_t value = (uint16_t)(bits + i);

			memcpy(a + i * sizeof(value), &value, sizeof(value));
		}
		for (unsigned i = 0; t->call.a_wide && i < BLOCK; i++) {
			float x = ref_widen(type, (uint16_t)(bits + i));
			float y = ref_widen(type, (uint16_t)(bits + i + 1));
			float tie = x / 2 + y / 2;
			float values[] = {x, tie, nextafterf(tie, x),
					  nextafterf(tie, y)};

			memcpy(a + i * sizeof(values), values, sizeof(values));
		}
		expect_converted(t, a, t->call.a_wide ? BLOCK * 4 : BLOCK);
	}
}

static void conversions(void)
{
	each(convert_random);
	each(convert_all);
}

/* What is widened and narrowed again is itself. */
static void round_trip(struct trial *t)
{
	const enum vbn_type type = t->call.type;
	uint32_t wide;
	uint16_t back;

	if (t->form != 0 || t->wire16 || !ref_widens(type, t->call.reduction))
		return;
	for (unsigned bits = 0; bits < 65536; bits++) {
		uint16_t value = (uint16_t)bits;
		unsigned inf = type == VBN_FLOAT16 ? 0x7c00 : 0x7f80;

		reduce_convert(t->kernel, REDUCE_DST_WIDE, &wide, &value, 1, 1);
		reduce_convert(t->kernel, REDUCE_A_WIDE, &back, &wide, 1, 1);
		CU_ASSERT_FATAL((bits & 0x7fff) > inf ? (back & 0x7fff) > inf
						      : back == value);
	}
}

static void round_trips(void)
{
	each(round_trip);
}

/* ---- many sources ---- */

/* Partial results wide, where there are any wide ones. */
static void reference_many(const struct trial *t, char *dst,
			   const void *const *src, unsigned k, size_t n)
{
	size_t bytes = t->kernel->narrow;
	bool widens = ref_widens(t->call.type, t->call.reduction);
	char partial[WIDEST];

	for (size_t i = 0; i < n; i++) {
		struct ref_call call = t->call;

		call.dst_wide = widens;
		call.a_wide = call.b_wide = false;
		call.members = 1;
		ref_convert(&call, partial, (const char *)src[0] + i * bytes);
		call.a_wide = widens;
		for (unsigned j = 1; j < k; j++) {
			if (j == k - 1) {
				call.dst_wide = false;
				call.members = t->call.members;
			}
			ref_combine(&call, partial, partial,
				    (const char *)src[j] + i * bytes);
		}
		memcpy(dst + i * bytes, partial, bytes);
	}
}

/* @place: the source that is the result too, or k for none. */
static void many_at_place(const struct trial *t, unsigned k, unsigned place,
			  size_t n)
{
	const void *src[SOURCES];
	size_t used = GUARD * 2 + n * WIDEST;
	char *whole = place < k ? sources[place] : d;
	char *to = whole + 1 + draw() % GUARD;

	memset(d, 0x5a, used);
	for (unsigned i = 0; i < k; i++) {
		char *from = i == place ? to : sources[i] + draw() % GUARD;

		memset(sources[i], 0x5a, used);
		fill(t, false, from, n);
		src[i] = from;
	}
	memcpy(want, whole, used);
	reference_many(t, want + (to - whole), src, k, n);
	reduce_many(t->kernel, to, src, k, n, t->call.members);
	expect_same(t, whole, want, used, n);
}

static void many_sources(struct trial *t)
{
	static const size_t ns[] = {0, 1, 7, 64, 333, LONG};

	if (t->form != 0)
		return;
	for (unsigned k = 2; k <= SOURCES; k++)
		many_at_place(t, k, (unsigned)(draw() % (k + 1)),
			      ns[draw() % 6]);
	for (unsigned place = 0; place <= 4; place++)
		many_at_place(t, 4, place, 100 + draw() % 200);
}

static void many(void)
{
	each(many_sources);
}

/* What reduces to itself, but for the NaN; an average is divided. */
static void one_source(struct trial *t)
{
	const void *src[] = {a};
	struct ref_call call = t->call;

	if (t->form != 0)
		return;
	call.reduction = VBN_MIN;
	fill(t, false, a, LONG);
	for (size_t i = 0; i < LONG * t->kernel->narrow; i += t->kernel->narrow)
		if (t->call.reduction == VBN_AVERAGE && t->call.members != 1)
			ref_convert(&t->call, want + i, a + i);
		else
			ref_combine(&call, want + i, a + i, a + i);
	reduce_many(t->kernel, d, src, 1, LONG, t->call.members);
	expect_same(t, d, want, LONG * t->kernel->narrow, LONG);
}

static void one(void)
{
	each(one_source);
}

/* ---- what partial results are for ---- */

/* bfloat16 has 8 bits of fraction: 256 + 1 is 256 in it. */
static void ones(struct trial *t)
{
	enum { N = 4096 };
	static const uint16_t one_bits = 0x3f80;
	static const void *src[N];
	uint32_t partial = 0;
	uint16_t sum = one_bits;
	unsigned form = REDUCE_A_WIDE | REDUCE_DST_WIDE;

	if (t->call.type != VBN_BFLOAT16 || t->call.reduction != VBN_SUM ||
	    t->form != 0)
		return;
	reduce_convert(t->kernel, REDUCE_DST_WIDE, &partial, &one_bits, 1, 1);
	for (int i = 1; i < N; i++)
		reduce_run(t->kernel, form, &partial, &partial, &one_bits, 1);
	reduce_convert(t->kernel, REDUCE_A_WIDE, &sum, &partial, 1, 1);
	CU_ASSERT_EQUAL(ref_widen(VBN_BFLOAT16, sum), t->wire16 ? 256 : N);
	for (int i = 0; i < N; i++)
		src[i] = &one_bits;
	reduce_many(t->kernel, &sum, src, N, 1, 1);
	CU_ASSERT_EQUAL(ref_widen(VBN_BFLOAT16, sum), N);
}

static void partials(void)
{
	each(ones);
}

/* ---- functions of the user ---- */

static int calls;

/* Neither commutative nor associative: shows the order. */
static void user_fn(void *dst, const void *x, const void *y, size_t n,
		    enum vbn_type type, void *arg)
{
	CU_ASSERT(n > 0 && type == VBN_UINT32 && arg == &calls);
	calls++;
	for (size_t i = 0; i < n; i++) {
		uint32_t p, q;

		memcpy(&p, (const char *)x + i * 4, 4);
		memcpy(&q, (const char *)y + i * 4, 4);
		p = p * 3 + q;
		memcpy((char *)dst + i * 4, &p, 4);
	}
}

static void user_many(const struct reduce_kernel *kernel, unsigned k,
		      unsigned place, size_t n)
{
	const void *src[SOURCES];
	static uint32_t expected[LONG];
	uint32_t got;
	char *to = place < k ? sources[place] + 1 : d + 3;

	for (unsigned j = 0; j < k; j++) {
		src[j] = sources[j] + 1;
		for (size_t i = 0; i < n; i++) {
			uint32_t value = (uint32_t)draw();

			expected[i] = j ? expected[i] * 3 + value : value;
			memcpy(sources[j] + 1 + i * 4, &value, 4);
		}
	}
	reduce_many(kernel, to, src, k, n, MEMBERS);
	for (size_t i = 0; i < n; i++) {
		memcpy(&got, to + i * 4, 4);
		CU_ASSERT_FATAL(got == expected[i]);
	}
}

static void user(void)
{
	struct reduce_user made;
	uint32_t x = 5, y = 7, z = 0;

	CU_ASSERT_EQUAL(reduce_user(&made, VBN_TYPES, user_fn, NULL), -EINVAL);
	CU_ASSERT_EQUAL(reduce_user(&made, VBN_INT8, NULL, NULL), -EINVAL);
	CU_ASSERT_EQUAL(reduce_user(&made, VBN_UINT32, user_fn, &calls), 0);
	CU_ASSERT(made.kernel.narrow == 4 && made.kernel.wide == 4);
	for (unsigned form = 0; form < REDUCE_FORMS; form++) {
		reduce_run(&made.kernel, form, &z, &x, &y, 1);
		CU_ASSERT_EQUAL(z, 22);
		reduce_finish(&made.kernel, form, &z, &y, &x, 1, MEMBERS);
		CU_ASSERT_EQUAL(z, 26);
		reduce_convert(&made.kernel, form, &z, &x, 1, MEMBERS);
		CU_ASSERT_EQUAL(z, 5);
	}
	CU_ASSERT_EQUAL(calls, 2 * REDUCE_FORMS);
	reduce_run(&made.kernel, 0, &z, &x, &y, 0);
	CU_ASSERT_EQUAL(calls, 2 * REDUCE_FORMS);
	for (unsigned k = 1; k <= 5; k++)
		for (unsigned place = 0; place <= k; place++) {
			user_many(&made.kernel, k, place, LONG);
			user_many(&made.kernel, k, place, 1);
			user_many(&made.kernel, k, place, 0);
		}
}

/* ---- which kernels there are ---- */

static void check_entry(enum vbn_type type, enum vbn_reduction reduction)
{
	bool has = ref_has(type, reduction);
	enum reduce_level best = REDUCE_LEVELS - 1;

	while (!reduce_level_has(best))
		best--;
	for (int wire16 = 0; wire16 < 2; wire16++) {
		const struct reduce_kernel *kernel =
			reduce_find(type, reduction, wire16);

		CU_ASSERT_EQUAL(kernel != NULL, has);
		CU_ASSERT_PTR_EQUAL(
			kernel,
			reduce_find_level(best, type, reduction, wire16));
		if (!kernel)
			continue;
		CU_ASSERT_EQUAL(kernel->narrow, vbn_type_bytes(type));
		CU_ASSERT_EQUAL(kernel->wide,
				ref_widens(type, reduction) && !wire16
					? 4
					: vbn_type_bytes(type));
	}
	CU_ASSERT_PTR_NOT_NULL(reduce_name(reduction));
	CU_ASSERT_PTR_NOT_NULL(reduce_type_name(type));
}

static void table(void)
{
	for (int level = 0; level < REDUCE_LEVELS; level++)
		printf("\n  level %d: %s", level,
		       reduce_level_has((enum reduce_level)level)
			       ? "tested"
			       : "skipped, the processor does not have it");
	CU_ASSERT(reduce_level_has(REDUCE_PORTABLE));
	CU_ASSERT(!reduce_level_has(REDUCE_LEVELS));
	for (int type = -1; type <= VBN_TYPES; type++)
		for (int reduction = -1; reduction <= VBN_REDUCTIONS;
		     reduction++)
			check_entry((enum vbn_type)type,
				    (enum vbn_reduction)reduction);
	CU_ASSERT_EQUAL(vbn_type_bytes(VBN_BFLOAT16), 2);
	CU_ASSERT_EQUAL(vbn_type_bytes(VBN_FLOAT64), 8);
	CU_ASSERT_EQUAL(vbn_type_bytes(VBN_TYPES), 0);
	CU_ASSERT_EQUAL(vbn_type_bytes((enum vbn_type) - 1), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"which kernels there are", table},
		{"special values", specials},
		{"lengths and addresses", lengths},
		{"long ranges", bulk},
		{"conversions", conversions},
		{"round trips", round_trips},
		{"many sources", many},
		{"one source", one},
		{"4096 ones", partials},
		{"functions of the user", user},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "reduce", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
