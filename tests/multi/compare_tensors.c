/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compare_tensors TOLERANCE REFERENCE... -- FILE...: the dumps of a model's
 * stages (dump.c of the trainer) in two layouts hold the same tensors. The
 * error of a tensor is |a - b| / |a| in the 2-norm; a reference of only zeros
 * is an error, as it would agree with anything that failed alike. A tensor
 * that both of two stages hold (tied) is compared in both.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_MAX 4096

struct tensor {
	char name[64];
	size_t count;
	double *values;
};

struct set {
	struct tensor tensors[TENSORS_MAX];
	int n;
};

static double *read_values(FILE *file, size_t count, const char *type)
{
	double *values = malloc(count * sizeof(double));
	float one;

	if (!values)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		size_t got;

		if (!strcmp(type, "double")) {
			got = fread(&values[i], sizeof(double), 1, file);
		} else {
			got = fread(&one, sizeof(float), 1, file);
			values[i] = (double)one;
		}
		if (got != 1) {
			free(values);
			return NULL;
		}
	}
	return values;
}

static int read_file(struct set *set, const char *path)
{
	FILE *file = fopen(path, "rb");
	char type[16];
	int n = 0;

	if (!file) {
		perror(path);
		return -1;
	}
	for (;; n++) {
		struct tensor *t = &set->tensors[set->n];

		if (set->n == TENSORS_MAX ||
		    fscanf(file, "%63s %zu %15s", t->name, &t->count, type) !=
			    3 ||
		    fgetc(file) != '\n')
			break;
		t->values = read_values(file, t->count, type);
		if (!t->values) {
			fprintf(stderr, "%s: cut off in %s\n", path, t->name);
			fclose(file);
			return -1;
		}
		set->n++;
	}
	fclose(file);
	return n ? 0 : -1;
}

static const struct tensor *find(const struct set *set, const char *name)
{
	for (int i = 0; i < set->n; i++)
		if (!strcmp(set->tensors[i].name, name))
			return &set->tensors[i];
	return NULL;
}

/* Relative error, or a huge one when there is nothing to compare. */
static double error_of(const struct tensor *a, const struct tensor *b)
{
	double diff = 0, norm = 0;

	if (!a || a->count != b->count)
		return INFINITY;
	for (size_t i = 0; i < a->count; i++) {
		double d = a->values[i] - b->values[i];

		diff += d * d;
		norm += a->values[i] * a->values[i];
	}
	if (!(norm > 0) || !isfinite(norm) || !isfinite(diff))
		return INFINITY;
	return sqrt(diff / norm);
}

int main(int argc, char **argv)
{
	static struct set sets[2];
	double tolerance, worst = 0;
	const char *name = "";
	int which = 0;

	if (argc < 5) {
		fprintf(stderr, "usage: compare_tensors TOLERANCE REFERENCE... "
				"-- FILE...\n");
		return 2;
	}
	tolerance = strtod(argv[1], NULL);
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--"))
			which = 1;
		else if (read_file(&sets[which], argv[i]))
			return 1;
	}
	if (!sets[1].n)
		return 1;
	for (int i = 0; i < sets[1].n; i++) {
		const struct tensor *b = &sets[1].tensors[i];
		double e = error_of(find(&sets[0], b->name), b);

		if (e >= worst) {
			worst = e;
			name = b->name;
		}
	}
	for (int i = 0; i < sets[0].n; i++)
		if (!find(&sets[1], sets[0].tensors[i].name))
			worst = INFINITY;
	printf("%d tensors, worst relative error %.2g (%s)\n", sets[1].n, worst,
	       name);
	return worst <= tolerance ? 0 : 1;
}
