/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice: what is admissible, at which chunk, and which of it.
 */
#include "choose.h"

#include <stdio.h>

/* Smaller chunks are not tried; each of twice the size is. */
#define CHUNK_LEAST ((uint64_t)32 << 10)
/* What a part has where only its owners know. */
#define UNKNOWN_PART ((uint64_t)64 << 10)

/* ---- what is admissible ---- */

static bool reduces(enum plan_operation operation)
{
	return operation == PLAN_OP_ALLREDUCE || operation == PLAN_OP_REDUCE ||
	       operation == PLAN_OP_REDUCE_SCATTER;
}

const char *choose_refusal(const struct choice_input *in,
			   enum plan_algorithm algorithm)
{
	const struct plan_algo *algo = plan_find(in->operation, algorithm);

	if (!algo)
		return "is not there: use auto";
	if (algo->power_of_two && (in->n & (in->n - 1)))
		return "is for a power of two of members: use auto";
	if (algo->even && in->uneven)
		return "is for parts of one length: use auto";
	if (algo->apart && in->in_place)
		return "is not there in place: use auto";
	if (algo->mapped && !in->may_map)
		return "is for members that all share memory: one host, provider shm";
	if (in->in_order && reduces(in->operation) && !algo->in_order)
		return "is not reproducible: it does not sum in the order of the members";
	if (in->unknown && algorithm == PLAN_TREE)
		return "of different parts: members between do not know their sizes; use linear";
	return NULL;
}

/* Whether it is worth a thought; one host, or a rank on each: one phase. */
static bool is_candidate(const struct choice_input *in,
			 enum plan_algorithm algorithm)
{
	if (algorithm == PLAN_LOCAL || (algorithm == PLAN_HIERARCHICAL &&
					(in->hosts == 1 || in->hosts == in->n)))
		return false;
	return !choose_refusal(in, algorithm);
}

/* ---- prices ---- */

static uint64_t bytes_of(const struct choice_input *in)
{
	return in->unknown ? (uint64_t)in->n * UNKNOWN_PART : in->bytes;
}

static struct cost_case case_of(const struct choice_input *in)
{
	return (struct cost_case){
		.operation = in->operation,
		.n = in->n,
		.hosts = in->hosts,
		.bytes = (double)bytes_of(in),
		.widen = in->wide ? 2 : 1,
	};
}

static const struct cost_params *params_of(const struct choice_input *in)
{
	return in->tuning ? &in->tuning->params : &cost_usual;
}

static uint64_t at_most(uint64_t chunk, const struct choice_input *in)
{
	return chunk < in->chunk_most ? chunk : in->chunk_most;
}

/* Algorithm, chunk and time, the chunk being the best if none is asked for. */
static void price(const struct choice_input *in, const struct cost_case *what,
		  enum plan_algorithm algorithm, uint64_t asked,
		  struct choice *out)
{
	double piece = cost_piece(what, algorithm);
	uint64_t chunk = at_most(asked ? asked : CHUNK_LEAST, in);

	out->algorithm = algorithm;
	out->chunk = chunk;
	out->predicted =
		cost_predict(params_of(in), what, algorithm, (double)chunk);
	while (!asked && chunk < in->chunk_most && (double)chunk < piece) {
		double time;

		chunk = at_most(2 * chunk, in);
		time = cost_predict(params_of(in), what, algorithm,
				    (double)chunk);
		if (time < out->predicted) {
			out->predicted = time;
			out->chunk = chunk;
		}
	}
}

/* ---- the choice ---- */

static void say(struct choice *out, const char *why)
{
	snprintf(out->why, sizeof(out->why), "%s", why);
}

static void say_next(struct choice *out, const struct choice *next)
{
	snprintf(out->why, sizeof(out->why), "by the model; next: %s %.1f us",
		 plan_name(next->algorithm), next->predicted * 1e6);
}

/* The first admissible of the file's lines for such a call. */
static bool choose_tuned(const struct choice_input *in,
			 const struct cost_case *what, struct choice *out)
{
	const struct tuning_line *line = NULL;
	size_t lines = 0;

	if (in->tuning)
		lines = tuning_find(in->tuning, in->operation, in->n,
				    bytes_of(in), &line);
	for (; lines > 0; lines--, line++) {
		if (!is_candidate(in, line->algorithm))
			continue;
		price(in, what, line->algorithm,
		      in->chunk ? in->chunk : line->chunk, out);
		snprintf(out->why, sizeof(out->why),
			 "line %zu of the tuning file, for %llu bytes",
			 line->at, (unsigned long long)line->bytes);
		return true;
	}
	return false;
}

static void choose_least(const struct choice_input *in,
			 const struct cost_case *what, struct choice *out)
{
	struct choice next = {0};
	unsigned candidates = 0;

	for (int a = 0; a < PLAN_ALGORITHMS; a++) {
		enum plan_algorithm algorithm = (enum plan_algorithm)a;
		struct choice this;

		if (!is_candidate(in, algorithm))
			continue;
		price(in, what, algorithm, in->chunk, &this);
		if (candidates == 0 || this.predicted < out->predicted) {
			next = *out;
			*out = this;
		} else if (candidates == 1 || this.predicted < next.predicted) {
			next = this;
		}
		candidates++;
	}
	if (candidates < 2)
		say(out, "the only one");
	else
		say_next(out, &next);
}

void choose(const struct choice_input *in, struct choice *out)
{
	const struct cost_case what = case_of(in);

	*out = (struct choice){0};
	if (in->n == 1) {
		price(in, &what, PLAN_LOCAL, in->chunk, out);
		say(out, "the only one");
	} else if (!choose_tuned(in, &what, out)) {
		choose_least(in, &what, out);
	}
}

void choose_asked(const struct choice_input *in, enum plan_algorithm algorithm,
		  struct choice *out)
{
	const struct cost_case what = case_of(in);

	price(in, &what, algorithm, in->chunk, out);
	say(out, "asked for");
}
