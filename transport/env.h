/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The VBN_* variables of the environment: one table says of each its type,
 * range, default and meaning; parsing, the error lines, what verbena-info
 * prints and docs/environment.md all come from it. A variable that is set to
 * nothing is not set.
 */
#ifndef VBN_ENV_H
#define VBN_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum env_type {
	ENV_TEXT,    /* choices: how it is written */
	ENV_NUMBER,  /* decimal, from min to max */
	ENV_HEX,     /* the same, or hexadecimal behind 0x */
	ENV_CHOICE,  /* one word of choices */
	ENV_DEVICES, /* see struct env_devices */
};

struct env_entry {
	const char *name;
	const char *group; /* the page's heading: set in a group's first */
	enum env_type type;
	long min, max;	      /* numbers */
	const char *choices;  /* words apart by spaces, or a text's form */
	const char *fallback; /* what holds when it is not set, for people */
	const char *help;     /* one line */
	const char *beyond;   /* why no more than max: for the error, or NULL */
	bool overridden; /* a caller's option may stand in: checked when used */
	bool secret;	 /* its value is never shown */
};

/* What VBN_IB_HCA says: devices that are wanted, or that are not. */
#define ENV_DEVICES_MAX 16
#define ENV_DEVICE_NAME 64

struct env_devices {
	struct {
		char name[ENV_DEVICE_NAME];
		int port; /* 0: any */
	} item[ENV_DEVICES_MAX];
	size_t n;
	bool excluded; /* these are the ones not to use */
};

const struct env_entry *env_table(size_t *n);
/* NULL: the table has none of that name. */
const struct env_entry *env_find(const char *name);
/* 0 if its value is good, or it is not set; else -EINVAL and vbn_error(). */
int env_check_one(const struct env_entry *e);

/* The value, or NULL if unset. Text that outlives the call as getenv()'s. */
const char *env_text(const char *name);

/*
 * Typed values of names in the table. 0 and the value; 0 and *value as it was
 * if unset; -EINVAL with vbn_error() naming variable, value and range. A
 * choice is the index of its word.
 */
int env_number(const char *name, long *value);
int env_choice(const char *name, int *value);
int env_devices(const char *name, struct env_devices *devices);

/*
 * Look at all variables before a job starts: -EINVAL for the first whose
 * value is bad, but for those that a caller's options may override. Logs a
 * warning for each VBN_* that no table row has, once in a process.
 */
int env_check(void);

/* Does anything of the project read it? If not: the likeliest, or NULL. */
bool env_known(const char *name);
const char *env_nearest(const char *name);

/* Each variable with its value, or default, for people at a terminal. */
void env_print(FILE *out);
/* docs/environment.md. */
void env_page(FILE *out);

#endif
