/* SPDX-License-Identifier: BSD-3-Clause */
/* Where ranks go: --hosts and --hostfile as a list. */
#ifndef VERBENA_RUN_PLACES_H
#define VERBENA_RUN_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#define PLACES_MAX 1024	 /* hosts */
#define SLOTS_MAX  65536 /* ranks in all */
#define PLACE_NAME 256

struct place {
	char name[PLACE_NAME]; /* what the remote shell takes: user@host */
	int slots;
};

struct places {
	struct place *list;
	int n;
	int slots; /* of all */
	char why[384];
};

/*
 * Add what --hosts has: "a:2,b:2,[fe80::1]:4,gpu[01-08]:8"; without a number
 * one rank. -EINVAL, -ENOMEM: @why says what is wrong.
 */
int places_add(struct places *places, const char *text);
/* A file of lines "host", "host:N" or "host slots=N"; # begins a comment. */
int places_read(struct places *places, const char *path);
/* Only the first @n slots are used. */
void places_cut(struct places *places, int n);
void places_free(struct places *places);

#endif
