/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of hosts as Slurm writes them: "gpu[01-03,7],login,rack[1-2]n[1-2]". */
#ifndef VBN_HOSTLIST_H
#define VBN_HOSTLIST_H

#include <stddef.h>

#define HOSTLIST_NAME_MAX 256	/* of a name, with its end */
#define HOSTLIST_MAX	  65536 /* names of one list */

/*
 * Give each name to @each, in order. What is not zero of it ends the walk and
 * is returned. Brackets around a colon are an IPv6 address's: they stay.
 * -EINVAL: no such list (an empty name, a range that goes down, a bracket
 * without its other); -E2BIG: too many names, or a too long one. Names before
 * the fault have been given.
 */
int hostlist_each(const char *list, int (*each)(void *arg, const char *host),
		  void *arg);

/* The first name. 0, or as above. */
int hostlist_first(const char *list, char *host, size_t room);

#endif
