/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows that cover all pairs, greedily: a row begins with a pair that is still
 * missing and takes, factor by factor, the level that brings most new pairs.
 * A pure function: all ranks get the same rows.
 */
#include "coll.h"

#include <string.h>

void rows_begin(struct rows *rows)
{
	int at = 0;

	rows->turn = 0;
	rows->lost = 0;
	memset(rows->covered, 0, sizeof(rows->covered));
	for (int f = 0; f < rows->factors; f++) {
		rows->first[f] = at;
		at += rows->levels[f];
	}
}

static bool *pair(struct rows *rows, int f, int a, int g, int b)
{
	return &rows->covered[rows->first[f] + a][rows->first[g] + b];
}

/* New pairs that level @a of @f brings to the row so far; -1: does not go. */
static int gain(struct rows *rows, const int *row, int f, int a)
{
	int new = 0;

	for (int g = 0; g < rows->factors; g++) {
		if (g == f || row[g] < 0)
			continue;
		if (!rows->goes(f, a, g, row[g]) ||
		    !rows->goes(g, row[g], f, a))
			return -1;
		new += !*pair(rows, f, a, g, row[g]);
	}
	return new;
}

static bool complete(struct rows *rows, int *row)
{
	for (int f = 0; f < rows->factors; f++) {
		int best = -1, most = -1;

		if (row[f] >= 0)
			continue;
		for (int i = 0; i < rows->levels[f]; i++) {
			/* Ties go to another level each time. */
			int a = (int)((rows->turn + (unsigned)i) %
				      (unsigned)rows->levels[f]);
			int new = gain(rows, row, f, a);

			if (new > most) {
				most = new;
				best = a;
			}
		}
		if (best < 0)
			return false;
		row[f] = best;
	}
	rows->turn = rows->turn * 5 + 3;
	return true;
}

/* A row around this pair; the pair counts as done if nothing goes with it. */
static bool row_with(struct rows *rows, int *row, int f, int a, int g, int b)
{
	bool *done = pair(rows, f, a, g, b);

	if (*done)
		return false;
	*done = *pair(rows, g, b, f, a) = true;
	if (!rows->goes(f, a, g, b) || !rows->goes(g, b, f, a))
		return false;
	for (int i = 0; i < FACTORS_MOST; i++)
		row[i] = -1;
	row[f] = a;
	row[g] = b;
	if (!complete(rows, row)) {
		rows->lost++;
		return false;
	}
	for (int i = 0; i < rows->factors; i++)
		for (int j = 0; j < rows->factors; j++)
			if (i != j)
				*pair(rows, i, row[i], j, row[j]) = true;
	return true;
}

bool rows_next(struct rows *rows, int row[FACTORS_MOST])
{
	for (int f = 0; f < rows->factors; f++)
		for (int g = f + 1; g < rows->factors; g++)
			for (int a = 0; a < rows->levels[f]; a++)
				for (int b = 0; b < rows->levels[g]; b++)
					if (row_with(rows, row, f, a, g, b))
						return true;
	return false;
}
