/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which reduction kernel: by type, reduction and what the processor has. The
 * kernels are reduce_template.h's, compiled once for each instruction set.
 */
#include "reduce.h"

#include <errno.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { USER_BLOCK = 8192 }; /* bytes; with two sources' it fits in L1 */

static const struct {
	const char *name;
	size_t bytes;
} types[VBN_TYPES] = {
	[VBN_INT8] = {"int8", 1},	[VBN_UINT8] = {"uint8", 1},
	[VBN_INT32] = {"int32", 4},	[VBN_UINT32] = {"uint32", 4},
	[VBN_INT64] = {"int64", 8},	[VBN_UINT64] = {"uint64", 8},
	[VBN_FLOAT16] = {"float16", 2}, [VBN_BFLOAT16] = {"bfloat16", 2},
	[VBN_FLOAT32] = {"float32", 4}, [VBN_FLOAT64] = {"float64", 8},
};

static const char *const reductions[VBN_REDUCTIONS] = {
	[VBN_SUM] = "sum", [VBN_PRODUCT] = "product", [VBN_MIN] = "min",
	[VBN_MAX] = "max", [VBN_AVERAGE] = "average", [VBN_AND] = "and",
	[VBN_OR] = "or",   [VBN_XOR] = "xor",
};

static reduce_table *const tables[REDUCE_LEVELS] = {
	[REDUCE_PORTABLE] = &reduce_portable,
	[REDUCE_AVX2] = &reduce_avx2,
	[REDUCE_AVX512] = &reduce_avx512,
};

size_t vbn_type_bytes(enum vbn_type type)
{
	return (unsigned)type < VBN_TYPES ? types[type].bytes : 0;
}

const char *reduce_type_name(enum vbn_type type)
{
	return (unsigned)type < VBN_TYPES ? types[type].name : "unknown type";
}

const char *reduce_name(enum vbn_reduction reduction)
{
	if (reduction == VBN_USER)
		return "user's function";
	return (unsigned)reduction < VBN_REDUCTIONS ? reductions[reduction]
						    : "unknown reduction";
}

#if defined(__x86_64__)
/* clang 14 does not know the name "f16c". */
static bool has_f16c(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool reduce_level_has(enum reduce_level level)
{
	switch (level) {
	case REDUCE_PORTABLE:
		return true;
	case REDUCE_AVX2:
		return __builtin_cpu_supports("avx2") && has_f16c();
	case REDUCE_AVX512:
		return __builtin_cpu_supports("avx512f") &&
		       __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512vl");
	default:
		return false;
	}
}
#else
bool reduce_level_has(enum reduce_level level)
{
	return level == REDUCE_PORTABLE;
}
#endif

const struct reduce_kernel *reduce_find_level(enum reduce_level level,
					      enum vbn_type type,
					      enum vbn_reduction reduction,
					      bool wire16)
{
	const struct reduce_kernel *kernel;

	if ((unsigned)type >= VBN_TYPES ||
	    (unsigned)reduction >= VBN_REDUCTIONS || !reduce_level_has(level))
		return NULL;
	kernel = &(*tables[level])[type][reduction][wire16];
	return kernel->combine ? kernel : NULL;
}

const struct reduce_kernel *reduce_find(enum vbn_type type,
					enum vbn_reduction reduction,
					bool wire16)
{
	enum reduce_level level = REDUCE_LEVELS - 1;

	while (level > REDUCE_PORTABLE && !reduce_level_has(level))
		level--;
	return reduce_find_level(level, type, reduction, wire16);
}

static const struct reduce_user *user_of(const struct reduce_kernel *kernel)
{
	return (const struct reduce_user *)kernel;
}

static void user_combine(const struct reduce_kernel *kernel, unsigned form,
			 void *dst, const void *a, const void *b, size_t n,
			 unsigned members)
{
	const struct reduce_user *user = user_of(kernel);

	(void)form;
	(void)members;
	if (n > 0)
		user->fn(dst, a, b, n, user->type, user->arg);
}

static void user_convert(const struct reduce_kernel *kernel, unsigned form,
			 void *dst, const void *src, size_t n, unsigned members)
{
	(void)form;
	(void)members;
	if (n > 0)
		memmove(dst, src, n * kernel->narrow);
}

/* @n elements, @at bytes from the beginnings. dst may be a later source. */
static void user_block(const struct reduce_user *user, char *dst,
		       const void *const *src, unsigned k, size_t at, size_t n)
{
	_Alignas(64) char partial[USER_BLOCK];
	const char *sum = (const char *)src[0] + at;

	for (unsigned i = 1; i < k; i++) {
		char *to = i + 1 < k ? partial : dst + at;

		user->fn(to, sum, (const char *)src[i] + at, n, user->type,
			 user->arg);
		sum = to;
	}
}

static void user_many(const struct reduce_kernel *kernel, void *dst,
		      const void *const *src, unsigned k, size_t n,
		      unsigned members)
{
	size_t bytes = n * kernel->narrow;

	if (k == 1)
		user_convert(kernel, 0, dst, src[0], n, members);
	else
		for (size_t at = 0; at < bytes; at += USER_BLOCK) {
			size_t rest = bytes - at;

			user_block(user_of(kernel), dst, src, k, at,
				   (rest < USER_BLOCK ? rest : USER_BLOCK) /
					   kernel->narrow);
		}
}

int reduce_user(struct reduce_user *user, enum vbn_type type,
		vbn_reduction_fn *fn, void *arg)
{
	size_t bytes = vbn_type_bytes(type);

	if (bytes == 0 || !fn)
		return -EINVAL;
	*user = (struct reduce_user){
		.kernel = {bytes, bytes, user_combine, user_convert, user_many},
		.fn = fn,
		.type = type,
		.arg = arg,
	};
	return 0;
}
