/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * SGD and AdamW over contiguous buffers. The tensor list is walked only to
 * learn which ranges decay.
 */
#include "optimizer.h"

#include "simd.h"

#include <errno.h>
#include <stdlib.h>

struct range {
	size_t begin, end;
	bool decay;
};

struct optimizer {
	struct optimizer_config config;
	struct range *ranges; /* ascending, without gaps */
	int range_count;
	real *state; /* [2, count] */
	size_t count;
};

/* AdamW's factors in one step, the same for all elements. */
struct factors {
	real beta1, beta2;
	real rate;    /* lr / (1 - beta1^step) */
	real unbias2; /* 1 / (1 - beta2^step) */
	real epsilon;
	real shrink; /* lr * decay */
};

struct optimizer_config optimizer_defaults(enum optimizer_kind kind, double lr,
					   uint64_t total_steps)
{
	const uint64_t tenth = total_steps / 10;

	return (struct optimizer_config){
		.kind = kind,
		.lr = lr,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.epsilon = 1e-8,
		.decay = 0.1,
		.warmup_steps = tenth < 100 ? tenth : 100,
		.total_steps = total_steps,
		.lr_floor = 0.1,
	};
}

double optimizer_lr(const struct optimizer_config *config, uint64_t step)
{
	const uint64_t warmup = config->warmup_steps;
	const uint64_t total = config->total_steps;
	const double floor = config->lr * config->lr_floor;
	double done;

	if (config->kind == OPTIMIZER_SGD)
		return config->lr;
	if (step < warmup)
		return config->lr * (double)step / (double)warmup;
	if (step >= total)
		return total > warmup ? floor : config->lr;
	done = (double)(step - warmup) / (double)(total - warmup);
	return floor + (config->lr - floor) * 0.5 * (1 + cos(M_PI * done));
}

int optimizer_create(const struct optimizer_config *config,
		     const struct tensor *tensors, int count,
		     struct optimizer **out)
{
	struct optimizer *optimizer = calloc(1, sizeof(*optimizer));

	if (!optimizer)
		return -ENOMEM;
	optimizer->config = *config;
	optimizer->range_count = count;
	optimizer->ranges =
		calloc((size_t)count + 1, sizeof(*optimizer->ranges));
	if (!optimizer->ranges)
		goto destroy;
	for (int i = 0; i < count; i++) {
		optimizer->ranges[i] = (struct range){
			.begin = tensors[i].offset,
			.end = tensors[i].offset + tensors[i].count,
			.decay = tensors[i].decay,
		};
		optimizer->count += tensors[i].count;
	}
	if (config->kind == OPTIMIZER_ADAMW) {
		optimizer->state =
			calloc(2 * optimizer->count + 1, sizeof(real));
		if (!optimizer->state)
			goto destroy;
	}
	*out = optimizer;
	return 0;
destroy:
	optimizer_destroy(optimizer);
	return -ENOMEM;
}

void optimizer_destroy(struct optimizer *optimizer)
{
	if (!optimizer)
		return;
	free(optimizer->state);
	free(optimizer->ranges);
	free(optimizer);
}

static vreal simd_sqrt(vreal v)
{
	for (int i = 0; i < SIMD_LANES; i++)
		v[i] = (real)__builtin_sqrt((double)v[i]);
	return v;
}

static inline void adamw(const struct factors *f, vreal g, vreal *p, vreal *m,
			 vreal *v)
{
	*m = *m * f->beta1 + g * (1 - f->beta1);
	*v = *v * f->beta2 + g * g * (1 - f->beta2);
	*p -= *m * f->rate / (simd_sqrt(*v * f->unbias2) + f->epsilon) +
	      *p * f->shrink;
}

static void adamw_range(const struct factors *f, size_t count, const real *g,
			real *p, real *m, real *v)
{
	const size_t lanes = (size_t)SIMD_LANES;
	vreal vp, vm, vv;
	size_t i = 0;

	for (; i + lanes <= count; i += lanes) {
		vp = simd_load(p + i);
		vm = simd_load(m + i);
		vv = simd_load(v + i);
		adamw(f, simd_load(g + i), &vp, &vm, &vv);
		simd_store(p + i, vp);
		simd_store(m + i, vm);
		simd_store(v + i, vv);
	}
	if (i < count) {
		const int n = (int)(count - i);

		vp = simd_load_part(p + i, n, 0);
		vm = simd_load_part(m + i, n, 0);
		vv = simd_load_part(v + i, n, 0);
		adamw(f, simd_load_part(g + i, n, 0), &vp, &vm, &vv);
		simd_store_part(p + i, n, vp);
		simd_store_part(m + i, n, vm);
		simd_store_part(v + i, n, vv);
	}
}

static struct factors step_factors(const struct optimizer_config *config,
				   uint64_t step)
{
	const double lr = optimizer_lr(config, step);

	return (struct factors){
		.beta1 = (real)config->beta1,
		.beta2 = (real)config->beta2,
		.rate = (real)(lr / (1 - pow(config->beta1, (double)step))),
		.unbias2 = (real)(1 / (1 - pow(config->beta2, (double)step))),
		.epsilon = (real)config->epsilon,
		.shrink = (real)(lr * config->decay),
	};
}

static void update_adamw(struct optimizer *optimizer, uint64_t step,
			 size_t begin, size_t end, real *params,
			 const real *grads)
{
	real *m = optimizer->state, *v = m + optimizer->count;
	struct factors f = step_factors(&optimizer->config, step);
	const real shrink = f.shrink;

	for (int i = 0; i < optimizer->range_count; i++) {
		const struct range *range = &optimizer->ranges[i];
		const size_t from = range->begin > begin ? range->begin : begin;
		const size_t to = range->end < end ? range->end : end;

		if (from >= to)
			continue;
		f.shrink = range->decay ? shrink : 0;
		adamw_range(&f, to - from, grads + from, params + from,
			    m + from, v + from);
	}
}

void optimizer_update(struct optimizer *optimizer, uint64_t step, size_t begin,
		      size_t end, real *params, const real *grads)
{
	const real lr = (real)optimizer_lr(&optimizer->config, step);

	if (optimizer->config.kind == OPTIMIZER_ADAMW) {
		update_adamw(optimizer, step, begin, end, params, grads);
		return;
	}
	for (size_t i = begin; i < end; i++)
		params[i] -= lr * grads[i];
}

real *optimizer_state(struct optimizer *optimizer, size_t *count)
{
	*count = optimizer->state ? 2 * optimizer->count : 0;
	return optimizer->state;
}
